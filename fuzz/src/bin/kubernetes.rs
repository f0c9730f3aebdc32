//! libFuzzer program for [`fuzz::kubernetes`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::kubernetes(data));
