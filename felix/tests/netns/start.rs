//! Felix as a process that starts with a datastore of many policies: it programs all of them, and
//! its control socket answers during that time. Needs root and `CAMBRIC_LAB=1`.
//!
//! `CAMBRIC_START=<policies>,<remote>,<local>` sets other numbers of policies and of endpoints of
//! other hosts and of this one, `CAMBRIC_FELIX` another program. `docs/numbers.md` has the measured
//! values.

use std::time::{Duration, Instant};

use crate::world::host::{Host, PATIENCE, RESOURCES};
use crate::world::process::{Process, served};
use crate::world::{lab, run};
use daemon_common::report::EndpointFigures;
use daemon_common::{Command as Ask, Reply};
use serde_json::{Value, json};

/// Default sizes: policies, endpoints of other hosts, endpoints of this host.
const SIZES: [usize; 3] = [300, 300, 10];

/// Maximum time of an answer of the control socket.
const ANSWER: Duration = Duration::from_secs(15);

fn sizes() -> [usize; 3] {
    let Ok(text) = std::env::var("CAMBRIC_START") else {
        return SIZES;
    };
    let sizes: Vec<usize> = text.split(',').map(|size| size.parse().unwrap()).collect();
    sizes.try_into().expect("three sizes")
}

/// Returns a policy for the endpoints of one application, which this host has. It allows
/// connections from those of one role, which no other policy selects.
fn policy(n: usize, local: usize) -> (String, Value) {
    let allow = json!({"action": "Allow", "protocol": "TCP",
        "source": {"selector": format!("role == 'r{n}'")},
        "destination": {"ports": [80 + n % 7]}});
    let selector = format!("app == 'a{}'", n % local.max(1));
    let spec = json!({"selector": selector, "order": n, "ingress": [allow],
        "egress": [{"action": "Allow"}]});
    let key = format!("{RESOURCES}networkpolicies/ns/default.p{n}");
    (
        key,
        json!({"metadata": {"name": format!("default.p{n}")}, "spec": spec}),
    )
}

fn endpoint(n: usize, local: usize, policies: usize) -> (String, Value) {
    let node = if n < local {
        "n1".to_owned()
    } else {
        format!("m{}", n / 100)
    };
    let name = format!("{node}-k8s-w{n}-eth0");
    let labels = json!({"app": format!("a{}", n % local.max(1)), "pod": format!("w{n}"),
        "role": format!("r{}", n % policies.max(1)),
        "projectcalico.org/namespace": "ns", "projectcalico.org/orchestrator": "k8s"});
    let address = format!(
        "10.{}.{}.{}/32",
        65 + n / 62_500,
        n / 250 % 250,
        1 + n % 250
    );
    let spec = json!({"orchestrator": "k8s", "node": node, "pod": format!("w{n}"),
        "endpoint": "eth0", "interfaceName": format!("cali{n}"), "ipNetworks": [address],
        "profiles": ["projectcalico-default-allow"]});
    let key = format!("{RESOURCES}workloadendpoints/ns/{name}");
    (
        key,
        json!({"metadata": {"name": name, "namespace": "ns", "labels": labels}, "spec": spec}),
    )
}

/// Creates a host with a served and filled datastore, and without a Felix. Returns the address of
/// the datastore too.
fn filled(policies: usize, remote: usize, local: usize) -> (Host, String) {
    let (host, address) = served();
    let values = (0..policies).map(|n| policy(n, local));
    let endpoints = (0..local + remote).map(|n| endpoint(n, local, policies));
    for (key, value) in values.chain(endpoints) {
        host.put(&key, &value);
    }
    (host, address)
}

fn figures(host: &Host) -> Option<EndpointFigures> {
    match host.ask(&Ask::Status {}) {
        Reply::Status(status) if status.ready => status.endpoints.map(|figures| *figures),
        Reply::Status(_) => None,
        other => panic!("{other:?}"),
    }
}

/// Yields the processor to Felix for a moment.
fn pause(host: &Host) {
    let moment = async { tokio::time::sleep(Duration::from_millis(10)).await };
    host.handle().block_on(moment);
}

#[test]
fn start_with_many_policies_keeps_answering() {
    lab("start_with_many_policies_keeps_answering", || {
        let [policies, remote, local] = sizes();
        let (host, store) = filled(policies, remote, local);
        for n in 0..local {
            run(&format!("ip link add cali{n} type veth peer name in{n}"));
            run(&format!("ip link set in{n} up"));
            run(&format!("ip link set cali{n} up"));
        }
        let begun = Instant::now();
        let felix = Process::start(&host, &store, "");
        let within = PATIENCE * 4;
        while std::os::unix::net::UnixStream::connect(host.socket()).is_err() {
            assert!(begun.elapsed() < within, "no control socket");
            pause(&host);
        }
        let mut slowest = Duration::ZERO;
        let done = loop {
            let asked = Instant::now();
            let figures = figures(&host);
            slowest = slowest.max(asked.elapsed());
            match figures {
                Some(figures) if figures.up == local as u64 => break figures,
                figures => assert!(begun.elapsed() < within, "{figures:?}"),
            }
            pause(&host);
        };
        let took = begun.elapsed();
        let usage = ::netns_lab::usage(felix.id()).unwrap();
        println!(
            "{policies} policies, {remote} remote, {local} local: {took:.2?}, CPU {:.2?}, \
             {} MB, slowest answer {slowest:.2?}; {done:?}",
            usage.cpu,
            usage.resident_octets / 1_000_000,
        );
        assert!(slowest < ANSWER, "{slowest:?}");
        let listed = run("nft list chains inet");
        assert_eq!(listed.matches("chain pi-").count(), policies);
    });
}
