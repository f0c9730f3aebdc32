//! Addresses of peers: `10.20.1.254`, `10.20.1.254:1179`, `fd20::1`, `[fd20::1]:1179`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::str::FromStr;

use super::serde_as_text;

/// The address of a peer, and its port if given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerAddress {
    /// The address.
    pub address: IpAddr,
    /// The port; the default is that of the peer's own settings, otherwise 179.
    pub port: Option<NonZeroU16>,
}

serde_as_text!(
    PeerAddress,
    "an address with an optional port, such as \"10.20.1.254:179\" or \"[fd20::1]:179\""
);

/// The text is not an address of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an address with an optional port, such as 10.20.1.254:179 or [fd20::1]:179")]
pub struct PeerAddressError;

impl FromStr for PeerAddress {
    type Err = PeerAddressError;

    fn from_str(text: &str) -> Result<Self, PeerAddressError> {
        if let Ok(address) = text.parse() {
            return Ok(Self {
                address,
                port: None,
            });
        }
        // A zone is not supported: the peer is an address, not an address on an interface.
        let socket: SocketAddr = text.parse().map_err(|_| PeerAddressError)?;
        let zoned = matches!(socket, SocketAddr::V6(v6) if v6.scope_id() != 0);
        match NonZeroU16::new(socket.port()) {
            Some(port) if !zoned => Ok(Self {
                address: socket.ip(),
                port: Some(port),
            }),
            _ => Err(PeerAddressError),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.address, port.get()).fmt(f),
            None => self.address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_optional_and_ipv6_with_one_is_bracketed() {
        for text in [
            "10.20.1.254",
            "10.20.1.254:1179",
            "fd20::1",
            "[fd20::1]:179",
        ] {
            assert_eq!(text.parse::<PeerAddress>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "10.20.1",
            "10.20.1.254:",
            "10.20.1.254:0",
            "10.20.1.254:65536",
            "[fd20::1]",
            "fd20::1%eth0",
            "[fe80::1%2]:179",
            "tor.example:179",
            "10.20.1.254/32",
        ] {
            assert_eq!(text.parse::<PeerAddress>(), Err(PeerAddressError), "{text}");
        }
    }
}
