//! libFuzzer program for [`fuzz::attributes`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::attributes(data));
