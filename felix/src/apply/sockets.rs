//! Destroys TCP sockets of this host whose connections are cut (`SOCK_DESTROY`): their programs get an
//! error instead of waiting.
//!
//! For the ends of a connection without a socket, the kernel finds a listening socket of the port. So each
//! socket is read first, compared, and destroyed by its cookie.

use std::io;
use std::net::IpAddr;

use netlink::attributes::{address, number_16};
use netlink::{Refused, Requests};
use netlink_packet_core::NetlinkSerializable;

use crate::agent::Connection;

/// Netlink protocol of sockets.
const NETLINK_SOCK_DIAG: isize = 4;
/// `SOCK_DIAG_BY_FAMILY`, `SOCK_DESTROY`.
const READ: u16 = 20;
const DESTROY: u16 = 21;
const TCP: u8 = 6;
/// `AF_INET`, `AF_INET6`.
const FAMILIES: [u8; 2] = [2, 10];
/// Octets of `struct inet_diag_req_v2`, and its fields.
const REQUEST_OCTETS: usize = 56;
const STATES_AT: usize = 4;
const SOURCE_PORT_AT: usize = 8;
const PORT_AT: usize = 10;
const SOURCE_AT: usize = 12;
const DESTINATION_AT: usize = 28;
const COOKIE_AT: usize = 48;
const COOKIE_OCTETS: usize = 8;
/// `INET_DIAG_NOCOOKIE`.
const ANY_COOKIE: Cookie = [0xff; COOKIE_OCTETS];
/// Fields of `struct inet_diag_msg`.
const STATE_AT: usize = 1;
const OWN_PORT_AT: usize = 4;
const OTHER_PORT_AT: usize = 6;
const OWN_AT: usize = 8;
const OTHER_AT: usize = 24;
const FOUND_COOKIE_AT: usize = 44;
/// The states with a connection of a program: `TCP_ESTABLISHED`, `TCP_SYN_SENT`, `TCP_FIN_WAIT1`,
/// `TCP_FIN_WAIT2`, `TCP_CLOSE_WAIT`, `TCP_LAST_ACK`, `TCP_CLOSING`. Left out: a request that a program has
/// not accepted yet, `TCP_TIME_WAIT`, `TCP_CLOSE` and `TCP_LISTEN`.
const CONNECTED: [u8; 7] = [1, 2, 4, 5, 8, 9, 11];

/// An end of a connection.
type End = (IpAddr, u16);
/// The kernel's number of a socket.
type Cookie = [u8; COOKIE_OCTETS];

/// Destroys sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    requests: Requests,
}

/// The request about one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    kind: u16,
    octets: [u8; REQUEST_OCTETS],
}

impl NetlinkSerializable for Request {
    fn message_type(&self) -> u16 {
        self.kind
    }

    fn buffer_len(&self) -> usize {
        REQUEST_OCTETS
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.octets);
    }
}

impl Request {
    /// Returns the request of this kind about the socket with these ends and this cookie.
    fn of(kind: u16, own: End, other: End, cookie: Cookie) -> Self {
        let mut octets = [0; REQUEST_OCTETS];
        let mut put = |at: usize, value: &[u8]| {
            if let Some(place) = octets.get_mut(at..at + value.len()) {
                place.copy_from_slice(value);
            }
        };
        let [v4, v6] = FAMILIES;
        put(0, &[if own.0.is_ipv4() { v4 } else { v6 }, TCP]);
        put(STATES_AT, &[0xff; 4]);
        for (port_at, address_at, (address, port)) in [
            (SOURCE_PORT_AT, SOURCE_AT, own),
            (PORT_AT, DESTINATION_AT, other),
        ] {
            put(port_at, &port.to_be_bytes());
            match address {
                IpAddr::V4(v4) => put(address_at, &v4.octets()),
                IpAddr::V6(v6) => put(address_at, &v6.octets()),
            }
        }
        put(COOKIE_AT, &cookie);
        Self { kind, octets }
    }
}

impl Sockets {
    /// Opens a socket in the network namespace of the calling thread.
    pub(super) fn open() -> io::Result<Self> {
        let requests = Requests::open(NETLINK_SOCK_DIAG)?;
        Ok(Self { requests })
    }

    /// Destroys the sockets of a connection of which an end is this host. Other protocols than TCP are
    /// left: the kernel would find a socket that serves all clients.
    ///
    /// # Errors
    ///
    /// The first socket that the kernel does not read or destroy.
    pub(super) fn destroy(&mut self, connection: &Connection) -> Result<(), Refused> {
        let Some((source_port, port)) = connection.ports.filter(|_| connection.protocol == TCP)
        else {
            return Ok(());
        };
        let ends = [
            (connection.source, source_port),
            (connection.destination, port),
        ];
        let outcomes = [(ends[0], ends[1]), (ends[1], ends[0])]
            .map(|(own, other)| unless_missing(self.destroy_at(own, other)));
        outcomes.into_iter().collect()
    }

    fn destroy_at(&mut self, own: End, other: End) -> Result<(), Refused> {
        let row = self
            .requests
            .fetch(Request::of(READ, own, other, ANY_COOKIE))?;
        let cookie = row.and_then(|row| connected(&row.payload, own, other));
        match cookie {
            Some(cookie) => self
                .requests
                .execute(Request::of(DESTROY, own, other, cookie), 0),
            None => Ok(()),
        }
    }
}

/// Returns the outcome; a missing socket is none. `ESTALE`: another one was found than the one that was read.
fn unless_missing(outcome: Result<(), Refused>) -> Result<(), Refused> {
    match outcome {
        Err(cause) if [libc::ENOENT, libc::ESTALE].contains(&cause.errno) => Ok(()),
        outcome => outcome,
    }
}

/// Returns the cookie of a socket if it is connected, and has exactly these ends.
fn connected(found: &[u8], own: End, other: End) -> Option<Cookie> {
    let end = |address_at: usize, port_at: usize, is_v4: bool| {
        let port = number_16(found.get(port_at..)?)?;
        let octets = if is_v4 { 4 } else { 16 };
        let address = address(found.get(address_at..address_at + octets)?)?;
        Some((address.to_canonical(), port))
    };
    let [v4, _] = FAMILIES;
    let is_v4 = *found.first()? == v4;
    let is_it = end(OWN_AT, OWN_PORT_AT, is_v4)? == own
        && end(OTHER_AT, OTHER_PORT_AT, is_v4)? == other
        && CONNECTED.contains(found.get(STATE_AT)?);
    let cookie = found.get(FOUND_COOKIE_AT..)?.first_chunk()?;
    is_it.then_some(*cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str, port: u16) -> End {
        (text.parse().unwrap(), port)
    }

    #[test]
    fn request_has_the_ends_of_the_socket() {
        let of = |own, other| Request::of(READ, own, other, ANY_COOKIE).octets;
        let octets = of(end("10.0.0.1", 22), end("10.65.0.1", 4000));
        assert_eq!(octets[..4], [2, 6, 0, 0]);
        assert_eq!(octets[8..16], [0, 22, 0x0f, 0xa0, 10, 0, 0, 1]);
        assert_eq!(octets[28..32], [10, 65, 0, 1]);
        assert_eq!(octets[48..], [0xff; 8]);
        let octets = of(end("fd00::1", 22), end("fd65::1", 4000));
        assert_eq!((octets[0], octets[12], octets[43]), (10, 0xfd, 1));
    }

    #[test]
    fn only_a_connected_socket_of_both_ends_has_a_cookie() {
        let (own, other) = (end("10.0.0.1", 22), end("10.65.0.1", 4000));
        let mut found = vec![0; 72];
        found[..8].copy_from_slice(&[2, 1, 0, 0, 0, 22, 0x0f, 0xa0]);
        found[8..12].copy_from_slice(&[10, 0, 0, 1]);
        found[24..28].copy_from_slice(&[10, 65, 0, 1]);
        found[44..52].copy_from_slice(&[7; 8]);
        assert_eq!(connected(&found, own, other), Some([7; 8]));
        assert_eq!(connected(&found, other, own), None);
        for len in 0..52 {
            assert_eq!(connected(&found[..len], own, other), None);
        }
        // A request, TIME_WAIT, CLOSE, LISTEN.
        for state in [3, 6, 7, 10, 12] {
            found[1] = state;
            assert_eq!(connected(&found, own, other), None);
        }
        found[1] = 1;
        // An IPv6 socket with IPv4 addresses.
        let mapped = |n: u8| [[0; 10].as_slice(), &[0xff, 0xff, 10], &[n, 0, 1]].concat();
        found[0] = 10;
        found[8..24].copy_from_slice(&mapped(0));
        found[24..40].copy_from_slice(&mapped(65));
        assert_eq!(connected(&found, own, other), Some([7; 8]));
        // The other end of a listening socket is unspecified.
        found[24..40].fill(0);
        assert_eq!(connected(&found, own, other), None);
    }
}
