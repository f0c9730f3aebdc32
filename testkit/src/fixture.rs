//! Speakers and OPENs to begin with: AS 64512, speaker `n` at 10.0.0.n.

use std::net::Ipv4Addr;

use bgp_proto::{Asn, Capability, Family, GracefulRestart, Net, Open, Prefix, RouterId};
use bgp_speaker::rib::Role;
use bgp_speaker::{PeerConfig, RangeConfig, SpeakerConfig};

/// The AS of all of them.
pub const ASN: Asn = Asn(64_512);

/// Returns 10.0.0.`number`.
///
/// # Panics
/// If the number is greater than 255.
#[must_use]
pub fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, u8::try_from(number).expect("at most 255"))
}

/// Returns a prefix of either family.
///
/// # Panics
/// If the text is no prefix.
#[must_use]
pub fn prefix(text: &str) -> Net<'static> {
    match text.parse() {
        Ok(Prefix::V4(prefix)) => Net::V4(prefix),
        Ok(Prefix::V6(prefix)) => Net::V6(prefix),
        Err(_) => panic!("{text} is no prefix"),
    }
}

/// Returns a speaker without peers, with the router id 10.0.0.`number`.
///
/// # Panics
/// If the number is greater than 255.
#[must_use]
pub fn speaker_config(number: usize) -> SpeakerConfig {
    SpeakerConfig::new(ASN, RouterId(address(number)))
}

/// Returns a neighbor of speaker `us`: 10.0.0.`them`, named `n` and its number.
///
/// # Panics
/// If one of the numbers is greater than 255.
#[must_use]
pub fn neighbor(us: usize, them: usize, role: Role) -> PeerConfig {
    let mut peer = speaker_config(us).neighbor(address(them).into(), role);
    peer.name = format!("n{them}");
    peer
}

/// Returns a range of speaker `us`, named `nodes`, that makes a client of any peer that dials from
/// 10.0.0.0/24.
///
/// # Panics
/// If `us` is greater than 255.
#[must_use]
pub fn clients(us: usize, limit: u16) -> RangeConfig {
    let prefix = Prefix::new(address(0).into(), 24).expect("a prefix");
    let mut range = RangeConfig::new(prefix, limit, neighbor(us, 0, Role::Client));
    range.name = "nodes".into();
    range
}

/// Returns the OPEN of a scripted peer with the BGP Identifier 10.0.0.`number`: both unicast
/// families and route refresh, a hold time of 90 seconds.
///
/// # Panics
/// If the number is greater than 255.
#[must_use]
pub fn open(number: usize) -> Open {
    Open {
        asn: ASN,
        hold_time: 90,
        id: RouterId(address(number)),
        capabilities: vec![
            Capability::MultiProtocol(Family::IPV4_UNICAST),
            Capability::MultiProtocol(Family::IPV6_UNICAST),
            Capability::RouteRefresh,
            Capability::EnhancedRouteRefresh,
            Capability::FourOctetAsn(ASN),
        ],
    }
}

/// Returns the same with graceful restart of IPv4 unicast within 60 seconds (RFC 4724 §3), as `edit`
/// leaves it.
///
/// # Panics
/// If the number is greater than 255.
#[must_use]
pub fn graceful_open(number: usize, edit: impl FnOnce(&mut GracefulRestart)) -> Open {
    let mut graceful = GracefulRestart {
        time_s: 60,
        families: vec![(Family::IPV4_UNICAST, true)],
        ..GracefulRestart::default()
    };
    edit(&mut graceful);
    let mut open = open(number);
    open.capabilities
        .push(Capability::GracefulRestart(graceful));
    open
}
