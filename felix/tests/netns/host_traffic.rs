//! Traffic of the host to its own workloads, with real packets. Needs root and `CAMBRIC_LAB=1`.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::world::host::{PATIENCE, RESOURCES, announce, pair};
use crate::world::packet;
use crate::world::{count_at, count_of, lab, run};
use serde_json::json;

/// How long the test waits for a connection that must not be established.
const NEVER: Duration = Duration::from_millis(300);

fn connects(to: &str, patience: Duration) -> bool {
    let to: SocketAddr = to.parse().unwrap();
    TcpStream::connect_timeout(&to, patience).is_ok()
}

#[test]
fn probe_of_the_host_passes_despite_policies() {
    lab("probe_of_the_host_passes_despite_policies", || {
        let (mut host, one, two) = pair();
        let _server = two
            .namespace
            .within(|| TcpListener::bind("[::]:8080").unwrap());
        let deny = json!({"spec": {"selector": "all()", "types": ["Ingress", "Egress"]}});
        let policy = format!("{RESOURCES}globalnetworkpolicies/deny");
        host.put(&policy, &deny);
        host.until("the policy is in effect", || {
            run("nft list chain inet cambric-felix to-cali2").contains("jump")
        });
        let ways = ["10.65.0.2:8080", "[fd65::2]:8080"];
        let from_one = |to: &str, patience| one.namespace.within(|| connects(to, patience));
        for to in ways {
            assert!(connects(to, PATIENCE), "the probe of {to} fails");
            assert!(!from_one(to, NEVER), "the policy is not in effect: {to}");
        }
        // Connections from the workload to the host are subject to its policies.
        let _own = TcpListener::bind("[::]:8080").unwrap();
        host.configure(&json!({"defaultEndpointToHostAction": "Accept"}));
        host.until("the host accepts", || {
            run("nft list chain inet cambric-felix workload-to-host").contains("to host: accept")
        });
        for to in ["10.0.0.11:8080", "[fd00::11]:8080"] {
            assert!(
                !two.namespace.within(|| connects(to, NEVER)),
                "{to} is reached"
            );
        }

        // So is an endpoint that has neither policy nor profile.
        host.delete(&policy);
        announce(&host, 2, &[]);
        host.until("the endpoint is closed", || {
            let closed = run("nft list chain inet cambric-felix to-cali2");
            closed.contains("no profile or policy") && !closed.contains("jump")
        });
        for to in ways {
            assert!(connects(to, PATIENCE), "the probe of {to} fails");
            assert!(!from_one(to, NEVER), "{to} is open");
        }

        host.stop();
        host.settings = "police_host_traffic = true".into();
        host.start();
        host.until("the host is policed", || {
            !run("nft list chain inet cambric-felix host-to-workload").contains("own workload")
        });
        for to in ways {
            assert!(!connects(to, NEVER), "the probe of {to} is not policed");
        }
    });
}

/// IPVS services leave the host as its own packets, with the source of the client: they pass
/// `output`, and are traffic of the client.
#[test]
fn output_packet_with_foreign_source_is_policed() {
    lab("output_packet_with_foreign_source_is_policed", || {
        let (host, _one, two) = pair();
        announce(&host, 2, &[]);
        host.until("the endpoint is closed", || {
            run("nft list chain inet cambric-felix to-cali2").contains("no profile or policy")
        });
        count_at(&two.namespace, "udp dport 9");
        let send = |from: &str| {
            let (from, to) = (from.parse().unwrap(), "10.65.0.2".parse().unwrap());
            let datagram = [0, 9, 0, 9, 0, 8, 0, 0];
            packet::send(&packet::packet(from, to, 17, &datagram), to).is_ok()
        };
        let dropped = || host.counted("to-cali2", "no profile or policy");
        let before = dropped();
        host.until("packets of a client are dropped", || {
            assert!(!send("10.65.0.1"), "it is dropped");
            dropped() >= before + 3
        });
        assert_eq!(
            count_of(&two.namespace),
            0,
            "a packet of a client got through"
        );
        host.until("packets of the host arrive", || {
            assert!(send("10.0.0.11"));
            count_of(&two.namespace) > 0
        });
    });
}
