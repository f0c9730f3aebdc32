//! Packets that are part of no connection, with real packets. Needs root and `CAMBRIC_LAB=1`.

use std::net::{IpAddr, SocketAddr};

use serde_json::json;

use crate::guard::outside;
use crate::world::host::{Host, OPEN, RESOURCES, workload};
use crate::world::packet::{packet, send, syn, transport_checksum};
use crate::world::{Namespace, count_at, count_of, lab, run};

const TCP: u8 = 6;
/// The flags of a segment, and RST among them.
const FLAGS: usize = 13;
const RST: u8 = 4;
const DROPPED: &str = "part of no connection";

/// Sends an RST of no connection from the thread's namespace. The kernel reports a drop at once to a
/// sender on the host itself.
fn reset(from: &str, to: &str) {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut segment = syn(from, 4000, SocketAddr::new(to, 80));
    segment[FLAGS] = RST;
    segment[16..18].fill(0);
    let sum = transport_checksum(from, to, TCP, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let _ = send(&packet(from, to, TCP, &segment), to);
}

// Promise (Felix): Packets of no connection are dropped before policies and profiles, unless
// `disableConntrackInvalidCheck` is true.
#[test]
fn packets_of_no_connection_pass_only_if_configured() {
    lab("packets_of_no_connection_pass_only_if_configured", || {
        let host = Host::new();
        let peer = outside();
        let (one, two) = (workload(1), workload(2));
        (1..=2).for_each(|n| host.endpoint_with(n, &json!({"n": n.to_string()}), &json!({})));
        (1..=2).for_each(|n| host.wait_up(&format!("cali{n}")));
        let policy = json!({"metadata": {"name": "p"}, "spec": {"selector": "n == '1'",
            "ingress": [{"action": "Allow", "protocol": "TCP"}]}});
        host.put(&format!("{RESOURCES}globalnetworkpolicies/p"), &policy);
        let uplink = json!({"metadata": {"name": "uplink"}, "spec": {"node": "n1",
            "interfaceName": "uplink", "profiles": OPEN}});
        host.put(&format!("{RESOURCES}hostendpoints/uplink"), &uplink);
        let listed = |what: &str| run("nft list table inet cambric-felix").contains(what);
        host.until("the policy", || listed("jump pi-gnp/p"));
        host.until("the host endpoint", || listed("chain host-in-uplink"));
        for namespace in [&one.namespace, &two.namespace, &peer] {
            count_at(namespace, "tcp flags rst");
        }
        let [own, far] = [["10.0.0.11", "fd00::11"], ["10.0.0.1", "fd00::1"]];
        let workloads = [1, 2].map(|n| [format!("10.65.0.{n}"), format!("fd65::{n}")]);
        for family in 0..2 {
            let workload = |n: usize| workloads[n - 1][family].as_str();
            let to_peer = |from: &str| reset(from, far[family]);
            let from_peer = |to: &str| peer.within(|| reset(far[family], to));
            let ways: [(&str, &dyn Fn()); 5] = [
                ("to-cali1", &|| from_peer(workload(1))),
                ("to-cali2", &|| from_peer(workload(2))),
                ("from-cali2", &|| {
                    two.namespace.within(|| to_peer(workload(2)));
                }),
                ("host-in-uplink", &|| from_peer(own[family])),
                ("host-out-uplink", &|| to_peer(own[family])),
            ];
            for (chain, send) in ways {
                let before = host.counted(chain, DROPPED);
                host.until(chain, || {
                    send();
                    host.counted(chain, DROPPED) > before
                });
            }
        }
        for namespace in [&one.namespace, &two.namespace, &peer] {
            assert_eq!(count_of(namespace), 0);
        }
        host.configure(&json!({"disableConntrackInvalidCheck": true}));
        host.until("no check", || !listed(DROPPED));
        for family in 0..2 {
            let ways: [(&Namespace, &Namespace, &str, &str); 3] = [
                (&peer, &one.namespace, far[family], &workloads[0][family]),
                (&peer, &two.namespace, far[family], &workloads[1][family]),
                (&two.namespace, &peer, &workloads[1][family], far[family]),
            ];
            for (from, at, source, to) in ways {
                let before = count_of(at);
                host.until("an arrival", || {
                    from.within(|| reset(source, to));
                    count_of(at) > before
                });
            }
        }
        host.configure(&json!({}));
        host.until("the check", || listed(DROPPED));
    });
}
