//! libFuzzer program for [`fuzz::bfd_session`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::bfd_session(data));
