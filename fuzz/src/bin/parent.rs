//! libFuzzer program for [`fuzz::parent`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::parent(data));
