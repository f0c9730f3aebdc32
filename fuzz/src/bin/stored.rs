//! libFuzzer program for [`fuzz::stored`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::stored(data));
