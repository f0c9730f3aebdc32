//! Communities of four octets (RFC 1997).

use core::fmt;

/// A community (RFC 1997). Prints as "high:low", well-known values by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Community(pub u32);

/// Well-known communities with the names in which they are written (IANA "BGP Well-known
/// Communities").
const NAMES: &[(Community, &str)] = &[
    (Community::GRACEFUL_SHUTDOWN, "graceful-shutdown"),
    (Community::ACCEPT_OWN, "accept-own"),
    (Community::LLGR_STALE, "llgr-stale"),
    (Community::NO_LLGR, "no-llgr"),
    (Community::BLACKHOLE, "blackhole"),
    (Community::NO_EXPORT, "no-export"),
    (Community::NO_ADVERTISE, "no-advertise"),
    (Community::NO_EXPORT_SUBCONFED, "no-export-subconfed"),
    (Community::NO_PEER, "no-peer"),
];

impl Community {
    /// Traffic should move away: the sender will shut down (RFC 8326).
    pub const GRACEFUL_SHUTDOWN: Self = Self(0xffff_0000);
    /// RFC 7611.
    pub const ACCEPT_OWN: Self = Self(0xffff_0001);
    /// The route is stale for long (RFC 9494 §3.2).
    pub const LLGR_STALE: Self = Self(0xffff_0006);
    /// Do not keep the route when it is stale for long (RFC 9494 §3.2).
    pub const NO_LLGR: Self = Self(0xffff_0007);
    /// Drop the traffic (RFC 7999).
    pub const BLACKHOLE: Self = Self(0xffff_029a);
    /// Do not send outside the confederation (RFC 1997).
    pub const NO_EXPORT: Self = Self(0xffff_ff01);
    /// Do not advertise to any peer (RFC 1997).
    pub const NO_ADVERTISE: Self = Self(0xffff_ff02);
    /// Do not send outside the AS or member AS (RFC 1997).
    pub const NO_EXPORT_SUBCONFED: Self = Self(0xffff_ff03);
    /// RFC 3765.
    pub const NO_PEER: Self = Self(0xffff_ff04);

    /// Returns the community "high:low".
    pub const fn new(high: u16, low: u16) -> Self {
        Self((high as u32) << 16 | low as u32)
    }

    /// Returns the upper half, usually an AS number.
    pub const fn high(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Returns the lower half.
    pub const fn low(self) -> u16 {
        self.0 as u16
    }

    /// Returns the name of a well-known community.
    pub fn name(self) -> Option<&'static str> {
        NAMES
            .iter()
            .find(|(community, _)| *community == self)
            .map(|(_, name)| *name)
    }

    /// Returns the well-known community of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        NAMES
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(community, _)| *community)
    }
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "{}:{}", self.high(), self.low()),
        }
    }
}
