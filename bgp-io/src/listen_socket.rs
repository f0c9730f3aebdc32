//! One listening socket, and the check of the connections that it accepts.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bgp_speaker::Password;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use crate::gtsm::{self, Distance, Guard};
use crate::keys::{Keyless, Keyring};
use crate::sockets::{self, Rules, secure_accepted};
use crate::{IoError, PeerScope};

/// A listening socket.
pub(crate) struct ListenSocket {
    pub(crate) socket: TcpListener,
    /// Where it was to listen: perhaps on any free port.
    pub(crate) wanted: SocketAddr,
    /// Where it does.
    pub(crate) address: SocketAddr,
    /// The TCP-MD5 keys it has.
    pub(crate) keys: Keyring,
    /// Its filter for GTSM.
    pub(crate) guard: Guard,
}

/// The requirements for a connection.
#[derive(Clone, Copy)]
pub(crate) struct Required<'r> {
    /// The TCP-MD5 key.
    pub(crate) password: Option<&'r Password>,
    /// The distance for GTSM.
    pub(crate) ttl_security_hops: Option<u8>,
    /// The longest configured range that covers its remote address.
    pub(crate) range: Option<PeerScope>,
}

/// Why a connection is not as secure as it must be.
#[derive(Debug)]
pub(crate) enum Insecure {
    /// It may be unsigned.
    Unsigned,
    /// An option could not be set.
    Option(io::Error),
    /// It fails GTSM.
    TooFar(Distance),
}

impl Insecure {
    /// Has the close of a connection that fails GTSM reset it: the acknowledgment of a FIN would come
    /// from as far away, and be dropped.
    pub(crate) fn reset_if_far(&self, stream: &TcpStream) {
        if let Self::TooFar(_) = self {
            let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
        }
    }
}

impl ListenSocket {
    pub(crate) fn open(
        wanted: SocketAddr,
        rules: Rules<'_>,
        keyless: &mut Keyless,
    ) -> Result<Self, IoError> {
        let (socket, keys, guard) = sockets::listen(wanted, rules, keyless)?;
        let address = socket.local_addr().unwrap_or(wanted);
        Ok(Self {
            socket,
            wanted,
            address,
            keys,
            guard,
        })
    }

    /// Checks an accepted connection and sets its options.
    pub(crate) fn secure(
        &self,
        stream: &TcpStream,
        remote: SocketAddr,
        required: Required<'_>,
    ) -> Result<(), Insecure> {
        let Required {
            password, range, ..
        } = required;
        let vouches = |key| self.keys.vouches(remote.ip(), range, key);
        if !password.is_none_or(vouches) {
            return Err(Insecure::Unsigned);
        }
        let key = password.map(|key| &**key);
        secure_accepted(stream, remote, key).map_err(Insecure::Option)?;
        if let Some(hops) = required.ttl_security_hops {
            let admitted = self.guard.admit(stream, remote, hops);
            admitted.map_err(Insecure::TooFar)?;
        }
        gtsm::release(stream);
        Ok(())
    }
}
