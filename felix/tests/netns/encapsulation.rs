//! Encapsulated packets, from workloads and from other sources, as real packets. Needs root and
//! `CAMBRIC_LAB=1`.

use std::net::IpAddr;

use crate::world::host::{Host, OPEN, RESOURCES, announce, pair, workload};
use crate::world::packet;
use crate::world::{self, Namespace, Workload, count_at, count_of, lab, run};
use daemon_common::{Command, Reply};
use serde_json::json;

const UDP: u8 = 17;
const GRE: u8 = 47;
const PROTOCOLS: [u8; 6] = [4, 41, GRE, 50, 51, 115];
const DROPPED: &str = "encapsulation from a workload";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns a datagram to a port, without a checksum.
fn datagram(port: u16) -> Vec<u8> {
    let mut octets = vec![0x30, 0x39];
    octets.extend(port.to_be_bytes());
    octets.extend([0, 16, 0, 0]);
    octets.extend([0; 8]);
    octets
}

/// Sends a packet from a workload: a payload of this protocol in an IP packet.
fn send(from: &Workload, [source, to]: [&str; 2], protocol: u8, payload: &[u8]) {
    let made = packet::packet(ip(source), ip(to), protocol, payload);
    from.namespace
        .within(|| packet::send(&made, ip(to)).unwrap());
}

/// Returns whether a repeatedly sent packet reaches the counter at its destination, or the drop
/// rule.
fn arrives(host: &Host, at: &Namespace, chain: &str, words: &str, send: impl Fn()) -> bool {
    let before = host.counted(chain, words);
    let counted = count_of(at);
    host.until("packets arrive or are dropped", || {
        send();
        count_of(at) > counted || host.counted(chain, words) >= before + 3
    });
    count_of(at) > counted
}

/// Returns the number of dropped packets of workloads to tunnel ends.
fn to_tunnel_ends(host: &Host) -> u64 {
    dropped_as(host, "tunnel packet of a workload")
}

/// Returns the number of packets dropped by rules with this comment, if there are such rules.
pub(crate) fn dropped_as(host: &Host, words: &str) -> u64 {
    let Reply::Rules(rules) = host.ask(&Command::Rules {}) else {
        panic!("no rules");
    };
    let rules = rules.rules.iter();
    let dropped = rules.filter(|rule| rule.text.contains(words));
    dropped.filter_map(|rule| rule.packets).sum()
}

/// Creates the far end of the host's uplink: node `n2` (10.0.0.2, fd00::2), and a host that is not
/// a node (10.0.0.1).
fn outside(host: &Host) -> Namespace {
    let outside = Namespace::new();
    outside.take("far", "eth0");
    for command in [
        "ip link set eth0 up",
        "ip address add 10.0.0.1/24 dev eth0",
        "ip address add 10.0.0.2/24 dev eth0",
        "ip address add fd00::1/64 dev eth0 nodad",
        "ip address add fd00::2/64 dev eth0 nodad",
    ] {
        outside.run(command);
    }
    let spec =
        json!({"spec": {"bgp": {"ipv4Address": "10.0.0.2/24", "ipv6Address": "fd00::2/64"}}});
    host.put(&format!("{RESOURCES}nodes/n2"), &spec);
    host.until("the node is known", || {
        run("nft list set inet cambric-felix nodes-ipv4").contains("10.0.0.2")
    });
    outside
}

// Promise (Felix): Encapsulated packets do not bypass policies: workloads send only those that a
// rule names, and hosts accept them only from nodes.
#[test]
fn encapsulation_from_a_workload_is_dropped() {
    lab("encapsulation_from_a_workload_is_dropped", || {
        let (host, one, two) = pair();
        let outside = outside(&host);
        host.configure(&json!({"defaultEndpointToHostAction": "Accept"}));
        host.until("the host accepts", || {
            run("nft list chain inet cambric-felix workload-to-host").contains("to host: accept")
        });
        let wrapped = "meta l4proto { 4, 41, 47, 50, 51, 115 }";
        for at in [&two.namespace, &outside] {
            count_at(at, wrapped);
            at.run("nft add rule inet t c udp dport { 1701, 4789, 6081 } counter");
            at.run("nft add chain inet t plain { type filter hook input priority 1 ; }");
        }
        let dropped = || host.counted("workload-encapsulation", DROPPED) + to_tunnel_ends(&host);
        // To another workload, to a node, and to the host itself.
        for ways in [
            ["10.65.0.1", "10.65.0.2", "10.0.0.2", "10.0.0.11"],
            ["fd65::1", "fd65::2", "fd00::2", "fd00::11"],
        ] {
            let [from, targets @ ..] = ways;
            for to in targets {
                let mut packets: Vec<(u8, Vec<u8>)> =
                    PROTOCOLS.map(|protocol| (protocol, vec![0; 24])).into();
                packets.extend([1701, 4789, 6081].map(|port| (UDP, datagram(port))));
                if from.contains(':') {
                    // After destination options.
                    let options = [&[GRE, 0, 1, 4, 0, 0, 0, 0], &[0; 24][..]].concat();
                    packets.push((60, options));
                }
                for (protocol, payload) in packets {
                    let before = dropped();
                    host.until(&format!("protocol {protocol} from {from} to {to}"), || {
                        send(&one, [from, to], protocol, &payload);
                        dropped() > before
                    });
                }
            }
        }
        let nothing = |at: &Namespace| {
            let listed = at.run("nft list chain inet t c");
            assert_eq!(listed.matches("packets 0 ").count(), 2, "{listed}");
        };
        nothing(&two.namespace);
        nothing(&outside);
        // Packets without encapsulation arrive.
        two.namespace.run("nft flush chain inet t c");
        two.namespace
            .run("nft add rule inet t c udp dport 4790 counter");
        let plain = || send(&one, ["10.65.0.1", "10.65.0.2"], UDP, &datagram(4790));
        let chain = "workload-encapsulation";
        assert!(arrives(&host, &two.namespace, chain, DROPPED, plain));
    });
}

#[test]
fn rule_that_names_encapsulation_allows_it() {
    lab("rule_that_names_encapsulation_allows_it", || {
        let (host, one, two) = pair();
        let three = workload(3);
        announce(&host, 3, OPEN);
        host.wait_up("cali3");
        let spec = json!({"selector": "all()", "types": ["Egress"], "egress": [
            {"action": "Deny", "protocol": 50, "destination": {"nets": ["10.65.0.3/32"]}},
            {"action": "Allow", "protocol": 50},
            {"action": "Allow", "protocol": GRE, "destination": {"nets": ["10.65.0.2/32"]}},
            {"action": "Allow", "protocol": "UDP", "destination": {"ports": [53, 4789, "6000:7000"]}},
            {"action": "Allow"},
        ]});
        host.put(
            &format!("{RESOURCES}globalnetworkpolicies/p"),
            &json!({ "spec": spec }),
        );
        host.until("the policy is in effect", || {
            run("nft list map inet cambric-felix encapsulation-allowed").contains("cali3")
        });
        for at in [&two.namespace, &three.namespace] {
            count_at(at, "meta l4proto { 4, 17, 47, 50 }");
        }
        let passes = |to: &str, at: &Namespace, protocol, payload: &[u8], dropped: [&str; 2]| {
            let [chain, words] = dropped;
            arrives(&host, at, chain, words, || {
                send(&one, ["10.65.0.1", to], protocol, payload);
            })
        };
        let none = ["encapsulation-cali1", "encapsulation that no rule names"];
        let (second, third) = (
            ("10.65.0.2", &two.namespace),
            ("10.65.0.3", &three.namespace),
        );
        let udp = |port| (UDP, datagram(port));
        let raw = |protocol| (protocol, vec![0; 24]);
        for ((to, at), (protocol, payload), is_allowed) in [
            (second, raw(GRE), true),
            (third, raw(GRE), false),
            (second, raw(50), true),
            (second, raw(4), false),
            (second, udp(4789), true),
            (second, udp(6081), false),
            (second, udp(1701), false),
            (second, udp(6500), true),
        ] {
            let found = passes(to, at, protocol, &payload, none);
            assert_eq!(found, is_allowed, "protocol {protocol} to {to}");
        }
        // A Deny that comes first applies to it as well.
        let denied = ["po-gnp/p", "egress[0]"];
        assert!(!passes("10.65.0.3", &three.namespace, 50, &[0; 24], denied));

        // The settings allow it without a rule.
        host.configure(&json!({"allowIPIPPacketsFromWorkloads": true}));
        host.until("the setting is in effect", || {
            run("nft list chain inet cambric-felix workload-encapsulation").contains("allowIPIP")
        });
        assert!(passes("10.65.0.2", &two.namespace, 4, &[0; 24], none));
        let (_, eight) = udp(8472);
        host.configure(&json!({"vxlanPort": 8472}));
        host.until("the setting is in effect", || {
            run("nft list chain inet cambric-felix workload-guard-forward").contains("8472")
        });
        assert!(!passes("10.65.0.2", &two.namespace, UDP, &eight, none));
        host.configure(&json!({"vxlanPort": 8472, "allowVXLANPacketsFromWorkloads": true}));
        host.until("the setting is in effect", || {
            run("nft list chain inet cambric-felix workload-encapsulation").contains("allowVXLAN")
        });
        assert!(passes("10.65.0.2", &two.namespace, UDP, &eight, none));
    });
}

// Promise: as felix encapsulation_from_a_workload_is_dropped
#[test]
fn tunnel_to_the_host_is_accepted_from_nodes_only() {
    lab("tunnel_to_the_host_is_accepted_from_nodes_only", || {
        let (host, _one, _two) = pair();
        let outside = outside(&host);
        // Packets that pass the guard, in the host's own namespace.
        run("nft add table inet t");
        run("nft add chain inet t c { type filter hook input priority 10 ; }");
        run("nft add rule inet t c meta l4proto 4 counter");
        run("nft add rule inet t c udp dport 4789 counter");
        let arrived = || -> u64 {
            let listed = run("nft list chain inet t c");
            let counts = listed.split("packets ").skip(1);
            let counts = counts.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok());
            counts.sum()
        };
        let inner = packet::packet(ip("10.65.0.2"), ip("10.65.0.1"), UDP, &datagram(9));
        let passes = |from: &str, protocol: u8| {
            let payload = match protocol {
                UDP => datagram(4789),
                _ => inner.clone(),
            };
            let made = packet::packet(ip(from), ip("10.0.0.11"), protocol, &payload);
            let dropped = || dropped_as(&host, "tunnel of no node");
            let (before, counted) = (dropped(), arrived());
            host.until("it arrives or is dropped", || {
                outside.within(|| packet::send(&made, ip("10.0.0.11")).unwrap());
                dropped() >= before + 3 || arrived() > counted
            });
            arrived() > counted
        };
        let passes_v6 = |from: &str| {
            let made = packet::packet(ip(from), ip("fd00::11"), UDP, &datagram(4789));
            let dropped = || dropped_as(&host, "tunnel of no node");
            let (before, counted) = (dropped(), arrived());
            host.until("it arrives or is dropped", || {
                outside.within(|| packet::send(&made, ip("fd00::11")).unwrap());
                dropped() >= before + 3 || arrived() > counted
            });
            arrived() > counted
        };
        assert!(passes("10.0.0.1", 4), "nothing of the fabric uses IP in IP");
        assert!(passes("10.0.0.1", UDP), "nothing of the fabric uses VXLAN");
        for (name, mode, words) in [
            ("v4", "ipipMode", "tunnel-to-host"),
            ("other", "vxlanMode", "4789 goto tunnel-to-host"),
        ] {
            let cidr = if name == "v4" {
                "10.65.0.0/16"
            } else {
                "10.66.0.0/16"
            };
            let pool = json!({"spec": {"cidr": cidr, mode: "Always"}});
            host.put(&format!("{RESOURCES}ippools/{name}"), &pool);
            host.until(&format!("{mode} is guarded"), || {
                run("nft list chain inet cambric-felix guard-input").contains(words)
            });
        }
        assert!(passes("10.0.0.2", 4));
        assert!(!passes("10.0.0.1", 4));
        assert!(passes("10.0.0.2", UDP));
        assert!(!passes("10.0.0.1", UDP));
        assert!(passes_v6("fd00::2"));
        assert!(!passes_v6("fd00::1"));
        host.configure(&json!({"externalNodesList": ["10.0.0.1"]}));
        host.until("the source is known", || {
            run("nft list set inet cambric-felix tunnel-sources-ipv4").contains("10.0.0.1")
        });
        assert!(passes("10.0.0.1", 4) && passes("10.0.0.1", UDP));
    });
}

/// Returns VXLAN over UDP with the identifier of [`vxlan_device`].
fn vxlan(port: u16, mac: &str, inner: &[u8]) -> Vec<u8> {
    vxlan_of(77, port, mac, inner)
}

/// Returns VXLAN over UDP, with a packet for the device with this Ethernet address.
pub(crate) fn vxlan_of(vni: u32, port: u16, mac: &str, inner: &[u8]) -> Vec<u8> {
    let to = mac.split(':');
    let to: Vec<u8> = to
        .map(|octet| u8::from_str_radix(octet, 16).unwrap())
        .collect();
    let kind: [u8; 2] = if inner[0] >> 4 == 4 {
        [0x08, 0x00]
    } else {
        [0x86, 0xdd]
    };
    let frame = [&to[..], &[2, 0, 0, 0, 0, 0x77], &kind, inner].concat();
    // The flag of the identifier.
    let [_, high, middle, low] = vni.to_be_bytes();
    let header = [8, 0, 0, 0, high, middle, low, 0];
    let length = u16::try_from(16 + frame.len()).unwrap();
    let mut octets = vec![0x30, 0x39];
    octets.extend(port.to_be_bytes());
    octets.extend(length.to_be_bytes());
    octets.extend([0, 0]);
    [octets, header.to_vec(), frame].concat()
}

/// Creates a VXLAN device, and returns its Ethernet address.
fn vxlan_device(name: &str, port: u16) -> String {
    run(&format!(
        "ip link add {name} type vxlan id 77 dstport {port} local 10.0.0.11 dev uplink"
    ));
    run(&format!("ip link set {name} up"));
    world::sysctl(&format!("ipv4/conf/{name}/rp_filter"), "0");
    let shown = run(&format!("ip link show dev {name}"));
    let mut words = shown
        .split_whitespace()
        .skip_while(|word| *word != "link/ether");
    words.nth(1).unwrap().to_owned()
}

/// Returns whether a packet with this inner source reaches workload `one` through a VXLAN device of
/// the host.
fn passes_vxlan(
    (host, outside, one): (&Host, &Namespace, &Workload),
    (port, mac): (u16, &str),
    source: &str,
) -> bool {
    let to = if source.contains(':') {
        "fd65::1"
    } else {
        "10.65.0.1"
    };
    let inner = packet::packet(ip(source), ip(to), UDP, &checked(source, to));
    let payload = vxlan(port, mac, &inner);
    let made = packet::packet(ip("10.0.0.1"), ip("10.0.0.11"), UDP, &payload);
    let words = "source is not behind this tunnel";
    let (dropped, counted) = (dropped_as(host, words), count_of(&one.namespace));
    host.until(
        &format!("a packet of {source} arrives or is dropped"),
        || {
            outside.within(|| packet::send(&made, ip("10.0.0.11")).unwrap());
            dropped_as(host, words) >= dropped + 3 || count_of(&one.namespace) > counted
        },
    );
    count_of(&one.namespace) > counted
}

/// Calico's device stays after a migration, and decapsulates the packets of any sender.
// Promise: as felix encapsulation_from_a_workload_is_dropped
#[test]
fn foreign_tunnel_forges_no_source_of_the_fabric() {
    lab("foreign_tunnel_forges_no_source_of_the_fabric", || {
        let (host, one, _two) = pair();
        let outside = outside(&host);
        for (name, cidr) in [("v4", "10.65.0.0/16"), ("v6", "fd65::/64")] {
            let pool = json!({"spec": {"cidr": cidr}});
            host.put(&format!("{RESOURCES}ippools/{name}"), &pool);
        }
        host.until("the pools are known", || {
            run("nft list set inet cambric-felix cali60all-ipam-pools").contains("fd65::/64")
        });
        let mac = vxlan_device("vxlan.calico", 4789);
        count_at(&one.namespace, "udp dport 9");
        let passes = |source: &str| passes_vxlan((&host, &outside, &one), (4789, &mac), source);
        // Another workload, an address of a pool on another host, a node.
        for forged in ["10.65.0.2", "10.65.7.9", "10.0.0.2", "fd65::2", "fd00::2"] {
            assert!(!passes(forged), "{forged}");
        }
        // Packets of other programs through their tunnels: sources outside the fabric, whatever the
        // way back, and sources that are routed to the tunnel.
        assert!(passes("203.0.113.5") && passes("2001:db8::5"));
        run("ip route add 10.65.7.0/24 dev vxlan.calico");
        run("ip -6 route add fd65::7:0/112 dev vxlan.calico");
        assert!(passes("10.65.7.9") && passes("fd65::7:9"));
        assert!(!passes("10.65.0.2"));
    });
}

/// The sender of a packet to the fabric's own device is checked instead: only nodes reach its port.
#[test]
fn vxlan_device_of_another_name_or_port_is_foreign() {
    lab("vxlan_device_of_another_name_or_port_is_foreign", || {
        let (host, one, _two) = pair();
        let outside = outside(&host);
        count_at(&one.namespace, "udp dport 9");
        let pool = json!({"spec": {"cidr": "10.65.0.0/16", "vxlanMode": "Always"}});
        host.put(&format!("{RESOURCES}ippools/v4"), &pool);
        let of_fabric = |name: &str| {
            run("nft list set inet cambric-felix fabric-tunnels").contains(&format!("\"{name}\""))
        };
        let use_port = |port: u16| {
            let external = ["10.0.0.1"];
            host.configure(&json!({"vxlanPort": port, "externalNodesList": external}));
            host.until("the port is in use", || {
                let chain = run("nft list chain inet cambric-felix guard-input");
                chain.contains(&format!("{port} goto tunnel-to-host"))
            });
        };
        let passes =
            |device: (u16, &str)| passes_vxlan((&host, &outside, &one), device, "10.65.8.9");
        use_port(4789);
        let own = vxlan_device("vxlan.calico", 4789);
        let other = vxlan_device("vxlan0", 8472);
        host.until("the device is known", || of_fabric("vxlan.calico"));
        assert!(passes((4789, &own)));
        assert!(!passes((8472, &other)), "another port and name");

        use_port(8472);
        host.until("the device is foreign", || !of_fabric("vxlan.calico"));
        assert!(!passes((4789, &own)), "another port");
        assert!(!passes((8472, &other)), "another name");

        run("ip link del vxlan.calico");
        run("ip link set vxlan0 down");
        run("ip link set vxlan0 name vxlan.calico");
        run("ip link set vxlan.calico up");
        world::sysctl("ipv4/conf/vxlan.calico/rp_filter", "0");
        host.until("the device is known", || of_fabric("vxlan.calico"));
        assert!(passes((8472, &other)));
        run("ip link del vxlan.calico");
        host.until("the device is no longer known", || {
            !of_fabric("vxlan.calico")
        });
    });
}

/// Returns a datagram to port 9; over IPv6 it needs a checksum.
fn checked(from: &str, to: &str) -> Vec<u8> {
    let mut octets = datagram(9);
    if to.contains(':') {
        let sum = packet::transport_checksum(ip(from), ip(to), UDP, &octets);
        octets[6..8].copy_from_slice(&sum.to_be_bytes());
    }
    octets
}

/// Without the guard, the masqueraded packet would count as one of a node, and the far node would
/// decapsulate it.
#[test]
fn tunnel_of_a_workload_to_a_node_is_always_dropped() {
    lab("tunnel_of_a_workload_to_a_node_is_always_dropped", || {
        let (host, one, _two) = pair();
        let outside = outside(&host);
        // An address that is neither a node nor a source of tunnels, and one that is a source.
        outside.run("ip address add 10.0.0.3/24 dev eth0");
        outside.run("ip address add 10.0.0.4/24 dev eth0");
        outside.run("ip address add fd00::3/64 dev eth0 nodad");
        for (name, cidr) in [("v4", "10.65.0.0/16"), ("v6", "fd65::/64")] {
            let spec = json!({"cidr": cidr, "natOutgoing": true});
            host.put(
                &format!("{RESOURCES}ippools/{name}"),
                &json!({ "spec": spec }),
            );
        }
        host.configure(&json!({"defaultEndpointToHostAction": "Accept",
            "allowIPIPPacketsFromWorkloads": true, "allowVXLANPacketsFromWorkloads": true,
            "externalNodesList": ["10.0.0.4"]}));
        let named = PROTOCOLS.map(|protocol| json!({"action": "Allow", "protocol": protocol}));
        let mut egress = named.to_vec();
        egress.push(json!({"action": "Allow", "protocol": "UDP",
            "destination": {"ports": [1701, 4789, 6081]}}));
        egress.push(json!({"action": "Allow"}));
        let spec = json!({"selector": "all()", "types": ["Egress"], "egress": egress});
        host.put(
            &format!("{RESOURCES}globalnetworkpolicies/p"),
            &json!({ "spec": spec }),
        );
        for (what, words) in [
            ("map inet cambric-felix encapsulation-allowed", "cali1"),
            ("set inet cambric-felix tunnel-sources-ipv4", "10.0.0.4"),
            ("chain inet cambric-felix workload-to-host", "accept"),
            ("set inet cambric-felix cali60masq-ipam-pools", "fd65::"),
        ] {
            host.until(&format!("{words} in {what}"), || {
                run(&format!("nft list {what}")).contains(words)
            });
        }
        // A packet that another table translates to a node counts as one to a node.
        run("nft add table ip services");
        run("nft add chain ip services c { type nat hook prerouting priority -100 ; }");
        run("nft add rule ip services c ip daddr 192.0.2.1 dnat to 10.0.0.2");
        run("nft add rule ip services c ip daddr 192.0.2.2 dnat to 10.0.0.11");
        run("ip route add 192.0.2.0/24 via 10.0.0.1");
        count_at(&outside, "meta l4proto { 4, 41, 47, 50, 51, 115 }");
        outside.run("nft add rule inet t c udp dport { 1701, 4789, 6081 } counter");
        run("nft add table inet own");
        run("nft add chain inet own c { type filter hook input priority 10 ; }");
        run("nft add rule inet own c meta l4proto { 4, 41, 47, 50, 51, 115 } counter");
        run("nft add rule inet own c udp dport { 1701, 4789, 6081 } counter");
        let mut packets: Vec<(u8, Vec<u8>)> =
            PROTOCOLS.map(|protocol| (protocol, vec![0; 24])).into();
        packets.extend([1701, 4789, 6081].map(|port| (UDP, datagram(port))));
        let v4 = [
            "10.0.0.2",
            "10.0.0.4",
            "10.0.0.11",
            "192.0.2.1",
            "192.0.2.2",
        ];
        let ways = v4.map(|to| ["10.65.0.1", to]).into_iter();
        for [from, to] in ways.chain(["fd00::2", "fd00::11"].map(|to| ["fd65::1", to])) {
            for (protocol, payload) in &packets {
                let before = to_tunnel_ends(&host);
                host.until(&format!("protocol {protocol} to {to}"), || {
                    send(&one, [from, to], *protocol, payload);
                    to_tunnel_ends(&host) > before
                });
            }
        }
        let tables = [
            outside.run("nft list chain inet t c"),
            run("nft list chain inet own c"),
        ];
        for listed in tables {
            assert_eq!(listed.matches("packets 0 ").count(), 2, "{listed}");
        }
        // The rules allow packets to other destinations.
        for (from, to) in [("10.65.0.1", "10.0.0.3"), ("fd65::1", "fd00::3")] {
            let before = count_of(&outside);
            host.until(&format!("IP in IP to {to}"), || {
                send(&one, [from, to], 4, &[0; 24]);
                count_of(&outside) > before
            });
        }
    });
}
