//! Makes the host receive neighbor solicitations for the IPv6 gateway from the first one on.
//!
//! The kernel joins an address's solicited-node group (RFC 4291 §2.7.1) some time after it has
//! accepted the address: a kernel worker does it, once it gets a lock that the daemon itself keeps
//! busy. A solicitation that arrives earlier is lost, and the workload repeats it a whole second
//! later (RFC 4861 §10, RETRANS_TIMER). A socket's join is complete when the call returns; the
//! socket is a member until the worker has joined.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

/// How long a socket replaces the membership of the kernel itself.
const STAND_IN: Duration = Duration::from_secs(5);

/// Memberships of the socket that replace those of the kernel.
#[derive(Debug)]
pub(super) struct SolicitedGroup {
    socket: Socket,
    group: Ipv6Addr,
    joined: VecDeque<(Instant, u32)>,
}

impl SolicitedGroup {
    /// Opens a socket for the group of this address, in the network namespace of the calling
    /// thread. The socket is bound to no port, so it cannot receive anything.
    ///
    /// # Errors
    ///
    /// The kernel has no IPv6.
    pub(super) fn open(address: Ipv6Addr) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, None)?;
        let group = group_of(address);
        Ok(Self {
            socket,
            group,
            joined: VecDeque::new(),
        })
    }

    /// Joins the group on an interface, for a limited time.
    ///
    /// # Errors
    ///
    /// The kernel rejects it, for example because the socket has too many memberships. Then only an
    /// early solicitation may be lost.
    pub(super) fn join(&mut self, interface: u32, now: Instant) -> io::Result<()> {
        while let Some((since, joined)) = self.joined.front()
            && now.duration_since(*since) > STAND_IN
        {
            // The membership of a removed interface no longer exists; another error has no
            // consequence.
            let _ = self.socket.leave_multicast_v6(&self.group, *joined);
            self.joined.pop_front();
        }
        if self.joined.iter().any(|(_, joined)| *joined == interface) {
            return Ok(());
        }
        self.socket.join_multicast_v6(&self.group, interface)?;
        self.joined.push_back((now, interface));
        Ok(())
    }
}

/// Returns the solicited-node group (RFC 4291 §2.7.1): ff02::1:ff00:0/104 and the last 24 bits of
/// the address.
fn group_of(address: Ipv6Addr) -> Ipv6Addr {
    const PREFIX: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
    Ipv6Addr::from_bits(PREFIX | (address.to_bits() & 0x00ff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_an_address() {
        let group = |text: &str| group_of(text.parse().unwrap()).to_string();
        assert_eq!(group("fe80::1"), "ff02::1:ff00:1");
        // The example of RFC 4291 §2.7.1.
        assert_eq!(group("4037::1:800:200e:8c6c"), "ff02::1:ff0e:8c6c");
    }
}
