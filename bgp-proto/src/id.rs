//! BGP identifiers and cluster ids: four octets written like an IPv4 address.

use core::fmt;
use core::net::{AddrParseError, Ipv4Addr};
use core::str::FromStr;

macro_rules! dotted_id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Ipv4Addr);

        impl $name {
            /// Returns the four octets, most significant first.
            pub const fn octets(self) -> [u8; 4] {
                self.0.octets()
            }

            /// Returns whether all four octets are zero.
            pub const fn is_zero(self) -> bool {
                self.0.is_unspecified()
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self(Ipv4Addr::UNSPECIFIED)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = AddrParseError;

            fn from_str(text: &str) -> Result<Self, AddrParseError> {
                text.parse().map(Self)
            }
        }

        impl From<Ipv4Addr> for $name {
            fn from(value: Ipv4Addr) -> Self {
                Self(value)
            }
        }

        impl From<[u8; 4]> for $name {
            fn from(value: [u8; 4]) -> Self {
                Self(Ipv4Addr::from(value))
            }
        }

        impl From<u32> for $name {
            fn from(value: u32) -> Self {
                Self(Ipv4Addr::from(value))
            }
        }

        impl From<$name> for u32 {
            fn from(value: $name) -> Self {
                Self::from(value.0)
            }
        }
    };
}

dotted_id! {
    /// A BGP identifier: four octets, not zero, unique within an AS (RFC 6286). It compares as an
    /// unsigned number, as RFC 4271 §6.8 and §9.1.2.2 require.
    RouterId
}

dotted_id! {
    /// The id of a cluster of route reflectors (RFC 4456 §7).
    ClusterId
}

impl From<RouterId> for ClusterId {
    /// A reflector without a configured cluster id uses its BGP identifier (RFC 4456 §7).
    fn from(value: RouterId) -> Self {
        Self(value.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_as_a_number() {
        let low: RouterId = "9.255.255.255".parse().unwrap();
        let high: RouterId = "10.0.0.0".parse().unwrap();
        assert!(low < high);
        assert!(u32::from(low) < u32::from(high));
    }
}
