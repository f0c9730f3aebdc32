//! Measures the derivation of a node's BGP configuration from a datastore of 1,500 nodes, in
//! instructions per node of the datastore, as valgrind's callgrind counts them.
//!
//! `cargo bench -p cambric-calico-bgp` prints them beside the reference in `instructions.txt`;
//! `cargo bench -p cambric-calico-bgp -- --write` makes them the reference. See
//! `docs/design/bench.md`.

#[path = "../../rib/benches/callgrind/mod.rs"]
mod callgrind;

use std::process::ExitCode;
use std::time::Duration;

use bgp_proto::FamilySet;
use calico_bgp::{Derived, Host, Secrets, View, derive};
use rib::NextHops;

use crate::callgrind::{Bench, Step, counted};

const NODES: usize = 1_500;
/// Nodes of a rack; all of them peer with the rack's switch.
const RACK: usize = 30;

const STEPS: [Step; 6] = [
    Step {
        name: "mesh",
        what: "a node of the mesh",
        run: mesh,
    },
    Step {
        name: "client",
        what: "a node that chooses two of three reflectors",
        run: client,
    },
    Step {
        name: "reflector",
        what: "a reflector, of which all nodes may be clients",
        run: reflector,
    },
    Step {
        name: "selectors",
        what: "a node that two BGPPeers with selectors and filters peer with all",
        run: selectors,
    },
    Step {
        name: "peerings",
        what: "a node of 1,500 with a BGPPeer each, and of 50 racks with one each",
        run: peerings,
    },
    Step {
        name: "take",
        what: "read every node of the store",
        run: take,
    },
];

const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";

fn put(view: &mut View, key: &str, value: &str) {
    let taken = view.take(
        format!("{RESOURCES}{key}").as_bytes(),
        Some(value.as_bytes()),
    );
    assert!(taken, "{key}");
}

/// Returns the key and the value of a node. Nodes differ in rack and role; each has both families.
fn node(at: usize) -> (String, String) {
    let (high, low, rack) = (at / 250, at % 250 + 1, at / RACK);
    let value = format!(
        r#"{{"kind":"Node","metadata":{{"name":"node{at}","labels":{{
            "rack":"r{rack}","role":"worker","kubernetes.io/os":"linux"}}}},
            "spec":{{"bgp":{{"ipv4Address":"10.1.{high}.{low}/16","ipv6Address":"fd01::{at:x}/64"}}}}}}"#
    );
    (format!("nodes/node{at}"), value)
}

/// Returns a datastore of nodes with a pool for each family, a few blocks of node 0, and optionally
/// a full mesh.
fn fabric(mesh: bool) -> View {
    let mut view = View::default();
    for at in 0..NODES {
        let (key, value) = node(at);
        put(&mut view, &key, &value);
    }
    for (name, cidr) in [("v4", "10.65.0.0/16"), ("v6", "fd65::/64")] {
        let value = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"cidr":"{cidr}"}}}}"#);
        put(&mut view, &format!("ippools/{name}"), &value);
    }
    for block in 0..8 {
        let key = format!("/calico/ipam/v2/host/node0/ipv4/block/10.65.{block}.0-26");
        assert!(view.take(key.as_bytes(), Some(br#"{"state":"confirmed"}"#)));
    }
    let settings =
        format!(r#"{{"metadata":{{"name":"default"}},"spec":{{"nodeToNodeMeshEnabled":{mesh}}}}}"#);
    put(&mut view, "bgpconfigurations/default", &settings);
    view
}

fn host(name: &str) -> Host {
    Host {
        name: name.to_owned(),
        families: FamilySet::UNICAST,
        multipath_max: 1,
        next_hops: NextHops::Track,
        restart_wait: Duration::from_secs(90),
        reflects: name.starts_with("rr"),
        reflectors: None,
        registration_ttl: Duration::from_secs(15),
        absence_wait: Duration::from_secs(60),
    }
}

/// Derives the configuration of a node and asserts its number of peers and ranges.
fn derived(view: &View, name: &str, peers: usize, ranges: usize) {
    let (host, secrets) = (host(name), Secrets::new());
    let derived: Derived = counted(|| derive(view, &host, &secrets));
    assert_eq!(derived.faults, []);
    let speaker = derived.intent.expect("a speaker").speaker;
    assert_eq!((speaker.peers.len(), speaker.ranges.len()), (peers, ranges));
}

fn mesh() {
    derived(&fabric(true), "node0", 2 * (NODES - 1), 0);
}

/// Returns a datastore with three reflectors that have claimed their cluster IDs.
fn with_reflectors() -> View {
    let mut view = fabric(false);
    for at in 1..=3 {
        let value = format!(
            r#"{{"kind":"Node","metadata":{{"name":"rr{at}"}},
                "spec":{{"bgp":{{"ipv4Address":"10.1.99.{at}/16","ipv6Address":"fd01::99:{at}/64"}}}}}}"#
        );
        put(&mut view, &format!("nodes/rr{at}"), &value);
        let registration = format!(
            r#"{{"asNumber":64512,"ipv4Address":"10.1.99.{at}","ipv6Address":"fd01::99:{at}",
                "clusterID":"10.1.99.{at}","zone":"z{at}","state":"active"}}"#
        );
        let keys = [
            (format!("/cambric/v1/reflector/rr{at}"), registration),
            (
                format!("/cambric/v1/cluster/10.1.99.{at}"),
                format!(r#"{{"reflector":"rr{at}"}}"#),
            ),
        ];
        for (key, value) in keys {
            assert!(view.take(key.as_bytes(), Some(value.as_bytes())), "{key}");
        }
    }
    view
}

fn client() {
    derived(&with_reflectors(), "node0", 2 * 2, 0);
}

fn reflector() {
    derived(&with_reflectors(), "rr1", 2 * 2, 2 * NODES);
}

/// Adds typical BGPFilters of both directions.
fn filters(view: &mut View) {
    for name in ["one", "two"] {
        let value = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{
            "exportV4":[{{"cidr":"10.65.1.0/24","matchOperator":"In","action":"Accept"}},
                        {{"cidr":"10.66.0.0/16","matchOperator":"In","action":"Reject"}}],
            "importV4":[{{"cidr":"0.0.0.0/0","matchOperator":"Equal","action":"Reject"}}],
            "exportV6":[{{"cidr":"fd66::/64","matchOperator":"In","action":"Reject"}}]}}}}"#
        );
        put(view, &format!("bgpfilters/{name}"), &value);
    }
}

fn selectors() {
    let mut view = fabric(false);
    filters(&mut view);
    for name in ["all", "again"] {
        let value = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeSelector":"rack == 'r0'",
            "peerSelector":"role == 'worker' && has(kubernetes.io/os)","filters":["one","two"]}}}}"#
        );
        put(&mut view, &format!("bgppeers/{name}"), &value);
    }
    derived(&view, "node0", 2 * (NODES - 1), 0);
}

fn peerings() {
    let mut view = fabric(false);
    filters(&mut view);
    for at in 0..NODES {
        let (high, low) = (at / 250, at % 250 + 1);
        let value = format!(
            r#"{{"metadata":{{"name":"own{at}"}},"spec":{{"node":"node{at}",
            "peerIP":"10.2.{high}.{low}","asNumber":65000,"filters":["one"]}}}}"#
        );
        put(&mut view, &format!("bgppeers/own{at}"), &value);
    }
    for rack in 0..NODES / RACK {
        let value = format!(
            r#"{{"metadata":{{"name":"rack{rack}"}},"spec":{{"nodeSelector":"rack == 'r{rack}'",
            "peerIP":"10.3.0.{rack}","asNumber":65000,"filters":["two"]}}}}"#
        );
        put(&mut view, &format!("bgppeers/rack{rack}"), &value);
    }
    derived(&view, "node0", 2, 0);
}

fn take() {
    let nodes: Vec<(String, String)> = (0..NODES).map(node).collect();
    let mut view = View::default();
    counted(|| {
        for (key, value) in &nodes {
            put(&mut view, key, value);
        }
    });
}

fn main() -> ExitCode {
    let bench = Bench {
        package: env!("CARGO_PKG_NAME"),
        unit: "a node of the store",
        units: NODES,
        steps: &STEPS,
        reference: concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.txt"),
    };
    bench.main()
}
