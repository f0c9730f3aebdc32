//! Negotiation: two OPENs determine the parameters of the session (RFC 4271 §6.2 and the RFCs of
//! the capabilities).

use alloc::{string::String, vec::Vec};

use bgp_proto::notification::open;
use bgp_proto::open::ExtendedNextHopEntry;
use bgp_proto::{
    AddPathMode, Asn, Capability, Family, FamilySet, GracefulRestart, LongLivedEntry, Notification,
    Open, PeerKind, SessionParams,
};
use bytes::Bytes;

use crate::{PeerAs, SessionConfig};

/// Returns the OPEN of a session with this configuration.
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
    if config.bfd_strict {
        capabilities.push(Capability::BfdStrictMode);
    }
    if let Some(graceful) = graceful_restart(config) {
        capabilities.push(Capability::GracefulRestart(graceful));
        let long_lived = long_lived(config);
        if !long_lived.is_empty() {
            capabilities.push(Capability::LongLivedGracefulRestart(long_lived));
        }
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

/// Returns the result of the peer's OPEN and the local configuration, or the NOTIFICATION that
/// rejects it.
pub fn negotiate(config: &SessionConfig, theirs: &Open) -> Result<SessionParams, Notification> {
    let (peer_asn, as4) = peer_asn(config, theirs)?;
    let kind = if peer_asn == config.local_asn {
        PeerKind::Internal
    } else {
        PeerKind::External
    };
    // RFC 4271 §6.2, RFC 6286 §2.2: an identifier is not zero, and inside one AS it differs from
    // the local one.
    let own = theirs.id == config.local_id && kind == PeerKind::Internal;
    if theirs.id.is_zero() || own {
        return Err(open_error(open::BAD_BGP_IDENTIFIER));
    }
    // RFC 4271 §6.2: one or two seconds must be rejected, and longer times may be.
    if (1..config.min_hold_time_s.max(3)).contains(&theirs.hold_time) {
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
        // RFC 8654 §4: the local OPEN determines what is received, the peer's OPEN what is sent.
        extended_receive: config.extended_messages,
        extended_send: config.extended_messages && has(&Capability::ExtendedMessage),
        route_refresh: has(&Capability::RouteRefresh),
        enhanced_route_refresh: has(&Capability::EnhancedRouteRefresh),
        v4_mapped_next_hop: false,
        extended_next_hop: config.extended_next_hop && takes_extended_next_hop(theirs),
        peer_graceful: peer_graceful(config, theirs, families),
        peer_long_lived: peer_long_lived(theirs, families),
    })
}

/// Returns an OPEN message error without data. RFC 4271 §6.2
fn open_error(subcode: u8) -> Notification {
    Notification::open_message(subcode, Bytes::new())
}

/// Returns the peer's AS number and whether both sides support four octets. RFC 6793 §4.1, RFC 7607
/// §2
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

/// Returns the families of both sides; unsupported ones are ignored. RFC 5492 §5: without a common
/// family the NOTIFICATION lists the missing capabilities.
fn families(config: &SessionConfig, theirs: &Open) -> Result<FamilySet, Notification> {
    let offered = config.families;
    let common = offered.intersection(theirs.families().collect());
    if common.is_empty() {
        return Err(Notification::open_message(
            open::UNSUPPORTED_CAPABILITY,
            missing(offered),
        ));
    }
    Ok(common)
}

/// Returns the multiprotocol capabilities of `families` as the data of a NOTIFICATION. RFC 5492 §5
fn missing(families: FamilySet) -> Bytes {
    let mut data = Vec::new();
    for family in families.iter() {
        let [high, low] = family.afi.to_be_bytes();
        data.extend_from_slice(&[1, 4, high, low, 0, family.safi]); // RFC 4760 §8
    }
    Bytes::from(data)
}

/// Returns the families in which several paths per prefix are received and sent. RFC 7911 §4: one
/// side's sending needs the other side's receiving.
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
            if mode.receives() && sends_paths(config, *family) {
                send.insert(*family);
            }
        }
    }
    (receive.intersection(families), send.intersection(families))
}

/// Returns whether several paths per prefix are sent if the peer receives them. Of the paths of a route
/// target membership, RFC 4684 §3.2 determines the one that is sent.
fn sends_paths(config: &SessionConfig, family: Family) -> bool {
    config.add_path_send.contains(family) && family != Family::ROUTE_TARGET
}

/// Returns the offer for several paths per prefix.
fn add_path_offer(config: &SessionConfig) -> Vec<(Family, AddPathMode)> {
    let mode = |family| match (
        config.add_path_receive.contains(family),
        sends_paths(config, family),
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

/// Returns the offer of IPv4 unicast routes with IPv6 next hops. RFC 8950 §4
fn extended_next_hop() -> Vec<ExtendedNextHopEntry> {
    let Family { afi, safi } = Family::IPV4_UNICAST;
    let next_hop_afi = Family::IPV6_UNICAST.afi;
    alloc::vec![ExtendedNextHopEntry {
        afi,
        safi: u16::from(safi),
        next_hop_afi
    }]
}

/// Returns whether the peer accepts such routes.
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

/// Returns the local graceful restart capability. RFC 4724 §3, RFC 8538 §2
fn graceful_restart(config: &SessionConfig) -> Option<GracefulRestart> {
    let graceful = config.graceful_restart.as_ref()?;
    let families = config.families;
    Some(GracefulRestart {
        restart_state: graceful.restarting,
        notification: config.graceful_notification,
        time_s: graceful.time_s.min(GracefulRestart::TIME_S_MAX),
        families: families
            .iter()
            .map(|family| (family, graceful.families_forwarding.contains(family)))
            .collect(),
    })
}

/// Returns the peer's graceful restart capability, restricted to the families of the session. Its N bit
/// is set if both sides set it (RFC 8538 §2).
fn peer_graceful(
    config: &SessionConfig,
    theirs: &Open,
    families: FamilySet,
) -> Option<GracefulRestart> {
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
    graceful.notification &= config.graceful_notification;
    graceful
        .families
        .retain(|(family, _)| families.contains(*family));
    Some(graceful)
}

/// Returns the local long-lived graceful restart capability. RFC 9494 §3.1
fn long_lived(config: &SessionConfig) -> Vec<LongLivedEntry> {
    let Some(graceful) = &config.graceful_restart else {
        return Vec::new(); // RFC 9494 §4.1
    };
    let times = config.long_lived_stale_time_s.iter();
    let offered = times.filter(|(family, _)| config.families.contains(**family));
    let entry = |(&family, &time_s): (&Family, &u32)| LongLivedEntry {
        family,
        forwarding: graceful.families_forwarding.contains(family),
        stale_time_s: time_s.min(LongLivedEntry::STALE_TIME_S_MAX),
    };
    offered.map(entry).collect()
}

/// Returns the peer's long-lived graceful restart capability, restricted to the families of the
/// session. RFC 9494 §4.5: it is ignored without the graceful restart capability.
fn peer_long_lived(theirs: &Open, families: FamilySet) -> Option<Vec<LongLivedEntry>> {
    let is_graceful = |of: &Capability| matches!(of, Capability::GracefulRestart(_));
    if !theirs.capabilities.iter().any(is_graceful) {
        return None;
    }
    let last = theirs.capabilities.iter().rev().find_map(|of| match of {
        Capability::LongLivedGracefulRestart(entries) => Some(entries),
        _ => None,
    })?;
    let mut entries: Vec<LongLivedEntry> = Vec::new();
    for entry in last.iter().filter(|entry| families.contains(entry.family)) {
        entries.retain(|other| other.family != entry.family);
        entries.push(*entry);
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GracefulRestartConfig;
    use alloc::vec;
    use bgp_proto::RouterId;

    fn config(asn: u32, last: u8) -> SessionConfig {
        SessionConfig {
            local_asn: Asn(asn),
            local_id: RouterId::from([192, 0, 2, last]),
            peer_asn: PeerAs::Any,
            families: FamilySet::UNICAST,
            ..SessionConfig::default()
        }
    }

    /// Returns what `a` negotiates with the OPEN that `b` sends.
    fn meet(a: &SessionConfig, b: &SessionConfig) -> Result<SessionParams, u8> {
        negotiate(a, &open_of(b)).map_err(|notification| {
            assert_eq!(notification.code, 2);
            notification.subcode
        })
    }

    #[test]
    fn both_sides_negotiate_the_same_values() {
        let a = SessionConfig {
            hold_time_s: 30,
            extended_messages: true,
            add_path_receive: Family::IPV4_UNICAST.into(),
            extended_next_hop: true,
            ..config(4_200_000_000, 1)
        };
        let b = SessionConfig {
            families: [Family::IPV4_UNICAST, Family::L2VPN_EVPN]
                .into_iter()
                .collect(),
            extended_messages: true,
            add_path_send: FamilySet::all(),
            add_path_receive: FamilySet::all(),
            ..config(64512, 2)
        };
        let (ab, ba) = (meet(&a, &b).unwrap(), meet(&b, &a).unwrap());
        assert_eq!((ab.peer_asn, ba.peer_asn), (Asn(64512), Asn(4_200_000_000)));
        assert_eq!((ab.kind, ba.kind), (PeerKind::External, PeerKind::External));
        assert_eq!((ab.hold_time_s, ba.hold_time_s), (30, 30));
        assert_eq!(
            (ab.families, ba.families),
            (Family::IPV4_UNICAST.into(), ab.families)
        );
        assert_eq!(
            (ab.add_path_receive, ab.add_path_send),
            (ab.families, FamilySet::EMPTY)
        );
        assert_eq!(
            (ba.add_path_receive, ba.add_path_send),
            (FamilySet::EMPTY, ab.families)
        );
        assert!(ab.as4 && ab.route_refresh && ab.enhanced_route_refresh);
        for side in [&ab, &ba] {
            let limits = (side.receive_octets_max(), side.send_octets_max());
            assert_eq!(limits, (65_535, 65_535));
        }
        assert!(
            !ab.extended_next_hop && !ba.extended_next_hop,
            "only one side offers it"
        );
    }

    #[test]
    fn several_paths_are_not_sent_of_route_targets() {
        let families: FamilySet = [Family::IPV4_VPN, Family::ROUTE_TARGET]
            .into_iter()
            .collect();
        let both = |asn, last| SessionConfig {
            families,
            add_path_send: families,
            add_path_receive: families,
            ..config(asn, last)
        };
        let (ours, theirs) = (both(64512, 1), both(64513, 2));
        let mut open = open_of(&theirs);
        for capability in &mut open.capabilities {
            if let Capability::AddPath(offers) = capability {
                let modes = [AddPathMode::Both, AddPathMode::Receive];
                let expected: Vec<_> = families.iter().zip(modes).collect();
                assert_eq!(*offers, expected);
                offers
                    .iter_mut()
                    .for_each(|(_, mode)| *mode = AddPathMode::Both);
            }
        }
        let params = negotiate(&ours, &open).unwrap();
        assert_eq!(params.families, families);
        assert_eq!(params.add_path_receive, families);
        assert_eq!(params.add_path_send, Family::IPV4_VPN.into());
    }

    /// RFC 4271 §4.2
    #[test]
    fn hold_time_below_the_minimum_is_unacceptable() {
        let settled = |min_hold_time_s, hold_time_s| {
            let ours = SessionConfig {
                min_hold_time_s,
                ..config(64512, 1)
            };
            let theirs = SessionConfig {
                hold_time_s,
                ..config(64513, 2)
            };
            meet(&ours, &theirs).map(|params| params.hold_time_s)
        };
        for (minimum, hold_time) in [(20, 0), (20, 20), (20, 90), (3, 3), (0, 3), (u16::MAX, 0)] {
            assert_eq!(settled(minimum, hold_time), Ok(hold_time), "{minimum}");
        }
        for (minimum, hold_time) in [(20, 19), (20, 3), (3, 2), (0, 1), (u16::MAX, 65_534)] {
            let refused = Err(open::UNACCEPTABLE_HOLD_TIME);
            assert_eq!(settled(minimum, hold_time), refused, "{minimum}");
        }
    }

    /// RFC 8654 §4
    #[test]
    fn extended_messages_of_one_side_bind_the_other() {
        let offers = SessionConfig {
            extended_messages: true,
            ..config(64512, 1)
        };
        let plain = config(64513, 2);
        let limits =
            |params: SessionParams| (params.receive_octets_max(), params.send_octets_max());
        assert_eq!(limits(meet(&offers, &plain).unwrap()), (65_535, 4096));
        assert_eq!(limits(meet(&plain, &offers).unwrap()), (4096, 4096));
    }

    #[test]
    fn sent_open_limits_values_to_its_fields() {
        let long = SessionConfig {
            hostname: Some("node1".into()),
            graceful_restart: Some(GracefulRestartConfig {
                time_s: u16::MAX,
                restarting: true,
                families_forwarding: Family::IPV6_UNICAST.into(),
            }),
            ..config(4_200_000_000, 1)
        };
        let open = open_of(&long);
        assert_eq!(open.asn, Asn::TRANS);
        let graceful = open
            .capabilities
            .iter()
            .find_map(|capability| match capability {
                Capability::GracefulRestart(graceful) => Some(graceful.clone()),
                _ => None,
            });
        let families = vec![(Family::IPV4_UNICAST, false), (Family::IPV6_UNICAST, true)];
        let expected = GracefulRestart {
            restart_state: true,
            notification: true,
            time_s: 4095,
            families,
        };
        assert_eq!(graceful, Some(expected));
        let mut octets = bytes::BytesMut::new();
        open.encode(&mut octets);
        assert_eq!(
            Open::parse(&octets[19..]).as_ref(),
            Ok(&open),
            "what is sent can be read"
        );
    }

    /// RFC 8538 §2
    #[test]
    fn both_sides_set_the_n_bit() {
        let side = |graceful_notification, last| SessionConfig {
            graceful_restart: Some(GracefulRestartConfig::default()),
            graceful_notification,
            ..config(64512, last)
        };
        for (ours, theirs) in [(true, true), (true, false), (false, true), (false, false)] {
            let params = meet(&side(ours, 1), &side(theirs, 2)).unwrap();
            let graceful = params.peer_graceful.expect("both have the capability");
            assert_eq!(graceful.notification, ours && theirs);
        }
    }

    /// RFC 9494 §3.1, §4.1, §4.5
    #[test]
    fn long_lived_restart_needs_graceful_restart() {
        let long_lived = |graceful: Option<u16>| SessionConfig {
            graceful_restart: graceful.map(|time_s| {
                GracefulRestartConfig::new(time_s).with_forwarding(FamilySet::UNICAST)
            }),
            long_lived_stale_time_s: [
                (Family::IPV4_UNICAST, u32::MAX),
                (Family::IPV4_VPN, 60), // not a family of the session
            ]
            .into(),
            ..config(64513, 2)
        };
        let ours = config(64512, 1);
        let params = meet(&ours, &long_lived(Some(0))).unwrap();
        let entry = LongLivedEntry {
            family: Family::IPV4_UNICAST,
            forwarding: true,
            stale_time_s: LongLivedEntry::STALE_TIME_S_MAX,
        };
        assert_eq!(params.peer_long_lived, Some(vec![entry]));
        let plain = meet(&ours, &config(64513, 2)).unwrap();
        assert_eq!(plain.peer_long_lived, None);
        let none = open_of(&long_lived(None));
        let is_offered = |of: &Capability| matches!(of, Capability::LongLivedGracefulRestart(_));
        assert!(!none.capabilities.iter().any(is_offered));

        let mut open = open_of(&long_lived(None));
        let repeated = [7, 9].map(|stale_time_s| LongLivedEntry {
            stale_time_s,
            ..entry
        });
        let capability = Capability::LongLivedGracefulRestart(repeated.to_vec());
        open.capabilities.push(capability);
        assert_eq!(negotiate(&ours, &open).unwrap().peer_long_lived, None);
        let graceful = open_of(&long_lived(Some(120))).capabilities;
        open.capabilities.extend(graceful);
        open.capabilities
            .push(Capability::LongLivedGracefulRestart(repeated.to_vec()));
        let params = negotiate(&ours, &open).unwrap();
        assert_eq!(params.peer_long_lived, Some(vec![repeated[1]]));
    }

    #[test]
    fn two_octet_peer_negotiates_ipv4_unicast() {
        let mut open = open_of(&config(64513, 2));
        open.capabilities.clear();
        let params = negotiate(&config(64512, 1), &open).unwrap();
        assert_eq!((params.as4, params.route_refresh), (false, false));
        assert_eq!(params.families, Family::IPV4_UNICAST.into());
    }

    #[test]
    fn families_without_a_row_and_repeated_ones_do_no_harm() {
        let mut open = open_of(&config(64513, 2));
        let strange = Capability::MultiProtocol(Family::new(16_388, 71));
        open.capabilities.insert(0, strange);
        open.capabilities
            .push(Capability::MultiProtocol(Family::IPV4_UNICAST));
        let params = negotiate(&config(64512, 1), &open).unwrap();
        assert_eq!(params.families, FamilySet::UNICAST);
    }

    #[test]
    fn peer_with_unexpected_as_or_identifier_is_rejected() {
        let ours = config(64512, 1);
        let expect = |peer_asn| SessionConfig {
            peer_asn,
            ..ours.clone()
        };
        let meets = |peer_asn, asn| meet(&expect(peer_asn), &config(asn, 2)).map(|p| p.kind);
        assert_eq!(meets(PeerAs::Internal, 64512), Ok(PeerKind::Internal));
        assert_eq!(meets(PeerAs::Internal, 64513), Err(open::BAD_PEER_AS));
        assert_eq!(meets(PeerAs::External, 64513), Ok(PeerKind::External));
        assert!(meets(PeerAs::External, 64512).is_err());
        assert!(meets(PeerAs::Exactly(Asn(7)), 8).is_err());
        assert!(meets(PeerAs::Any, 0).is_err(), "RFC 7607");
        assert!(
            meets(PeerAs::Any, 23_456).is_err(),
            "AS_TRANS belongs to no speaker"
        );
        // RFC 6286 §2.2: the same identifier is valid for a speaker in another AS only.
        assert_eq!(
            meet(&ours, &config(64512, 1)),
            Err(open::BAD_BGP_IDENTIFIER)
        );
        assert!(meet(&ours, &config(64513, 1)).is_ok());
    }
}
