//! libFuzzer program for [`fuzz::recorded`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::recorded(data));
