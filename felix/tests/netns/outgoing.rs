//! Source translation of pools: real packets to an outside without a route back to a workload.
//! Needs root and `CAMBRIC_LAB=1`.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::world::host::{Host, RESOURCES, pair};
use crate::world::{Namespace, Workload, count_at, count_of, lab, run, try_run};
use serde_json::json;

/// Maximum time to establish a connection.
const SOON: Duration = Duration::from_secs(30);

/// Creates the far end of the host's uplink: 10.0.0.1 and fd00::1, and more behind it.
pub(crate) fn outside() -> Namespace {
    let outside = Namespace::new();
    outside.take("far", "eth0");
    for command in [
        "ip link set eth0 up",
        "ip address add 10.0.0.1/24 dev eth0",
        "ip address add fd00::1/64 dev eth0 nodad",
        "ip address add 10.66.0.1/32 dev lo",
        "ip address add fd66::1/128 dev lo nodad",
    ] {
        outside.run(command);
    }
    run("ip route add 10.66.0.0/16 via 10.0.0.1");
    run("ip -6 route add fd66::/64 via fd00::1");
    outside
}

fn pool(host: &Host, name: &str, spec: &serde_json::Value) {
    let value = json!({"metadata": {"name": name}, "spec": spec});
    host.put(&format!("{RESOURCES}ippools/{name}"), &value);
}

/// Waits until a rule with this text translates sources.
fn wait_for(host: &Host, words: &str) {
    host.until(words, || {
        let listed = try_run("nft list table inet cambric-felix");
        String::from_utf8_lossy(&listed.stdout).contains(words)
    });
}

/// Returns whether a ping is answered, and arrives from this address.
fn pings_as(from: &Workload, at: &Namespace, target: &str, source: &str) -> bool {
    let family = if source.contains(':') { "ip6" } else { "ip" };
    let protocol = if source.contains(':') {
        "icmpv6"
    } else {
        "icmp"
    };
    count_at(
        at,
        &format!("{family} saddr {source} {protocol} type echo-request"),
    );
    let answered = from.namespace.pings(target);
    let counted = count_of(at);
    at.run("nft delete table inet t");
    answered && counted > 0
}

/// Returns the source address of a connection from a workload to the listener.
fn peer_of(from: &Workload, listener: &TcpListener, target: &str) -> SocketAddr {
    let address = SocketAddr::new(
        target.parse().unwrap(),
        listener.local_addr().unwrap().port(),
    );
    let connect = || TcpStream::connect_timeout(&address, SOON);
    let stream = from.namespace.within(connect).unwrap_or_else(|error| {
        let seen = [
            run("cat /proc/net/nf_conntrack"),
            run("ip address show dev uplink"),
            run("ip neighbor"),
            from.namespace.run("ip neighbor"),
            run("nft list table inet cambric-felix"),
        ];
        panic!("{address}: {error}\n{}", seen.join("\n"))
    });
    let (_, peer) = listener.accept().unwrap();
    drop(stream);
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

// Promise (Felix): Only traffic from a `natOutgoing` pool to a destination outside all pools is
// masqueraded.
#[test]
fn only_traffic_leaving_the_pools_is_masqueraded() {
    lab("only_traffic_leaving_the_pools_is_masqueraded", || {
        let (host, one, two) = pair();
        let outside = outside();
        assert!(
            one.namespace.is_cut_off("10.0.0.1"),
            "no host has a route back"
        );
        let hidden = |cidr: &str| json!({"cidr": cidr, "natOutgoing": true});
        pool(&host, "v6", &hidden("fd65::/64"));
        pool(&host, "other-v6", &json!({"cidr": "fd66::/64"}));
        // A disabled pool is inside all the same.
        pool(
            &host,
            "other",
            &json!({"cidr": "10.66.0.0/16", "disabled": true}),
        );
        pool(&host, "v4", &hidden("10.65.0.0/16"));
        wait_for(&host, "10.65.0.0/16");
        assert!(pings_as(&one, &outside, "10.0.0.1", "10.0.0.11"));
        assert!(pings_as(&one, &outside, "fd00::1", "fd00::11"));

        // Between pools a workload keeps its address.
        assert!(pings_as(&one, &two.namespace, "10.65.0.2", "10.65.0.1"));
        assert!(pings_as(&one, &two.namespace, "fd65::2", "fd65::1"));
        outside.run("ip route add 10.65.0.0/16 via 10.0.0.11");
        outside.run("ip -6 route add fd65::/64 via fd00::11");
        assert!(pings_as(&one, &outside, "10.66.0.1", "10.65.0.1"));
        assert!(pings_as(&one, &outside, "fd66::1", "fd65::1"));

        // A range that is in no pool any more is outside, and vice versa.
        host.delete(&format!("{RESOURCES}ippools/other"));
        host.until("10.66.0.0/16 is outside", || {
            !run("nft list table inet cambric-felix").contains("10.66.0.0/16")
        });
        assert!(pings_as(&one, &outside, "10.66.0.1", "10.0.0.11"));
        pool(&host, "v4", &json!({"cidr": "10.65.0.0/16"}));
        host.until("IPv4 is not translated", || {
            !run("nft list table inet cambric-felix").contains("cali40masq-ipam-pools")
        });
        assert!(pings_as(&one, &outside, "10.0.0.1", "10.65.0.1"));
        assert!(pings_as(&one, &outside, "fd00::1", "fd00::11"));
    });
}

#[test]
fn masqueraded_packets_have_configured_address_and_ports() {
    lab(
        "masqueraded_packets_have_configured_address_and_ports",
        || {
            let (host, one, _two) = pair();
            let outside = outside();
            run("ip address add 10.0.0.12/24 dev uplink");
            for (name, cidr) in [("v4", "10.65.0.0/16"), ("v6", "fd65::/64")] {
                pool(&host, name, &json!({"cidr": cidr, "natOutgoing": true}));
            }
            host.configure(&json!({
                "natOutgoingAddress": "10.0.0.12", "natPortRange": "40000:40009",
            }));
            wait_for(&host, "snat ip to 10.0.0.12:40000-40009");
            let listener = outside.within(|| TcpListener::bind("[::]:0").unwrap());
            for (target, source) in [("10.0.0.1", "10.0.0.12"), ("fd00::1", "fd00::11")] {
                let peer = peer_of(&one, &listener, target);
                assert_eq!(peer.ip(), source.parse::<IpAddr>().unwrap());
                assert!((40000..40010).contains(&peer.port()), "{peer}");
            }
            assert!(
                pings_as(&one, &outside, "10.0.0.1", "10.0.0.12"),
                "without ports"
            );
        },
    );
}

#[test]
fn packets_to_nodes_keep_their_source_if_configured() {
    lab("packets_to_nodes_keep_their_source_if_configured", || {
        let (host, one, _two) = pair();
        let outside = outside();
        outside.run("ip address add 10.0.0.2/24 dev eth0");
        outside.run("ip route add 10.65.0.0/16 via 10.0.0.11");
        outside.run("ip -6 route add fd65::/64 via fd00::11");
        for (name, cidr) in [("v4", "10.65.0.0/16"), ("v6", "fd65::/64")] {
            pool(&host, name, &json!({"cidr": cidr, "natOutgoing": true}));
        }
        let node = json!({
            "metadata": {"name": "n2"},
            "spec": {"bgp": {"ipv4Address": "10.0.0.1/24", "ipv6Address": "fd00::1/64"}},
        });
        host.put(&format!("{RESOURCES}nodes/n2"), &node);
        wait_for(&host, "10.65.0.0/16");
        wait_for(&host, "10.0.0.1");
        assert!(pings_as(&one, &outside, "10.0.0.1", "10.0.0.11"));
        host.configure(&json!({"natOutgoingExclusions": "IPPoolsAndHostIPs"}));
        wait_for(&host, "ip daddr != @nodes-ipv4");
        assert!(pings_as(&one, &outside, "10.0.0.1", "10.65.0.1"));
        assert!(pings_as(&one, &outside, "fd00::1", "fd65::1"));
        assert!(pings_as(&one, &outside, "10.0.0.2", "10.0.0.11"), "no node");

        // Only at the interfaces of the filter.
        for (filter, listed, source) in [
            ("eth+", "oifname \"eth*\"", "10.65.0.1"),
            ("upl+", "oifname \"upl*\"", "10.0.0.11"),
            ("uplink0", "oifname \"uplink0\"", "10.65.0.1"),
            ("uplink", "oifname \"uplink\"", "10.0.0.11"),
        ] {
            host.configure(&json!({ "iptablesNATOutgoingInterfaceFilter": filter }));
            wait_for(&host, listed);
            assert!(pings_as(&one, &outside, "10.0.0.2", source), "{filter}");
        }
    });
}
