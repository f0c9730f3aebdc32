//! Capabilities as values.

use alloc::string::String;
use alloc::vec::Vec;

use crate::asn::Asn;
use crate::enums::wire_enum;
use crate::family::Family;

wire_enum! {
    /// Capability codes (IANA "Capability Codes").
    pub struct CapabilityCode(u8) {
        /// RFC 4760.
        MultiProtocol = 1 => "multiprotocol",
        /// RFC 2918.
        RouteRefresh = 2 => "route-refresh",
        /// RFC 5291.
        OutboundRouteFiltering = 3 => "outbound-route-filtering",
        /// RFC 8950.
        ExtendedNextHop = 5 => "extended-next-hop",
        /// RFC 8654.
        ExtendedMessage = 6 => "extended-message",
        /// RFC 9234.
        Role = 9 => "role",
        /// RFC 4724, RFC 8538.
        GracefulRestart = 64 => "graceful-restart",
        /// RFC 6793.
        FourOctetAsn = 65 => "four-octet-asn",
        /// Draft "Dynamic Capability".
        DynamicCapability = 67 => "dynamic-capability",
        /// RFC 7911.
        AddPath = 69 => "add-path",
        /// RFC 7313.
        EnhancedRouteRefresh = 70 => "enhanced-route-refresh",
        /// RFC 9494.
        LongLivedGracefulRestart = 71 => "long-lived-graceful-restart",
        /// Draft "Hostname Capability".
        Fqdn = 73 => "fqdn",
        /// Draft "BGP BFD Strict-Mode".
        BfdStrictMode = 74 => "bfd-strict-mode",
        /// Draft "Software Version Capability".
        SoftwareVersion = 75 => "software-version",
        /// Draft "Paths Limit for Multiple Paths".
        PathsLimit = 76 => "paths-limit",
        /// Draft "Link-Local Next Hop Capability".
        LinkLocalNextHop = 77 => "link-local-next-hop",
        /// Route refresh under the number it had before RFC 2918.
        RouteRefreshPreStandard = 128 => "route-refresh-pre-standard",
        /// Route filtering under the number it had before RFC 5291.
        OutboundRouteFilteringPreStandard = 130 => "outbound-route-filtering-pre-standard",
    }
}

/// One capability of an OPEN (RFC 5492 §4).
///
/// A known code with a value that its RFC does not allow is kept as [`Capability::Unknown`]: RFC
/// 5492 defines no error for it, and it has the effect of a missing one.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// The sender carries this family (RFC 4760 §8).
    MultiProtocol(Family),
    /// The sender supports ROUTE-REFRESH (RFC 2918 §2).
    RouteRefresh,
    /// The same under its old code 128.
    RouteRefreshPreStandard,
    /// The sender takes or sends route filters (RFC 5291 §5).
    OutboundRouteFiltering(Vec<OrfEntry>),
    /// The sender takes IPv6 next hops for these families (RFC 8950 §4).
    ExtendedNextHop(Vec<ExtendedNextHopEntry>),
    /// The sender takes messages of up to 65535 octets (RFC 8654 §3).
    ExtendedMessage,
    /// The role of the sender towards the receiver (RFC 9234 §4.1).
    Role(BgpRole),
    /// The sender can restart without losing its forwarding state (RFC 4724 §3).
    GracefulRestart(GracefulRestart),
    /// The sender's AS number in four octets (RFC 6793 §4.1).
    FourOctetAsn(Asn),
    /// The sender can change these capabilities without a new session.
    DynamicCapability(Vec<CapabilityCode>),
    /// The sender takes or sends several paths for a prefix (RFC 7911 §4).
    AddPath(Vec<(Family, AddPathMode)>),
    /// The sender marks the borders of a refresh (RFC 7313 §3.1).
    EnhancedRouteRefresh,
    /// The sender keeps stale routes for long (RFC 9494 §3.1).
    LongLivedGracefulRestart(Vec<LongLivedEntry>),
    /// The sender's name; for people only.
    Fqdn {
        /// Host name without the domain.
        hostname: String,
        /// Domain; often empty.
        domain: String,
    },
    /// The sender waits for BFD before the session is established (draft-ietf-idr-bgp-bfd-strict-mode §5).
    BfdStrictMode,
    /// Name and version of the sender's software; for people only.
    SoftwareVersion(String),
    /// Most paths a prefix that the sender wants, a family each.
    PathsLimit(Vec<(Family, u16)>),
    /// The sender takes a link-local next hop alone.
    LinkLocalNextHop,
    /// Any other code, or a value that could not be read.
    Unknown {
        /// The code.
        code: u8,
        /// The value as it came.
        data: Vec<u8>,
    },
}

impl Capability {
    /// Returns the capability's code.
    pub const fn code(&self) -> CapabilityCode {
        match self {
            Self::MultiProtocol(_) => CapabilityCode::MultiProtocol,
            Self::RouteRefresh => CapabilityCode::RouteRefresh,
            Self::RouteRefreshPreStandard => CapabilityCode::RouteRefreshPreStandard,
            Self::OutboundRouteFiltering(_) => CapabilityCode::OutboundRouteFiltering,
            Self::ExtendedNextHop(_) => CapabilityCode::ExtendedNextHop,
            Self::ExtendedMessage => CapabilityCode::ExtendedMessage,
            Self::Role(_) => CapabilityCode::Role,
            Self::GracefulRestart(_) => CapabilityCode::GracefulRestart,
            Self::FourOctetAsn(_) => CapabilityCode::FourOctetAsn,
            Self::DynamicCapability(_) => CapabilityCode::DynamicCapability,
            Self::AddPath(_) => CapabilityCode::AddPath,
            Self::EnhancedRouteRefresh => CapabilityCode::EnhancedRouteRefresh,
            Self::LongLivedGracefulRestart(_) => CapabilityCode::LongLivedGracefulRestart,
            Self::Fqdn { .. } => CapabilityCode::Fqdn,
            Self::BfdStrictMode => CapabilityCode::BfdStrictMode,
            Self::SoftwareVersion(_) => CapabilityCode::SoftwareVersion,
            Self::PathsLimit(_) => CapabilityCode::PathsLimit,
            Self::LinkLocalNextHop => CapabilityCode::LinkLocalNextHop,
            Self::Unknown { code, .. } => CapabilityCode(*code),
        }
    }
}

wire_enum! {
    /// The role of a BGP speaker towards its neighbor (RFC 9234 §4.1).
    pub struct BgpRole(u8) {
        /// Gives transit.
        Provider = 0 => "provider",
        /// Route server of an exchange.
        RouteServer = 1 => "route-server",
        /// Client of a route server.
        RouteServerClient = 2 => "route-server-client",
        /// Gets transit.
        Customer = 3 => "customer",
        /// Exchanges its own and its customers' routes.
        Peer = 4 => "peer",
    }
}

/// Graceful restart as a speaker advertises it (RFC 4724 §3, RFC 8538 §2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GracefulRestart {
    /// The sender has restarted: do not wait for its End-of-RIB (the R flag).
    pub restart_state: bool,
    /// The sender restarts gracefully after NOTIFICATIONs too (the N flag, RFC 8538).
    pub notification: bool,
    /// The restart time of the session, in seconds; 12 bits.
    pub time_s: u16,
    /// Families that take part, and whether the sender kept forwarding for them (the F flag).
    pub families: Vec<(Family, bool)>,
}

impl GracefulRestart {
    /// Longest restart time that the capability can carry, in seconds.
    pub const TIME_S_MAX: u16 = 0x0fff;
}

/// The directions in which several paths of a prefix may be sent, seen from the sender (RFC 7911
/// §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddPathMode {
    /// It takes them.
    Receive,
    /// It sends them.
    Send,
    /// Both.
    Both,
}

impl AddPathMode {
    /// Returns the mode of a wire value. With a value other than 1 to 3, the capability is not
    /// understood.
    pub const fn from_wire(value: u8) -> Option<Self> {
        match value {
            1 => Some(Self::Receive),
            2 => Some(Self::Send),
            3 => Some(Self::Both),
            _ => None,
        }
    }

    /// Returns the wire value.
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::Receive => 1,
            Self::Send => 2,
            Self::Both => 3,
        }
    }

    /// Returns whether the sender takes several paths.
    pub const fn receives(self) -> bool {
        matches!(self, Self::Receive | Self::Both)
    }

    /// Returns whether the sender sends several paths.
    pub const fn sends(self) -> bool {
        matches!(self, Self::Send | Self::Both)
    }
}

/// A family with next hops that may be of another AFI (RFC 8950 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtendedNextHopEntry {
    /// The routes' AFI.
    pub afi: u16,
    /// The routes' SAFI, in two octets here.
    pub safi: u16,
    /// The next hop's AFI.
    pub next_hop_afi: u16,
}

/// Long-lived graceful restart for one family (RFC 9494 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LongLivedEntry {
    /// The family.
    pub family: Family,
    /// Whether the sender kept forwarding for it (the F flag).
    pub forwarding: bool,
    /// How long stale routes may be kept, in seconds; 24 bits.
    pub stale_time_s: u32,
}

impl LongLivedEntry {
    /// The longest stale time, in seconds: 24 bits.
    pub const STALE_TIME_S_MAX: u32 = 0x00ff_ffff;
}

/// Route filters for one family (RFC 5291 §5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OrfEntry {
    /// The family.
    pub family: Family,
    /// Filter types with the direction of each.
    pub types: Vec<(u8, OrfMode)>,
}

wire_enum! {
    /// The directions in which route filters may be sent, seen from the sender (RFC 5291 §5).
    pub struct OrfMode(u8) {
        /// It takes filters.
        Receive = 1 => "receive",
        /// It sends filters.
        Send = 2 => "send",
        /// Both.
        Both = 3 => "both",
    }
}
