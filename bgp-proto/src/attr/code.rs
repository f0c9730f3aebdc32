//! Type codes and flags of path attributes.

use crate::enums::wire_enum;

/// The attribute is optional (RFC 4271 §4.3).
pub const FLAG_OPTIONAL: u8 = 0x80;
/// The attribute is passed on by speakers that do not support it (RFC 4271 §4.3).
pub const FLAG_TRANSITIVE: u8 = 0x40;
/// A speaker that does not support the attribute passed it on (RFC 4271 §4.3).
pub const FLAG_PARTIAL: u8 = 0x20;
/// The length has two octets (RFC 4271 §4.3).
pub const FLAG_EXTENDED_LENGTH: u8 = 0x10;

wire_enum! {
    /// Type code of a path attribute (IANA "BGP Path Attributes"). Codes with a row in
    /// `attr/table.rs` are typed, the others are carried as octets.
    pub struct AttrCode(u8) {
        /// Reserved; in a [`Fault`](crate::Fault): no attribute, the message's own fields.
        None = 0 => "NONE",
        /// RFC 4271 §5.1.1.
        Origin = 1 => "ORIGIN",
        /// RFC 4271 §5.1.2.
        AsPath = 2 => "AS_PATH",
        /// RFC 4271 §5.1.3.
        NextHop = 3 => "NEXT_HOP",
        /// RFC 4271 §5.1.4.
        Med = 4 => "MULTI_EXIT_DISC",
        /// RFC 4271 §5.1.5.
        LocalPref = 5 => "LOCAL_PREF",
        /// RFC 4271 §5.1.6.
        AtomicAggregate = 6 => "ATOMIC_AGGREGATE",
        /// RFC 4271 §5.1.7.
        Aggregator = 7 => "AGGREGATOR",
        /// RFC 1997.
        Communities = 8 => "COMMUNITIES",
        /// RFC 4456 §8.
        OriginatorId = 9 => "ORIGINATOR_ID",
        /// RFC 4456 §8.
        ClusterList = 10 => "CLUSTER_LIST",
        /// RFC 4760 §3.
        MpReachNlri = 14 => "MP_REACH_NLRI",
        /// RFC 4760 §4.
        MpUnreachNlri = 15 => "MP_UNREACH_NLRI",
        /// RFC 4360.
        ExtendedCommunities = 16 => "EXTENDED_COMMUNITIES",
        /// RFC 6793 §3.
        As4Path = 17 => "AS4_PATH",
        /// RFC 6793 §3.
        As4Aggregator = 18 => "AS4_AGGREGATOR",
        /// RFC 6514 §5.
        PmsiTunnel = 22 => "PMSI_TUNNEL",
        /// RFC 9012.
        TunnelEncapsulation = 23 => "TUNNEL_ENCAPSULATION",
        /// RFC 5543.
        TrafficEngineering = 24 => "TRAFFIC_ENGINEERING",
        /// RFC 5701.
        Ipv6ExtendedCommunities = 25 => "IPV6_EXTENDED_COMMUNITIES",
        /// RFC 7311.
        Aigp = 26 => "AIGP",
        /// RFC 6514 §6.
        PeDistinguisherLabels = 27 => "PE_DISTINGUISHER_LABELS",
        /// RFC 9552.
        BgpLs = 29 => "BGP_LS",
        /// RFC 8092.
        LargeCommunities = 32 => "LARGE_COMMUNITIES",
        /// RFC 8205.
        BgpsecPath = 33 => "BGPSEC_PATH",
        /// RFC 9234 §5.
        OnlyToCustomer = 35 => "ONLY_TO_CUSTOMER",
        /// RFC 9015.
        Sfp = 37 => "SFP",
        /// RFC 8669.
        PrefixSid = 40 => "PREFIX_SID",
        /// RFC 6368.
        AttrSet = 128 => "ATTR_SET",
    }
}

impl AttrCode {
    /// MP_REACH_NLRI under a shorter name.
    #[allow(non_upper_case_globals)]
    pub const MpReach: Self = Self::MpReachNlri;
    /// MP_UNREACH_NLRI under a shorter name.
    #[allow(non_upper_case_globals)]
    pub const MpUnreach: Self = Self::MpUnreachNlri;
}
