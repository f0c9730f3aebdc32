//! One listening socket.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::gtsm::Guard;
use crate::keys::{Keyless, Keyring};
use crate::sockets::Rules;
use crate::{IoError, sockets};

/// A listening socket.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    /// The configured address, perhaps with any free port.
    pub(crate) wanted: SocketAddr,
    /// The actual address.
    pub(crate) address: SocketAddr,
    /// Its TCP-MD5 keys.
    pub(crate) keys: Keyring,
    /// Its filter for GTSM.
    pub(crate) guard: Guard,
}

impl Listener {
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
}
