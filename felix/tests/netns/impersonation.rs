//! A workload that answers for the addresses of others, as real packets. Needs root and
//! `CAMBRIC_LAB=1`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::encapsulation::dropped_as;
use crate::guard::outside;
use crate::world::frame::{self, BROADCAST, Mac, Wire};
use crate::world::host::{Host, mac, pair};
use crate::world::{Namespace, Workload, count_at, count_of, lab, packet, pings, run};

const UDP: u8 = 17;
const GATEWAYS: (&str, &str) = ("169.254.1.1", "fe80::1");
const SENDER: &str = "ARP sender is not the endpoint's";

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Returns the permanent neighbor entries of the host, in order.
fn permanent() -> Vec<String> {
    let listed = run("ip neigh show nud permanent");
    let lines = listed.lines().filter(|line| line.contains("cali"));
    let mut lines: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
    lines.sort_unstable();
    lines
}

/// Counts packets to the second workload where they arrive, also if its address is not the receiver's.
fn count_of_others(namespace: &Namespace) {
    namespace.run("nft add table inet o");
    namespace.run("nft add chain inet o c { type filter hook prerouting priority -450 ; }");
    for what in ["ip daddr 10.65.0.2", "ip6 daddr fd65::2"] {
        namespace.run(&format!("nft add rule inet o c {what} counter"));
    }
}

fn received_of_others(namespace: &Namespace) -> u64 {
    let listed = namespace.run("nft list chain inet o c");
    let words: Vec<&str> = listed.split_whitespace().collect();
    let counts = words.windows(2).filter(|pair| pair[0] == "packets");
    counts.map(|pair| pair[1].parse::<u64>().unwrap()).sum()
}

/// Returns ARP for the address of another: unsolicited replies and requests, from the own and from the
/// other's link-layer address.
fn arp_claims(address: Ipv4Addr, macs: [Mac; 2], gateway: Mac) -> Vec<Vec<u8>> {
    let mut claims = Vec::new();
    for from in macs {
        for to in [BROADCAST, gateway] {
            let own = (from, address);
            claims.push(frame::arp(frame::REPLY, own, (to, address)));
            claims.push(frame::arp(frame::REPLY, own, (to, v4(GATEWAYS.0))));
            claims.push(frame::arp(frame::REQUEST, own, (to, address)));
            claims.push(frame::arp(frame::REQUEST, own, (to, v4(GATEWAYS.0))));
        }
    }
    claims
}

/// Returns advertisements for the address of another, from the own addresses and the other's.
fn discovery_claims(address: Ipv6Addr, macs: [Mac; 2], gateway: Mac) -> Vec<Vec<u8>> {
    let all_nodes = ([0x33, 0x33, 0, 0, 0, 1], v6("ff02::1"));
    let host = (gateway, v6(GATEWAYS.1));
    let mut claims = Vec::new();
    for from in macs {
        for source in [v6("fd65::1"), v6("fe80::17"), address] {
            for to in [all_nodes, host] {
                claims.push(frame::advertisement(source, to, address, from));
            }
            // It has the option of a link-layer address, of which the receiver learns.
            claims.push(frame::solicitation(source, v6(GATEWAYS.1), from));
        }
    }
    claims
}

fn send_all(wire: &Wire, frames: &[Vec<u8>]) {
    frames.iter().for_each(|frame| wire.send(frame));
}

/// The second workload is reached from the host, from outside, and reaches its gateway.
fn is_reached(two: &Workload, outside: &Namespace) {
    for (own, far) in [("10.65.0.2", "10.0.0.2"), ("fd65::2", "fd00::2")] {
        assert!(pings(own), "from the host");
        assert!(outside.pings(own), "from outside");
        assert!(two.namespace.pings(far), "to the outside");
    }
}

// Promise (Felix): A workload gets no packet of another one by answering ARP or neighbor discovery.
#[test]
fn claim_of_an_address_of_others_changes_no_neighbor() {
    lab("claim_of_an_address_of_others_changes_no_neighbor", || {
        let (host, one, two) = pair();
        let outside = outside();
        is_reached(&two, &outside);
        // The first workload accepts what is sent to the second one.
        for command in [
            "ip address add 10.65.0.2/32 dev lo",
            "ip address add fd65::2/128 dev lo nodad",
            "ip address add 169.254.1.1/32 dev lo",
        ] {
            one.namespace.run(command);
        }
        count_of_others(&one.namespace);
        let wire = Wire::of(&one);
        let macs = [1, 2].map(|n| frame::parsed(&mac(n)));
        let gateway = frame::mac_of("cali1");
        let before = permanent();
        assert_eq!(before.len(), 4, "{before:#?}");
        let mut claims = Vec::new();
        for address in ["10.65.0.2", GATEWAYS.0, "10.0.0.2", "10.0.0.11"] {
            claims.extend(arp_claims(v4(address), macs, gateway));
        }
        let dropped = dropped_as(&host, SENDER);
        let sent = u64::try_from(claims.len()).unwrap();
        for address in ["fd65::2", GATEWAYS.1, "fd00::2", "fd00::11"] {
            claims.extend(discovery_claims(v6(address), macs, gateway));
        }
        host.until("all ARP is dropped", || {
            send_all(&wire, &claims);
            dropped_as(&host, SENDER) >= dropped + sent
        });
        is_reached(&two, &outside);
        send_all(&wire, &claims);
        is_reached(&two, &outside);
        assert_eq!(permanent(), before);
        assert_eq!(received_of_others(&one.namespace), 0);
        // An entry of an address of others exists on no link to the first workload.
        let listed = run("ip neigh show dev cali1");
        for address in ["10.65.0.2", "169.254.1.1", "10.0.0.", "fd65::2", "fd00::"] {
            let has = listed.lines().any(|line| line.starts_with(address));
            assert!(!has, "{address}: {listed}");
        }
        // Its own link-layer address does not change either.
        let own = frame::arp(
            frame::REPLY,
            ([2, 0, 0, 0, 0, 9], v4("10.65.0.1")),
            (gateway, v4(GATEWAYS.0)),
        );
        wire.send(&own);
        assert!(pings("10.65.0.1") && outside.pings("10.65.0.1"));
        assert_eq!(permanent(), before);
    });
}

/// Returns a datagram.
fn datagram(from: &str, to: &str, ports: [u16; 2]) -> Vec<u8> {
    let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let mut octets = ports.map(u16::to_be_bytes).concat();
    octets.extend([0, 8, 0, 0]);
    let sum = packet::transport_checksum(from, to, UDP, &octets);
    octets[6..8].copy_from_slice(&sum.to_be_bytes());
    packet::packet(from, to, UDP, &octets)
}

fn send(from: &Workload, made: &[u8], to: &str) {
    from.namespace
        .within(|| packet::send(made, to.parse().unwrap()).unwrap());
}

/// Asserts that a packet arrives at the second workload, and that another one is dropped.
fn compare(host: &Host, [one, two]: [&Workload; 2], to: &str, all: [Vec<u8>; 2], words: &str) {
    let [passes, never] = all;
    let received = || count_of(&two.namespace);
    let (arrived, before) = (received(), dropped_as(host, words));
    host.until(&format!("the other packet to {to}"), || {
        send(one, &passes, to);
        received() > arrived
    });
    let arrived = received();
    host.until(words, || {
        send(one, &never, to);
        dropped_as(host, words) >= before + 3
    });
    assert_eq!(received(), arrived, "{words}, to {to}");
}

// Promise: as felix claim_of_an_address_of_others_changes_no_neighbor
#[test]
fn workload_is_no_dhcp_server_and_no_router_of_others() {
    lab("workload_is_no_dhcp_server_and_no_router_of_others", || {
        let (host, one, two) = pair();
        let both = [&one, &two];
        count_at(
            &two.namespace,
            "meta l4proto { 17, 58 } @th,0,16 { 67, 547, 6767, 0x8000, 0x8600 }",
        );
        let words = "reply of a DHCP server";
        for (ends, ports, other) in [
            (["10.65.0.1", "10.65.0.2"], [67, 68], 69),
            (["fd65::1", "fd65::2"], [547, 546], 548),
        ] {
            let of = |port| datagram(ends[0], ends[1], [ports[0], port]);
            compare(&host, both, ends[1], [of(other), of(ports[1])], words);
            // A client takes replies from any port.
            let odd = |port| datagram(ends[0], ends[1], [6767, port]);
            compare(&host, both, ends[1], [odd(other), odd(ports[1])], words);
        }
        let [from, to] = ["fd65::1", "fd65::2"];
        let message = |kind| {
            let mut made = vec![kind, 0, 0, 0, 64, 0, 0x70, 0x80];
            made.extend([0; 8]);
            frame::discovery(v6(from), v6(to), &made)
        };
        // The other one is an echo request.
        let all = [message(128), message(134)];
        compare(&host, both, to, all, "router advertisement of a workload");
        // From a link-local address, as hosts accept it, it does not pass the source check.
        let wire = Wire::of(&one);
        let words = "source is not the endpoint's";
        let before = dropped_as(&host, words);
        let all_nodes = [0x33, 0x33, 0, 0, 0, 1];
        let mut made = vec![134, 0, 0, 0, 64, 0, 0x70, 0x80];
        made.extend([0; 8]);
        let made = frame::discovery(v6("fe80::17"), v6("ff02::1"), &made);
        let own = frame::parsed(&mac(1));
        let made = frame::ethernet(all_nodes, own, frame::IPV6, &made);
        host.until(words, || {
            wire.send(&made);
            dropped_as(&host, words) >= before + 3
        });
        assert!(!run("ip -6 route show").contains("proto ra"));
    });
}
