//! Rules with services, with real packets. Needs root and `CAMBRIC_LAB=1`.

use calico_model::SERVICES_PREFIX;
use serde_json::{Value, json};

use crate::policy::{is_cut_off, reaches, serve};
use crate::world::host::{Host, RESOURCES, workload};
use crate::world::{Workload, lab, run};

fn listed(host: &Host, what: &str, done: impl Fn(&str) -> bool) {
    host.until(what, || done(&run("nft list table inet cambric-felix")));
}

/// Writes a part of the service `ns/web`.
fn slice(host: &Host, name: &str, addresses: &[&str], port: u16) {
    let value = json!({
        "endpoints": addresses.iter().map(|at| json!({"addresses": [at]})).collect::<Vec<_>>(),
        "ports": [{"protocol": "TCP", "port": port}],
    });
    host.put(&format!("{SERVICES_PREFIX}ns/web/{name}"), &value);
}

/// Writes the only policy, for a direction of workload 3.
fn policy(host: &Host, direction: &str, rules: &Value) {
    let types = match direction {
        "egress" => "Egress",
        _ => "Ingress",
    };
    let value = json!({
        "kind": "NetworkPolicy", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"selector": "app == 'client'", direction: rules, "types": [types]},
    });
    host.put(&format!("{RESOURCES}networkpolicies/ns/p"), &value);
}

// Promise (Felix): A rule with a service matches the service's endpoints and their ports.
#[test]
fn service_opens_the_ports_of_its_endpoints() {
    lab("service_opens_the_ports_of_its_endpoints", || {
        let host = Host::new();
        let all: Vec<Workload> = (1..=3).map(workload).collect();
        for n in 1..=3 {
            let app = if n == 3 { "client" } else { "server" };
            host.endpoint_with(n, &json!({ "app": app }), &json!({}));
        }
        let _servers: Vec<_> = [&all[0], &all[1]]
            .into_iter()
            .flat_map(|one| [8080, 8081].map(|port| serve(one, port)))
            .collect();
        let to_web =
            |action: &str| json!({"action": action, "destination": {"services": {"name": "web"}}});
        policy(&host, "egress", &json!([to_web("Allow")]));
        (1..=3).for_each(|n| host.wait_up(&format!("cali{n}")));
        listed(&host, "the policy", |t| t.contains("chain po-np/ns/p"));
        // The service does not exist.
        let client = &all[2];
        assert!(is_cut_off(client, "10.65.0.1", 8080));

        slice(&host, "a", &["10.65.0.1", "fd65::1"], 8080);
        listed(&host, "its endpoint", |t| {
            t.contains("fd65::1 . tcp . 8080")
        });
        assert!(reaches(client, "10.65.0.1", 8080) && reaches(client, "fd65::1", 8080));
        assert!(is_cut_off(client, "10.65.0.1", 8081) && is_cut_off(client, "fd65::2", 8080));

        // Another slice adds an endpoint with another port.
        slice(&host, "b", &["10.65.0.2"], 8081);
        listed(&host, "another one", |t| {
            t.contains("10.65.0.2 . tcp . 8081")
        });
        assert!(reaches(client, "10.65.0.2", 8081) && reaches(client, "10.65.0.1", 8080));
        assert!(is_cut_off(client, "10.65.0.2", 8080));
        slice(&host, "a", &["10.65.0.2"], 8080);
        listed(&host, "the move", |t| !t.contains("10.65.0.1 . tcp"));
        assert!(reaches(client, "10.65.0.2", 8080) && is_cut_off(client, "10.65.0.1", 8080));

        // A denied service; without it, the rule denies everything.
        let denied = json!([to_web("Deny"), {"action": "Allow"}]);
        policy(&host, "egress", &denied);
        listed(&host, "the denial", |t| t.contains("comment \"egress[1]\""));
        assert!(is_cut_off(client, "10.65.0.2", 8080) && reaches(client, "10.65.0.1", 8080));
        host.delete(&format!("{SERVICES_PREFIX}ns/web/a"));
        listed(&host, "one slice less", |t| {
            !t.contains("10.65.0.2 . tcp . 8080")
        });
        assert!(reaches(client, "10.65.0.2", 8080) && is_cut_off(client, "10.65.0.2", 8081));
        host.delete(&format!("{SERVICES_PREFIX}ns/web/b"));
        listed(&host, "no endpoints", |t| !t.contains("svc-"));
        assert!(is_cut_off(client, "10.65.0.1", 8080));
    });
}

#[test]
fn service_as_source_is_its_addresses() {
    lab("service_as_source_is_its_addresses", || {
        let host = Host::new();
        let all: Vec<Workload> = (1..=3).map(workload).collect();
        for n in 1..=3 {
            let app = if n == 3 { "client" } else { "server" };
            host.endpoint_with(n, &json!({ "app": app }), &json!({}));
        }
        let _server = serve(&all[2], 80);
        slice(&host, "a", &["10.65.0.1", "fd65::1"], 8080);
        let rule = json!({"action": "Allow", "source": {"services": {"name": "web"}}});
        policy(&host, "ingress", &json!([rule]));
        (1..=3).for_each(|n| host.wait_up(&format!("cali{n}")));
        listed(&host, "the addresses", |t| t.contains("cali60svcnoport-"));
        for (from, to, is_open) in [
            (&all[0], "10.65.0.3", true),
            (&all[0], "fd65::3", true),
            (&all[1], "10.65.0.3", false),
            (&all[1], "fd65::3", false),
        ] {
            match is_open {
                true => assert!(reaches(from, to, 80)),
                false => assert!(is_cut_off(from, to, 80)),
            }
        }
    });
}
