//! libFuzzer program for [`fuzz::bfd_sessions`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::bfd_sessions(data));
