//! libFuzzer program for [`fuzz::speaker`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::speaker(data));
