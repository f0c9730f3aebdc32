//! libFuzzer program for [`fuzz::nexthop`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::nexthop(data));
