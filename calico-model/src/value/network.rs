//! Networks in the data model's format: with a mask, or a single address for one host.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use super::serde_as_text;

/// An address with a mask, host bits kept: `10.20.1.7/24` is the address 10.20.1.7 in that network.
/// Without a mask it is parsed as a single host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network(pub IpNet);

serde_as_text!(Network, "an address or network such as \"10.65.3.70/32\"");

/// The text is not a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an address or network such as 10.65.3.70/32")]
pub struct NetworkError;

impl Network {
    /// Returns the address, including host bits.
    pub fn address(&self) -> IpAddr {
        self.0.addr()
    }

    /// Returns whether the mask leaves one address: /32 or /128.
    pub fn is_host(&self) -> bool {
        self.0.prefix_len() == self.0.max_prefix_len()
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        if text.contains('/') {
            return text.parse().map(Self).map_err(|_| NetworkError);
        }
        text.parse::<IpAddr>()
            .map(|address| Self(address.into()))
            .map_err(|_| NetworkError)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(address.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_may_be_missing_and_host_bits_stay() {
        assert_eq!(
            "10.65.3.70".parse::<Network>().unwrap().to_string(),
            "10.65.3.70/32"
        );
        assert_eq!(
            "fd65::3:70".parse::<Network>().unwrap().to_string(),
            "fd65::3:70/128"
        );
        let node: Network = "10.20.1.7/24".parse().unwrap();
        assert_eq!(
            (node.address().to_string().as_str(), node.is_host()),
            ("10.20.1.7", false)
        );
        for text in ["", "10.65.3", "10.65.3.70/33", "10.65.3.70/", "host"] {
            assert_eq!(text.parse::<Network>(), Err(NetworkError), "{text}");
        }
    }
}
