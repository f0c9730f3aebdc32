//! Tests that the table of keys is complete, and that parsing and printing agree.

use alloc::{collections::BTreeSet, format, string::String, vec, vec::Vec};
use core::{fmt::Debug, net::Ipv4Addr};

use bgp_fsm::PeerAs;
use bgp_proto::{Asn, AttrCode, AttrCodes, Family, RouterId};
use proptest::prelude::*;
use rib::{AsPathChecks, Role, SendPaths};

use crate::keys::{Fallback, Given, Invalid, Kind, Place, RANGE_KEYS, Value};
use crate::{BfdMode, PEER_KEYS, PeerConfig, PeerKey, SpeakerConfig, no_policy};

fn speaker() -> SpeakerConfig {
    SpeakerConfig::new(Asn(64512), RouterId(Ipv4Addr::new(10, 0, 0, 1)))
}

fn vacant() -> PeerConfig {
    speaker().vacant()
}

fn peer(keys: &[(&str, Value)]) -> (PeerConfig, Vec<Invalid>) {
    let given = keys
        .iter()
        .map(|(key, value)| (String::from(*key).into(), value.clone().into()));
    let mut faults = vec![];
    let peer = speaker().peer(&Given::new(0..0, given.collect()), &mut faults);
    (peer, faults)
}

/// Returns the names of the fields of a struct.
fn fields(of: &impl Debug, prefix: &str) -> BTreeSet<String> {
    let text = format!("{of:#?}");
    let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    let lines = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
    let names = lines.filter_map(|line| line.split_once(": "));
    names.map(|(name, _)| format!("{prefix}{name}")).collect()
}

// Promise (Daemons): Every field of a peer's configuration has a row in the table of keys, and
// files, reports and pages have the keys of that table.
#[test]
fn every_field_of_a_peer_has_a_key() {
    let peer = vacant();
    let mut expected = fields(&peer, "");
    assert!(expected.remove("session") && expected.remove("as_path"));
    expected.append(&mut fields(&peer.session, "session."));
    expected.append(&mut fields(&AsPathChecks::default(), "as_path."));
    let keys = PEER_KEYS.iter().flat_map(|key| key.fields);
    assert_eq!(
        keys.map(|field| String::from(*field))
            .collect::<BTreeSet<_>>(),
        expected
    );
}

#[test]
fn table_of_bfd_has_known_keys_within_their_ranges() {
    let bfd = |keys: &[(&str, Value)]| {
        let (peer, faults) = peer(&[
            ("address", "10.0.0.9".into()),
            ("asn", "internal".into()),
            ("bfd", Value::table(keys.iter().cloned())),
        ]);
        let faults: Vec<String> = faults.iter().map(|fault| format!("{fault}")).collect();
        (peer.bfd, faults)
    };
    let (given, faults) = bfd(&[("interval_ms", 50.into()), ("mode", "multihop".into())]);
    let given = given.expect("a session");
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!((given.interval_ms, given.multiplier), (50, 3));
    assert_eq!(given.mode, BfdMode::Multihop);
    for (key, value) in [
        ("interval", 50.into()),
        ("interval_ms", 0.into()),
        ("multiplier", 256.into()),
        ("mode", "both".into()),
    ] {
        let (_, faults) = bfd(&[(key, value)]);
        assert_eq!(faults.len(), 1, "{key}: {faults:?}");
    }
}

#[test]
fn names_are_unique() {
    let peer = PEER_KEYS.iter().map(|key| key.name);
    let names: Vec<&str> = peer.chain(RANGE_KEYS.iter().map(|key| key.name)).collect();
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), unique.len());
}

/// A value that is set can be read, and setting it again changes nothing.
#[test]
fn example_of_a_key_survives_being_read_and_set() {
    let set = |key: &PeerKey, value: Value| {
        let mut peer = vacant();
        if key.name == "add_path_send" {
            peer.session.add_path_send = peer.session.families;
        }
        let mut faults = vec![];
        key.set(&mut peer, &value.into(), &mut faults);
        assert_eq!(faults, [], "{}", key.name);
        peer
    };
    for key in PEER_KEYS.iter().filter(|key| key.kind != Kind::InCode) {
        let once = set(key, (key.example)());
        assert!(key.differs(&vacant(), &once), "{} is the default", key.name);
        let read = key.get(&once).expect("it is set");
        assert_eq!(set(key, read), once, "{}", key.name);
    }
}

#[test]
fn value_of_another_kind_is_refused() {
    let strange = [
        Value::Flag(true),
        7.into(),
        "\u{7}".into(),
        Value::table([("x", 7.into())]),
    ];
    for key in PEER_KEYS.iter().filter(|key| key.kind != Kind::InCode) {
        let refused = strange.iter().filter(|value| {
            let (mut peer, mut faults) = (vacant(), vec![]);
            key.set(&mut peer, &(*value).clone().into(), &mut faults);
            assert!(faults.is_empty() || peer == vacant(), "{} is set", key.name);
            !faults.is_empty()
        });
        assert!(refused.count() >= 2, "{} takes everything", key.name);
    }
}

/// Generates values of all types, some of them valid for some key.
fn any_value() -> impl Strategy<Value = Value> {
    let words = PEER_KEYS.iter().filter_map(|key| match key.kind {
        Kind::Word(words) => Some(words.iter().copied()),
        _ => None,
    });
    let texts = [
        "internal",
        "1.10",
        "10.0.0.1",
        "fd00::1",
        "10.0.0.0/8",
        "ipv6-unicast",
        "l2vpn-evpn",
    ];
    let texts: Vec<&str> = words
        .flatten()
        .chain(texts)
        .chain(["", "equal-cost"])
        .collect();
    let names = [
        "families",
        "max",
        "warn",
        "action",
        "restart_after",
        "ipv4-unicast",
        "x",
    ];
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::Flag),
        any::<i64>().prop_map(Value::Number),
        (-1_i64..300).prop_map(Value::Number),
        ".{0,300}".prop_map(Value::Text),
        prop::sample::select(texts).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        let keys =
            prop::collection::vec((prop::sample::select(names.to_vec()), inner.clone()), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::list),
            keys.prop_map(Value::table),
        ]
    })
}

proptest! {
    /// Any value is set as a whole or not at all, and can be read and set again.
    #[test]
    fn value_is_set_whole_or_not_at_all(value in any_value()) {
        for key in PEER_KEYS {
            let (mut peer, mut faults) = (vacant(), vec![]);
            key.set(&mut peer, &value.clone().into(), &mut faults);
            if !faults.is_empty() {
                prop_assert_eq!(&peer, &vacant(), "{}", key.name);
                continue;
            }
            let Some(read) = key.get(&peer) else { continue };
            let mut again = vacant();
            key.set(&mut again, &read.into(), &mut faults);
            prop_assert!(faults.is_empty(), "{}: {:?}", key.name, faults);
            prop_assert_eq!(again, peer, "{}", key.name);
        }
    }
}

#[test]
fn value_set_in_code_is_refused_in_a_file() {
    for key in PEER_KEYS.iter().filter(|key| key.kind == Kind::InCode) {
        assert!(
            !key.is_in(Place::Neighbor) && !key.is_in(Place::Range),
            "{}",
            key.name
        );
        let mut faults = vec![];
        key.set(&mut vacant(), &Value::from(7).into(), &mut faults);
        assert_eq!(faults.len(), 1, "{}", key.name);
    }
}

/// The default of a key is a valid value with the same effect.
#[test]
fn default_values_are_accepted() {
    for key in PEER_KEYS {
        if let Fallback::Value(value) = key.default {
            let mut faults = vec![];
            key.set(&mut vacant(), &value().into(), &mut faults);
            assert_eq!(faults, [], "{}", key.name);
        }
    }
}

#[test]
fn keys_make_a_peer() {
    let (peer, faults) = peer(&[
        ("address", "10.0.0.2".into()),
        ("asn", "64512".into()),
        ("add_path", "send".into()),
        ("route_reflector_client", true.into()),
        ("families", Value::list(["ipv6-unicast"])),
        ("add_path_send", 2.into()),
    ]);
    assert_eq!(faults, []);
    assert_eq!((&*peer.name, peer.role), ("10.0.0.2", Role::Client));
    assert_eq!(peer.session.peer_asn, PeerAs::Exactly(Asn(64_512)));
    assert_eq!(
        peer.send_paths,
        [(Family::IPV6_UNICAST, SendPaths::Best(2))].into()
    );
    let restart = peer.session.graceful_restart.expect("by default");
    assert_eq!(
        (restart.time_s, restart.families_forwarding),
        (120, peer.session.families)
    );
}

#[test]
fn external_peer_without_policy_gets_none() {
    let external = |policy: &[(&str, Value)]| {
        let mut keys = vec![("address", "10.0.0.2".into()), ("asn", 7.into())];
        keys.extend_from_slice(policy);
        peer(&keys).0
    };
    let bare = external(&[]);
    assert_eq!((&bare.import, &bare.export), (&no_policy(), &no_policy()));
    let given = external(&[("import", "accept".into())]);
    assert_eq!(given.import, rib::Policy::AcceptAll);
    assert_eq!(given.export, no_policy());
}

#[test]
fn keys_of_bfd_need_their_type_and_their_form() {
    let faults = |keys: &[(&str, Value)]| {
        let base = [("address", "10.0.0.9".into()), ("asn", "internal".into())];
        let (_, faults) = peer(&[&base[..], keys].concat());
        faults
            .iter()
            .map(|fault| format!("{fault}"))
            .collect::<Vec<_>>()
    };
    let auth = |word: &str| ("bfd_auth", Value::from(word));
    let keys = |text: &str| ("bfd_keys", Value::from(text));
    let valid = [
        auth("meticulous-keyed-sha1"),
        keys("1 secret\n7 other one\n"),
    ];
    assert!(faults(&valid).is_empty());
    for (given, reason) in [
        (vec![auth("keyed-md5")], "needs keys"),
        (vec![keys("1 QXZ")], "needs bfd_auth"),
        (vec![auth("sha256"), keys("1 QXZ")], "unknown value"),
        (vec![auth("simple"), keys("QXZ")], "line 1: a line has"),
        (
            vec![auth("simple"), keys("1 QXZ\n256 QXZ")],
            "line 2: the number",
        ),
        (vec![auth("simple"), keys("1 QXZ\n1 QXZ")], "twice"),
        (
            vec![auth("simple"), keys("1 QXZQXZQXZQXZQXZQX")],
            "17 bytes",
        ),
        (vec![auth("simple"), keys("1 ")], "0 bytes"),
        (vec![auth("simple"), keys("\n")], "0 keys"),
    ] {
        let found = faults(&given);
        assert_eq!(found.len(), 1, "{given:?}: {found:?}");
        assert!(found[0].contains(reason), "{reason}: {found:?}");
        assert!(!found[0].contains("QXZ"), "{found:?}");
    }
}

#[test]
fn secret_is_shown_nowhere() {
    let (peer, faults) = peer(&[
        ("address", "10.0.0.2".into()),
        ("asn", 7.into()),
        ("password", "hush".into()),
        ("second_password", "hush, too".into()),
        ("bfd_auth", "simple".into()),
        ("bfd_keys", "1 hush".into()),
    ]);
    assert_eq!(faults, []);
    for key in PEER_KEYS {
        assert!(
            key.shown(&peer).is_none_or(|text| !text.contains("hush")),
            "{}",
            key.name
        );
    }
    let value = Value::list(["hush"]);
    let given = Given::from([("password", "hush".into())]);
    assert!(!format!("{peer:?}{value:?}{given:?}").contains("hush"));
}

#[test]
fn keys_of_attributes_allow_them_to_external_peers() {
    let keys = [
        ("aigp", AttrCode::Aigp),
        ("tunnel_encapsulation", AttrCode::TunnelEncapsulation),
        ("prefix_sid", AttrCode::PrefixSid),
    ];
    for (name, code) in keys {
        let mut peer = vacant();
        assert_eq!(peer.domain(), AttrCodes::NONE);
        let key = PEER_KEYS.iter().find(|key| key.name == name);
        let mut faults = vec![];
        key.expect("a key")
            .set(&mut peer, &Value::Flag(true).into(), &mut faults);
        assert_eq!(faults, [], "{name}");
        assert_eq!(peer.domain(), [code].into_iter().collect(), "{name}");
    }
}
