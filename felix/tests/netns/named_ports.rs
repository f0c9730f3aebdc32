//! Rules with names of ports, with real packets through the real packet filter. Needs root and
//! `CAMBRIC_LAB=1`.

use serde_json::{Value, json};

use crate::policy::{is_cut_off, reaches, serve};
use crate::world::host::{Host, RESOURCES, workload};
use crate::world::{Workload, lab, run};

/// Writes the only policy, for all ingress of workloads.
fn policy(host: &Host, rules: &Value) {
    let value = json!({
        "kind": "GlobalNetworkPolicy", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "p"}, "spec": {"ingress": rules, "types": ["Ingress"]},
    });
    host.put(&format!("{RESOURCES}globalnetworkpolicies/p"), &value);
}

fn listed(host: &Host, what: &str, done: impl Fn(&str) -> bool) {
    host.until(what, || done(&run("nft list table inet cambric-felix")));
}

/// Writes endpoint `n` with the TCP port of the name `http`.
fn named(host: &Host, n: u8, app: &str, http: u16) {
    let ports = json!([
        {"name": "http", "protocol": "TCP", "port": http},
        {"name": "http", "protocol": "UDP", "port": 9999},
    ]);
    host.endpoint_with(n, &json!({ "app": app }), &json!({ "ports": ports }));
}

fn is_closed(from: &Workload, n: u8, port: u16) -> bool {
    [format!("10.65.0.{n}"), format!("fd65::{n}")]
        .iter()
        .all(|to| is_cut_off(from, to, port))
}

fn is_open(from: &Workload, n: u8, port: u16) -> bool {
    [format!("10.65.0.{n}"), format!("fd65::{n}")]
        .iter()
        .all(|to| reaches(from, to, port))
}

// Promise (Felix): A name of a port in a rule stands for the ports of the selected endpoints.
#[test]
fn named_port_opens_the_port_of_each_endpoint() {
    lab("named_port_opens_the_port_of_each_endpoint", || {
        let host = Host::new();
        let all: Vec<Workload> = (1..=3).map(workload).collect();
        named(&host, 1, "web", 8080);
        named(&host, 2, "web", 8081);
        named(&host, 3, "db", 8080);
        let _servers: Vec<_> = all
            .iter()
            .flat_map(|one| [8080, 8081, 8082].map(|port| serve(one, port)))
            .collect();
        let http = json!({"ports": ["http"]});
        let rule = |action: &str, destination: &Value| json!({"action": action, "protocol": "TCP", "destination": destination});
        policy(&host, &json!([rule("Allow", &http)]));
        (1..=3).for_each(|n| host.wait_up(&format!("cali{n}")));
        listed(&host, "the ports", |t| t.contains("10.65.0.2 . tcp . 8081"));
        assert!(is_open(&all[2], 1, 8080) && is_open(&all[0], 2, 8081));
        assert!(is_closed(&all[2], 1, 8081) && is_closed(&all[0], 2, 8080));
        assert!(
            is_closed(&all[0], 2, 9999),
            "a port of another protocol is not meant"
        );

        // Only the ports of the selected endpoints, and numbers beside names.
        let web = json!({"ports": ["http", 8082], "selector": "app == 'web'"});
        policy(&host, &json!([rule("Allow", &web)]));
        listed(&host, "the selector", |t| t.contains("tcp dport 8082"));
        assert!(is_open(&all[1], 1, 8080) && is_open(&all[1], 1, 8082));
        assert!(is_closed(&all[1], 3, 8080) && is_closed(&all[1], 3, 8082));

        // The members change with the endpoint.
        named(&host, 1, "web", 8081);
        listed(&host, "the other port", |t| {
            t.contains("10.65.0.1 . tcp . 8081")
        });
        assert!(is_open(&all[1], 1, 8081) && is_closed(&all[1], 1, 8080));

        // A denied name, and all ports but a name.
        let allow = json!({"action": "Allow"});
        policy(&host, &json!([rule("Deny", &http), allow]));
        listed(&host, "the denial", |t| !t.contains("dport 8082"));
        assert!(is_closed(&all[1], 1, 8081) && is_open(&all[1], 1, 8080));
        let but = json!({"notPorts": ["http"]});
        policy(&host, &json!([rule("Allow", &but)]));
        listed(&host, "the negation", |t| t.contains("th dport != @"));
        assert!(is_closed(&all[1], 1, 8081) && is_open(&all[1], 1, 8080));

        // A name that no endpoint has allows nothing.
        let none = json!({"ports": ["none"]});
        policy(&host, &json!([rule("Allow", &none)]));
        listed(&host, "the missing name", |t| !t.contains("dport != @"));
        assert!(is_closed(&all[1], 1, 8080) && is_closed(&all[1], 1, 8081));
    });
}

#[test]
fn named_source_port_is_that_of_the_sender() {
    lab("named_source_port_is_that_of_the_sender", || {
        let host = Host::new();
        let (one, two) = (workload(1), workload(2));
        named(&host, 1, "web", 8080);
        named(&host, 2, "db", 8081);
        let _server = serve(&one, 80);
        let rule = json!({"action": "Allow", "protocol": "TCP", "source": {"ports": ["http"]}});
        policy(&host, &json!([rule]));
        (1..=2).for_each(|n| host.wait_up(&format!("cali{n}")));
        listed(&host, "the ports", |t| t.contains("10.65.0.2 . tcp . 8081"));
        // The kernel draws source ports from this range alone.
        let draw = |port: u16| {
            two.namespace.within(|| {
                crate::world::sysctl("ipv4/ip_local_port_range", &format!("{port} {port}"))
            });
        };
        draw(8081);
        assert!(reaches(&two, "10.65.0.1", 80));
        draw(8083);
        assert!(is_closed(&two, 1, 80));
        draw(8081);
        assert!(reaches(&two, "fd65::1", 80));
    });
}
