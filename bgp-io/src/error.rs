//! Errors of the driver's setup and configuration, with their remedies.

use std::io;
use std::net::SocketAddr;

use bgp_speaker::NeedsRestart;
use thiserror::Error;

use crate::limits::MD5_KEY_OCTETS_MAX;
use crate::scope::PeerScope;

/// Why a driver, a listener or a connection could not be set up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IoError {
    /// Another program uses the port.
    #[error(
        "cannot listen on {address}: the port is in use by another program \
         (`ss -lntp sport = :{}` shows which); stop it or set another `listen`",
        address.port()
    )]
    PortInUse {
        /// The configured address.
        address: SocketAddr,
    },
    /// The port needs a privilege.
    #[error(
        "cannot listen on {address}: ports below 1024 need the capability CAP_NET_BIND_SERVICE; \
         run as root, grant it with `setcap cap_net_bind_service+ep`, or set another `listen`"
    )]
    PortForbidden {
        /// The configured address.
        address: SocketAddr,
    },
    /// The machine does not have the address.
    #[error(
        "cannot listen on {address}: no interface of this machine has that address; check `listen`"
    )]
    NoSuchAddress {
        /// The configured address.
        address: SocketAddr,
    },
    /// The machine does not support the protocol.
    #[error(
        "cannot listen on {address}: this kernel has no IPv6; take the address out of `listen`"
    )]
    NoSuchProtocol {
        /// The configured address.
        address: SocketAddr,
    },
    /// Any other error of the kernel.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// A connection to a neighbor could not be opened.
    #[error("cannot connect to {address}: {error}")]
    Dial {
        /// The address of the neighbor.
        address: SocketAddr,
        /// The error of the kernel, or `TimedOut`.
        error: io::Error,
    },
    /// The TCP-MD5 key of a neighbor is too long.
    #[error(
        "the password of {scope} has {octets} octets: TCP-MD5 allows 1 to {MD5_KEY_OCTETS_MAX}"
    )]
    KeyLength {
        /// The neighbors of the key.
        scope: PeerScope,
        /// Length of the key.
        octets: usize,
    },
    /// The kernel accepts no more keys.
    #[error(
        "the kernel has no room for the password of {scope}, after {held} of {wanted} on one \
         socket: raise the sysctl net.core.optmem_max{}, or use a neighbor_range, which needs only \
         one key",
        advice(*.held, *.wanted, *.optmem_max)
    )]
    KeyRoom {
        /// The neighbors of the key.
        scope: PeerScope,
        /// Number of keys on the socket.
        held: usize,
        /// Number of wanted keys.
        wanted: usize,
        /// `net.core.optmem_max`, if it can be read.
        optmem_max: Option<u64>,
    },
    /// The kernel does not support keys.
    #[error("the kernel rejects the password of {scope}: {error} (it needs CONFIG_TCP_MD5SIG)")]
    Key {
        /// The neighbors of the key.
        scope: PeerScope,
        /// The kernel's error.
        error: io::Error,
    },
}

/// Returns the current limit and a sufficient one, estimated from the number of keys that it had
/// room for.
fn advice(held: usize, wanted: usize, optmem_max: Option<u64>) -> String {
    let Some(now) = optmem_max else {
        return String::new();
    };
    let (held, wanted) = (held as u64, wanted as u64);
    let enough = now
        .saturating_mul(wanted)
        .checked_div(held)
        .and_then(u64::checked_next_power_of_two);
    match enough {
        Some(enough) => format!(" from {now} to {enough}"),
        None => format!(" from {now}"),
    }
}

impl IoError {
    /// Converts an error of `bind` or `listen`.
    pub(crate) fn listen(address: SocketAddr, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EADDRINUSE) => Self::PortInUse { address },
            Some(libc::EACCES | libc::EPERM) => Self::PortForbidden { address },
            Some(libc::EADDRNOTAVAIL) => Self::NoSuchAddress { address },
            Some(libc::EAFNOSUPPORT) => Self::NoSuchProtocol { address },
            _ => Self::Listen { address, error },
        }
    }

    /// Checks the length of a key.
    pub(crate) fn check_key(scope: PeerScope, key: &str) -> Result<(), Self> {
        match key.len() {
            1..=MD5_KEY_OCTETS_MAX => Ok(()),
            octets => Err(Self::KeyLength { scope, octets }),
        }
    }

    /// Converts an error of setting a key.
    pub(crate) fn key(scope: PeerScope, octets: usize, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EINVAL) if octets == 0 || octets > MD5_KEY_OCTETS_MAX => {
                Self::KeyLength { scope, octets }
            }
            _ => Self::Key { scope, error },
        }
    }
}

/// Returns the kernel's memory limit for the options of one socket, if it can be read.
pub(crate) fn optmem_max() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/sys/net/core/optmem_max").ok()?;
    text.trim().parse().ok()
}

/// Why a new configuration was rejected.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReconfigureError {
    /// The change would affect the speaker's tables.
    #[error("{0}: restart the daemon")]
    NeedsRestart(#[source] NeedsRestart),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_a_remedy() {
        let address: SocketAddr = "192.0.2.1:179".parse().expect("an address");
        let listen =
            |code| IoError::listen(address, io::Error::from_raw_os_error(code)).to_string();
        assert!(listen(libc::EADDRINUSE).contains("ss -lntp sport = :179"));
        assert!(listen(libc::EACCES).contains("CAP_NET_BIND_SERVICE"));
        assert!(listen(libc::EADDRNOTAVAIL).contains("no interface"));
        let scope = PeerScope::neighbor(address.ip());
        let key = |code, octets| {
            IoError::key(scope, octets, io::Error::from_raw_os_error(code)).to_string()
        };
        assert!(key(libc::EINVAL, 81).contains("neighbor 192.0.2.1 has 81 octets"));
        assert!(key(libc::ENOPROTOOPT, 8).contains("CONFIG_TCP_MD5SIG"));
        let room = |held, optmem_max| {
            let error = IoError::KeyRoom {
                scope: PeerScope {
                    address: address.ip(),
                    prefix_len: 24,
                },
                held,
                wanted: 100,
                optmem_max,
            };
            error.to_string()
        };
        assert!(room(57, Some(8192)).contains("net.core.optmem_max from 8192 to 16384,"));
        assert!(room(57, None).contains("net.core.optmem_max, or"));
        assert!(room(0, Some(64)).contains("net.core.optmem_max from 64, or"));
        assert!(room(0, None).contains("of neighbor_range 192.0.2.1/24, after 0 of 100"));
    }
}
