//! Creation of sockets: listening and connecting ones.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use socket2::{SockRef, Socket};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::filter::Source;
use crate::gtsm::{Guard, secure_ttl, set_ttl_max};
use crate::keys::{Keyless, Keyring, Keys};
use crate::limits::BACKLOG;
use crate::sockopt::{clear_ttl_security, set_md5_key, set_prompt_repeats};
use crate::{Bind, IoError, bind};

/// The rules for connections to a listening socket.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'r> {
    /// The keys.
    pub(crate) keys: &'r Keys,
    /// The sources with GTSM.
    pub(crate) sources: &'r [Source],
    /// Binds the ports for which this process lacks the permission.
    pub(crate) binder: Option<&'r dyn Bind>,
}

/// Opens a listening socket; returns it with its keys. An IPv6 socket accepts IPv6 only, so that an
/// IPv4 socket may have the same port.
pub(crate) fn listen(
    address: SocketAddr,
    rules: Rules<'_>,
    keyless: &mut Keyless,
) -> Result<(TcpListener, Keyring, Guard), IoError> {
    let mut keyring = Keyring::default();
    let mut guard = Guard::default();
    let mut open = || -> io::Result<TcpListener> {
        let socket = match (bind(address), rules.binder) {
            (Err(error), Some(binder)) if error.kind() == io::ErrorKind::PermissionDenied => {
                binder.bind(address)?
            }
            (bound, _) => bound?,
        };
        let socket = Socket::from(socket);
        socket.set_nonblocking(true)?;
        // This socket already sends the answer to the SYN of a neighbor with GTSM.
        set_ttl_max(&socket, address.is_ipv4())?;
        // Before any connection can arrive.
        guard.set(&socket, address.is_ipv4(), rules.sources);
        guard.fresh = false;
        keyring.set(&socket, address.is_ipv4(), rules.keys, keyless);
        keyring.fresh.clear();
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    let socket = open().map_err(|error| IoError::listen(address, error))?;
    Ok((socket, keyring, guard))
}

/// Accepts a connection that waits on a listening socket, whether the runtime was notified of it
/// yet or not.
pub(crate) fn accept_now(socket: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, remote) = SockRef::from(socket).accept()?;
    stream.set_nonblocking(true)?;
    let remote = remote
        .as_socket()
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
    Ok((TcpStream::from_std(stream.into())?, remote))
}

/// Opens a socket that is ready to connect to `remote`.
pub(crate) fn dialing(
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
    set_prompt_repeats(&socket);
    if let Some(password) = password {
        set_password(&socket, remote.ip(), password)?;
    }
    if let Some(hops) = ttl_security_hops {
        secure_ttl(&socket, ipv4, hops)?;
    }
    if let Some(local) = local {
        socket.bind(SocketAddr::new(local, 0))?;
    }
    Ok(socket)
}

/// Sets the key on an accepted connection; see [`Guard::admit`] for GTSM.
pub(crate) fn secure_accepted(
    stream: &TcpStream,
    remote: SocketAddr,
    password: Option<&str>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    set_prompt_repeats(stream);
    match password {
        Some(password) => set_password(stream, remote.ip(), password),
        None => Ok(()),
    }
}

/// Changes key and GTSM of a connection; either may be removed.
pub(crate) fn secure(
    stream: &TcpStream,
    remote: SocketAddr,
    ttl_security_hops: Option<u8>,
    password: Option<&str>,
) -> io::Result<()> {
    let ipv4 = remote.is_ipv4();
    match password {
        Some(password) => set_password(stream, remote.ip(), password)?,
        None => set_md5_key(stream, remote.ip(), if ipv4 { 32 } else { 128 }, &[])?,
    }
    match ttl_security_hops {
        Some(hops) => secure_ttl(stream, ipv4, hops),
        // A connection without GTSM keeps the greatest TTL for sending.
        None => clear_ttl_security(stream, ipv4),
    }
}

/// Sets the key of one neighbor. The kernel takes an empty key for a removal.
pub(crate) fn set_password(socket: &impl AsFd, remote: IpAddr, password: &str) -> io::Result<()> {
    if password.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let prefix_len = if remote.is_ipv4() { 32 } else { 128 };
    set_md5_key(socket, remote, prefix_len, password.as_bytes())
}
