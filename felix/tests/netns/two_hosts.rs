//! Two hosts, each with its own Felix, and one datastore. Needs root and `CAMBRIC_LAB=1`.

use std::time::Duration;

use serde_json::{Value, json};

use crate::guard::{connects, listen};
use crate::overlay::{fabric, shown};
use crate::world::host::{Host, OPEN, RESOURCES, Running, mac};
use crate::world::{Namespace, Workload, lab, run};

/// How long the test waits for a connection that must not be established.
const NEVER: Duration = Duration::from_millis(300);

/// The second host, as a namespace.
struct Second {
    namespace: Namespace,
    felix: Option<Running>,
}

impl Drop for Second {
    fn drop(&mut self) {
        if let Some(felix) = self.felix.take().filter(|_| !std::thread::panicking()) {
            felix.stop();
        }
    }
}

/// Creates host `n2` at the far end of the uplink, with a Felix on the datastore of the first one.
fn second(host: &Host) -> Second {
    let namespace = Namespace::new();
    namespace.take("far", "uplink");
    let text = format!(
        "hostname = \"n2\"\ncontrol = \"{}\"\nendpoint_status_path_prefix = \"\"\n\
         [datastore]\nendpoints = [\"http://127.0.0.1:1\"]\n",
        host.directory().join("second.sock").display(),
    );
    let felix = namespace.within(|| {
        run("ip link set uplink up");
        run("ip address add 10.0.0.2/24 dev uplink");
        run("ip address add fd00::2/64 dev uplink nodad");
        Running::start(&host.store, text)
    });
    Second {
        namespace,
        felix: Some(felix),
    }
}

/// Creates workload `n` of a host, in the namespace of the thread, with its endpoint.
fn workload(host: &Host, node: u8, n: u8, labels: &Value) -> Workload {
    let (v4, v6) = (format!("10.65.{node}.{n}"), format!("fd65::{node}:{n}"));
    let made = Workload::new(&format!("cali{n}"), &mac(n), Some(&v4), Some(&v6));
    let value = json!({
        "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": format!("n{node}-k8s-p{n}-eth0"), "namespace": "ns", "labels": labels},
        "spec": {
            "orchestrator": "k8s", "node": format!("n{node}"), "pod": format!("p{n}"),
            "endpoint": "eth0", "interfaceName": format!("cali{n}"), "mac": mac(n),
            "ipNetworks": [format!("{v4}/32"), format!("{v6}/128")], "profiles": OPEN,
        },
    });
    let key = format!("{RESOURCES}workloadendpoints/ns/n{node}-k8s-p{n}-eth0");
    host.put(&key, &value);
    made
}

/// Asserts that only clients reach the servers of both hosts.
fn compare(host: &Host, words: &str, clients: [&Workload; 2], others: [&Workload; 2]) {
    // The servers of a host, for the workloads of the other one.
    let servers = [["10.65.2.2", "[fd65::2:2]"], ["10.65.1.1", "[fd65::1:1]"]];
    for (addresses, (client, other)) in servers.into_iter().zip(clients.into_iter().zip(others)) {
        for address in addresses {
            let to = format!("{address}:80");
            host.until(&format!("{words}: a client reaches {to}"), || {
                connects(client, &to, NEVER)
            });
            assert!(!connects(other, &to, NEVER), "{words}: {to} from another");
            let closed = format!("{address}:81");
            assert!(!connects(client, &closed, NEVER), "{words}: {closed}");
        }
    }
}

// Promise (Felix): Policies hold between workloads of two hosts, through tunnels and over plain routes
// that Felix installs, in both IP versions.
#[test]
fn policies_hold_between_two_hosts() {
    lab("policies_hold_between_two_hosts", || {
        let host = Host::new();
        let other = second(&host);
        fabric(&host, "Always");
        // Each server is a client of the other one.
        let both = json!({"role": "server", "also": "client"});
        let one = workload(&host, 1, 1, &both);
        let three = workload(&host, 1, 3, &json!({}));
        let (two, four) = other.namespace.within(|| {
            let two = workload(&host, 2, 2, &both);
            (two, workload(&host, 2, 4, &json!({})))
        });
        let rule = json!({"action": "Allow", "protocol": "TCP",
            "source": {"selector": "also == 'client'"}, "destination": {"ports": [80]}});
        let policy = json!({
            "kind": "GlobalNetworkPolicy", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": "servers"},
            "spec": {"selector": "role == 'server'", "types": ["Ingress"], "ingress": [rule]},
        });
        host.put(
            &format!("{RESOURCES}globalnetworkpolicies/servers"),
            &policy,
        );
        let _servers = [&one, &two].map(|at| at.namespace.within(|| [80, 81].map(listen)));
        host.wait_up("cali1");
        let has_policy = || run("nft list table inet cambric-felix").contains("pi-gnp/servers");
        host.until("the policy of the first host", has_policy);
        host.until("the policy of the second host", || {
            other.namespace.within(has_policy)
        });
        let route = |at: &str| shown(&format!("ip route show {at}"));
        host.until("a tunnel to the second host", || {
            route("10.65.2.0/26").contains("dev vxlan.calico")
        });
        compare(&host, "VXLAN", [&one, &two], [&three, &four]);

        // Felix also installs the routes of pools without encapsulation.
        let felix = json!({"spec": {"programClusterRoutes": "Enabled"}});
        host.put(&format!("{RESOURCES}felixconfigurations/default"), &felix);
        let bgp = json!({"spec": {"programClusterRoutes": "Disabled"}});
        host.put(&format!("{RESOURCES}bgpconfigurations/default"), &bgp);
        fabric(&host, "Never");
        host.until("a plain route to the second host", || {
            route("10.65.2.0/26").contains("via 10.0.0.2 dev uplink")
        });
        host.until("a plain route to the first host", || {
            let back = || route("10.65.1.0/26").contains("via 10.0.0.11 dev uplink");
            other.namespace.within(back)
        });
        compare(&host, "plain routes", [&one, &two], [&three, &four]);
        assert!(shown("ip link show type vxlan").is_empty());
    });
}
