//! Limits of the traffic of endpoints, with real packets. Needs root and `CAMBRIC_LAB=1`.

use std::cell::OnceCell;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::outgoing::outside;
use crate::policy::{connect, serve};
use crate::world::host::{Host, RESOURCES, workload};
use crate::world::{Namespace, Workload, count_at, count_of, lab, run, try_run};

const SOON: Duration = Duration::from_secs(30);

fn listed(host: &Host, what: &str) {
    host.until(what, || {
        run("nft list table inet cambric-felix").contains(what)
    });
}

/// Writes endpoint `n` with these limits.
fn limit(host: &Host, n: u8, controls: &Value) {
    host.endpoint_with(n, &json!({}), &json!({ "qosControls": controls }));
}

/// Creates a host with two workloads, the first with these limits.
fn pair(controls: &Value) -> (Host, Workload, Workload) {
    let host = Host::new();
    let both = (workload(1), workload(2));
    limit(&host, 1, controls);
    limit(&host, 2, &json!({}));
    (1..=2).for_each(|n| host.wait_up(&format!("cali{n}")));
    (host, both.0, both.1)
}

/// Sends pings until a packet is dropped by the rule of the rate.
fn exceed(host: &Host, from: &Namespace, to: &str, chain: &str) {
    let dropped = || host.counted(chain, "over the packet rate");
    let before = dropped();
    host.until("a packet beyond the rate", || {
        let _ = from.within(|| try_run(&format!("ping -n -q -f -c 50 -w 2 {to}")));
        dropped() > before
    });
}

// Promise (Felix): Packets of a workload beyond its packet rate are dropped, in each direction.
#[test]
fn packets_beyond_the_rate_are_dropped() {
    lab("packets_beyond_the_rate_are_dropped", || {
        let rate = json!({"ingressPacketRate": 2, "egressPacketRate": 3, "egressPacketBurst": 7});
        let (host, one, two) = pair(&rate);
        listed(&host, "limit rate over 2/second counter");
        listed(&host, "limit rate over 3/second burst 7 packets counter");
        exceed(&host, &two.namespace, "10.65.0.1", "to-cali1");
        exceed(&host, &one.namespace, "fd65::2", "from-cali1");
        // Later packets pass.
        assert!(two.namespace.pings("10.65.0.1") && one.namespace.pings("fd65::2"));
        limit(&host, 1, &json!({}));
        host.until("no limit", || {
            !run("nft list table inet cambric-felix").contains("over the packet rate")
        });
        assert!(two.namespace.pings("10.65.0.1"));
    });
}

/// Returns whether a connection is reset at once.
fn is_reset(from: &Workload, to: &str, port: u16) -> bool {
    let address = SocketAddr::new(to.parse().unwrap(), port);
    let connect = || TcpStream::connect_timeout(&address, SOON);
    match from.namespace.within(connect) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
            true
        }
    }
}

// Promise (Felix): A TCP connection beyond the number of a workload is reset.
#[test]
fn connections_beyond_the_number_are_reset() {
    lab("connections_beyond_the_number_are_reset", || {
        let (host, one, two) =
            pair(&json!({"ingressMaxConnections": 2, "egressMaxConnections": 1}));
        listed(&host, "ct count over 2");
        listed(&host, "ct count over 1");
        let _servers = [&one, &two].map(|workload| serve(workload, 80));
        // Addresses of both families count together.
        let open = |from: &Workload, to: &str| connect(from, to, 80, SOON).expect("a connection");
        let mut inward = vec![open(&two, "10.65.0.1"), open(&two, "fd65::1")];
        assert!(is_reset(&two, "10.65.0.1", 80) && is_reset(&two, "fd65::1", 80));
        let outward = open(&one, "10.65.0.2");
        assert!(is_reset(&one, "10.65.0.2", 80));
        assert_eq!(
            host.counted("to-cali1", "over the number of connections"),
            2
        );
        // Other packets than those of TCP do not count.
        assert!(two.namespace.pings("10.65.0.1") && one.namespace.pings("10.65.0.2"));
        // A closed connection makes room for another one.
        drop(inward.pop());
        let again = OnceCell::new();
        host.until("room for a connection", || {
            let reopened = connect(&two, "fd65::1", 80, SOON);
            reopened.is_some_and(|stream| again.set(stream).is_ok())
        });
        assert!(is_reset(&two, "10.65.0.1", 80));
        drop(outward);
        // The host's own connections to its workload do not count.
        let own = TcpStream::connect_timeout(&"10.65.0.1:80".parse().unwrap(), SOON);
        assert!(own.is_ok(), "{own:?}");
    });
}

// Promise (Felix): Packets of a workload that leave the cluster have its DSCP.
#[test]
fn dscp_is_set_on_packets_that_leave_the_cluster() {
    lab("dscp_is_set_on_packets_that_leave_the_cluster", || {
        let (host, one, two) = pair(&json!({"dscp": "EF"}));
        let outside = outside();
        outside.run("ip route add 10.65.0.0/16 via 10.0.0.11");
        outside.run("ip -6 route add fd65::/64 via fd00::11");
        for (name, cidr) in [("v4", "10.65.0.0/16"), ("v6", "fd65::/64")] {
            let pool = json!({"metadata": {"name": name}, "spec": {"cidr": cidr}});
            host.put(&format!("{RESOURCES}ippools/{name}"), &pool);
        }
        listed(&host, "10.65.0.0/16");
        listed(&host, "ip6 dscp set ef");
        // Each packet is answered, and arrives with the DSCP, or without it.
        let arrives = |from: &Workload, at: &Namespace, to: &str, dscp: &str| {
            let (family, message) = match to.contains(':') {
                true => ("ip6", "icmpv6 type echo-request"),
                false => ("ip", "icmp type echo-request"),
            };
            count_at(at, &format!("{family} dscp {dscp} {message}"));
            let answered = from.namespace.pings(to);
            let counted = count_of(at);
            at.run("nft delete table inet t");
            answered && counted > 0
        };
        for to in ["10.0.0.1", "fd00::1"] {
            assert!(arrives(&one, &outside, to, "ef"), "{to}");
            assert!(arrives(&two, &outside, to, "cs0"), "{to}");
        }
        // Inside the pools, and to a node.
        assert!(arrives(&one, &two.namespace, "10.65.0.2", "cs0"));
        assert!(arrives(&one, &two.namespace, "fd65::2", "cs0"));
        let node = json!({"metadata": {"name": "n2"}, "spec": {"bgp": {
            "ipv4Address": "10.0.0.1/24", "ipv6Address": "fd00::1/64"}}});
        host.put(&format!("{RESOURCES}nodes/n2"), &node);
        listed(&host, "elements = { 10.0.0.1 }");
        assert!(arrives(&one, &outside, "10.0.0.1", "cs0"));
        assert!(
            arrives(&one, &outside, "10.66.0.1", "ef"),
            "no address of a node"
        );
        limit(&host, 1, &json!({}));
        host.until("no DSCP", || {
            !run("nft list table inet cambric-felix").contains("dscp")
        });
        assert!(arrives(&one, &outside, "10.66.0.1", "cs0"));
    });
}
