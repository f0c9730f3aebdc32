//! The filter that the kernel applies before a packet waits in a socket.

use bfd::limits::TTL_SINGLE_HOP;
use socket2::SockFilter;

/// Returns a filter for the kernel that accepts packets with a time to live of 255, which no router has forwarded
/// (RFC 5881 §5, RFC 5082). Others take no room in the buffer, and wake no process.
pub(crate) fn of_this_link(is_ipv4: bool) -> [SockFilter; 4] {
    // Offsets of the field in both headers, from the start of the header.
    let field = if is_ipv4 { 8 } else { 7 };
    let header = libc::SKF_NET_OFF.cast_unsigned();
    let load = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let end = libc::BPF_RET | libc::BPF_K;
    let statement = |code: u32, skip: u8, value| SockFilter::new(code as u16, 0, skip, value);
    [
        statement(load, 0, header.wrapping_add(field)),
        statement(equals, 1, TTL_SINGLE_HOP.into()),
        statement(end, 0, u32::MAX),
        statement(end, 0, 0),
    ]
}
