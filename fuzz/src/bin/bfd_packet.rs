//! libFuzzer program for [`fuzz::bfd_packet`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::bfd_packet(data));
