use calico_model::Kind;
use serde_json::json;

use super::columns::Around;
use super::print::{Output, Shown};
use super::results::{Results, Words};

fn table(kind: Kind, output: &str, items: serde_json::Value) -> String {
    let around = Around {
        cluster_as: "64512".to_owned(),
        namespaces: true,
    };
    let output: Output = output.parse().expect("a form");
    let list = json!({ "items": items });
    output
        .print(&[Shown::List(kind, list)], &around)
        .expect("printed")
}

#[test]
fn tables_are_calicoctls() {
    let peers = json!([
        {"metadata": {"name": "rack-tor"}, "spec": {"nodeSelector": "rack == 'r1'", "peerIP": "10.20.1.254", "asNumber": 64700}},
        {"metadata": {"name": "to-rr"}, "spec": {"peerSelector": "has(calico-rr)"}},
        {"metadata": {"name": "own"}, "spec": {"node": "n1", "peerIP": "fd20::1", "asNumber": 1}},
    ]);
    assert_eq!(
        table(Kind::BgpPeer, "ps", peers),
        "\
NAME       PEERIP        NODE           ASN     \n\
rack-tor   10.20.1.254   rack == 'r1'   64700   \n\
to-rr                    (global)       0       \n\
own        fd20::1       n1             1       \n\n"
    );
    let nodes = json!([
        {"metadata": {"name": "n1"}, "spec": {"bgp": {"ipv4Address": "10.0.0.1/24"}}},
        {"metadata": {"name": "n2"}, "spec": {"bgp": {"asNumber": 65000, "ipv6Address": "fd00::2/64"}}},
        {"metadata": {"name": "n3"}, "spec": {}},
    ]);
    assert_eq!(
        table(Kind::Node, "wide", nodes),
        "\
NAME   ASN       IPV4          IPV6         \n\
n1     (64512)   10.0.0.1/24                \n\
n2     65000                   fd00::2/64   \n\
n3                                          \n\n"
    );
    let tiers = json!([
        {"metadata": {"name": "default"}, "spec": {"order": 1_000_000}},
        {"metadata": {"name": "first"}, "spec": {"order": 100.5}},
        {"metadata": {"name": "last"}, "spec": {}},
    ]);
    assert_eq!(
        table(Kind::Tier, "ps", tiers),
        "NAME      ORDER   \ndefault   1e+06   \nfirst     100.5   \nlast      <nil>   \n\n"
    );
    let endpoints = json!([{"metadata": {"name": "e", "namespace": "prod"}, "spec": {"pod": "web-0", "node": "n1",
        "ipNetworks": ["10.65.0.1/32", "fd65::1/128"], "interfaceName": "cali1",
        "ipNATs": [{"internalIP": "10.65.0.1", "externalIP": "203.0.113.9"}]}}]);
    let columns = "custom-columns=NAMESPACE,WORKLOAD,NETWORKS,NATS";
    assert_eq!(
        table(Kind::WorkloadEndpoint, columns, endpoints),
        "\
NAMESPACE   WORKLOAD   NETWORKS                   NATS                      \n\
prod        web-0      10.65.0.1/32,fd65::1/128   {10.65.0.1 203.0.113.9}   \n\n"
    );
}

#[test]
fn every_heading_of_every_kind_has_a_cell() {
    for kind in Kind::ALL {
        for form in ["ps", "wide"] {
            let text = table(
                *kind,
                form,
                json!([{"metadata": {"name": "x"}, "spec": {}}]),
            );
            assert_eq!(text.lines().count(), 3, "{kind}");
        }
    }
}

#[test]
fn long_lists_are_cut_and_control_characters_shown() {
    let nets = vec!["192.0.2.0/24"; 20];
    let text = table(
        Kind::GlobalNetworkSet,
        "wide",
        json!([{"metadata": {"name": "a\u{1b}[2J"}, "spec": {"nets": nets}}]),
    );
    assert!(text.contains("a\\u{1b}[2J   192.0.2.0/24,"), "{text}");
    assert!(text.contains("..."), "{text}");
}

#[test]
fn results_have_the_words_of_calicoctl() {
    let words = Words {
        verb: "apply",
        done: "applied",
        skipped: "existing",
    };
    let (node, pool) = ("Node", "IPPool");
    for (added, skipped, text) in [
        (
            &[(node, true), (node, true)][..],
            0,
            "Successfully applied 2 'Node' resource(s)",
        ),
        (
            &[(node, true), (pool, true)],
            0,
            "Successfully applied 2 resource(s)",
        ),
        (
            &[(node, true), (pool, false)],
            0,
            "Partial success: applied 1 out of 2 resource(s)",
        ),
        (
            &[(node, false)],
            0,
            "Failed to apply any 'Node' resource(s)",
        ),
        (&[], 2, "Skipped 2 existing resource(s)"),
        (
            &[(node, true)],
            1,
            "Successfully applied 1 'Node' resource(s)\nSkipped 1 existing resource(s)",
        ),
    ] {
        let mut results = Results::default();
        added
            .iter()
            .for_each(|(kind, is_done)| results.add(kind, *is_done));
        (0..skipped).for_each(|_| results.skip());
        assert_eq!(results.text(words), text);
    }
}

#[test]
fn exported_resource_can_be_written_elsewhere() {
    let mut one = Shown::One(
        Kind::Node,
        json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "7",
        "creationTimestamp": "t", "labels": {"a": "b"}}}),
    );
    one.export();
    let text = Output::Json
        .print(&[one], &Around::default())
        .expect("printed");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        value,
        json!({"metadata": {"name": "n", "labels": {"a": "b"}}})
    );
}
