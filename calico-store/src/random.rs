//! Random octets from the kernel.

use std::fs::File;
use std::io::{self, Read};

/// Returns this many random octets.
pub fn octets<const N: usize>() -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut octets)?;
    Ok(octets)
}
