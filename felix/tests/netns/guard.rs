//! The guard: packets that no workload may send, against real packets. Needs root and
//! `CAMBRIC_LAB=1`.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use crate::world::host::{Host, OPEN, PATIENCE, RESOURCES, announce, pair, workload};
use crate::world::packet;
use crate::world::{self, Namespace, Workload, count_at, count_of, lab, run};
use calico_store::resources::Resources;
use calico_store::{EtcdOptions, EtcdStore, Store};
use daemon_common::{Command, Reply};
use serde_json::json;

/// How long the test waits for a connection that must not be established.
pub(crate) const NEVER: Duration = Duration::from_millis(300);
pub(crate) const DROPPED: &str = "control port of the fabric";

/// Creates the far end of the host's uplink: node `n2` (10.0.0.2, fd00::2), and a router that is
/// not a node (10.0.0.1, fd00::1). Each has a route back to the workloads.
pub(crate) fn outside() -> Namespace {
    let outside = Namespace::new();
    outside.take("far", "eth0");
    for command in [
        "ip link set eth0 up",
        "ip address add 10.0.0.1/24 dev eth0",
        "ip address add 10.0.0.2/24 dev eth0",
        "ip address add fd00::1/64 dev eth0 nodad",
        "ip address add fd00::2/64 dev eth0 nodad",
        "ip address add 10.65.9.2/32 dev lo",
        "ip route add 10.65.0.0/16 via 10.0.0.11",
        "ip -6 route add fd65::/64 via fd00::11",
    ] {
        outside.run(command);
    }
    run("ip route add 10.65.9.2/32 via 10.0.0.2");
    outside
}

/// Configures a fabric of two nodes, with pools with `natOutgoing`, and workloads that may connect
/// to their host: only the guard closes anything.
pub(crate) fn fabric(host: &Host) {
    let put = |path: &str, spec: serde_json::Value| {
        host.put(&format!("{RESOURCES}{path}"), &json!({ "spec": spec }));
    };
    put(
        "ippools/v4",
        json!({"cidr": "10.65.0.0/16", "natOutgoing": true}),
    );
    put(
        "ippools/v6",
        json!({"cidr": "fd65::/64", "natOutgoing": true}),
    );
    put(
        "nodes/n1",
        json!({"bgp": {"ipv4Address": "10.0.0.11/24", "ipv6Address": "fd00::11/64"}}),
    );
    // The address of its tunnel is in a pool.
    put(
        "nodes/n2",
        json!({"bgp": {"ipv4Address": "10.0.0.2/24", "ipv6Address": "fd00::2/64",
            "ipv4IPIPTunnelAddr": "10.65.9.2"}}),
    );
    put(
        "bgppeers/tor",
        json!({"peerIP": "10.0.0.1:8179", "asNumber": 64512}),
    );
    put("bgpconfigurations/default", json!({"listenPort": 1790}));
    put(
        "felixconfigurations/default",
        json!({"defaultEndpointToHostAction": "Accept"}),
    );
    for (set, words) in [
        ("nodes-ipv6", "fd00::2"),
        ("control-ports-tcp", "1790"),
        ("control-services-ipv4", "8179"),
        ("cali60all-ipam-pools", "fd65::/64"),
    ] {
        until_listed(host, &format!("set inet cambric-felix {set}"), words);
    }
    until_listed(host, "chain inet cambric-felix workload-to-host", "accept");
}

pub(crate) fn until_listed(host: &Host, what: &str, words: &str) {
    host.until(&format!("{words} in {what}"), || {
        run(&format!("nft list {what}")).contains(words)
    });
}

pub(crate) fn listen(port: u16) -> TcpListener {
    TcpListener::bind(("::", port)).unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Returns whether a workload can connect to a TCP port.
pub(crate) fn connects(from: &Workload, to: &str, patience: Duration) -> bool {
    let connect = || TcpStream::connect_timeout(&at(to), patience).is_ok();
    from.namespace.within(connect)
}

/// Sends a datagram of one octet from a workload.
fn send_datagram(from: &Workload, to: &str) {
    let to = at(to);
    from.namespace.within(|| {
        let socket = match to.is_ipv4() {
            true => UdpSocket::bind("0.0.0.0:0"),
            false => UdpSocket::bind("[::]:0"),
        };
        socket.unwrap().send_to(&[0], to).expect("sent");
    });
}

// Promise (Felix): A workload reaches no control port of the fabric, whatever its policies
// allow.
#[test]
fn workload_reaches_no_control_port_of_the_fabric() {
    lab("workload_reaches_no_control_port_of_the_fabric", || {
        let (mut host, one, two) = pair();
        let outside = outside();
        host.stop();
        host.endpoints = vec![
            "http://10.0.0.1:2379".into(),
            "http://127.0.0.1:2380".into(),
        ];
        host.start();
        host.wait_up("cali1");
        fabric(&host);
        until_listed(
            &host,
            "set inet cambric-felix control-ports-of-nodes",
            "2380",
        );
        let ports = [179, 1790, 8179, 2379, 2380, 80];
        let _far = ports.map(|port| outside.within(|| listen(port)));
        let _own = ports.map(listen);
        let _workload = two.namespace.within(|| listen(179));
        count_at(
            &outside,
            "meta l4proto { tcp, udp } th dport { 179, 1790, 8179, 2379, 2380, 3784, 4784 }",
        );

        let closed = [
            "10.0.0.2:179",
            "[fd00::2]:179",
            "10.65.9.2:179",
            "10.0.0.2:1790",
            "10.0.0.1:179",
            "[fd00::1]:179",
            "10.0.0.1:8179",
            "10.0.0.1:2379",
            "10.0.0.2:2380",
            "10.0.0.11:179",
            "[fd00::11]:179",
            "10.0.0.11:1790",
            "10.0.0.11:2380",
            "169.254.1.1:179",
        ];
        for to in closed {
            let before = host.counted("control-closed", DROPPED);
            assert!(!connects(&one, to, NEVER), "{to} is reached");
            assert!(
                host.counted("control-closed", DROPPED) > before,
                "{to}: not by the guard"
            );
        }
        // BFD, as a packet to any of the ports.
        for to in [
            "10.0.0.2:3784",
            "[fd00::2]:4784",
            "10.0.0.1:4784",
            "10.0.0.11:3784",
        ] {
            let before = host.counted("control-closed", DROPPED);
            send_datagram(&one, to);
            host.until(&format!("a dropped packet to {to}"), || {
                host.counted("control-closed", DROPPED) > before
            });
        }
        assert_eq!(count_of(&outside), 0, "a packet got through");
        let other = two
            .namespace
            .within(|| UdpSocket::bind("0.0.0.0:3784").unwrap());
        other.set_read_timeout(Some(PATIENCE)).unwrap();
        send_datagram(&one, "10.65.0.2:3784");
        assert_eq!(other.recv(&mut [0; 8]).expect("inside a pool"), 1);

        for to in [
            "10.0.0.2:80",
            "[fd00::2]:80",
            "10.0.0.1:80",
            "10.0.0.11:80",
            "10.0.0.2:8179",
            "10.0.0.2:2379",
            "10.0.0.1:2380",
            "10.65.0.2:179",
            "[fd65::2]:179",
        ] {
            assert!(connects(&one, to, PATIENCE), "{to} is not reached");
        }

        host.stop();
        host.settings = "control_port_exceptions = [\"10.65.0.1\"]".into();
        host.start();
        until_listed(
            &host,
            "set inet cambric-felix control-exceptions-ipv4",
            "10.65.0.1",
        );
        assert!(
            connects(&one, "10.0.0.2:179", PATIENCE),
            "it is an exception"
        );
        assert!(
            connects(&one, "10.0.0.11:179", PATIENCE),
            "it is an exception"
        );
        assert!(!connects(&two, "10.0.0.2:179", NEVER), "no connection");
        assert!(
            !connects(&one, "[fd00::2]:179", NEVER),
            "no connection by IPv6"
        );
    });
}

// Promise: as felix workload_reaches_no_control_port_of_the_fabric
#[test]
fn bgp_ports_of_files_are_closed_to_workloads() {
    lab("bgp_ports_of_files_are_closed_to_workloads", || {
        let (mut host, one, _two) = pair();
        let outside = outside();
        fabric(&host);
        let path = host.directory().join("bgp.toml");
        let text = "listen = [\"0.0.0.0:1801\"]\nguard.ports = [1802]\n\
            [[neighbor]]\naddress = \"10.0.0.1\"\nport = 1803\n\
            [[neighbor]]\naddress = \"10.0.0.2\"\nport = 1804\n";
        host.stop();
        let ports = [1801, 1802, 1803, 1804, 80];
        let _far = ports.map(|port| outside.within(|| listen(port)));
        let _own = ports.map(listen);
        assert!(connects(&one, "10.0.0.11:1801", PATIENCE), "no file yet");
        std::fs::write(&path, text).unwrap();
        host.settings = format!("bgp_files = [{path:?}]");
        host.start();
        host.wait_up("cali1");
        count_at(&outside, "tcp dport 1801-1804");
        for to in [
            "10.0.0.11:1801",
            "10.0.0.11:1802",
            "169.254.1.1:1801",
            "10.0.0.2:1801",
            "10.0.0.1:1802",
            "10.0.0.1:1803",
            "10.0.0.2:1804",
            "10.0.0.11:1804",
            "[fd00::11]:1801",
        ] {
            let before = host.counted("control-closed", DROPPED);
            assert!(!connects(&one, to, NEVER), "{to} is reached");
            let dropped = host.counted("control-closed", DROPPED);
            assert!(dropped > before, "{to}: not by the guard");
        }
        assert_eq!(count_of(&outside), 0, "a packet got through");
        for to in ["10.0.0.11:80", "10.0.0.11:1803", "10.0.0.1:80"] {
            assert!(connects(&one, to, PATIENCE), "{to} is not reached");
        }

        // The running Felix follows the file, and keeps its ports while it is damaged. A file that
        // is replaced is never seen half written.
        let replace = |text: &str| {
            let new = host.directory().join("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, &path).unwrap();
        };
        replace("listen = [\"0.0.0.0:4711\"]");
        until_listed(&host, "set inet cambric-felix control-ports-tcp", "4711");
        replace("listen = ");
        host.until("a note", || notes(&host).contains("last ports"));
        let held = run("nft list set inet cambric-felix control-ports-tcp");
        assert!(held.contains("4711"), "{held}");

        // Where the ports were never known, workloads open no connection to the host.
        host.stop();
        host.start();
        host.wait_up("cali1");
        for to in ["10.0.0.11:80", "10.0.0.11:1801", "[fd00::11]:1804"] {
            assert!(!connects(&one, to, NEVER), "{to} is reached");
        }
        let service = one.namespace.within(|| listen(8080));
        assert!(TcpStream::connect_timeout(&at("10.65.0.1:8080"), PATIENCE).is_ok());
        drop(service);
    });
}

/// A real etcd in the thread's namespace, killed when dropped. It serves clients at
/// 127.0.0.1:2391, and its cluster lists other addresses.
struct Etcd {
    process: std::process::Child,
    _directory: tempfile::TempDir,
}

impl Etcd {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let process = std::process::Command::new("etcd")
            .args(["--name", "m", "--data-dir"])
            .arg(directory.path().join("data"))
            .args(["--listen-client-urls", "http://127.0.0.1:2391"])
            .args(["--advertise-client-urls", "http://10.0.0.1:7379"])
            .args(["--listen-peer-urls", "http://127.0.0.1:2390"])
            .args(["--initial-advertise-peer-urls", "http://10.0.0.1:7380"])
            .args(["--initial-cluster", "m=http://10.0.0.1:7380"])
            .stderr(std::process::Stdio::null())
            .spawn();
        Self {
            process: process.expect("etcd is installed"),
            _directory: directory,
        }
    }

    async fn store() -> Arc<dyn Store> {
        let options = EtcdOptions::new(["http://127.0.0.1:2391".to_owned()]);
        let store: Arc<dyn Store> = Arc::new(EtcdStore::connect(&options).await.unwrap());
        let begun = std::time::Instant::now();
        let ready = Resources::from(Arc::clone(&store));
        while let Err(error) = ready.declare_ready().await {
            assert!(begun.elapsed() < PATIENCE, "{error}");
        }
        store
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

// Promise: as felix workload_reaches_no_control_port_of_the_fabric
#[test]
fn members_of_etcd_that_no_file_names_are_closed() {
    lab("members_of_etcd_that_no_file_names_are_closed", || {
        let _etcd = Etcd::start();
        let mut host = Host::with(Etcd::store);
        host.endpoints = vec!["http://127.0.0.1:2391".into()];
        let one = workload(1);
        announce(&host, 1, OPEN);
        host.start();
        host.wait_up("cali1");
        // The first filter has them already.
        let set = "set inet cambric-felix control-services-ipv4";
        let listed = run(&format!("nft list {set}"));
        assert!(
            listed.contains("7379") && listed.contains("7380"),
            "{listed}"
        );
        let outside = outside();
        fabric(&host);
        let _far = [7379, 7380, 7381].map(|port| outside.within(|| listen(port)));
        for to in ["10.0.0.1:7379", "10.0.0.1:7380"] {
            let before = host.counted("control-closed", DROPPED);
            assert!(!connects(&one, to, NEVER), "{to} is reached");
            let dropped = host.counted("control-closed", DROPPED);
            assert!(dropped > before, "{to}: not by the guard");
        }
        for to in ["10.0.0.1:7381", "10.0.0.2:7379"] {
            assert!(connects(&one, to, PATIENCE), "{to} is not reached");
        }
    });
}

/// Returns the notes of the status.
pub(crate) fn notes(host: &Host) -> String {
    match host.ask(&Command::Status {}) {
        Reply::Status(status) => status.notes.join("\n"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn translated_destination_meets_the_guard() {
    lab("translated_destination_meets_the_guard", || {
        let (host, one, _two) = pair();
        let outside = outside();
        fabric(&host);
        let _far = outside.within(|| [179, 80].map(listen));
        let _own = [179, 80].map(listen);
        run("nft add table ip services");
        run("nft add chain ip services c { type nat hook prerouting priority -100 ; }");
        for (service, to) in [
            (1, "10.0.0.2:179"),
            (2, "10.0.0.11:179"),
            (3, "10.0.0.2:80"),
            (4, "10.0.0.11:80"),
        ] {
            let rule = format!("ip daddr 192.0.2.{service} tcp dport 8080 dnat to {to}");
            run(&format!("nft add rule ip services c {rule}"));
        }
        run("ip route add 192.0.2.0/24 via 10.0.0.1");
        for service in [1, 2] {
            let before = host.counted("control-closed", DROPPED);
            let to = format!("192.0.2.{service}:8080");
            assert!(!connects(&one, &to, NEVER), "{to} is reached");
            assert!(
                host.counted("control-closed", DROPPED) > before,
                "{to}: not by the guard"
            );
        }
        for service in [3, 4] {
            assert!(connects(&one, &format!("192.0.2.{service}:8080"), PATIENCE));
        }
    });
}

#[test]
fn established_session_ends_when_its_port_is_guarded() {
    lab("established_session_ends_when_its_port_is_guarded", || {
        let (host, one, _two) = pair();
        let outside = outside();
        fabric(&host);
        let listener = outside.within(|| listen(1999));
        let connect = || TcpStream::connect_timeout(&at("10.0.0.2:1999"), PATIENCE).unwrap();
        let mut near = one.namespace.within(connect);
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"1").unwrap();
        far.read_exact(&mut [0]).unwrap();
        let spec = json!({"spec": {"listenPort": 1999}});
        host.put(&format!("{RESOURCES}bgpconfigurations/default"), &spec);
        until_listed(&host, "set inet cambric-felix control-ports-tcp", "1999");
        near.write_all(b"2").unwrap();
        far.set_read_timeout(Some(NEVER)).unwrap();
        assert!(far.read_exact(&mut [0]).is_err(), "it goes on");
    });
}

// Promise: as felix workload_reaches_no_control_port_of_the_fabric
#[test]
fn fragments_and_extension_headers_do_not_pass_the_guard() {
    lab(
        "fragments_and_extension_headers_do_not_pass_the_guard",
        || {
            let (host, one, _two) = pair();
            let outside = outside();
            fabric(&host);
            for (from, node) in [("10.65.0.1", "10.0.0.2"), ("fd65::1", "fd00::2")] {
                let from: IpAddr = from.parse().unwrap();
                // The same attempt with another port succeeds.
                for (port, passes) in [(180, true), (179, false)] {
                    count_at(&outside, &format!("tcp dport {port}"));
                    let to = SocketAddr::new(node.parse().unwrap(), port);
                    let before = host.counted("control-closed", DROPPED);
                    let source_port = std::cell::Cell::new(40_000);
                    host.until("the packets are through, or dropped", || {
                        source_port.set(source_port.get() + 1);
                        let segment = packet::syn(from, source_port.get(), to);
                        one.namespace.within(|| {
                            for part in packet::fragments(from, to, &segment) {
                                packet::send(&part, to.ip()).unwrap();
                            }
                        });
                        match passes {
                            true => count_of(&outside) > 0,
                            false => host.counted("control-closed", DROPPED) >= before + 3,
                        }
                    });
                    assert_eq!(count_of(&outside) > 0, passes, "{to}");
                    outside.run("nft delete table inet t");
                }
            }
        },
    );
}

#[test]
fn loopback_service_of_the_host_stays_its_own() {
    lab("loopback_service_of_the_host_stays_its_own", || {
        let (host, one, _two) = pair();
        fabric(&host);
        let _loopback = TcpListener::bind("127.0.0.1:8080").unwrap();
        let _other = TcpListener::bind("127.3.2.1:8080").unwrap();
        let _six = TcpListener::bind("[::1]:8080").unwrap();
        // The workload sends them to its gateway, as an attacker would.
        for command in [
            "ip address del 127.0.0.1/8 dev lo",
            "ip route add 127.0.0.0/8 via 169.254.1.1 dev eth0 src 10.65.0.1",
            "ip address del ::1/128 dev lo",
            "ip -6 route add ::1/128 via fe80::1 dev eth0 src fd65::1",
        ] {
            one.namespace.run(command);
        }
        one.namespace
            .within(|| world::sysctl("ipv4/conf/all/route_localnet", "1"));
        run("nft add table ip services");
        run("nft add chain ip services c { type nat hook prerouting priority -100 ; }");
        run("nft add rule ip services c ip daddr 192.0.2.1 dnat to 127.0.0.1");
        const LOOPBACK: &str = "loopback address";
        for action in ["Accept", "Return"] {
            host.configure(&json!({"defaultEndpointToHostAction": action}));
            let words = format!("endpoint to host: {}", action.to_lowercase());
            until_listed(&host, "chain inet cambric-felix workload-to-host", &words);
            for (to, chain) in [
                ("127.0.0.1:8080", "workload-guard"),
                ("127.3.2.1:8080", "workload-guard"),
                ("192.0.2.1:8080", "workload-guard-input"),
            ] {
                let before = host.counted(chain, LOOPBACK);
                assert!(!connects(&one, to, NEVER), "{to} is reached with {action}");
                assert!(
                    host.counted(chain, LOOPBACK) > before,
                    "{to}: not by the guard"
                );
            }
            assert!(
                !connects(&one, "[::1]:8080", NEVER),
                "::1 is reached with {action}"
            );
        }
        assert!(
            TcpStream::connect("127.0.0.1:8080").is_ok(),
            "the host itself reaches it"
        );
    });
}
