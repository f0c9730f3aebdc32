//! ICMP errors of workloads, as real packets. Needs root and `CAMBRIC_LAB=1`.

use std::net::IpAddr;

use serde_json::json;

use crate::encapsulation::dropped_as;
use crate::guard::{outside, until_listed};
use crate::world::host::{Host, OPEN, RESOURCES, announce, pair, workload};
use crate::world::packet;
use crate::world::{Namespace, Workload, count_at, count_of, lab, run, sysctl};

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
    datagram_of(from, to, [12345, 9])
}

fn datagram_of(from: &str, to: &str, ports: [u16; 2]) -> Vec<u8> {
    let mut octets = ports.map(u16::to_be_bytes).concat();
    octets.extend([0, 16, 0, 0]);
    octets.extend([0; 8]);
    // Over IPv6 it is required (RFC 8200 §8.1).
    let sum = packet::transport_checksum(ip(from), ip(to), UDP, &octets);
    octets[6..8].copy_from_slice(&sum.to_be_bytes());
    packet::packet(ip(from), ip(to), UDP, &octets)
}

/// Returns an ICMP error that quotes a packet, with a right checksum.
fn error(from: &str, to: &str, icmp_type: u8, quoted: &[u8]) -> Vec<u8> {
    error_of(from, to, [icmp_type, 0], quoted)
}

/// Returns the same with a type and a code; the MTU is 1280.
fn error_of(from: &str, to: &str, kind: [u8; 2], quoted: &[u8]) -> Vec<u8> {
    let mut segment = vec![kind[0], kind[1], 0, 0, 0, 0, 5, 0];
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

/// The errors of routers, by family: "fragmentation needed" or "packet too big", and "time exceeded".
const OF_ROUTERS: [[[u8; 2]; 2]; 2] = [[[3, 4], [11, 0]], [[2, 0], [3, 0]]];
/// The router on the uplink, another host there, the host, and a floating address, by family.
const OUTSIDE: [[&str; 4]; 2] = [
    ["10.0.0.1", "10.0.0.2", "10.0.0.11", "172.16.0.2"],
    ["fd00::1", "fd00::2", "fd00::11", "fd16::2"],
];
/// Matches the errors of routers, and none that a closed port causes.
const COUNTED: &str = "meta l4proto { 1, 58 } @th,0,16 { 0x0304, 0x0b00, 0x0200, 0x0300 }";

/// Sends a datagram from a place.
fn send_from(from: &Namespace, ends: [&str; 2], ports: [u16; 2]) {
    let made = datagram_of(ends[0], ends[1], ports);
    from.within(|| packet::send(&made, ip(ends[1])).unwrap());
}

/// Returns the end to which the answers of a connection are sent.
fn answered_at(from: &str, source_port: u16) -> (String, u16) {
    let family = if ip(from).is_ipv4() { "ipv4" } else { "ipv6" };
    let listed = run(&format!(
        "conntrack -L -f {family} -p udp --orig-src {from} --orig-port-src {source_port}"
    ));
    let last = |field: &str| {
        let words = listed.split_whitespace();
        let mut own = words.filter_map(|word| word.strip_prefix(field));
        own.next_back()
            .unwrap_or_else(|| panic!("{listed}"))
            .to_owned()
    };
    (last("dst="), last("dport=").parse().unwrap())
}

/// Packets of a workload, as a router on the uplink receives them.
struct Seen {
    from: (String, u16),
    to: (&'static str, u16),
}

impl Seen {
    /// Sends errors of a router about such a packet, which the workload must receive. The same errors of
    /// another workload are dropped.
    fn check(&self, host: &Host, router: &Namespace, receiver: &Workload, forger: &Workload) {
        let address = &*self.from.0;
        let at = usize::from(ip(address).is_ipv6());
        let quoted = datagram_of(address, self.to.0, [self.from.1, self.to.1]);
        let received = || count_of(&receiver.namespace);
        let dropped = || dropped_as(host, DROPPED);
        for kind in OF_ROUTERS[at] {
            let what = format!("{kind:?} about a packet from {:?}", self.from);
            let forged = error_of(ADDRESSES[at][2], address, kind, &quoted);
            let (arrived, before) = (received(), dropped());
            host.until(&format!("{what} is dropped"), || {
                send(forger, &forged, address);
                dropped() >= before + 3
            });
            assert_eq!(received(), arrived, "{what}");
            let real = error_of(OUTSIDE[at][0], address, kind, &quoted);
            let before = dropped();
            host.until(&format!("{what} arrives"), || {
                router.within(|| packet::send(&real, ip(address)).unwrap());
                received() > arrived
            });
            assert_eq!(dropped(), before, "{what}");
        }
    }
}

// Promise (Felix): ICMP errors of routers reach the workload whose packet they are about, also with its
// address translated.
#[test]
fn icmp_error_of_a_router_reaches_the_sender() {
    lab("icmp_error_of_a_router_reaches_the_sender", || {
        let host = Host::new();
        // Connections without a reply do not expire during the test.
        sysctl("netfilter/nf_conntrack_udp_timeout", "600");
        let all = [1, 2, 3].map(workload);
        let [one, two, three] = &all;
        host.configure(&json!({"floatingIPs": "Enabled"}));
        for n in 1..=3 {
            host.endpoint_with(n, &json!({}), &json!({}));
        }
        let nat = json!([
            {"internalIP": "10.65.0.2", "externalIP": "172.16.0.2"},
            {"internalIP": "fd65::2", "externalIP": "fd16::2"},
        ]);
        host.endpoint_with(2, &json!({}), &json!({ "ipNATs": nat }));
        (1..=3).for_each(|n| host.wait_up(&format!("cali{n}")));
        until_listed(&host, "chain inet cambric-felix translate", "dnat");
        let outside = outside();
        outside.run("ip route add 172.16.0.0/16 via 10.0.0.11");
        outside.run("ip -6 route add fd16::/64 via fd00::11");
        let places = [&one.namespace, &two.namespace];
        places.iter().for_each(|place| count_at(place, COUNTED));
        // A closed port of a workload behind a floating address.
        count_at(
            &outside,
            "meta l4proto { 1, 58 } @th,0,16 { 0x0303, 0x0104 }",
        );

        for (own, [_, far, _, floating]) in ADDRESSES.into_iter().zip(OUTSIDE) {
            send_from(&one.namespace, [own[0], far], [12345, 9]);
            let seen = Seen {
                from: (own[0].into(), 12345),
                to: (far, 9),
            };
            seen.check(&host, &outside, one, three);

            let unreachable = count_of(&outside);
            host.until("the workload's own error arrives", || {
                send_from(&outside, [far, floating], [12345, 9]);
                count_of(&outside) > unreachable
            });
            let seen = Seen {
                from: (floating.into(), 9),
                to: (far, 12345),
            };
            seen.check(&host, &outside, two, three);
        }

        for (name, cidr) in [("v4", "10.65.0.0/16"), ("v6", "fd65::/64")] {
            let spec = json!({"spec": {"cidr": cidr, "natOutgoing": true}});
            host.put(&format!("{RESOURCES}ippools/{name}"), &spec);
            until_listed(&host, "table inet cambric-felix", cidr);
        }
        for (own, [_, far, translated, _]) in ADDRESSES.into_iter().zip(OUTSIDE) {
            send_from(&one.namespace, [own[0], far], [12346, 9]);
            let from = answered_at(own[0], 12346);
            assert_eq!(from.0, translated);
            let seen = Seen { from, to: (far, 9) };
            seen.check(&host, &outside, one, three);
        }
    });
}
