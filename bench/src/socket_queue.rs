//! The receive queue of one TCP socket, as the kernel's socket diagnosis (`NETLINK_SOCK_DIAG`) has it.
//! `/proc/net/tcp` has it too, but a read of it takes some milliseconds.

use std::net::SocketAddrV4;

use anyhow::{Context, Result};
use netlink::Requests;
use netlink_packet_core::NetlinkSerializable;
use nix::libc;

/// `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h.
const BY_FAMILY: u16 = 20;

/// `INET_DIAG_NOCOOKIE` of linux/inet_diag.h, twice.
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// Offset of `idiag_state` in `struct inet_diag_msg`, and its value for a listening socket.
const STATE: usize = 1;
const LISTEN: u8 = 10;

/// Offset of `idiag_rqueue` in `struct inet_diag_msg`.
const RECEIVE_QUEUE: usize = 56;

/// A way to the socket diagnosis of one network namespace.
pub(crate) struct SocketQueues(Requests);

impl SocketQueues {
    /// Opens it in the namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel gives no such netlink socket.
    pub(crate) fn open() -> Result<Self> {
        let requests = Requests::open(libc::NETLINK_SOCK_DIAG as isize);
        Ok(Self(requests.context("a NETLINK_SOCK_DIAG socket")?))
    }

    /// Returns how many octets the owner of a socket has not read.
    ///
    /// # Errors
    ///
    /// There is no connection with these addresses.
    pub(crate) fn unread(&mut self, local: SocketAddrV4, remote: SocketAddrV4) -> Result<u32> {
        let row = self.0.fetch(ByAddresses { local, remote });
        let row = row.context("the connection has ended")?;
        // Without the connection, the kernel finds the listening socket.
        let of_connection = row.filter(|row| row.payload.get(STATE) != Some(&LISTEN));
        let queue = of_connection.and_then(|row| {
            let octets = row.payload.get(RECEIVE_QUEUE..)?;
            octets.first_chunk().copied().map(u32::from_ne_bytes)
        });
        queue.context("no connection with a receive queue")
    }
}

/// A `struct inet_diag_req_v2` that names one connection.
#[derive(Clone, Copy)]
struct ByAddresses {
    local: SocketAddrV4,
    remote: SocketAddrV4,
}

impl ByAddresses {
    fn octets(self) -> Vec<u8> {
        let mut octets = vec![libc::AF_INET as u8, libc::IPPROTO_TCP as u8, 0, 0];
        // All states.
        octets.extend([0xff; 4]);
        octets.extend(self.local.port().to_be_bytes());
        octets.extend(self.remote.port().to_be_bytes());
        for address in [self.local.ip(), self.remote.ip()] {
            octets.extend(address.octets());
            octets.extend([0; 12]);
        }
        // Any interface.
        octets.extend([0; 4]);
        octets.extend(NO_COOKIE);
        octets
    }
}

impl NetlinkSerializable for ByAddresses {
    fn message_type(&self) -> u16 {
        BY_FAMILY
    }

    fn buffer_len(&self) -> usize {
        self.octets().len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.octets());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    fn v4(address: std::io::Result<SocketAddr>) -> SocketAddrV4 {
        match address.unwrap() {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(address) => panic!("{address}"),
        }
    }

    #[test]
    fn unread_octets_are_those_that_the_owner_has_not_read() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let (local, remote) = (v4(receiver.local_addr()), v4(sender.local_addr()));
        let mut queues = SocketQueues::open().unwrap();
        assert_eq!(queues.unread(local, remote).unwrap(), 0);

        sender.write_all(&[0; 19]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while queues.unread(local, remote).unwrap() != 19 {
            assert!(Instant::now() < deadline, "the octets did not arrive");
        }
        receiver.read_exact(&mut [0; 19]).unwrap();
        assert_eq!(queues.unread(local, remote).unwrap(), 0);

        let other = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        assert!(queues.unread(local, other).is_err());
    }
}
