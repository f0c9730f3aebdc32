//! Destroys TCP sockets of this host whose connections are cut (`SOCK_DESTROY`): their programs get an
//! error instead of waiting.

use std::io;
use std::net::IpAddr;

use netlink::{Refused, Requests};
use netlink_packet_core::NetlinkSerializable;
use tracing::debug;

use crate::agent::Connection;

/// Netlink protocol of sockets.
const NETLINK_SOCK_DIAG: isize = 4;
/// `SOCK_DESTROY`.
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

/// Destroys sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    requests: Requests,
}

/// The request about one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request([u8; REQUEST_OCTETS]);

impl NetlinkSerializable for Request {
    fn message_type(&self) -> u16 {
        DESTROY
    }

    fn buffer_len(&self) -> usize {
        REQUEST_OCTETS
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.0);
    }
}

impl Request {
    /// Returns the request about the socket with these ends.
    fn of(own: (IpAddr, u16), other: (IpAddr, u16)) -> Self {
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
        // `INET_DIAG_NOCOOKIE`
        put(COOKIE_AT, &[0xff; 8]);
        Self(octets)
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
    pub(super) fn destroy(&mut self, connection: &Connection) {
        let Some((source_port, port)) = connection.ports.filter(|_| connection.protocol == TCP)
        else {
            return;
        };
        let ends = [
            (connection.source, source_port),
            (connection.destination, port),
        ];
        for (own, other) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            match self.requests.execute(Request::of(own, other), 0) {
                Ok(()) => {}
                // No end of it is a socket of this host.
                Err(Refused {
                    errno: libc::ENOENT,
                    ..
                }) => {}
                Err(cause) => debug!(%cause, "socket of a cut connection not destroyed"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_the_ends_of_the_socket() {
        let end = |text: &str, port| (text.parse().unwrap(), port);
        let Request(octets) = Request::of(end("10.0.0.1", 22), end("10.65.0.1", 4000));
        assert_eq!(octets[..4], [2, 6, 0, 0]);
        assert_eq!(octets[8..16], [0, 22, 0x0f, 0xa0, 10, 0, 0, 1]);
        assert_eq!(octets[28..32], [10, 65, 0, 1]);
        assert_eq!(octets[48..], [0xff; 8]);
        let Request(octets) = Request::of(end("fd00::1", 22), end("fd65::1", 4000));
        assert_eq!((octets[0], octets[12], octets[43]), (10, 0xfd, 1));
    }
}
