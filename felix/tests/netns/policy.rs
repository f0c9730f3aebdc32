//! Policies in the form of OpenStack's driver, with real packets through the real packet filter.
//! Needs root and `CAMBRIC_LAB=1`.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::world::host::{Host, RESOURCES};
use crate::world::{self, Workload, lab, run};
use serde_json::{Value, json};

/// Initial wait for an answer that must not arrive.
const SILENCE: Duration = Duration::from_millis(700);
const SOON: Duration = Duration::from_secs(30);

/// Creates workload `n` behind `tap<n>`: 10.65.0.n, fd65::n.
fn workload(n: u8) -> Workload {
    let (v4, v6) = (format!("10.65.0.{n}"), format!("fd65::{n}"));
    Workload::new(&format!("tap{n}"), &mac(n), Some(&v4), Some(&v6))
}

fn mac(n: u8) -> String {
    format!("02:00:00:00:00:{n:02x}")
}

/// Writes the port of workload `n`, a member of these groups, as the driver does.
fn port(host: &Host, n: u8, groups: &[&str]) {
    port_with(host, n, groups, &json!([]));
}

fn port_with(host: &Host, n: u8, groups: &[&str], nats: &Value) {
    let mut labels = json!({
        "projectcalico.org/namespace": "openstack",
        "projectcalico.org/orchestrator": "openstack",
    });
    for group in groups {
        labels[format!("sg.projectcalico.org/openstack-{group}")] = json!(group);
    }
    let name = format!("n1-openstack-vm{n}-port{n}");
    let value = json!({
        "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, "namespace": "openstack", "labels": labels},
        "spec": {
            "orchestrator": "openstack", "workload": format!("vm{n}"), "node": "n1",
            "endpoint": format!("port{n}"), "interfaceName": format!("tap{n}"), "mac": mac(n),
            "ipNetworks": [format!("10.65.0.{n}/32"), format!("fd65::{n}/128")],
            "ipNATs": nats, "allowedIps": [],
        },
    });
    let key = format!("{RESOURCES}workloadendpoints/openstack/{name}");
    host.put(&key, &value);
}

/// Writes the policy of a group, as the driver does.
fn group(host: &Host, name: &str, ingress: &Value, egress: &Value) {
    let stored = format!("ossg.default.{name}");
    let value = json!({
        "kind": "NetworkPolicy", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": stored, "namespace": "openstack"},
        "spec": {
            "ingress": ingress, "egress": egress,
            "selector": format!("has(sg.projectcalico.org/openstack-{name})"),
        },
    });
    host.put(
        &format!("{RESOURCES}networkpolicies/openstack/{stored}"),
        &value,
    );
}

fn from_group(name: &str) -> Value {
    let selector = format!("has(sg.projectcalico.org/openstack-{name})");
    json!([
        {"action": "Allow", "ipVersion": 4, "source": {"selector": selector}},
        {"action": "Allow", "ipVersion": 6, "source": {"selector": selector}},
    ])
}

fn everything() -> Value {
    json!([{"action": "Allow", "ipVersion": 4}, {"action": "Allow", "ipVersion": 6}])
}

/// Writes the driver's default group: its members can reach each other, and may send anything.
fn default_group(host: &Host, name: &str) {
    group(host, name, &from_group(name), &everything());
}

/// Starts a TCP echo server in a workload, which serves until its listener is dropped.
pub(crate) fn serve(workload: &Workload, port: u16) -> TcpListener {
    let listener = workload
        .namespace
        .within(|| TcpListener::bind(("::", port)).unwrap());
    let clone = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        for stream in clone.incoming() {
            let Ok(mut stream) = stream else { break };
            std::thread::spawn(move || {
                let mut octet = [0];
                while stream.read_exact(&mut octet).is_ok() && stream.write_all(&octet).is_ok() {}
            });
        }
    });
    listener
}

pub(crate) fn connect(from: &Workload, to: &str, port: u16, within: Duration) -> Option<TcpStream> {
    let address = SocketAddr::new(to.parse().unwrap(), port);
    let connect = || TcpStream::connect_timeout(&address, within).ok();
    let stream = from.namespace.within(connect)?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    Some(stream)
}

pub(crate) fn reaches(from: &Workload, to: &str, port: u16) -> bool {
    connect(from, to, port, SOON).is_some_and(|stream| echoes(&stream))
}

/// Returns whether the connection is dropped by the host: its packets enter the host and do not
/// leave it. Silence alone would prove nothing.
pub(crate) fn is_cut_off(from: &Workload, to: &str, port: u16) -> bool {
    let address = SocketAddr::new(to.parse().unwrap(), port);
    is_dropped(address.ip(), &format!("tcp dport {port}"), |within| {
        let connect = || TcpStream::connect_timeout(&address, within);
        match from.namespace.within(connect) {
            // Refused by the destination: it passed.
            Err(error) => error.kind() != ErrorKind::ConnectionRefused,
            Ok(_) => false,
        }
    })
}

/// Does the same with pings, from a workload or from the host.
fn no_ping(from: Option<&Workload>, to: &str) -> bool {
    let protocol = match to.contains(':') {
        true => "icmpv6 type echo-request",
        false => "icmp type echo-request",
    };
    is_dropped(to.parse().unwrap(), protocol, |within| {
        let options = format!("-w {} {to}", within.as_secs().max(1));
        let ping = || world::ping(&options);
        !from.map_or_else(ping, |from| from.namespace.within(ping))
    })
}

/// Sends until packets are seen to enter the host, for longer each time. Returns whether none of
/// them has left it or was delivered to it, and none was answered. They are marked at their entry,
/// so that a packet with a translated address is recognized, too.
fn is_dropped(to: IpAddr, packets: &str, silent: impl Fn(Duration) -> bool) -> bool {
    let family = if to.is_ipv4() { "ip" } else { "ip6" };
    let entry = format!("{family} daddr {to} {packets} counter meta mark set 0x7e57");
    run("nft add table inet probe");
    for (chain, hook, priority, rule) in [
        ("in", "prerouting", -400, &*entry),
        ("from-host", "output", -400, &*entry),
        ("out", "postrouting", 2000, "meta mark 0x7e57 counter"),
        ("to-host", "input", 2000, "meta mark 0x7e57 counter"),
    ] {
        let hook = format!("{{ type filter hook {hook} priority {priority} ; }}");
        run(&format!("nft add chain inet probe {chain} {hook}"));
        run(&format!("nft add rule inet probe {chain} {rule}"));
    }
    let counted = |chains: [&str; 2]| {
        let counted = chains.map(|chain| {
            let listed = run(&format!("nft list chain inet probe {chain}"));
            let (_, rest) = listed.split_once("packets ").expect("a counter");
            let number = rest.split_whitespace().next().unwrap();
            number.parse::<u64>().unwrap()
        });
        counted.iter().sum::<u64>()
    };
    let mut within = SILENCE;
    let dropped = loop {
        let silent = silent(within);
        // A packet that has entered by now leaves before the other counters are read.
        let entered = counted(["in", "from-host"]);
        let left = counted(["out", "to-host"]);
        if entered > 0 || !silent {
            break silent && left == 0;
        }
        within *= 2;
        assert!(within < world::host::PATIENCE, "nothing was sent to {to}");
    };
    run("nft delete table inet probe");
    dropped
}

fn echoes(mut stream: &TcpStream) -> bool {
    let mut octet = [0];
    stream.write_all(b"x").is_ok() && stream.read_exact(&mut octet).is_ok() && octet == *b"x"
}

fn up(host: &Host, numbers: &[u8]) {
    for n in numbers {
        host.wait_up(&format!("tap{n}"));
    }
}

/// Waits until a set or chain of the packet filter shows that a change has been written.
fn listed(host: &Host, what: &str, done: impl Fn(&str) -> bool) {
    host.until(what, || done(&run("nft list table inet cambric-felix")));
}

#[test]
fn members_of_a_group_reach_each_other_and_others_do_not() {
    lab(
        "members_of_a_group_reach_each_other_and_others_do_not",
        || {
            let host = Host::new();
            let all: Vec<Workload> = (1..=3).map(workload).collect();
            default_group(&host, "a");
            default_group(&host, "b");
            port(&host, 1, &["a"]);
            port(&host, 2, &["a"]);
            port(&host, 3, &["b"]);
            up(&host, &[1, 2, 3]);
            assert!(all[0].namespace.pings("10.65.0.2") && all[1].namespace.pings("fd65::1"));
            assert!(no_ping(Some(&all[0]), "10.65.0.3"));
            assert!(no_ping(Some(&all[2]), "fd65::1"));
            assert!(world::pings("10.65.0.1"), "the host reaches its own");

            // A rule for a port, from any source.
            let ports = json!([{"action": "Allow", "ipVersion": 4, "protocol": 6,
            "source": {"nets": ["0.0.0.0/0"]}, "destination": {"ports": [80, "8000:8010"]}}]);
            group(&host, "web", &ports, &everything());
            port(&host, 1, &["a", "web"]);
            listed(&host, "the port rule", |t| t.contains("8000-8010"));
            let _servers = [80, 8005, 81].map(|port| serve(&all[0], port));
            assert!(reaches(&all[2], "10.65.0.1", 80) && reaches(&all[2], "10.65.0.1", 8005));
            assert!(is_cut_off(&all[2], "10.65.0.1", 81) && is_cut_off(&all[2], "fd65::1", 80));
            assert!(reaches(&all[1], "fd65::1", 81), "of the same group");
            // The check of a drop fails if nothing is dropped.
            assert!(!is_cut_off(&all[1], "fd65::1", 81) && !no_ping(Some(&all[1]), "fd65::1"));

            // ICMP only.
            let echo = json!([{"action": "Allow", "ipVersion": 4, "protocol": "ICMP",
            "icmp": {"type": 8, "code": 0}}]);
            group(&host, "web", &echo, &everything());
            listed(&host, "the ICMP rule", |t| !t.contains("8000-8010"));
            assert!(all[2].namespace.pings("10.65.0.1"));
            assert!(is_cut_off(&all[2], "10.65.0.1", 80));
        },
    );
}

// Promise (Felix): A change of policies or their members applies to new connections and cuts no
// established one.
#[test]
fn membership_is_live_and_does_not_cut_what_is_established() {
    lab(
        "membership_is_live_and_does_not_cut_what_is_established",
        || {
            let host = Host::new();
            let (one, two) = (workload(1), workload(2));
            default_group(&host, "out");
            group(&host, "db", &from_group("web"), &json!([]));
            port(&host, 1, &["db"]);
            port(&host, 2, &["out"]);
            up(&host, &[1, 2]);
            let _server = serve(&one, 5432);
            assert!(is_cut_off(&two, "10.65.0.1", 5432));
            // A remote group.
            group(&host, "web", &json!([]), &json!([]));
            port(&host, 2, &["out", "web"]);
            listed(&host, "a member", |t| t.matches("10.65.0.2").count() >= 2);
            assert!(reaches(&two, "10.65.0.1", 5432) && reaches(&two, "fd65::1", 5432));
            let flow = connect(&two, "10.65.0.1", 5432, SOON).unwrap();
            assert!(echoes(&flow));
            port(&host, 2, &["out"]);
            host.until("cut off for new ones", || {
                is_cut_off(&two, "10.65.0.1", 5432)
            });
            assert!(echoes(&flow), "what is established goes on");
        },
    );
}

#[test]
fn host_services_of_openstack_workloads_pass() {
    lab("host_services_of_openstack_workloads_pass", || {
        let host = Host::new();
        let one = workload(1);
        // Not even egress is allowed.
        group(&host, "closed", &json!([]), &json!([]));
        port(&host, 1, &["closed"]);
        up(&host, &[1]);
        let metadata = TcpListener::bind("127.0.0.1:8775").unwrap();
        let asked = connect(&one, "169.254.169.254", 80, SOON).expect("the metadata service");
        let (_, from) = metadata.accept().unwrap();
        assert_eq!(from.ip(), "10.65.0.1".parse::<IpAddr>().unwrap());
        drop(asked);
        assert!(is_cut_off(&one, "10.0.0.11", 8775));

        // DHCP: from the unspecified address to broadcast, and back.
        let server = UdpSocket::bind("0.0.0.0:67").unwrap();
        server.set_read_timeout(Some(SOON)).unwrap();
        let discover = |one: &Workload| {
            one.namespace.within(|| {
                run("ip address flush dev eth0 scope global");
                run("ip route add default dev eth0");
                let client = UdpSocket::bind("0.0.0.0:68").unwrap();
                client.set_broadcast(true).unwrap();
                client.set_read_timeout(Some(SOON)).unwrap();
                client.send_to(b"discover", "255.255.255.255:67").unwrap();
                client
            })
        };
        let client = discover(&one);
        let mut octets = [0; 64];
        let (length, from) = server.recv_from(&mut octets).expect("the discover");
        assert_eq!(
            (&octets[..length], from.ip()),
            (&b"discover"[..], "0.0.0.0".parse().unwrap())
        );
        drop(client);
        let dns = UdpSocket::bind("0.0.0.0:53").unwrap();
        dns.set_read_timeout(Some(SOON)).unwrap();
        one.namespace.within(|| {
            run("ip address add 10.65.0.1/32 dev eth0");
            let client = UdpSocket::bind("10.65.0.1:0").unwrap();
            client.send_to(b"name", "10.0.0.11:53").unwrap();
        });
        assert_eq!(dns.recv_from(&mut octets).expect("the question").0, 4);
    });
}

#[test]
fn external_address_is_translated_to_the_workload() {
    lab("external_address_is_translated_to_the_workload", || {
        let host = Host::new();
        let all: Vec<Workload> = (1..=2).map(workload).collect();
        default_group(&host, "a");
        let nats = json!([
            {"internalIP": "10.65.0.1", "externalIP": "192.0.2.1"},
            {"internalIP": "fd65::1", "externalIP": "2001:db8::1"},
        ]);
        port_with(&host, 1, &["a"], &nats);
        port(&host, 2, &["a"]);
        up(&host, &[1, 2]);
        host.until("a route", || {
            run("ip route show proto 80").contains("192.0.2.1 dev tap1")
                && run("ip -6 route show proto 80").contains("2001:db8::1 dev tap1")
        });
        let _server = serve(&all[0], 80);
        assert!(reaches(&all[1], "192.0.2.1", 80) && reaches(&all[1], "2001:db8::1", 80));
        assert!(reaches(&all[0], "192.0.2.1", 80), "itself");
        port(&host, 1, &["a"]);
        listed(&host, "no translation", |t| !t.contains("192.0.2.1"));
        assert!(is_cut_off(&all[1], "192.0.2.1", 80) && reaches(&all[1], "10.65.0.1", 80));
    });
}
