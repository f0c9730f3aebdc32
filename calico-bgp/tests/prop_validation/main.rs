//! Asserts that the incremental index of records answers every question as the rules of
//! `docs/design/origin-validation.md` do when they are applied to the stored values alone, and that
//! it names every route whose answer changes.

mod model;

use std::net::IpAddr;

use bgp_proto::{Asn, Prefix};
use calico_bgp::validation::{Affected, Neighbor, Origin, OriginIndex, ReceivedRoute};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::model::Model;

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";
const NODES: [&str; 3] = ["a", "b", "c"];
const ADDRESSES: [&str; 9] = [
    "10.0.0.1",
    "10.0.0.2",
    "10.0.0.3",
    "10.65.0.1",
    "10.65.0.2",
    "10.65.0.66",
    "10.96.0.7",
    "fd65::1",
    "fd65::41",
];
const BLOCKS: [&str; 4] = [
    "10.65.0.0-26",
    "10.65.0.64-26",
    "10.65.0.0-25",
    "fd65::-122",
];
const RANGES: [&str; 5] = [
    "10.65.0.0/16",
    "10.96.0.0/12",
    "10.65.0.64/28",
    "fd65::/64",
    "0.0.0.0/0",
];
const PREFIXES: [&str; 28] = [
    "0.0.0.0/0",
    "10.0.0.1/32",
    "10.0.0.2/32",
    "10.0.0.3/32",
    "10.0.0.0/24",
    "10.0.0.0/25",
    "10.0.0.2/31",
    "10.65.0.0/16",
    "10.65.0.0/18",
    "10.65.0.0/25",
    "10.65.0.0/26",
    "10.65.0.0/27",
    "10.65.0.0/30",
    "10.65.0.1/32",
    "10.65.0.2/32",
    "10.65.0.64/26",
    "10.65.0.64/28",
    "10.65.0.66/32",
    "10.96.0.0/12",
    "10.96.0.0/16",
    "10.96.0.7/32",
    "fd65::/64",
    "fd65::/122",
    "fd65::/123",
    "fd65::1/128",
    "fd65::41/128",
    "10.65.0.64/27",
    "192.0.2.0/24",
];

/// A new value of a key, or its deletion.
#[derive(Clone, Debug)]
struct Change {
    key: String,
    value: Option<Value>,
}

fn one(of: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(of)
}

fn some(of: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(one(of), 0..=most)
}

fn endpoint() -> impl Strategy<Value = Change> {
    let spec = (one(&NODES), some(&ADDRESSES, 3), some(&ADDRESSES, 1));
    (0..4u8, prop::option::weighted(0.8, spec)).prop_map(|(number, spec)| Change {
        key: format!("{RESOURCES}workloadendpoints/ns/e{number}"),
        value: spec.map(|(node, addresses, floating)| {
            let inside = addresses.first().copied().unwrap_or("10.65.0.1");
            let networks = addresses.iter().map(|address| match address.contains(':') {
                true => format!("{address}/128"),
                false => format!("{address}/32"),
            });
            let nats = floating
                .iter()
                .map(|address| json!({"internalIP": inside, "externalIP": address}));
            json!({"metadata": {"name": format!("e{number}"), "namespace": "ns"}, "spec": {
                "node": node,
                "ipNetworks": networks.collect::<Vec<_>>(),
                "ipNATs": nats.collect::<Vec<_>>(),
            }})
        }),
    })
}

fn node() -> impl Strategy<Value = Change> {
    let spec = (
        one(&["10.0.0.1/24", "10.0.0.2/30", "10.0.0.3/24", "10.0.0.3"]),
        prop::option::of(one(&["10.65.0.1", "10.65.0.66"])),
        some(&["10.0.0.3", "fd65::41", "host"], 1),
        some(&RANGES, 1),
        prop::option::of(one(&["65001", "65002"])),
        any::<bool>(),
    );
    (one(&NODES), prop::option::weighted(0.8, spec)).prop_map(|(name, spec)| Change {
        key: format!("{RESOURCES}nodes/{name}"),
        value: spec.map(|(address, tunnel, others, grants, asn, reflects)| {
            let mut node = json!({"metadata": {"name": name}, "spec": {
                "bgp": {"ipv4Address": address},
                "addresses": others.iter().map(|a| json!({"address": a})).collect::<Vec<_>>(),
            }});
            if let Some(tunnel) = tunnel {
                node["spec"]["ipv4VXLANTunnelAddr"] = json!(tunnel);
            }
            if let Some(asn) = asn {
                node["spec"]["bgp"]["asNumber"] = json!(asn);
            }
            if reflects {
                node["spec"]["bgp"]["routeReflectorClusterID"] = json!("244.0.0.1");
            }
            if !grants.is_empty() {
                let grants = grants.join(", ");
                node["metadata"]["annotations"] = json!({"cambric.io/granted-prefixes": grants});
            }
            node
        }),
    })
}

fn others() -> impl Strategy<Value = Change> {
    let state = prop::option::weighted(0.7, one(&["confirmed", "pending", "pendingDeletion"]));
    let block = (one(&NODES), one(&BLOCKS), state).prop_map(|(node, block, state)| {
        let version = if block.contains(':') { 6 } else { 4 };
        Change {
            key: format!("/calico/ipam/v2/host/{node}/ipv{version}/block/{block}"),
            value: state.map(|state| json!({"state": state, "deleted": false})),
        }
    });
    let range = || some(&RANGES, 1);
    let settings = prop::option::weighted(0.8, (range(), range(), any::<bool>()));
    let settings = settings.prop_map(|settings| Change {
        key: format!("{RESOURCES}bgpconfigurations/default"),
        value: settings.map(|(cluster, external, has_asn)| {
            let list = |list: &[&str]| -> Vec<Value> {
                list.iter().map(|range| json!({"cidr": range})).collect()
            };
            let mut spec = json!({
                "serviceClusterIPs": list(&cluster),
                "serviceExternalIPs": list(&external),
            });
            if has_asn {
                spec["asNumber"] = json!(65002);
            }
            json!({"metadata": {"name": "default"}, "spec": spec})
        }),
    });
    let pool = (one(&["p", "q"]), prop::option::of(one(&RANGES)));
    let pool = pool.prop_map(|(name, range)| Change {
        key: format!("{RESOURCES}ippools/{name}"),
        value: range.map(|range| json!({"metadata": {"name": name}, "spec": {"cidr": range}})),
    });
    prop_oneof![3 => block, 1 => settings, 1 => pool]
}

/// Returns a value that is invalid: the last valid one of its key stays.
fn invalid() -> impl Strategy<Value = Change> {
    let key = one(&[
        "workloadendpoints/ns/e0",
        "nodes/a",
        "bgpconfigurations/default",
        "ippools/p",
    ]);
    let value = prop::sample::select(vec![
        json!({"spec": {"node": 7, "bgp": 7, "asNumber": {}, "cidr": 7}}),
        json!({"metadata": {"annotations": {"cambric.io/granted-prefixes": "10.0.0.0/33"}},
            "spec": {"asNumber": 0, "cidr": "ten", "node": "a", "ipNetworks": ["10.65.0.0/24"]}}),
    ]);
    (key, value).prop_map(|(key, value)| Change {
        key: format!("{RESOURCES}{key}"),
        value: Some(value),
    })
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![5 => endpoint(), 3 => node(), 4 => others(), 1 => invalid()]
}

/// Returns every question of the small world of this test.
fn questions() -> Vec<(Neighbor<'static>, ReceivedRoute)> {
    let nodes = NODES.into_iter();
    let of_nodes = nodes.flat_map(|name| [Neighbor::Node(name), Neighbor::Reflector(name)]);
    let transit = [65_001, 65_002].map(|asn| Neighbor::Transit { origin: Asn(asn) });
    let neighbors = of_nodes.chain([Neighbor::Other]).chain(transit);
    let mut all = Vec::new();
    for neighbor in neighbors {
        let ways: &[(&str, bool)] = match neighbor {
            Neighbor::Node(_) => &[("10.0.0.1", false), ("10.0.0.2", true), ("10.0.0.3", false)],
            Neighbor::Reflector(_) => &[("10.0.0.1", false), ("10.0.0.1", true)],
            _ => &[("192.0.2.1", false)],
        };
        for prefix in PREFIXES {
            for (next_hop, has_originator_id) in ways {
                let route = ReceivedRoute {
                    prefix: prefix.parse().expect("a prefix"),
                    next_hop: Some(next_hop.parse().expect("an address")),
                    has_originator_id: *has_originator_id,
                };
                all.push((neighbor, route));
            }
        }
    }
    all
}

fn is_affected(affected: &Affected, neighbor: Neighbor<'_>, prefix: Prefix) -> bool {
    let by_neighbor = match neighbor {
        Neighbor::Node(name) | Neighbor::Reflector(name) => affected.nodes.contains(name),
        Neighbor::Transit { .. } => affected.transit,
        Neighbor::Other => false,
    };
    by_neighbor
        || affected.ranges.iter().any(|range| {
            range.prefix().contains(prefix.addr()) && range.lengths().contains(&prefix.len())
        })
}

/// An answer that owns its text.
fn text(origin: Origin<'_>) -> String {
    format!("{origin:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    // Promise (Datastore): The records of the datastore confirm the routes of a node, and no others.
    #[test]
    fn index_answers_as_the_rules_and_names_what_changes(
        changes in prop::collection::vec(change(), 1..40)
    ) {
        let (mut index, mut model) = (OriginIndex::new(7), Model::default());
        let questions = questions();
        let mut before: Vec<String> = questions
            .iter()
            .map(|(neighbor, route)| text(index.origin(*neighbor, route)))
            .collect();
        for change in changes {
            let octets = change.value.as_ref().map(Value::to_string);
            let taken = index.take(change.key.as_bytes(), octets.as_ref().map(String::as_bytes));
            if taken.is_ok() {
                model.put(&change.key, change.value.clone());
            }
            let affected = taken.unwrap_or_default();
            for ((neighbor, route), former) in questions.iter().zip(&mut before) {
                let found = text(index.origin(*neighbor, route));
                prop_assert_eq!(&found, &model.origin(*neighbor, route),
                    "{:?} {:?} after {:?}", neighbor, route, change);
                prop_assert!(found == *former || is_affected(&affected, *neighbor, route.prefix),
                    "{:?} {:?}: {} was {}, after {:?}", neighbor, route, found, former, change);
                *former = found;
            }
            for address in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
                let address: IpAddr = address.parse().expect("an address");
                let found = format!("{:?}", index.neighbor_at(address));
                prop_assert_eq!(found, model.neighbor_at(address));
            }
        }
    }
}
