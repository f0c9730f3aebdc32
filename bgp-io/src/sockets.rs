//! Making sockets: listening and dialling ones.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bgp_speaker::SpeakerConfig;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::IoError;
use crate::limits::BACKLOG;
use crate::sockopt::{clear_ttl_security, set_md5_key, set_ttl_security};

/// The TTL of GTSM's senders (RFC 5082 §3).
const TTL_MAX: u32 = 255;

/// Whether anyone who may dial us wants GTSM.
pub(crate) fn wants_ttl_security(config: &SpeakerConfig) -> bool {
    let peers = config.peers.iter().map(|peer| peer.ttl_security_hops);
    let ranges = config
        .ranges
        .iter()
        .map(|range| range.template.ttl_security_hops);
    peers.chain(ranges).any(|hops| hops.is_some())
}

/// A listening socket. An IPv6 one takes IPv6 only, so that both may have the same port.
pub(crate) fn listen(address: SocketAddr, ttl_security: bool) -> Result<TcpListener, IoError> {
    let open = || -> io::Result<TcpListener> {
        let domain = Domain::for_address(address);
        let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if ttl_security {
            // The answer to a dial is sent by this socket already.
            set_ttl_max(&socket, address.is_ipv4())?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    open().map_err(|error| IoError::listen(address, error))
}

/// A socket that is ready to connect to `remote`.
pub(crate) fn dialling(
    remote: SocketAddr,
    local: Option<IpAddr>,
    ttl_security_hops: Option<u8>,
    password: Option<&str>,
) -> io::Result<TcpSocket> {
    let ipv4 = remote.is_ipv4();
    let socket = if ipv4 {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_nodelay(true)?;
    if let Some(password) = password {
        set_md5_key(
            &socket,
            remote.ip(),
            if ipv4 { 32 } else { 128 },
            password.as_bytes(),
        )?;
    }
    if let Some(hops) = ttl_security_hops {
        secure_ttl(&socket, ipv4, hops)?;
    }
    if let Some(local) = local {
        socket.bind(SocketAddr::new(local, 0))?;
    }
    Ok(socket)
}

/// Another key and another GTSM on a connection than before; either may be none.
pub(crate) fn secure(
    stream: &TcpStream,
    remote: SocketAddr,
    ttl_security_hops: Option<u8>,
    password: Option<&str>,
) -> io::Result<()> {
    let ipv4 = remote.is_ipv4();
    let key = password.unwrap_or_default().as_bytes();
    set_md5_key(stream, remote.ip(), if ipv4 { 32 } else { 128 }, key)?;
    match ttl_security_hops {
        Some(hops) => secure_ttl(stream, ipv4, hops),
        // To send with the greatest TTL does no harm.
        None => clear_ttl_security(stream, ipv4),
    }
}

/// GTSM on a socket: we send with the greatest TTL and take only what came at most `hops` far.
/// RFC 5082 §3
pub(crate) fn secure_ttl(socket: &impl std::os::fd::AsFd, ipv4: bool, hops: u8) -> io::Result<()> {
    set_ttl_max(&SockRef::from(socket), ipv4)?;
    set_ttl_security(socket, ipv4, hops)
}

/// What a listening socket sends travels as far as GTSM wants.
pub(crate) fn send_far(socket: &TcpListener, ipv4: bool) -> io::Result<()> {
    set_ttl_max(&SockRef::from(socket), ipv4)
}

fn set_ttl_max(socket: &Socket, ipv4: bool) -> io::Result<()> {
    if ipv4 {
        socket.set_ttl_v4(TTL_MAX)
    } else {
        socket.set_unicast_hops_v6(TTL_MAX)
    }
}
