//! ICMP errors of workloads, as real packets. Needs root and `CAMBRIC_LAB=1`.

use std::net::IpAddr;

use serde_json::json;

use crate::encapsulation::dropped_as;
use crate::world::host::{OPEN, RESOURCES, announce, pair, workload};
use crate::world::packet;
use crate::world::{Workload, count_at, count_of, lab, run};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const UDP: u8 = 17;
const DROPPED: &str = "ICMP error about another's packet";

/// The addresses of three workloads, by family.
const ADDRESSES: [[&str; 3]; 2] = [
    ["10.65.0.1", "10.65.0.2", "10.65.0.3"],
    ["fd65::1", "fd65::2", "fd65::3"],
];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns a packet with a datagram from port 12345 to port 9.
fn datagram(from: &str, to: &str) -> Vec<u8> {
    let mut octets = vec![0x30, 0x39, 0, 9, 0, 16, 0, 0];
    octets.extend([0; 8]);
    // Over IPv6 it is required (RFC 8200 §8.1).
    let sum = packet::transport_checksum(ip(from), ip(to), UDP, &octets);
    octets[6..8].copy_from_slice(&sum.to_be_bytes());
    packet::packet(ip(from), ip(to), UDP, &octets)
}

/// Returns an ICMP error that quotes a packet, with a right checksum.
fn error(from: &str, to: &str, icmp_type: u8, quoted: &[u8]) -> Vec<u8> {
    let mut segment = vec![icmp_type, 0, 0, 0, 0, 0, 5, 0];
    segment.extend(quoted);
    let is_ipv4 = ip(from).is_ipv4();
    let sum = match is_ipv4 {
        true => packet::checksum(&segment),
        false => packet::transport_checksum(ip(from), ip(to), ICMPV6, &segment),
    };
    segment[2..4].copy_from_slice(&sum.to_be_bytes());
    let protocol = if is_ipv4 { ICMP } else { ICMPV6 };
    packet::packet(ip(from), ip(to), protocol, &segment)
}

fn send(from: &Workload, made: &[u8], to: &str) {
    from.namespace
        .within(|| packet::send(made, ip(to)).unwrap());
}

// Promise (Felix): No workload can interfere with the connections of others by ICMP errors.
#[test]
fn icmp_error_about_a_packet_of_others_is_dropped() {
    lab("icmp_error_about_a_packet_of_others_is_dropped", || {
        let (host, one, two) = pair();
        let three = workload(3);
        announce(&host, 3, OPEN);
        host.wait_up("cali3");
        // Only the first one receives, and nothing new from the third one.
        let spec = json!({"selector": "all()", "types": ["Ingress"], "ingress": [
            {"action": "Deny", "source": {"nets": ["10.65.0.3/32"]}},
            {"action": "Deny", "source": {"nets": ["fd65::3/128"]}},
            {"action": "Allow", "protocol": "UDP"},
        ]});
        host.put(
            &format!("{RESOURCES}globalnetworkpolicies/p"),
            &json!({ "spec": spec }),
        );
        host.until("the policy is in effect", || {
            run("nft list chain inet cambric-felix to-cali1").contains("answers")
        });
        count_at(
            &one.namespace,
            "meta l4proto { 1, 58 } @th,0,8 { 1-5, 11, 12, 100, 127 }",
        );
        let received = || count_of(&one.namespace);
        let dropped = || dropped_as(&host, DROPPED);
        for [a, b, c] in ADDRESSES {
            let is_ipv4 = ip(a).is_ipv4();
            // A connection from the first to the second workload.
            let quoted = datagram(a, b);
            send(&one, &quoted, b);
            let types: &[u8] = match is_ipv4 {
                true => &[3, 4, 5, 11, 12],
                false => &[1, 2, 3, 4, 5, 100, 127],
            };
            for &icmp_type in types {
                // The third workload was no end of the connection.
                let forged = error(c, a, icmp_type, &quoted);
                let (before, arrived) = (dropped(), received());
                host.until(&format!("type {icmp_type} from {c} is dropped"), || {
                    send(&three, &forged, a);
                    dropped() >= before + 3
                });
                assert_eq!(received(), arrived, "type {icmp_type} from {c}");
            }
            let types: &[u8] = if is_ipv4 { &[3, 11, 12] } else { &[1, 2, 3, 4] };
            for &icmp_type in types {
                // The second one was.
                let real = error(b, a, icmp_type, &quoted);
                let (before, arrived) = (dropped(), received());
                host.until(&format!("type {icmp_type} from {b} arrives"), || {
                    send(&two, &real, a);
                    received() > arrived
                });
                assert_eq!(dropped(), before, "type {icmp_type} from {b}");
            }
        }
    });
}
