//! Host endpoints, with real packets between a host and an outside peer. Needs root and
//! `CAMBRIC_LAB=1`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use daemon_common::report::Fact;
use daemon_common::{Command, Reply};
use serde_json::{Value, json};

use crate::guard::{connects, listen, outside};
use crate::overlay;
use crate::world::host::{Host, OPEN, PATIENCE, RESOURCES, announce, workload};
use crate::world::{Workload, lab, ping, pings, run};

/// How long the test waits for a connection that must not be established.
const NEVER: Duration = Duration::from_millis(300);

/// The addresses of the host, and of the peer.
const HOST: [&str; 2] = ["10.0.0.11", "[fd00::11]"];
const PEER: [&str; 2] = ["10.0.0.1", "[fd00::1]"];

/// Writes a host endpoint with the label `role`.
fn host_endpoint(host: &Host, name: &str, spec: &Value) {
    let mut value = json!({
        "kind": "HostEndpoint", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, "labels": {"role": "host"}}, "spec": {"node": "n1"},
    });
    for (field, setting) in spec.as_object().unwrap() {
        value["spec"][field] = setting.clone();
    }
    host.put(&format!("{RESOURCES}hostendpoints/{name}"), &value);
}

/// Writes a policy of host endpoints.
fn policy(host: &Host, name: &str, spec: &Value) {
    let mut value = json!({
        "kind": "GlobalNetworkPolicy", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name}, "spec": {"selector": "role == 'host'"},
    });
    for (field, setting) in spec.as_object().unwrap() {
        value["spec"][field] = setting.clone();
    }
    host.put(&format!("{RESOURCES}globalnetworkpolicies/{name}"), &value);
}

fn listed(host: &Host, what: &str, done: impl Fn(&str) -> bool) {
    // The first packet filter may not be written yet.
    let text = || overlay::shown("nft list table inet cambric-felix");
    host.until(what, || {
        let text = text();
        !text.is_empty() && done(&text)
    });
}

/// Returns whether the host connects to an address.
fn reaches(to: &str, patience: Duration) -> bool {
    let to: SocketAddr = to.parse().unwrap();
    TcpStream::connect_timeout(&to, patience).is_ok()
}

/// Returns the end of a connection at its server.
fn accepted(server: &TcpListener, client: &TcpStream) -> TcpStream {
    let own = client.local_addr().unwrap();
    loop {
        let (stream, from) = server.accept().unwrap();
        if (from.ip().to_canonical(), from.port()) == (own.ip(), own.port()) {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            return stream;
        }
    }
}

fn at(addresses: [&str; 2], port: u16) -> [String; 2] {
    addresses.map(|address| format!("{address}:{port}"))
}

// Promise (Felix): A wrong policy of a host endpoint does not close the failsafe ports of the host, in
// both directions and both IP versions. Failsafe ports open nothing to workloads.
#[test]
fn wrong_host_policy_does_not_lock_out_the_operator() {
    lab("wrong_host_policy_does_not_lock_out_the_operator", || {
        let host = Host::new();
        let peer = Workload {
            namespace: outside(),
        };
        let own = workload(1);
        announce(&host, 1, OPEN);
        host.wait_up("cali1");
        let services = [22, 179, 8080].map(listen);
        let _of_peer = peer.namespace.within(|| [179, 8080].map(listen));
        for port in [22, 8080] {
            for to in at(HOST, port) {
                assert!(connects(&peer, &to, PATIENCE), "no host endpoint: {to}");
            }
        }
        let mut before = peer.namespace.within(|| {
            let to: SocketAddr = at(HOST, 8080)[0].parse().unwrap();
            TcpStream::connect_timeout(&to, PATIENCE).unwrap()
        });
        let mut served = accepted(&services[2], &before);
        policy(&host, "deny", &json!({"types": ["Ingress", "Egress"]}));
        host_endpoint(&host, "uplink", &json!({"interfaceName": "uplink"}));
        listed(&host, "the host endpoint", |text| {
            text.contains("chain host-in-uplink")
        });
        for to in at(HOST, 8080) {
            assert!(!connects(&peer, &to, NEVER), "the policy is not in effect");
        }
        for to in at(PEER, 8080) {
            assert!(!reaches(&to, NEVER), "the policy is not in effect");
        }
        for to in at(HOST, 22).into_iter().chain(at(HOST, 179)) {
            assert!(connects(&peer, &to, PATIENCE), "locked out of {to}");
        }
        for to in at(PEER, 179) {
            assert!(reaches(&to, PATIENCE), "cut off from {to}");
        }
        // A connection that was open before continues.
        before.write_all(b"data").unwrap();
        let mut data = [0; 4];
        served.read_exact(&mut data).unwrap();

        // Traffic between the host and its workload, and through the host, is not affected.
        for [to, outside] in [["10.65.0.1", "10.0.0.1"], ["fd65::1", "fd00::1"]] {
            assert!(pings(to), "from the host to {to}");
            assert!(peer.namespace.pings(to), "through the host to {to}");
            assert!(own.namespace.pings(outside), "from the workload");
        }
        // Failsafe ports are for other hosts: the workload reaches none.
        for to in at(HOST, 22) {
            assert!(!connects(&own, &to, NEVER), "{to} is open to a workload");
        }
        host.configure(&json!({"defaultEndpointToHostAction": "Accept"}));
        for to in at(HOST, 22) {
            host.until("the host accepts workloads", || connects(&own, &to, NEVER));
        }
        for to in at(HOST, 179) {
            assert!(!connects(&own, &to, NEVER), "control port {to} is open");
        }

        // With a host endpoint for all interfaces, the rules of workloads decide as before.
        host_endpoint(&host, "all", &json!({"interfaceName": "*"}));
        listed(&host, "the host endpoint", |text| {
            text.contains("goto host-in/all") && text.contains("goto host-out/all")
        });
        let _of_workload = own.namespace.within(|| listen(8080));
        for to in ["10.65.0.1:8080", "[fd65::1]:8080"] {
            assert!(reaches(to, PATIENCE), "from the host to {to}");
        }
        for to in at(HOST, 8080) {
            assert!(connects(&own, &to, PATIENCE), "from the workload to {to}");
        }
        host.delete(&format!("{RESOURCES}hostendpoints/all"));
        listed(&host, "no such host endpoint", |text| {
            !text.contains("host-in/all")
        });

        // The right policy opens the port, and another one closes nothing else.
        let rule =
            json!([{"action": "Allow", "protocol": "TCP", "destination": {"ports": [8080]}}]);
        policy(
            &host,
            "allow",
            &json!({"order": 1, "ingress": rule, "egress": rule}),
        );
        for to in at(HOST, 8080) {
            host.until("the port is open", || connects(&peer, &to, NEVER));
        }
        for to in at(PEER, 8080) {
            host.until("the port is open", || reaches(&to, NEVER));
        }
        // Without failsafe ports, policies decide alone.
        let none = json!({"failsafeInboundHostPorts": [], "failsafeOutboundHostPorts": []});
        host.configure(&none);
        listed(&host, "no failsafe port", |text| {
            !text.contains("failsafe port")
        });
        for to in at(HOST, 22) {
            assert!(!connects(&peer, &to, NEVER), "{to} is open");
        }
        host.delete(&format!("{RESOURCES}hostendpoints/uplink"));
        listed(&host, "no host endpoint", |text| !text.contains("host-in"));
        for to in at(HOST, 22) {
            assert!(connects(&peer, &to, PATIENCE), "{to} is closed");
        }
    });
}

#[test]
fn forwarded_packets_meet_policies_of_the_host() {
    lab("forwarded_packets_meet_policies_of_the_host", || {
        let host = Host::new();
        let peer = outside();
        let own = workload(1);
        announce(&host, 1, OPEN);
        host.wait_up("cali1");
        let from = |source: &str| peer.within(|| ping(&format!("-w 1 -I {source} 10.65.0.1")));
        let rules = json!([
            {"action": "Deny", "source": {"nets": ["10.0.0.2/32"]}}, {"action": "Allow"}]);
        policy(
            &host,
            "p",
            &json!({"ingress": rules, "applyOnForward": false}),
        );
        host_endpoint(&host, "all", &json!({"interfaceName": "*"}));
        listed(&host, "the host endpoint", |text| {
            text.contains("goto host-in/all")
        });
        host.until("both pass", || from("10.0.0.1") && from("10.0.0.2"));
        assert!(!peer.within(|| ping("-w 1 -I 10.0.0.2 10.0.0.11")));
        assert!(peer.within(|| ping("-w 5 -I 10.0.0.1 10.0.0.11")));
        policy(
            &host,
            "p",
            &json!({"ingress": rules, "applyOnForward": true}),
        );
        listed(&host, "the policy", |text| {
            text.contains("goto host-forward-in/all")
        });
        host.until("a source passes", || from("10.0.0.1"));
        assert!(!from("10.0.0.2"), "the other one is denied");
        assert!(own.namespace.pings("10.0.0.2"), "the reply passes");

        // A host endpoint by name has priority, and has no policy for forwarded packets.
        let spec = json!({"node": "n1", "interfaceName": "uplink", "profiles": OPEN});
        let value = json!({"metadata": {"name": "own"}, "spec": spec});
        host.put(&format!("{RESOURCES}hostendpoints/own"), &value);
        host.until("both pass", || from("10.0.0.1") && from("10.0.0.2"));
        assert!(peer.within(|| ping("-w 5 -I 10.0.0.2 10.0.0.11")));
    });
}

#[test]
fn expected_address_selects_the_interface() {
    lab("expected_address_selects_the_interface", || {
        let host = Host::new();
        let peer = Workload {
            namespace: outside(),
        };
        let _service = listen(8080);
        let is_open = |patience| connects(&peer, "[fd00::11]:8080", patience);
        host_endpoint(&host, "a", &json!({"expectedIPs": ["10.0.0.11"]}));
        let has_rules = |text: &str| text.contains("chain host-in-uplink");
        listed(&host, "the host endpoint", has_rules);
        assert!(!is_open(NEVER));
        // The other family has the same interface, and stays.
        run("ip address del 10.0.0.11/24 dev uplink");
        listed(&host, "no host endpoint", |text| !has_rules(text));
        assert!(is_open(PATIENCE));
        run("ip address add 10.0.0.11/24 dev uplink");
        listed(&host, "the host endpoint", has_rules);
        assert!(!is_open(NEVER));
    });
}

// Promise (Felix): A policy with `preDNAT` decides about the destination before translation, and about
// a packet that it allows no other ingress policy of the host endpoint decides.
#[test]
fn policy_before_translation_decides_by_the_service() {
    lab("policy_before_translation_decides_by_the_service", || {
        let host = Host::new();
        let peer = Workload {
            namespace: outside(),
        };
        let own = workload(1);
        announce(&host, 1, OPEN);
        host.wait_up("cali1");
        let _of_workload = own.namespace.within(|| listen(8080));
        let _of_host = [22, 8081, 8082].map(listen);
        run("nft add table ip services");
        run("nft add chain ip services c { type nat hook prerouting priority -100 ; }");
        run("nft add rule ip services c tcp dport 30080 dnat to 10.65.0.1:8080");
        let service = "10.0.0.11:30080";
        assert!(connects(&peer, service, PATIENCE), "no host endpoint");

        let tcp = |action: &str, port: u16| json!({"action": action, "protocol": "TCP", "destination": {"ports": [port]}});
        let early = |rules: &Value| {
            let spec = json!({"preDNAT": true, "applyOnForward": true, "ingress": rules});
            policy(&host, "early", &spec);
        };
        host_endpoint(&host, "uplink", &json!({"interfaceName": "uplink"}));
        early(&json!([tcp("Deny", 30080)]));
        listed(&host, "the policy", |text| {
            text.contains("host-untranslated-uplink")
        });
        assert!(!connects(&peer, service, NEVER), "the service is open");
        for to in at(HOST, 8081) {
            assert!(!connects(&peer, &to, NEVER), "{to} is open");
        }

        // Policies for forwarded packets and of the host deny the rest.
        let deny = json!({"applyOnForward": true, "types": ["Ingress"]});
        policy(&host, "deny", &deny);
        early(&json!([tcp("Allow", 30080), tcp("Allow", 8081)]));
        host.until("the service is open", || connects(&peer, service, NEVER));
        for to in at(HOST, 8081) {
            assert!(connects(&peer, &to, PATIENCE), "{to} is closed");
        }
        for to in at(HOST, 8082)
            .into_iter()
            .chain(["10.65.0.1:8080".to_owned()])
        {
            assert!(!connects(&peer, &to, NEVER), "{to} is open");
        }

        // Policies of the interface where the packets leave apply, too.
        host_endpoint(&host, "all", &json!({"interfaceName": "*"}));
        listed(&host, "the host endpoint", |text| {
            text.contains("goto host-forward-out/all")
        });
        assert!(connects(&peer, service, PATIENCE), "{service} is closed");
        let out = json!({"applyOnForward": true, "egress": [{"action": "Deny"}]});
        policy(&host, "out", &out);
        // The server accepts no connection: its queue must not fill.
        listed(&host, "the egress policy", |text| {
            text.contains("drop comment \"egress[0]\"")
        });
        assert!(!connects(&peer, service, NEVER), "the service is open");
        host.delete(&format!("{RESOURCES}globalnetworkpolicies/out"));
        host.until("the service is open", || connects(&peer, service, NEVER));

        early(&json!([{"action": "Deny"}]));
        listed(&host, "the policy", |text| {
            text.contains("drop comment \"ingress[0]\"")
        });
        assert!(!connects(&peer, service, NEVER), "the service is open");
        for to in at(HOST, 22) {
            assert!(connects(&peer, &to, PATIENCE), "locked out of {to}");
        }
    });
}

// Promise (Felix): A policy with `doNotTrack` leaves packets out of connection tracking, and closes no
// failsafe port.
#[test]
fn untracked_policy_does_not_lock_out_the_operator() {
    lab("untracked_policy_does_not_lock_out_the_operator", || {
        let host = Host::new();
        let peer = Workload {
            namespace: outside(),
        };
        let _of_host = [22, 8080, 8081].map(listen);
        let _of_peer = peer.namespace.within(|| [179, 8080].map(listen));
        run("nft add table inet t");
        run("nft add chain inet t c { type filter hook input priority 10 ; }");
        run("nft add rule inet t c tcp dport 8080 ct state untracked counter");
        let is_untracked = || !run("nft list chain inet t c").contains("packets 0 ");
        let end =
            |end: &str| json!([{"action": "Allow", "protocol": "TCP", end: {"ports": [8080]}}]);
        host_endpoint(&host, "uplink", &json!({"interfaceName": "uplink"}));
        let spec = json!({"doNotTrack": true, "applyOnForward": true,
            "ingress": end("destination"), "egress": end("source")});
        policy(&host, "untracked", &spec);
        listed(&host, "the policy", |text| text.contains("notrack accept"));
        for to in at(HOST, 8080) {
            host.until("the port is open", || connects(&peer, &to, NEVER));
        }
        assert!(is_untracked());
        for to in at(HOST, 8081) {
            assert!(!connects(&peer, &to, NEVER), "{to} is open");
        }
        let ways = || {
            for to in at(HOST, 22) {
                assert!(connects(&peer, &to, PATIENCE), "locked out of {to}");
            }
            for to in at(PEER, 179) {
                assert!(reaches(&to, PATIENCE), "cut off from {to}");
            }
        };
        ways();
        let deny = json!([{"action": "Deny"}]);
        // A policy with `preDNAT` does not deny these packets.
        let spec = json!({"preDNAT": true, "applyOnForward": true, "ingress": deny});
        policy(&host, "early", &spec);
        listed(&host, "the policy", |text| {
            text.contains("goto host-untranslated-uplink")
        });
        for to in at(HOST, 8080) {
            assert!(connects(&peer, &to, PATIENCE), "{to} is closed");
        }
        host.delete(&format!("{RESOURCES}globalnetworkpolicies/early"));
        listed(&host, "no such policy", |text| {
            !text.contains("host-untranslated")
        });
        // Another program that leaves packets out of connection tracking opens nothing.
        for (chain, hook, end) in [("in", "prerouting", "dport"), ("out", "output", "sport")] {
            run(&format!(
                "nft add chain inet t {chain} {{ type filter hook {hook} priority -310 ; }}"
            ));
            run(&format!(
                "nft add rule inet t {chain} tcp {end} 8081 meta mark set 0x10000 notrack"
            ));
        }
        for to in at(HOST, 8081) {
            assert!(!connects(&peer, &to, NEVER), "{to} is open");
        }
        let spec = json!({"doNotTrack": true, "applyOnForward": true, "order": 1,
            "ingress": deny, "egress": deny});
        policy(&host, "deny", &spec);
        listed(&host, "the policy", |text| {
            text.contains("chain pi-gnp/deny")
        });
        for to in at(HOST, 8080) {
            assert!(!connects(&peer, &to, NEVER), "{to} is open");
        }
        ways();
    });
}

#[test]
fn tunnels_between_nodes_pass_policies_at_early_hooks() {
    lab("tunnels_between_nodes_pass_policies_at_early_hooks", || {
        let (host, own, far) = overlay::hosts();
        let pass = || ["10.65.2.7", "fd65::2:7"].map(|to| own.namespace.pings(to)) == [true; 2];
        assert!(pass(), "no host endpoint");
        let is_denied = |policy: &str| {
            assert!(far.is_cut_off("10.0.0.11"), "{policy} is not in effect");
            assert!(host.counted(&format!("pi-gnp/{policy}"), "ingress[0]") > 0);
        };
        host_endpoint(&host, "uplink", &json!({"interfaceName": "uplink"}));
        let deny = json!([{"action": "Deny"}]);
        let early = json!({"preDNAT": true, "applyOnForward": true, "ingress": deny});
        policy(&host, "early", &early);
        listed(&host, "the policy", |text| {
            text.contains("goto host-untranslated-uplink")
        });
        is_denied("early");
        assert!(pass(), "preDNAT denies tunnels");
        host.delete(&format!("{RESOURCES}globalnetworkpolicies/early"));
        let untracked = json!({"doNotTrack": true, "applyOnForward": true,
            "ingress": deny, "egress": deny});
        policy(&host, "untracked", &untracked);
        listed(&host, "the policy", |text| {
            text.contains("goto host-untracked-out-uplink")
        });
        is_denied("untracked");
        assert!(pass(), "doNotTrack denies tunnels");
        assert!(far.pings("10.65.1.7") && far.pings("fd65::1:7"));
    });
}

// Promise (Felix): An annotated Node counts as one with Calico's automatic host endpoint: its traffic
// passes until a policy selects it by a label of the Node.
#[test]
fn annotated_node_is_open_until_a_policy_selects_it() {
    lab("annotated_node_is_open_until_a_policy_selects_it", || {
        let host = Host::new();
        let peer = Workload {
            namespace: outside(),
        };
        let _services = [22, 8080].map(listen);
        let node = |annotations: Value| {
            let labels = json!({"role": "host"});
            let value = json!({"kind": "Node", "apiVersion": "projectcalico.org/v3",
                "metadata": {"name": "n1", "labels": labels, "annotations": annotations},
                "spec": {"bgp": {"ipv4Address": "10.0.0.11/24", "ipv6Address": "fd00::11/64"}}});
            host.put(&format!("{RESOURCES}nodes/n1"), &value);
        };
        node(json!({"cambric.io/host-endpoint": "auto"}));
        listed(&host, "the host endpoint", |text| {
            text.contains("goto host-in/all")
        });
        let Reply::Status(status) = host.ask(&Command::Status {}) else {
            panic!("no status");
        };
        let is_named = |fact: &Fact| fact.value == "n1-auto-hep (automatic)";
        assert!(status.facts.iter().any(is_named), "{:?}", status.facts);
        for to in at(HOST, 8080) {
            assert!(connects(&peer, &to, PATIENCE), "{to} is closed by default");
        }
        policy(&host, "none", &json!({"types": ["Ingress"]}));
        for to in at(HOST, 8080) {
            host.until("the policy closes", || !connects(&peer, &to, NEVER));
        }
        for to in at(HOST, 22) {
            assert!(connects(&peer, &to, PATIENCE), "locked out of {to}");
        }
        node(json!({}));
        for to in at(HOST, 8080) {
            host.until("the host is open", || connects(&peer, &to, NEVER));
        }
        listed(&host, "no host endpoint", |text| {
            !text.contains("host-in/all")
        });
    });
}

// Promise (Felix): No host endpoint applies to an interface of `interfaceExclude`.
#[test]
fn excluded_interface_has_no_host_endpoint() {
    lab("excluded_interface_has_no_host_endpoint", || {
        let host = Host::new();
        let peer = Workload {
            namespace: outside(),
        };
        let service = listen(8080);
        service.set_nonblocking(true).unwrap();
        // Without it, the queue of new connections would be full at some time.
        let attempt = |to: &str| {
            while service.accept().is_ok() {}
            connects(&peer, to, NEVER)
        };
        host_endpoint(&host, "all", &json!({"interfaceName": "*"}));
        policy(&host, "deny", &json!({"types": ["Ingress"]}));
        let is_closed = |why: &str| {
            for to in at(HOST, 8080) {
                host.until(&format!("closed: {why}"), || !attempt(&to));
            }
        };
        let is_open = |why: &str| {
            for to in at(HOST, 8080) {
                host.until(&format!("open: {why}"), || attempt(&to));
            }
        };
        is_closed("the policy");
        for excluded in ["uplink", "kube-ipvs0,/^up/"] {
            host.configure(&json!({"interfaceExclude": excluded}));
            is_open(excluded);
            host.configure(&json!({"interfaceExclude": "/^other/"}));
            is_closed("another interface");
        }
        // The same for a host endpoint that names the interface.
        host.delete(&format!("{RESOURCES}hostendpoints/all"));
        is_open("no host endpoint");
        host_endpoint(&host, "uplink", &json!({"interfaceName": "uplink"}));
        is_closed("the named interface");
        host.configure(&json!({"interfaceExclude": "uplink"}));
        is_open("the named interface is excluded");
    });
}
