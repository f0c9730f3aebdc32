//! Sockets that are bound by another process.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::{fmt, io};

use socket2::{Domain, Protocol, Socket, Type};

/// Binds sockets for a process that may not: another process with `CAP_NET_BIND_SERVICE` does.
pub trait Bind: fmt::Debug + Send + Sync {
    /// Returns a TCP socket that is bound to the address and does not listen yet, as of [`bind`].
    ///
    /// # Errors
    ///
    /// The address cannot be bound, or is refused.
    fn bind(&self, address: SocketAddr) -> io::Result<OwnedFd>;
}

/// Binds a TCP socket. It has `SO_REUSEADDR`, and an IPv6 socket is for IPv6 only, so that an IPv4 socket
/// may have the same port.
///
/// # Errors
///
/// The address cannot be bound.
pub fn bind(address: SocketAddr) -> io::Result<OwnedFd> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}
