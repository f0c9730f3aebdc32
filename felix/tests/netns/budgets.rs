//! Floods of one workload, as real packets: the tables of the kernel keep room for the others. Needs
//! root and `CAMBRIC_LAB=1`.
//!
//! A rate allows as much at once as in a unit of time, and the same in each later unit. So the bounds
//! depend on the time that a flood takes, and not on its speed.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use crate::encapsulation::dropped_as;
use crate::guard::{connects, listen, outside};
use crate::world::flow::Flow;
use crate::world::frame::{self, BROADCAST, Wire};
use crate::world::host::{Host, PATIENCE, mac, pair};
use crate::world::{Namespace, Workload, count_at, count_of, lab, packet, run, sysctl};
use cambric_felix::apply::conntrack;

const UDP: u8 = 17;
/// Packets of a flood, and those that the rules must have dropped.
const FLOOD: u16 = 1500;
const DROPPED: u64 = 500;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns the number of neighbor entries of an interface of which the address has this beginning.
fn neighbors(interface: &str, begin: &str) -> usize {
    let listed = run(&format!("ip neigh show dev {interface}"));
    let lines = listed.lines();
    lines.filter(|line| line.starts_with(begin)).count()
}

/// Returns the number that a rate has allowed since a time: as much at once, and in each unit.
fn allowed(rate: usize, unit_s: u64, since: Instant) -> usize {
    let units = since.elapsed().as_secs() / unit_s + 2;
    rate * usize::try_from(units).unwrap()
}

/// Sends until the rules have dropped enough, and at least a flood.
fn flood(host: &Host, words: &str, mut send: impl FnMut(u16)) {
    let before = dropped_as(host, words);
    let send = std::cell::RefCell::new(&mut send);
    host.until(words, || {
        (0..FLOOD).for_each(|n| (*send.borrow_mut())(n));
        dropped_as(host, words) >= before + DROPPED
    });
}

/// Returns a datagram from port `n` to a port.
fn datagram(from: &str, n: u16, to: &str, port: u16) -> Vec<u8> {
    let mut octets = [n.to_be_bytes(), port.to_be_bytes(), [0, 8], [0, 0]].concat();
    let sum = packet::transport_checksum(ip(from), ip(to), UDP, &octets);
    octets[6..8].copy_from_slice(&sum.to_be_bytes());
    packet::packet(ip(from), ip(to), UDP, &octets)
}

// Promise (Felix): One workload cannot fill the tables of the kernel that all share.
#[test]
fn neighbors_of_the_host_stay_few_in_a_flood() {
    lab("neighbors_of_the_host_stay_few_in_a_flood", || {
        let (mut host, one, two) = pair();
        let outside = outside();
        assert!(two.namespace.pings("10.0.0.2") && two.namespace.pings("fd00::2"));
        let flows = ["10.0.0.2", "fd00::2"].map(|to| Flow::start(&two.namespace, to));
        let wire = Wire::of(&one);
        let (own, gateway) = (frame::parsed(&mac(1)), frame::mac_of("cali1"));

        // ARP requests of other senders: the kernel adds none.
        flood(&host, "ARP sender is not the endpoint's", |n| {
            let [high, low] = n.to_be_bytes();
            let (sender, target) = ([10, 66, high, low].into(), [169, 254, 1, 1].into());
            wire.send(&frame::arp(
                frame::REQUEST,
                (own, sender),
                (BROADCAST, target),
            ));
        });
        assert_eq!(neighbors("cali1", "10.66."), 0);

        // Solicitations of many link-local addresses.
        let begun = Instant::now();
        flood(&host, "link-local addresses over the budget", |n| {
            let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xbad, 0, 0, n);
            let target = "fe80::1".parse().unwrap();
            wire.send(&frame::solicitation(from, target, own));
        });
        let found = neighbors("cali1", "fe80::bad:");
        assert!(found > 0 && found <= allowed(16, 60, begun), "{found}");

        // Packets to link-local addresses on its own link.
        flood(&host, "link-local address that is not the gateway's", |n| {
            let to = format!("fe80::dead:{n:x}");
            let made = datagram("fd65::1", n, &to, 9);
            wire.send(&frame::ethernet(gateway, own, frame::IPV6, &made));
        });
        assert_eq!(neighbors("cali1", "fe80::dead:"), 0);

        // Packets to many addresses of the host's uplink.
        let begun = Instant::now();
        flood(&host, "next hops over the budget", |n| {
            let to = format!("fd00::bad:{n:x}");
            let made = datagram("fd65::1", n, &to, 9);
            wire.send(&frame::ethernet(gateway, own, frame::IPV6, &made));
        });
        let found = neighbors("uplink", "fd00::bad:");
        assert!(found > 0 && found <= allowed(128, 60, begun), "{found}");

        // The other workload reaches neighbors that are known, and those that are new.
        for (at, flow) in flows.into_iter().enumerate() {
            let lost = flow.end();
            assert!(lost.is_empty(), "flow {at}: {lost:?}");
        }
        outside.run("ip address add 10.0.0.77/24 dev eth0");
        outside.run("ip address add fd00::77/64 dev eth0 nodad");
        assert!(two.namespace.pings("10.0.0.77") && two.namespace.pings("fd00::77"));
        // So does the first one reach those that it has used.
        assert!(one.namespace.pings("10.65.0.2") && one.namespace.pings("fd65::2"));
        // The elements that the rules have added are no change by another program.
        let handle = || {
            let listed = run("nft -a list table inet cambric-felix");
            listed.lines().next().unwrap().to_owned()
        };
        let before = handle();
        host.stop();
        host.start();
        host.wait_up("cali1");
        assert_eq!(handle(), before, "the filter was replaced");
    });
}

/// Restarts Felix with a line in its file.
fn restart(host: &mut Host, settings: &str, is_listed: &str) {
    host.stop();
    host.settings = settings.into();
    host.start();
    host.until("the budget is in effect", || {
        run("nft list table inet cambric-felix").contains(is_listed)
    });
    host.wait_up("cali1");
    host.wait_up("cali2");
}

/// Returns the number of tracked connections of the first workload, and forgets them.
fn connections() -> usize {
    let all = ["10.65.0.1", "fd65::1"].map(ip);
    conntrack::flush(&all.into()).unwrap()
}

/// Returns whether the list of the interfaces of which all new connections are counted has this text.
fn is_pressed(text: &str) -> bool {
    run("nft list set inet cambric-felix connections-pressed").contains(text)
}

/// Sends datagrams of which each opens a connection. Meanwhile, the other workload opens some.
fn open_many(one: &Workload, two: &Workload, count: u16) {
    for n in 1..=count {
        let made = datagram("10.65.0.1", n, "10.0.0.2", 9);
        one.namespace
            .within(|| packet::send(&made, ip("10.0.0.2")).unwrap());
        if n % (count / 20) == 0 {
            assert!(connects(two, "10.0.0.2:80", PATIENCE), "after {n}");
        }
    }
}

// Promise: as felix neighbors_of_the_host_stay_few_in_a_flood
#[test]
fn connections_of_a_workload_stay_within_its_budget() {
    lab("connections_of_a_workload_stay_within_its_budget", || {
        let (mut host, one, two) = pair();
        let outside = outside();
        let _listener = outside.within(|| listen(80));
        // They do not expire during the test.
        sysctl("netfilter/nf_conntrack_udp_timeout", "600");
        restart(&mut host, "budgets.connections = 100", "ct count over 100 ");
        let before = dropped_as(&host, "connections over the budget");
        open_many(&one, &two, 1000);
        let dropped = dropped_as(&host, "connections over the budget") - before;
        let found = connections();
        assert!(found > 0 && found <= 100, "{found}");
        assert!(dropped >= 500, "{dropped}");
        // All new ones are counted for an hour: otherwise some would pass after each pause.
        assert!(is_pressed("59m"));
        run("nft delete element inet cambric-felix connections-pressed { cali1 }");
        assert!(!is_pressed("cali1"));
        // They have ended, so that there is room for new ones.
        host.until("the workload connects again", || {
            connects(&one, "10.0.0.2:80", std::time::Duration::from_secs(3))
        });
        // A larger budget is counted in samples: one in four, which are chosen at random. The bound
        // is ten standard deviations away.
        restart(&mut host, "budgets.connections = 4096", "mod 4 ");
        connections();
        open_many(&one, &two, 12_000);
        let found = connections();
        assert!((2816..=5376).contains(&found), "{found}");
        assert!(dropped_as(&host, "connections over the budget") > 0);
    });
}

/// Counts the fragments from an address that pass the budget, before they are reassembled.
fn count_fragments(family: &str, from: &str) {
    let matches = match family {
        "ip" => "ip frag-off & 0x3fff != 0",
        _ => "exthdr frag exists",
    };
    run("nft add table inet t");
    run("nft add chain inet t c { type filter hook prerouting priority -420 ; }");
    run(&format!(
        "nft add rule inet t c {family} saddr {from} {matches} counter"
    ));
}

fn counted_here() -> usize {
    let listed = run("nft list chain inet t c");
    let mut words = listed.split_whitespace();
    words.find(|word| *word == "packets");
    words.next().unwrap().parse().unwrap()
}

/// Returns the first fragment of a packet of which the others never come.
fn first_fragment(family: &str, n: u16) -> Vec<u8> {
    let payload = [0x42; 64];
    match family {
        "ip" => {
            let (from, to) = ([10, 65, 0, 1].into(), [10, 0, 0, 2].into());
            let mut made = packet::ipv4(from, to, UDP, Some((0, true)), &payload);
            // Another packet, by its identification.
            made[4..6].copy_from_slice(&n.to_be_bytes());
            made[10..12].fill(0);
            let sum = packet::checksum(&made[..20]);
            made[10..12].copy_from_slice(&sum.to_be_bytes());
            made
        }
        _ => {
            let (from, to) = ("fd65::1".parse().unwrap(), "fd00::2".parse().unwrap());
            let mut body = vec![UDP, 0, 0, 1, 0, 0];
            body.extend(n.to_be_bytes());
            body.extend(payload);
            packet::ipv6(from, to, 44, &body)
        }
    }
}

/// Returns whether a ping in fragments is answered.
fn pings_large(from: &Namespace, to: &str) -> bool {
    from.pings(&format!("-s 3000 {to}"))
}

// Promise: as felix neighbors_of_the_host_stay_few_in_a_flood
#[test]
fn fragments_of_a_workload_stay_within_its_budget() {
    lab("fragments_of_a_workload_stay_within_its_budget", || {
        const RATE: usize = 64;
        let (mut host, one, two) = pair();
        let _outside = outside();
        let line = "budgets.fragments_per_second = 64";
        restart(&mut host, line, "limit rate over 64/second burst 64 ");
        let memory = run("cat /proc/sys/net/ipv4/ipfrag_high_thresh");
        assert!(memory.trim().parse::<u64>().unwrap() >= 64 * 1024 * 1024);
        for (family, from, to) in [
            ("ip", "10.65.0.1", "10.0.0.2"),
            ("ip6", "fd65::1", "fd00::2"),
        ] {
            assert!(pings_large(&two.namespace, to), "before");
            count_fragments(family, from);
            let begun = Instant::now();
            let round = std::cell::Cell::new(0_u16);
            flood(&host, "fragments over the budget", |n| {
                round.set(round.get().wrapping_add(1));
                let made = first_fragment(family, round.get());
                one.namespace
                    .within(|| packet::send(&made, ip(to)).unwrap());
                if n % 500 == 0 {
                    assert!(pings_large(&two.namespace, to), "{family}");
                }
            });
            let (passed, most) = (counted_here(), allowed(RATE, 1, begun));
            assert!(passed > 0 && passed <= most, "{family}: {passed} of {most}");
            run("nft delete table inet t");
        }
        // After the flood, the workload sends fragments again.
        host.until("its own fragments", || {
            pings_large(&one.namespace, "10.0.0.2") && pings_large(&one.namespace, "fd00::2")
        });
    });
}

#[test]
fn budget_of_zero_is_no_limit() {
    lab("budget_of_zero_is_no_limit", || {
        let (mut host, one, two) = pair();
        let outside = outside();
        let line = "budgets = { connections = 0, fragments_per_second = 0, \
                    next_hops_per_minute = 0, link_local_per_minute = 0 }";
        restart(&mut host, line, "chain workload-source");
        host.until("no limit is left", || {
            let listed = run("nft list table inet cambric-felix");
            !listed.contains("limit rate") && !listed.contains("ct count")
        });
        count_at(&outside, "udp dport 9");
        host.until("all datagrams arrive", || {
            for n in 1..=200 {
                let made = datagram("10.65.0.1", n, "10.0.0.2", 9);
                one.namespace
                    .within(|| packet::send(&made, ip("10.0.0.2")).unwrap());
            }
            count_of(&outside) >= 200
        });
        assert!(one.namespace.pings("fd65::2") && two.namespace.pings("fd00::2"));
        // Then the attack succeeds: each link-local source is a neighbor.
        let wire = Wire::of(&one);
        let own = frame::parsed(&mac(1));
        host.until("a neighbor for each of many sources", || {
            for n in 0..100 {
                let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xbad, 0, 0, n);
                wire.send(&frame::solicitation(from, "fe80::1".parse().unwrap(), own));
            }
            neighbors("cali1", "fe80::bad:") > 90
        });
    });
}
