//! OPEN × OPEN → what the session may do (RFC 4271 §6.2 and the RFCs of the capabilities).

use alloc::{string::String, vec::Vec};

use bgp_proto::notification::open;
use bgp_proto::open::ExtendedNextHopEntry;
use bgp_proto::{
    AddPathMode, Asn, Capability, Family, FamilySet, GracefulRestart, Notification, Open, PeerKind,
    SessionParams,
};
use bytes::Bytes;

use crate::{PeerAs, SessionConfig};

/// The OPEN that a session of this configuration sends.
#[must_use]
pub fn open_of(config: &SessionConfig) -> Open {
    let mut capabilities: Vec<Capability> = config
        .families
        .iter()
        .map(Capability::MultiProtocol)
        .collect();
    capabilities.push(Capability::RouteRefresh);
    capabilities.push(Capability::EnhancedRouteRefresh);
    if config.extended_next_hop {
        capabilities.push(Capability::ExtendedNextHop(extended_next_hop()));
    }
    if config.extended_messages {
        capabilities.push(Capability::ExtendedMessage);
    }
    if let Some(graceful) = graceful_restart(config) {
        capabilities.push(Capability::GracefulRestart(graceful));
    }
    capabilities.push(Capability::FourOctetAsn(config.local_asn));
    let add_path = add_path_offer(config);
    if !add_path.is_empty() {
        capabilities.push(Capability::AddPath(add_path));
    }
    if let Some(hostname) = &config.hostname {
        capabilities.push(Capability::Fqdn {
            hostname: hostname.clone(),
            domain: String::new(),
        });
    }
    // RFC 6793 §4.1: a number of more than two octets is AS_TRANS in the fixed field.
    let asn = Asn(u32::from(config.local_asn.two_octet()));
    Open {
        asn,
        hold_time: config.hold_time_s,
        id: config.local_id,
        capabilities,
    }
}

/// What the peer's OPEN and our configuration settle, or the NOTIFICATION that refuses it.
pub fn negotiate(config: &SessionConfig, theirs: &Open) -> Result<SessionParams, Notification> {
    let (peer_asn, as4) = peer_asn(config, theirs)?;
    let kind = if peer_asn == config.local_asn {
        PeerKind::Internal
    } else {
        PeerKind::External
    };
    // RFC 4271 §6.2, RFC 6286 §2.2: an identifier is not zero, and inside one AS it is not ours.
    let own = theirs.id == config.local_id && kind == PeerKind::Internal;
    if theirs.id.is_zero() || own {
        return Err(open_error(open::BAD_BGP_IDENTIFIER));
    }
    // RFC 4271 §6.2: one or two seconds are refused.
    if matches!(theirs.hold_time, 1 | 2) {
        return Err(open_error(open::UNACCEPTABLE_HOLD_TIME));
    }
    let families = families(config, theirs)?;
    let (add_path_receive, add_path_send) = add_path(config, theirs, families);
    let has = |wanted: &Capability| theirs.capabilities.contains(wanted);
    Ok(SessionParams {
        local_asn: config.local_asn,
        peer_asn,
        local_id: config.local_id,
        peer_id: theirs.id,
        kind,
        hold_time_s: config.hold_time_s.min(theirs.hold_time), // RFC 4271 §4.2
        as4,
        families,
        add_path_receive,
        add_path_send,
        extended_messages: config.extended_messages && has(&Capability::ExtendedMessage),
        route_refresh: has(&Capability::RouteRefresh),
        enhanced_route_refresh: has(&Capability::EnhancedRouteRefresh),
        v4_mapped_next_hop: false,
        extended_next_hop: config.extended_next_hop && takes_extended_next_hop(theirs),
        peer_graceful: peer_graceful(theirs, families),
    })
}

/// An OPEN message error without data. RFC 4271 §6.2
fn open_error(subcode: u8) -> Notification {
    Notification::open_message(subcode, Bytes::new())
}

/// The peer's AS number and whether both sides speak four octets. RFC 6793 §4.1, RFC 7607 §2
fn peer_asn(config: &SessionConfig, theirs: &Open) -> Result<(Asn, bool), Notification> {
    let asn = theirs.real_asn();
    let four = |capability: &Capability| matches!(capability, Capability::FourOctetAsn(_));
    let expected = config.peer_asn.admits(asn, config.local_asn);
    let explicit = config.peer_asn == PeerAs::Exactly(asn);
    if asn.0 == 0 || !expected || (asn == Asn::TRANS && !explicit) {
        return Err(open_error(open::BAD_PEER_AS));
    }
    Ok((asn, theirs.capabilities.iter().any(four)))
}

/// The families of both sides. One without a row is nobody's. RFC 5492 §5: without a common family we would have nothing to say, so the
/// peer is told which capabilities we miss.
fn families(config: &SessionConfig, theirs: &Open) -> Result<FamilySet, Notification> {
    let common = config.families.intersection(theirs.families().collect());
    if common.is_empty() {
        return Err(Notification::open_message(
            open::UNSUPPORTED_CAPABILITY,
            missing(config.families),
        ));
    }
    Ok(common)
}

/// The multiprotocol capabilities of `families` as the data of a NOTIFICATION. RFC 5492 §5
fn missing(families: FamilySet) -> Bytes {
    let mut data = Vec::new();
    for family in families.iter() {
        let [high, low] = family.afi.to_be_bytes();
        data.extend_from_slice(&[1, 4, high, low, 0, family.safi]); // RFC 4760 §8
    }
    Bytes::from(data)
}

/// In which families we receive and send several paths per prefix. RFC 7911 §4: one side's
/// sending needs the other side's receiving.
fn add_path(config: &SessionConfig, theirs: &Open, families: FamilySet) -> (FamilySet, FamilySet) {
    let (mut receive, mut send) = (FamilySet::default(), FamilySet::default());
    for capability in &theirs.capabilities {
        let Capability::AddPath(offers) = capability else {
            continue;
        };
        for (family, mode) in offers {
            if mode.sends() && config.add_path_receive.contains(*family) {
                receive.insert(*family);
            }
            if mode.receives() && config.add_path_send.contains(*family) {
                send.insert(*family);
            }
        }
    }
    (receive.intersection(families), send.intersection(families))
}

/// What we offer for several paths per prefix.
fn add_path_offer(config: &SessionConfig) -> Vec<(Family, AddPathMode)> {
    let mode = |family| match (
        config.add_path_receive.contains(family),
        config.add_path_send.contains(family),
    ) {
        (true, true) => Some(AddPathMode::Both),
        (true, false) => Some(AddPathMode::Receive),
        (false, true) => Some(AddPathMode::Send),
        (false, false) => None,
    };
    config
        .families
        .iter()
        .filter_map(|family| Some((family, mode(family)?)))
        .collect()
}

/// IPv4 unicast routes with IPv6 next hops. RFC 8950 §4
fn extended_next_hop() -> Vec<ExtendedNextHopEntry> {
    let Family { afi, safi } = Family::IPV4_UNICAST;
    let next_hop_afi = Family::IPV6_UNICAST.afi;
    alloc::vec![ExtendedNextHopEntry {
        afi,
        safi: u16::from(safi),
        next_hop_afi
    }]
}

/// Whether the peer takes such routes.
fn takes_extended_next_hop(theirs: &Open) -> bool {
    theirs
        .capabilities
        .iter()
        .any(|capability| match capability {
            Capability::ExtendedNextHop(entries) => extended_next_hop()
                .iter()
                .all(|ours| entries.contains(ours)),
            _ => false,
        })
}

/// Our graceful restart capability. RFC 4724 §3, RFC 8538 §2
fn graceful_restart(config: &SessionConfig) -> Option<GracefulRestart> {
    let graceful = config.graceful_restart.as_ref()?;
    let families = config.families.iter();
    Some(GracefulRestart {
        restart_state: graceful.restarting,
        notification: true,
        time_s: graceful.time_s.min(GracefulRestart::TIME_S_MAX),
        families: families
            .map(|family| (family, graceful.families_forwarding.contains(family)))
            .collect(),
    })
}

/// The peer's graceful restart capability, cut down to the families of the session.
fn peer_graceful(theirs: &Open, families: FamilySet) -> Option<GracefulRestart> {
    // RFC 4724 §3: of several, only the last counts.
    let graceful = theirs
        .capabilities
        .iter()
        .rev()
        .find_map(|capability| match capability {
            Capability::GracefulRestart(graceful) => Some(graceful),
            _ => None,
        })?;
    let mut graceful = graceful.clone();
    graceful
        .families
        .retain(|(family, _)| families.contains(*family));
    Some(graceful)
}
