//! Attacks of a workload that no other file of this lab has, as real packets. Needs root and
//! `CAMBRIC_LAB=1`. The table of all attacks is in `docs/design/testing.md`.
//!
//! | attack | test |
//! |---|---|
//! | SCTP with right checksums, to a closed port and into an association of others | `sctp_passes_only_as_policies_allow` |
//! | segments larger than the link, by the offload of a network card | `offloaded_segments_meet_the_same_rules` |
//! | VLAN and QinQ tags before any packet | `tagged_frame_of_a_workload_is_dropped` |
//! | IPv6 jumbograms | `jumbogram_does_not_pass_the_guard` |
//! | forbidden packets while Felix is killed in a storm of policies | `killed_felix_lets_no_forbidden_packet_pass` |
//! | packets while the interface and its endpoint are created | `new_interface_sends_nothing_before_its_rules` |

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;

use crate::encapsulation::dropped_as;
use crate::guard::{fabric, outside};
use crate::world::frame::{self, Wire};
use crate::world::host::{Host, OPEN, PATIENCE, RESOURCES, announce, key, mac, pair, workload};
use crate::world::process::{Process, served};
use crate::world::{Namespace, Workload, count_at, count_of, lab, packet, run, sysctl};

const TCP: u8 = 6;
const SCTP: u8 = 132;
pub(crate) const SOURCE: &str = "source is not the endpoint's";
const CONTROL: &str = "control port of the fabric";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn send(from: &Workload, made: &[u8], to: &str) {
    from.namespace
        .within(|| packet::send(made, ip(to)).unwrap());
}

/// Computes the checksum of SCTP (RFC 9260 §6.8, CRC-32C).
fn crc32c(octets: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for octet in octets {
        sum ^= u32::from(*octet);
        for _ in 0..8 {
            let mask = 0_u32.wrapping_sub(sum & 1);
            sum = (sum >> 1) ^ (0x82f6_3b78 & mask);
        }
    }
    !sum
}

/// Chunks of SCTP (RFC 9260 §3.3): INIT, INIT ACK, ABORT, COOKIE ECHO, COOKIE ACK.
const INIT: u8 = 1;
const INIT_ACK: u8 = 2;
const ABORT: u8 = 6;
const COOKIE_ECHO: u8 = 10;
const COOKIE_ACK: u8 = 11;

/// One end of an association.
#[derive(Clone, Copy)]
struct End {
    address: &'static str,
    port: u16,
    /// The tag that packets to this end have.
    tag: u32,
}

/// Returns an SCTP packet with one chunk and a right checksum.
fn sctp(from: End, to: End, chunk: u8) -> Vec<u8> {
    let tag = if chunk == INIT { 0 } else { to.tag };
    let mut octets = [from.port.to_be_bytes(), to.port.to_be_bytes()].concat();
    octets.extend(tag.to_be_bytes());
    octets.extend([0; 4]);
    let value = match chunk {
        // Tag, window, streams, first number.
        INIT | INIT_ACK => {
            let rest = [0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1];
            [&from.tag.to_be_bytes()[..], &rest].concat()
        }
        COOKIE_ECHO => vec![1, 2, 3, 4],
        _ => Vec::new(),
    };
    let length = u16::try_from(4 + value.len()).unwrap();
    octets.extend([chunk, 0]);
    octets.extend(length.to_be_bytes());
    octets.extend(value);
    let sum = crc32c(&octets);
    octets[8..12].copy_from_slice(&sum.to_le_bytes());
    packet::packet(ip(from.address), ip(to.address), SCTP, &octets)
}

/// Sends until the receiver has counted one more.
fn arrives(host: &Host, from: &Workload, to: &Workload, made: &[u8], at: &str) {
    let before = count_of(&to.namespace);
    host.until(&format!("a packet to {at}"), || {
        send(from, made, at);
        count_of(&to.namespace) > before
    });
}

#[test]
fn sctp_passes_only_as_policies_allow() {
    lab("sctp_passes_only_as_policies_allow", || {
        let (host, one, two) = pair();
        let three = workload(3);
        announce(&host, 3, OPEN);
        host.wait_up("cali3");
        let spec = json!({"selector": "all()", "types": ["Ingress"], "ingress": [
            {"action": "Allow", "protocol": "SCTP", "destination": {"ports": [5000]}}]});
        host.put(
            &format!("{RESOURCES}globalnetworkpolicies/p"),
            &json!({ "spec": spec }),
        );
        host.until("the policy is in effect", || {
            run("nft list chain inet cambric-felix to-cali1").contains("part of no connection")
                && run("nft list chain inet cambric-felix to-cali2").contains("jump")
        });
        for workload in [&one, &two] {
            count_at(&workload.namespace, "meta l4proto sctp");
        }
        for addresses in [["10.65.0.1", "10.65.0.2"], ["fd65::1", "fd65::2"]] {
            let end = |at: usize, port, tag| End {
                address: addresses[at],
                port,
                tag,
            };
            let (client, server) = (end(0, 40_000, 0x1111), end(1, 5000, 0x2222));
            // A closed port.
            let received = count_of(&two.namespace);
            for _ in 0..10 {
                let other = End {
                    port: 5001,
                    ..server
                };
                send(&one, &sctp(client, other, INIT), server.address);
            }
            // An association: each end is only a raw socket. Packets do not overtake each other.
            let init = sctp(client, server, INIT);
            send(&one, &init, server.address);
            host.until("INIT", || count_of(&two.namespace) > received);
            assert_eq!(count_of(&two.namespace), received + 1, "a closed port");
            // The first workload accepts no new association, but the answers of its own.
            let back = |chunk| sctp(server, client, chunk);
            arrives(&host, &two, &one, &back(INIT_ACK), client.address);
            let echo = sctp(client, server, COOKIE_ECHO);
            arrives(&host, &one, &two, &echo, server.address);
            arrives(&host, &two, &one, &back(COOKIE_ACK), client.address);
            // The third one ends it with the address and the tag of an end.
            let (received, before) = (count_of(&one.namespace), dropped_as(&host, SOURCE));
            host.until("the forged end is dropped", || {
                send(&three, &back(ABORT), client.address);
                dropped_as(&host, SOURCE) >= before + 3
            });
            assert_eq!(count_of(&one.namespace), received, "a forged end");
        }
    });
}

/// Returns a TCP segment with much data: its network card would divide it.
fn large_segment(from: IpAddr, to: IpAddr, port: u16, octets: usize) -> Vec<u8> {
    let mut segment = packet::syn(from, 40_000, (to, port).into());
    // An ACK instead of a SYN.
    segment[13] = 0x10;
    segment.extend(vec![0x42; octets]);
    segment[16..18].copy_from_slice(&[0, 0]);
    let length = u16::try_from(segment.len()).unwrap();
    // The card completes the sum of the pseudo-header.
    let sum = !packet::pseudo_header_checksum(from, to, TCP, length);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    packet::packet(from, to, TCP, &segment)
}

// Promise: as felix workload_reaches_no_control_port_of_the_fabric
#[test]
fn offloaded_segments_meet_the_same_rules() {
    lab("offloaded_segments_meet_the_same_rules", || {
        let (host, one, two) = pair();
        let outside = outside();
        fabric(&host);
        // A socket sends segments of 64 KiB: they arrive whole.
        let listener = two
            .namespace
            .within(|| TcpListener::bind("[::]:80").unwrap());
        for address in ["10.65.0.2:80", "[fd65::2]:80"] {
            let address = address.parse().unwrap();
            let connect = || TcpStream::connect_timeout(&address, PATIENCE).unwrap();
            let mut near = one.namespace.within(connect);
            let (mut far, _) = listener.accept().unwrap();
            let sender = std::thread::spawn(move || near.write_all(&[7; 2_000_000]).unwrap());
            let mut received = Vec::new();
            far.read_to_end(&mut received).unwrap();
            sender.join().unwrap();
            assert!(received.len() == 2_000_000 && received.iter().all(|octet| *octet == 7));
        }
        // Segments that the workload makes itself, to a control port and from another source.
        let wire = Wire::offloading(&one);
        let (own, gateway) = (frame::parsed(&mac(1)), frame::mac_of("cali1"));
        count_at(&outside, "tcp dport { 179, 180 }");
        for (from, other, to, kind) in [
            ("10.65.0.1", "10.65.0.9", "10.0.0.2", frame::IPV4),
            ("fd65::1", "fd65::9", "fd00::2", frame::IPV6),
        ] {
            let made = |from, port| {
                let packet = large_segment(ip(from), ip(to), port, 8000);
                frame::ethernet(gateway, own, kind, &packet)
            };
            let header = if kind == frame::IPV4 { 20 } else { 40 };
            let received = count_of(&outside);
            for (from, port, words) in [(from, 179, CONTROL), (other, 180, SOURCE)] {
                let before = dropped_as(&host, words);
                host.until(words, || {
                    wire.send_segments(&made(from, port), header, 1000);
                    dropped_as(&host, words) >= before + 3
                });
            }
            assert_eq!(count_of(&outside), received, "{to}");
            host.until("the same to another port", || {
                wire.send_segments(&made(from, 180), header, 1000);
                count_of(&outside) > received
            });
        }
    });
}

/// Returns a frame with tags: types and numbers of VLANs.
pub(crate) fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(12);
    let tags = tags
        .iter()
        .flat_map(|(kind, vlan)| [kind.to_be_bytes(), vlan.to_be_bytes()].concat());
    let tags: Vec<u8> = tags.collect();
    [addresses, &tags, rest].concat()
}

/// Types of tags: IEEE 802.1Q, 802.1ad.
pub(crate) const VLAN: u16 = 0x8100;
pub(crate) const QINQ: u16 = 0x88a8;

/// Returns the frames that the rules of the first workload's interface have dropped.
fn tagged_drops() -> u64 {
    let listed = run("nft list chain netdev cambric-felix cali1");
    let words: Vec<&str> = listed.split_whitespace().collect();
    let counts = words.windows(2).filter(|pair| pair[0] == "packets");
    counts.map(|pair| pair[1].parse::<u64>().unwrap()).sum()
}

// Promise (Felix): Frames with VLAN tags of a workload are dropped.
#[test]
fn tagged_frame_of_a_workload_is_dropped() {
    lab("tagged_frame_of_a_workload_is_dropped", || {
        let (host, one, two) = pair();
        let wire = Wire::of(&one);
        let (own, gateway) = (frame::parsed(&mac(1)), frame::mac_of("cali1"));
        count_at(&two.namespace, "udp dport 9");
        let plain = |from: &str, to: &str| {
            let kind = if ip(to).is_ipv4() {
                frame::IPV4
            } else {
                frame::IPV6
            };
            frame::ethernet(gateway, own, kind, &datagram(from, to))
        };
        let arp = frame::arp(
            frame::REQUEST,
            (own, [10, 65, 0, 2].into()),
            (frame::BROADCAST, [169, 254, 1, 1].into()),
        );
        let tags: [&[(u16, u16)]; 4] = [
            &[(VLAN, 7)],
            &[(QINQ, 7)],
            &[(QINQ, 7), (VLAN, 8)],
            &[(VLAN, 7), (VLAN, 8)],
        ];
        for (from, to) in [("10.65.0.1", "10.65.0.2"), ("fd65::1", "fd65::2")] {
            let received = count_of(&two.namespace);
            for tags in tags {
                for _ in 0..10 {
                    wire.send(&tagged(&plain(from, to), tags));
                    wire.send(&tagged(&arp, tags));
                }
            }
            // Later packets arrive, and no earlier one has.
            host.until("without a tag", || {
                wire.send(&plain(from, to));
                count_of(&two.namespace) > received
            });
            assert!(count_of(&two.namespace) <= received + 10, "{to}");
        }
        assert!(!run("ip neigh show dev cali1").contains("10.65.0.2"));
        // Each kind of tag is dropped by a rule, not only by the kernel.
        let tags: [&[(u16, u16)]; 4] = [
            &[(VLAN, 7)],
            &[(QINQ, 7), (VLAN, 8)],
            &[(VLAN, 0), (VLAN, 7)],
            &[(VLAN, 0), (QINQ, 7)],
        ];
        for tags in tags {
            let before = tagged_drops();
            host.until(&format!("a rule drops {tags:?}"), || {
                wire.send(&tagged(&plain("10.65.0.1", "10.65.0.2"), tags));
                tagged_drops() >= before + 3
            });
        }
        // A new interface with the same name has a chain of its own.
        run("ip link delete cali1");
        host.wait("cali1", "removed", |endpoint| {
            endpoint.is_some_and(|endpoint| endpoint.state == "down")
        });
        let one = workload(1);
        host.wait_up("cali1");
        let wire = Wire::of(&one);
        let gateway = frame::mac_of("cali1");
        let frame = frame::ethernet(
            gateway,
            own,
            frame::IPV4,
            &datagram("10.65.0.1", "10.65.0.2"),
        );
        host.until("the new interface drops tags", || {
            wire.send(&tagged(&frame, &[(VLAN, 7)]));
            tagged_drops() >= 3
        });
        let plain =
            |from: &str, to: &str| frame::ethernet(gateway, own, frame::IPV4, &datagram(from, to));
        // The number 0 is a priority and no VLAN: the packet meets all rules.
        let before = dropped_as(&host, SOURCE);
        host.until("a source of others, with a priority", || {
            wire.send(&tagged(&plain("10.65.0.9", "10.65.0.2"), &[(VLAN, 0)]));
            dropped_as(&host, SOURCE) >= before + 3
        });
    });
}

/// Returns a datagram to port 9.
pub(crate) fn datagram(from: &str, to: &str) -> Vec<u8> {
    let mut octets = vec![0x30, 0x39, 0, 9, 0, 8, 0, 0];
    let sum = packet::transport_checksum(ip(from), ip(to), 17, &octets);
    octets[6..8].copy_from_slice(&sum.to_be_bytes());
    packet::packet(ip(from), ip(to), 17, &octets)
}

/// Returns a packet with the option of a jumbo payload (RFC 2675) before a segment. `length`: that of
/// the header.
fn jumbogram(from: Ipv6Addr, to: Ipv6Addr, length: u16, jumbo: u32, segment: &[u8]) -> Vec<u8> {
    let mut payload = vec![TCP, 0, 0xc2, 4];
    payload.extend(jumbo.to_be_bytes());
    payload.extend(segment);
    let mut made = packet::ipv6(from, to, 0, &payload);
    made[4..6].copy_from_slice(&length.to_be_bytes());
    made
}

// Promise: as felix workload_reaches_no_control_port_of_the_fabric
#[test]
fn jumbogram_does_not_pass_the_guard() {
    lab("jumbogram_does_not_pass_the_guard", || {
        let (host, one, two) = pair();
        let outside = outside();
        fabric(&host);
        let wire = Wire::of(&one);
        let (own, gateway) = (frame::parsed(&mac(1)), frame::mac_of("cali1"));
        let (from, to): (Ipv6Addr, Ipv6Addr) =
            ("fd65::1".parse().unwrap(), "fd00::2".parse().unwrap());
        count_at(&outside, "tcp dport { 179, 180 }");
        let segment = packet::syn(from.into(), 40_000, (to, 179).into());
        let real = u16::try_from(segment.len() + 8).unwrap();
        for length in [0, real, u16::MAX] {
            for jumbo in [0, 8, u32::from(real), 65_535, 65_536, 100_000, u32::MAX] {
                for sender in [from, "fd65::9".parse().unwrap()] {
                    let made = jumbogram(sender, to, length, jumbo, &segment);
                    wire.send(&frame::ethernet(gateway, own, frame::IPV6, &made));
                }
            }
        }
        // Later packets arrive, and no earlier one has.
        let open = packet::syn(from.into(), 40_001, (to, 180).into());
        let open = packet::ipv6(from, to, TCP, &open);
        let sent = AtomicU64::new(0);
        host.until("an ordinary packet", || {
            sent.fetch_add(1, Ordering::Relaxed);
            wire.send(&frame::ethernet(gateway, own, frame::IPV6, &open));
            count_of(&outside) > 0
        });
        assert!(count_of(&outside) <= sent.load(Ordering::Relaxed));
        assert!(two.namespace.pings("fd65::1"));
    });
}

/// Frames that a workload sends without a pause.
struct Stream {
    ends: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Stream {
    fn start(wire: Wire, frames: Vec<Vec<u8>>) -> Self {
        let (ends, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (end, count) = (Arc::clone(&ends), Arc::clone(&sent));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                frames.iter().for_each(|frame| wire.send_if_up(frame));
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { ends, sent, thread }
    }

    /// Waits until some more were sent.
    fn go_on(&self) {
        let before = self.sent.load(Ordering::Relaxed);
        let deadline = std::time::Instant::now() + PATIENCE;
        while self.sent.load(Ordering::Relaxed) <= before + 20 {
            assert!(std::time::Instant::now() < deadline, "no more frames");
            std::thread::yield_now();
        }
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// Waits until a Felix that was just started has its endpoints up.
fn until_up(host: &Host) {
    let is_open = || std::os::unix::net::UnixStream::connect(host.socket()).is_ok();
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_open() {
        assert!(std::time::Instant::now() < deadline, "no control socket");
        std::thread::yield_now();
    }
    (1..=2).for_each(|n| host.wait_up(&format!("cali{n}")));
}

// Promise: as felix a_source_address_that_is_not_the_endpoints_is_dropped
#[test]
fn killed_felix_lets_no_forbidden_packet_pass() {
    const ROUNDS: u16 = 8;
    lab("killed_felix_lets_no_forbidden_packet_pass", || {
        let (host, store) = served();
        let (one, two) = (workload(1), workload(2));
        (1..=2).for_each(|n| announce(&host, n, OPEN));
        // Port 9 is always denied, and the other rules change.
        let write = |change: u16| {
            let port = 1000 + change;
            let spec = json!({"selector": "all()", "types": ["Ingress"], "ingress": [
                {"action": "Deny", "protocol": "TCP", "destination": {"ports": [port]}},
                {"action": "Deny", "protocol": "UDP", "destination": {"ports": [9, port]}},
                {"action": "Allow"}]});
            host.put(
                &format!("{RESOURCES}globalnetworkpolicies/p"),
                &json!({ "spec": spec }),
            );
        };
        write(0);
        let mut felix = Process::start(&host, &store, "");
        until_up(&host);
        count_at(&two.namespace, "udp dport 9");
        let (own, gateway) = (frame::parsed(&mac(1)), frame::mac_of("cali1"));
        let frames = [
            ("10.65.0.1", "10.65.0.2", frame::IPV4),
            ("fd65::1", "fd65::2", frame::IPV6),
        ]
        .map(|(from, to, kind)| frame::ethernet(gateway, own, kind, &datagram(from, to)));
        let stream = Stream::start(Wire::of(&one), frames.into());
        let none = |at: &str, round: u16| {
            let found = count_of(&two.namespace);
            assert_eq!(found, 0, "{at}, round {round}");
        };
        for round in 0..ROUNDS {
            // It is killed after another number of changes each time, without a pause.
            (0..=round * 3).for_each(|n| write(100 * round + n));
            none("after changes", round);
            drop(felix);
            stream.go_on();
            none("after the end", round);
            felix = Process::start(&host, &store, "");
            if round % 2 == 0 {
                until_up(&host);
            }
            stream.go_on();
            none("after the start", round);
        }
        until_up(&host);
        assert!(one.namespace.pings("10.65.0.2") && one.namespace.pings("fd65::2"));
        stream.end();
        assert_eq!(count_of(&two.namespace), 0);
    });
}

/// Counts packets from two addresses.
fn count_from(namespace: &Namespace, addresses: &[&str]) {
    namespace.run("nft add table inet f");
    namespace.run("nft add chain inet f c { type filter hook prerouting priority -450 ; }");
    for address in addresses {
        namespace.run(&format!(
            "nft add rule inet f c ip saddr {address} counter comment {address}"
        ));
    }
}

fn received_from(namespace: &Namespace, address: &str) -> u64 {
    let listed = namespace.run("nft list chain inet f c");
    let line = listed.lines().find(|line| line.contains(address)).unwrap();
    let mut words = line.split_whitespace();
    words.find(|word| *word == "packets");
    words.next().unwrap().parse().unwrap()
}

// Promise: as felix a_source_address_that_is_not_the_endpoints_is_dropped
#[test]
fn new_interface_sends_nothing_before_its_rules() {
    const ROUNDS: usize = 10;
    lab("new_interface_sends_nothing_before_its_rules", || {
        let (host, _one, two) = pair();
        // No answer of the host is needed for its frames.
        sysctl("ipv4/conf/all/rp_filter", "0");
        sysctl("ipv4/conf/default/rp_filter", "0");
        count_from(&two.namespace, &["10.65.0.9", "10.65.0.1"]);
        let from_nine = || received_from(&two.namespace, "10.65.0.9");
        let from_one = || received_from(&two.namespace, "10.65.0.1");
        for round in 0..ROUNDS {
            let nine = Namespace::new();
            run("ip link add cali9 address 02:00:00:00:99:99 type veth peer name wl9");
            nine.take("wl9", "eth0");
            nine.run("ip link set eth0 up");
            let nine = Workload { namespace: nine };
            let to = [2, 0, 0, 0, 0x99, 0x99];
            let frames = ["10.65.0.9", "10.65.0.1"].map(|from| {
                let made = datagram(from, "10.65.0.2");
                frame::ethernet(to, frame::parsed(&mac(9)), frame::IPV4, &made)
            });
            // It sends already when the interface comes up.
            let stream = Stream::start(Wire::of(&nine), frames.into());
            let before = (from_nine(), from_one());
            run("ip link set cali9 up");
            stream.go_on();
            assert_eq!((from_nine(), from_one()), before, "round {round}");
            announce(&host, 9, OPEN);
            host.until("its own packets arrive", || from_nine() > before.0);
            assert_eq!(from_one(), before.1, "round {round}");
            host.delete(&key("w9"));
            host.wait("cali9", "gone", |endpoint| endpoint.is_none());
            // The rules are removed after the endpoint; then nothing passes.
            host.until("its rules are removed", || {
                !run("nft list table inet cambric-felix").contains("cali9")
            });
            let after = from_nine();
            stream.go_on();
            assert_eq!(
                (from_nine(), from_one()),
                (after, before.1),
                "round {round}"
            );
            run("ip link delete cali9");
            stream.end();
        }
    });
}
