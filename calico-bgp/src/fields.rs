//! The keys of a neighbor that a BGPPeer sets: Calico's fields, and Cambric's annotations.

use bgp_config::limits::RESTART_TIME_S_MAX;
use bgp_speaker::keys::{At, Invalid, Kind, PeerKey, Value};
use bgp_speaker::{PEER_KEYS, PeerConfig};
use calico_model::{BgpPeerSpec, GoDuration, NextHopMode as Mode};
use rib::{NextHopMode, Role};

use crate::view::Peering;

/// The prefix of Cambric's annotations.
const PREFIX: &str = "cambric.io/";

/// The annotation of a BGPPeer with a peer that passes on routes of nodes.
pub(crate) const TRANSIT: &str = "cambric.io/transit";

/// The annotation of a BGPPeer that requests BFD over any number of hops.
const BFD: &str = "cambric.io/bfd";

/// A key of a neighbor, and the function that sets it from the fields of a BGPPeer.
/// [`Want`](crate::peer::Want) sets the keys with further inputs, as the address, the AS or the
/// policies.
type Field = (&'static str, fn(&BgpPeerSpec, &mut PeerConfig));

pub(crate) const FIELDS: &[Field] = &[
    ("keepalive", |spec, peer| {
        let time = spec.keepalive_time;
        peer.session.keepalive_s = time.map(|time| seconds(time, u16::MAX).max(1));
    }),
    ("graceful_restart", |spec, peer| {
        if let Some((given, restart)) = spec
            .max_restart_time
            .zip(peer.session.graceful_restart.as_mut())
        {
            restart.time_s = restart_time(given);
        }
    }),
    ("own_as_max", |spec, peer| {
        let times = spec.num_allowed_local_as_numbers.unwrap_or(0);
        peer.as_path.own_as_max = u8::try_from(times).unwrap_or(u8::MAX);
    }),
    ("ttl_security", |spec, peer| {
        peer.ttl_security_hops = spec.hops();
    }),
    ("next_hop", |spec, peer| {
        peer.next_hop = match spec.next_hop(peer.role == Role::External) {
            Mode::Auto => NextHopMode::Auto,
            Mode::OwnAddress => NextHopMode::Own,
            Mode::Keep => NextHopMode::Keep,
        };
    }),
];

/// Returns whether an annotation is one of Cambric's.
pub(crate) fn is_own(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Sets the keys of a peer that its BGPPeer determines.
pub(crate) fn apply(peering: &Peering, peer: &mut PeerConfig) {
    for (_, set) in FIELDS {
        set(&peering.spec, peer);
    }
    for (name, text) in &peering.annotations {
        if is_replaced(peering, name) {
            continue;
        }
        if let Some(key) = annotated(name) {
            key.set(peer, &written(key.kind, text), &mut Vec::new()); // `faults` reports them.
        }
    }
}

/// Returns the faults of a BGPPeer's annotations: the field, and the reason.
pub(crate) fn faults(peering: &Peering, peer: &PeerConfig) -> Vec<(String, String)> {
    let found = peering.annotations.iter().flat_map(|(name, text)| {
        let mut faults = Vec::new();
        match annotated(name) {
            Some(_) if is_replaced(peering, name) => faults.push(Invalid::at(
                &(0..0),
                "spec.failureDetectionMode is set, and only one can be",
            )),
            Some(key) => key.set(&mut peer.clone(), &written(key.kind, text), &mut faults),
            None => faults.push(Invalid::at(
                &(0..0),
                "no key of a BGPPeer has this annotation",
            )),
        }
        let field = format!("metadata.annotations[{name}]");
        let faults = faults.into_iter();
        faults.map(move |fault| (field.clone(), fault.message))
    });
    found.collect()
}

/// Returns whether Calico's field for the same purpose is set.
fn is_replaced(peering: &Peering, annotation: &str) -> bool {
    annotation == BFD && peering.spec.failure_detection_mode.is_some()
}

/// Returns the key that an annotation sets.
fn annotated(name: &str) -> Option<&'static PeerKey> {
    PEER_KEYS
        .iter()
        .find(|key| key.annotation().as_deref() == Some(name))
}

/// Returns the text of an annotation as the value of a key.
fn written(kind: Kind, text: &str) -> At<Value> {
    let value = match kind {
        Kind::Flag
        | Kind::Number { .. }
        | Kind::Switch { .. }
        | Kind::PathLimits
        | Kind::SentLimits
        | Kind::Bfd => match text.parse() {
            Ok(flag) => Value::Flag(flag),
            Err(_) => text.parse().map_or_else(|_| text.into(), Value::Number),
        },
        Kind::FamilyTimes(_) => family_times(text).unwrap_or_else(|| text.into()),
        _ => text.into(),
    };
    value.into()
}

/// Returns the table of a text like `ipv4-unicast=3600 ipv6-unicast=60`.
fn family_times(text: &str) -> Option<Value> {
    let entries = text.split_whitespace().map(|entry| {
        let (family, seconds) = entry.split_once('=')?;
        Some((family, Value::Number(seconds.parse().ok()?)))
    });
    Some(Value::table(entries.collect::<Option<Vec<_>>>()?))
}

/// Returns a restart time in seconds, limited to its twelve bits (RFC 4724 §3).
pub(crate) fn restart_time(given: GoDuration) -> u16 {
    seconds(given, RESTART_TIME_S_MAX)
}

/// Returns the nearest number of seconds.
fn seconds(given: GoDuration, most: u16) -> u16 {
    let seconds = given.0.as_secs_f64().round();
    // In range by the clamp.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped"
    )]
    let seconds = seconds.clamp(0.0, f64::from(most)) as u16;
    seconds
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bgp_speaker::keys::Store;

    use super::*;

    /// Keys that have inputs beside the fields of a BGPPeer.
    const OTHERS: [&str; 9] = [
        "address",
        "port",
        "source",
        "asn",
        "local_asn",
        "password",
        "second_password",
        "import",
        "export",
    ];

    // Promise: as bgp-speaker every_field_of_a_peer_has_a_key
    #[test]
    fn every_key_with_fields_is_decided_by_them() {
        let rows = PEER_KEYS.iter();
        let rows = rows.filter(|row| matches!(row.store, Store::Fields(_)));
        let decided = FIELDS.iter().map(|(key, _)| *key).chain(OTHERS);
        let rows: BTreeSet<&str> = rows.map(|row| row.name).collect();
        assert_eq!(decided.collect::<BTreeSet<_>>(), rows);
    }
}
