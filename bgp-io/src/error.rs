//! Why the driver cannot do what its configuration says, and what to do about it.

use std::io;
use std::net::{IpAddr, SocketAddr};

use bgp_speaker::NeedsRestart;
use thiserror::Error;

use crate::limits::MD5_KEY_OCTETS_MAX;

/// Why a driver could not be set up.
#[derive(Debug, Error)]
pub enum IoError {
    /// Another program has the port.
    #[error(
        "cannot listen on {address}: the port is in use by another program \
         (`ss -lntp sport = :{}` shows which); stop it or set another `listen`",
        address.port()
    )]
    PortInUse {
        /// Where we wanted to listen.
        address: SocketAddr,
    },
    /// The port is for the privileged.
    #[error(
        "cannot listen on {address}: ports below 1024 need the capability CAP_NET_BIND_SERVICE; \
         run as root, grant it with `setcap cap_net_bind_service+ep`, or set another `listen`"
    )]
    PortForbidden {
        /// Where we wanted to listen.
        address: SocketAddr,
    },
    /// The address is not ours.
    #[error(
        "cannot listen on {address}: no interface of this machine has that address; check `listen`"
    )]
    NoSuchAddress {
        /// Where we wanted to listen.
        address: SocketAddr,
    },
    /// The machine has no such protocol.
    #[error(
        "cannot listen on {address}: this kernel has no IPv6; take the address out of `listen`"
    )]
    NoSuchProtocol {
        /// Where we wanted to listen.
        address: SocketAddr,
    },
    /// Anything else the kernel may say.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where we wanted to listen.
        address: SocketAddr,
        /// What the kernel said.
        error: io::Error,
    },
    /// The key of a neighbor is too long.
    #[error(
        "the password for {remote} has {octets} octets: TCP-MD5 allows 1 to {MD5_KEY_OCTETS_MAX}"
    )]
    KeyLength {
        /// The neighbor.
        remote: IpAddr,
        /// How long the key is.
        octets: usize,
    },
    /// The kernel takes no more keys.
    #[error(
        "the kernel has no room for the password of {remote}: raise the sysctl net.core.optmem_max, \
         or use a neighbor_range, which needs only one key"
    )]
    KeyRoom {
        /// The neighbor.
        remote: IpAddr,
    },
    /// The kernel does not take keys.
    #[error(
        "the kernel does not take a password for {remote}: {error} (it needs CONFIG_TCP_MD5SIG)"
    )]
    Key {
        /// The neighbor.
        remote: IpAddr,
        /// What the kernel said.
        error: io::Error,
    },
}

impl IoError {
    /// What a failure to listen means.
    pub(crate) fn listen(address: SocketAddr, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EADDRINUSE) => Self::PortInUse { address },
            Some(libc::EACCES | libc::EPERM) => Self::PortForbidden { address },
            Some(libc::EADDRNOTAVAIL) => Self::NoSuchAddress { address },
            Some(libc::EAFNOSUPPORT) => Self::NoSuchProtocol { address },
            _ => Self::Listen { address, error },
        }
    }

    /// What a failure to set a key means.
    pub(crate) fn key(remote: IpAddr, octets: usize, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOMEM) => Self::KeyRoom { remote },
            Some(libc::EINVAL) if octets == 0 || octets > MD5_KEY_OCTETS_MAX => {
                Self::KeyLength { remote, octets }
            }
            _ => Self::Key { remote, error },
        }
    }
}

/// Why a new configuration was not taken, or not in full.
#[derive(Debug, Error)]
pub enum ReconfigureError {
    /// The speaker would become another one.
    #[error("`{}` cannot change while running: restart the daemon", .0.key())]
    NeedsRestart(NeedsRestart),
    /// The sockets would not have it.
    #[error(transparent)]
    Io(#[from] IoError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_says_what_to_do() {
        let address: SocketAddr = "192.0.2.1:179".parse().expect("an address");
        let listen =
            |code| IoError::listen(address, io::Error::from_raw_os_error(code)).to_string();
        assert!(listen(libc::EADDRINUSE).contains("ss -lntp sport = :179"));
        assert!(listen(libc::EACCES).contains("CAP_NET_BIND_SERVICE"));
        assert!(listen(libc::EADDRNOTAVAIL).contains("no interface"));
        let key = |code, octets| {
            IoError::key(address.ip(), octets, io::Error::from_raw_os_error(code)).to_string()
        };
        assert!(key(libc::ENOMEM, 8).contains("net.core.optmem_max"));
        assert!(key(libc::EINVAL, 81).contains("81 octets"));
        assert!(key(libc::ENOPROTOOPT, 8).contains("CONFIG_TCP_MD5SIG"));
    }
}
