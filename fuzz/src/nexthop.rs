//! Messages of the kernel about nexthop objects: any octets are an object or rejected.

use fib_sync::nexthop::{Request, parse, request};

/// Octets of the header of a netlink message.
const HEADER: usize = 16;

/// Parses an object. An object that can be written reads the same.
pub fn nexthop(data: &[u8]) {
    let Some(nexthop) = parse(data) else { return };
    assert_ne!(nexthop.id, 0);
    if let Some(message) = request(Request::Create(&nexthop), 1) {
        let read = parse(message.get(HEADER..).unwrap_or_default());
        let again = read.and_then(|read| request(Request::Create(&read), 1));
        assert_eq!(again, Some(message));
    }
}
