//! IPv4 and IPv6 prefixes; their host bits are always clear.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

macro_rules! prefix {
    ($(#[$meta:meta])* $name:ident, $addr:ty, $bits:ty, $len_max:literal, $net:ty) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            addr: $addr,
            len: u8,
        }

        impl $name {
            /// The prefix that covers every address.
            pub const DEFAULT: Self = Self { addr: <$addr>::UNSPECIFIED, len: 0 };
            /// Longest prefix length, in bits.
            pub const LEN_MAX: u8 = $len_max;

            /// Returns the prefix of `len` bits that contains `addr`; `None` if `len` is too long.
            pub const fn new(addr: $addr, len: u8) -> Option<Self> {
                if len > $len_max {
                    return None;
                }
                let mask = match <$bits>::MAX.checked_shl($len_max - len as u32) {
                    Some(mask) => mask,
                    None => 0,
                };
                Some(Self { addr: <$addr>::from_bits(addr.to_bits() & mask), len })
            }

            /// Returns the prefix of one address.
            pub const fn host(addr: $addr) -> Self {
                Self { addr, len: $len_max }
            }

            /// Returns the first address; its host bits are clear.
            pub const fn addr(&self) -> $addr {
                self.addr
            }

            /// Returns the length in bits.
            #[allow(clippy::len_without_is_empty)]
            pub const fn len(&self) -> u8 {
                self.len
            }

            /// Returns whether the prefix contains `addr`.
            pub const fn contains(&self, addr: $addr) -> bool {
                match Self::new(addr, self.len) {
                    Some(other) => other.addr.to_bits() == self.addr.to_bits(),
                    None => false,
                }
            }

            /// Returns whether `other` is the same prefix or one inside it.
            pub const fn covers(&self, other: &Self) -> bool {
                self.len <= other.len && self.contains(other.addr)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if f.width().is_some() {
                    return f.pad(&alloc::format!("{}/{}", self.addr, self.len));
                }
                write!(f, "{}/{}", self.addr, self.len)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = PrefixError;

            /// Reads "address/length"; host bits are cleared.
            fn from_str(text: &str) -> Result<Self, PrefixError> {
                let (addr, len) = text.split_once('/').ok_or(PrefixError)?;
                let addr = addr.parse().map_err(|_| PrefixError)?;
                let len = parse_len(len)?;
                Self::new(addr, len).ok_or(PrefixError)
            }
        }

        impl From<$net> for $name {
            fn from(net: $net) -> Self {
                Self { addr: net.network(), len: net.prefix_len() }
            }
        }

        impl From<$name> for $net {
            fn from(prefix: $name) -> Self {
                Self::new_assert(prefix.addr, prefix.len)
            }
        }
    };
}

prefix! {
    /// An IPv4 prefix; host bits are always clear, so equal prefixes are equal values.
    Ipv4Prefix, Ipv4Addr, u32, 32, Ipv4Net
}

prefix! {
    /// An IPv6 prefix; host bits are always clear, so equal prefixes are equal values.
    Ipv6Prefix, Ipv6Addr, u128, 128, Ipv6Net
}

/// A prefix of either IP version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prefix {
    /// IPv4.
    V4(Ipv4Prefix),
    /// IPv6.
    V6(Ipv6Prefix),
}

impl Prefix {
    /// Returns the prefix of `len` bits that contains `addr`; `None` if `len` is too long.
    pub const fn new(addr: IpAddr, len: u8) -> Option<Self> {
        match addr {
            IpAddr::V4(addr) => match Ipv4Prefix::new(addr, len) {
                Some(prefix) => Some(Self::V4(prefix)),
                None => None,
            },
            IpAddr::V6(addr) => match Ipv6Prefix::new(addr, len) {
                Some(prefix) => Some(Self::V6(prefix)),
                None => None,
            },
        }
    }

    /// Returns the first address; its host bits are clear.
    pub const fn addr(&self) -> IpAddr {
        match self {
            Self::V4(prefix) => IpAddr::V4(prefix.addr()),
            Self::V6(prefix) => IpAddr::V6(prefix.addr()),
        }
    }

    /// Returns the length in bits.
    #[allow(clippy::len_without_is_empty)]
    pub const fn len(&self) -> u8 {
        match self {
            Self::V4(prefix) => prefix.len(),
            Self::V6(prefix) => prefix.len(),
        }
    }

    /// Returns whether `addr` is of the same IP version and the prefix contains it.
    pub const fn contains(&self, addr: IpAddr) -> bool {
        match (self, addr) {
            (Self::V4(prefix), IpAddr::V4(addr)) => prefix.contains(addr),
            (Self::V6(prefix), IpAddr::V6(addr)) => prefix.contains(addr),
            _ => false,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(prefix) => fmt::Display::fmt(prefix, f),
            Self::V6(prefix) => fmt::Display::fmt(prefix, f),
        }
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (addr, len) = text.split_once('/').ok_or(PrefixError)?;
        let addr: IpAddr = addr.parse().map_err(|_| PrefixError)?;
        Self::new(addr, parse_len(len)?).ok_or(PrefixError)
    }
}

impl From<Ipv4Prefix> for Prefix {
    fn from(prefix: Ipv4Prefix) -> Self {
        Self::V4(prefix)
    }
}

impl From<Ipv6Prefix> for Prefix {
    fn from(prefix: Ipv6Prefix) -> Self {
        Self::V6(prefix)
    }
}

impl From<IpNet> for Prefix {
    fn from(net: IpNet) -> Self {
        match net {
            IpNet::V4(net) => Self::V4(net.into()),
            IpNet::V6(net) => Self::V6(net.into()),
        }
    }
}

impl From<Prefix> for IpNet {
    fn from(prefix: Prefix) -> Self {
        match prefix {
            Prefix::V4(prefix) => Self::V4(prefix.into()),
            Prefix::V6(prefix) => Self::V6(prefix.into()),
        }
    }
}

/// The text is not a prefix in the form "address/length".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixError;

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a prefix: write it as address/length, like 10.65.0.0/26 or fd65::/64")
    }
}

impl core::error::Error for PrefixError {}

fn parse_len(text: &str) -> Result<u8, PrefixError> {
    if text.is_empty() || !text.bytes().all(|octet| octet.is_ascii_digit()) {
        return Err(PrefixError);
    }
    text.parse().map_err(|_| PrefixError)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn clears_host_bits() {
        let one: Ipv4Prefix = "10.0.0.1/24".parse().unwrap();
        let two: Ipv4Prefix = "10.0.0.254/24".parse().unwrap();
        assert_eq!(one, two);
        assert_eq!(one.to_string(), "10.0.0.0/24");
        let six: Prefix = "2001:db8::1/32".parse().unwrap();
        assert_eq!(six.to_string(), "2001:db8::/32");
        assert_eq!(
            Ipv4Prefix::new(Ipv4Addr::BROADCAST, 0),
            Some(Ipv4Prefix::DEFAULT)
        );
        assert_eq!(
            Ipv6Prefix::new(Ipv6Addr::LOCALHOST, 0),
            Some(Ipv6Prefix::DEFAULT)
        );
    }

    #[test]
    fn refuses_nonsense() {
        for bad in [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "::/129",
            "x/1",
            "10.0.0.0/",
        ] {
            assert_eq!(bad.parse::<Prefix>(), Err(PrefixError), "{bad}");
        }
    }

    #[test]
    fn converts_both_ways() {
        let net: IpNet = "10.1.2.3/16".parse().unwrap();
        let prefix = Prefix::from(net);
        assert_eq!(prefix.to_string(), "10.1.0.0/16");
        assert_eq!(IpNet::from(prefix), net.trunc());
    }

    #[test]
    fn prefixes_take_at_most_18_octets() {
        assert_eq!(size_of::<Ipv4Prefix>(), 5);
        assert_eq!(size_of::<Ipv6Prefix>(), 17);
        assert_eq!(size_of::<Prefix>(), 18);
    }
}
