//! Packets that are part of no connection, with real packets. Needs root and `CAMBRIC_LAB=1`.

use std::net::{IpAddr, SocketAddr};

use serde_json::json;

use crate::world::host::{Host, RESOURCES, workload};
use crate::world::packet::{packet, send, syn, transport_checksum};
use crate::world::{Workload, count_at, count_of, lab, run};

const TCP: u8 = 6;
/// The flags of a segment, and RST among them.
const FLAGS: usize = 13;
const RST: u8 = 4;
const DROPPED: &str = "part of no connection";

/// Sends an RST of no connection.
fn reset(workload: &Workload, from: &str, to: &str) {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut segment = syn(from, 4000, SocketAddr::new(to, 80));
    segment[FLAGS] = RST;
    segment[16..18].fill(0);
    let sum = transport_checksum(from, to, TCP, &segment);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let made = packet(from, to, TCP, &segment);
    workload.namespace.within(|| send(&made, to).unwrap());
}

// Promise (Felix): Packets of no connection are dropped before policies, unless
// `disableConntrackInvalidCheck` is true.
#[test]
fn packets_of_no_connection_reach_policies_only_if_configured() {
    lab(
        "packets_of_no_connection_reach_policies_only_if_configured",
        || {
            let host = Host::new();
            let (one, two) = (workload(1), workload(2));
            (1..=2).for_each(|n| host.endpoint_with(n, &json!({"n": n.to_string()}), &json!({})));
            let policy = json!({"metadata": {"name": "p"}, "spec": {"selector": "n == '1'",
            "ingress": [{"action": "Allow", "protocol": "TCP"}]}});
            host.put(&format!("{RESOURCES}globalnetworkpolicies/p"), &policy);
            (1..=2).for_each(|n| host.wait_up(&format!("cali{n}")));
            let listed = |what: &str| run("nft list table inet cambric-felix").contains(what);
            host.until("the policy", || listed(DROPPED));
            count_at(&one.namespace, "tcp flags rst");
            let both = [("10.65.0.2", "10.65.0.1"), ("fd65::2", "fd65::1")];
            for (from, to) in both {
                let before = host.counted("to-cali1", DROPPED);
                host.until("a drop", || {
                    reset(&two, from, to);
                    host.counted("to-cali1", DROPPED) > before
                });
            }
            assert_eq!(count_of(&one.namespace), 0);
            host.configure(&json!({"disableConntrackInvalidCheck": true}));
            host.until("no check", || !listed(DROPPED));
            for (from, to) in both {
                let before = count_of(&one.namespace);
                host.until("an arrival", || {
                    reset(&two, from, to);
                    count_of(&one.namespace) > before
                });
            }
            host.configure(&json!({}));
            host.until("the check", || listed(DROPPED));
        },
    );
}
