//! Established connections that a changed policy forbids, with real packets. Needs root and
//! `CAMBRIC_LAB=1`.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use cambric_felix::limits::CUT_MARK;
use daemon_common::{Command, Reply};
use serde_json::{Value, json};

use crate::encapsulation::dropped_as;
use crate::outgoing::outside;
use crate::world::host::{Host, OPEN, PATIENCE, RESOURCES, workload};
use crate::world::{Namespace, Workload, lab, run, sysctl, try_run};

const CUT: &str = "cut connection";
const MIDDLE: &str = "middle of an unknown connection";
/// Wait for an octet that must not arrive, while others arrive.
const SILENCE: Duration = Duration::from_millis(200);

/// Creates a host with two open workloads that cuts connections.
fn pair(settings: &str) -> (Host, Workload, Workload) {
    let mut host = Host::new();
    host.stop();
    host.settings = settings.into();
    host.start();
    let both = (workload(1), workload(2));
    for n in 1..=2 {
        host.endpoint_with(n, &json!({ "n": n.to_string() }), &json!({}));
        host.wait_up(&format!("cali{n}"));
    }
    (host, both.0, both.1)
}

/// Writes a policy for a workload.
fn policy(host: &Host, n: u8, ingress: &Value, egress: &Value) {
    let policy = json!({
        "kind": "GlobalNetworkPolicy", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": "p"},
        "spec": {"selector": format!("n == '{n}'"), "ingress": ingress, "egress": egress,
            "types": ["Ingress", "Egress"]},
    });
    host.put(&format!("{RESOURCES}globalnetworkpolicies/p"), &policy);
}

/// Returns rules that allow all but a port, or a range of ports, of TCP and UDP.
fn all_but(ports: impl Into<Value>) -> Value {
    let ports = json!([ports.into()]);
    json!([
        {"action": "Deny", "protocol": "TCP", "destination": {"ports": ports}},
        {"action": "Deny", "protocol": "UDP", "destination": {"ports": ports}},
        {"action": "Allow"},
    ])
}

fn everything() -> Value {
    json!([{"action": "Allow"}])
}

/// Returns the number of connections that were cut.
fn cut(host: &Host) -> u64 {
    match host.ask(&Command::Status {}) {
        Reply::Status(status) => status.endpoints.expect("counts").connections_cut,
        other => panic!("{other:?}"),
    }
}

fn at(address: &str, port: u16) -> SocketAddr {
    SocketAddr::new(address.parse().unwrap(), port)
}

/// A connection: both ends.
struct Both<S>(S, S);

/// Opens a TCP connection.
fn tcp(from: &Namespace, to: &Namespace, address: &str, port: u16) -> Both<TcpStream> {
    let listener = to.within(|| TcpListener::bind(("::", port)).unwrap());
    let client = from.within(|| TcpStream::connect_timeout(&at(address, port), PATIENCE).unwrap());
    let (server, _) = listener.accept().unwrap();
    for end in [&client, &server] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        end.set_nodelay(true).unwrap();
    }
    Both(client, server)
}

/// Opens a UDP connection, in which both ends have sent.
fn udp(from: &Namespace, to: &Namespace, address: &str, port: u16) -> Both<UdpSocket> {
    udp_to(from, to, [address, address], port)
}

/// Opens a UDP connection to an address that is translated to the one of the server.
fn udp_to(
    from: &Namespace,
    to: &Namespace,
    [address, own]: [&str; 2],
    port: u16,
) -> Both<UdpSocket> {
    // Its entry does not expire during a test: a new one could be forbidden.
    for state in ["timeout", "timeout_stream"] {
        sysctl(&format!("netfilter/nf_conntrack_udp_{state}"), "600");
    }
    let address: IpAddr = address.parse().unwrap();
    let any = if address.is_ipv4() { "0.0.0.0" } else { "::" };
    let client = from.within(|| UdpSocket::bind((any, 0)).unwrap());
    let server = to.within(|| UdpSocket::bind((own, port)).unwrap());
    client.connect((address, port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send(b"a").unwrap();
    let (_, peer) = server.recv_from(&mut [0]).unwrap();
    server.connect(peer).unwrap();
    Both(client, server)
}

trait Ends {
    fn send(&self, from_client: bool);
    fn receives(&self, at_client: bool) -> bool;
    fn wait_at_most(&self, time: Duration);

    /// Returns whether an octet arrives at the other end.
    fn passes(&self, from_client: bool) -> bool {
        self.send(from_client);
        self.receives(!from_client)
    }
}

impl Ends for Both<TcpStream> {
    fn send(&self, from_client: bool) {
        let mut end = if from_client { &self.0 } else { &self.1 };
        // After enough octets without an acknowledgment, it may be over.
        let _ = end.write_all(b"a");
    }

    fn receives(&self, at_client: bool) -> bool {
        let mut end = if at_client { &self.0 } else { &self.1 };
        end.read_exact(&mut [0]).is_ok()
    }

    fn wait_at_most(&self, time: Duration) {
        self.0.set_read_timeout(Some(time)).unwrap();
        self.1.set_read_timeout(Some(time)).unwrap();
    }
}

impl Ends for Both<UdpSocket> {
    fn send(&self, from_client: bool) {
        let end = if from_client { &self.0 } else { &self.1 };
        let _ = end.send(b"a");
    }

    fn receives(&self, at_client: bool) -> bool {
        let end = if at_client { &self.0 } else { &self.1 };
        end.recv(&mut [0]).is_ok()
    }

    fn wait_at_most(&self, time: Duration) {
        self.0.set_read_timeout(Some(time)).unwrap();
        self.1.set_read_timeout(Some(time)).unwrap();
    }
}

/// Sends from these ends until the rules have dropped some packets: none may have arrived.
fn is_dead(host: &Host, connection: &dyn Ends, from: &[bool]) {
    connection.wait_at_most(SILENCE);
    for from_client in from {
        let before = dropped_as(host, CUT);
        host.until("packets of a cut connection are dropped", || {
            connection.send(*from_client);
            dropped_as(host, CUT) >= before + 2
        });
    }
    for from_client in from {
        assert!(
            !connection.receives(!from_client),
            "from client: {from_client}"
        );
    }
}

// Promise (Felix): With `cutting.enabled`, established connections that a changed policy forbids end in
// both directions, and others continue.
#[test]
fn forbidden_connections_end_in_both_directions() {
    lab("forbidden_connections_end_in_both_directions", || {
        let (host, one, two) = pair("cutting.enabled = true");
        let (from, to) = (&one.namespace, &two.namespace);
        let forbidden: Vec<Box<dyn Ends>> = vec![
            Box::new(tcp(from, to, "10.65.0.2", 80)),
            Box::new(tcp(from, to, "fd65::2", 80)),
            Box::new(udp(from, to, "10.65.0.2", 80)),
            Box::new(udp(from, to, "fd65::2", 80)),
        ];
        let far_only: Vec<Box<dyn Ends>> = vec![
            Box::new(tcp(from, to, "10.65.0.2", 80)),
            Box::new(tcp(from, to, "fd65::2", 80)),
            Box::new(udp(from, to, "10.65.0.2", 81)),
            Box::new(udp(from, to, "fd65::2", 81)),
        ];
        let allowed = [
            tcp(from, to, "10.65.0.2", 443),
            tcp(from, to, "fd65::2", 443),
        ];
        let all = forbidden.iter().chain(&far_only);
        for connection in all {
            assert!(connection.passes(true) && connection.passes(false));
        }
        policy(&host, 2, &all_but("80:81"), &everything());
        host.until("eight are cut", || cut(&host) == 8);
        for connection in &forbidden {
            is_dead(&host, &**connection, &[true, false]);
        }
        for connection in &far_only {
            is_dead(&host, &**connection, &[false]);
        }
        for connection in &allowed {
            assert!(connection.passes(true) && connection.passes(false));
        }
        // They stay dead if the policy is removed; a new connection is not.
        policy(&host, 2, &everything(), &everything());
        host.until("open again", || {
            let address = at("10.65.0.2", 80);
            from.within(|| TcpStream::connect_timeout(&address, SILENCE))
                .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
        is_dead(&host, &*forbidden[0], &[true, false]);
        assert_eq!(cut(&host), 8);
        // The egress of the other workload.
        policy(&host, 1, &everything(), &all_but(443));
        host.until("the others are cut", || cut(&host) == 10);
        for connection in &allowed {
            is_dead(&host, connection, &[false, true]);
        }
        // A mark of another program stays.
        run("nft add table inet other");
        run("nft add chain inet other c { type filter hook prerouting priority 0 ; }");
        run("nft add rule inet other c ct state new tcp dport 8080 ct mark set 5");
        let others = tcp(from, to, "10.65.0.2", 8080);
        policy(&host, 1, &everything(), &all_but(8080));
        host.until("it is cut", || cut(&host) == 11);
        let listed = run("conntrack -L -p tcp --dport 8080");
        assert!(
            listed.contains(&format!("mark={}", CUT_MARK | 5)),
            "{listed}"
        );
        is_dead(&host, &others, &[true, false]);
    });
}

// Promise (Felix): The middle of a cut connection opens no new one after its entry has ended.
#[test]
fn ended_entry_of_a_cut_connection_revives_nothing() {
    lab("ended_entry_of_a_cut_connection_revives_nothing", || {
        let (host, one, two) = pair("cutting.enabled = true");
        let (from, to) = (&one.namespace, &two.namespace);
        for address in ["10.65.0.2", "fd65::2"] {
            let connection = tcp(from, to, address, 80);
            assert!(connection.passes(true) && connection.passes(false));
            let before = cut(&host);
            // In the other direction, everything is allowed.
            policy(&host, 2, &all_but(80), &everything());
            host.until("it is cut", || cut(&host) > before);
            // The entry ends, but both ends have their sockets.
            run("conntrack -D -p tcp --dport 80");
            connection.wait_at_most(SILENCE);
            let dropped = dropped_as(&host, MIDDLE);
            host.until("the far end's segments are dropped", || {
                connection.send(false);
                dropped_as(&host, MIDDLE) >= dropped + 2
            });
            assert!(!connection.receives(true), "{address}");
            let _ = try_run("conntrack -D -p tcp");
            let dropped = dropped_as(&host, MIDDLE);
            host.until("the near end's segments are dropped", || {
                connection.send(true);
                dropped_as(&host, MIDDLE) >= dropped + 2
            });
            assert!(!connection.receives(false), "{address}");
            policy(&host, 2, &everything(), &everything());
            host.until("open again", || {
                let address = at(address, 80);
                from.within(|| TcpStream::connect_timeout(&address, SILENCE))
                    .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
            });
        }
    });
}

#[test]
fn translated_connection_is_cut() {
    lab("translated_connection_is_cut", || {
        let (host, one, two) = pair("cutting.enabled = true");
        host.configure(&json!({"floatingIPs": "Enabled"}));
        let outside = outside();
        for command in [
            "ip route add 10.65.0.0/16 via 10.0.0.11",
            "ip route add 172.16.0.0/16 via 10.0.0.11",
            "ip -6 route add fd65::/64 via fd00::11",
            "ip -6 route add fd16::/64 via fd00::11",
        ] {
            outside.run(command);
        }
        let floating = ["172.16.0.2", "fd16::2"];
        let own = ["10.65.0.2", "fd65::2"];
        let nat = floating.iter().zip(own);
        let nat = nat.map(|(outer, own)| json!({"internalIP": own, "externalIP": outer}));
        let nat: Vec<Value> = nat.collect();
        host.endpoint_with(2, &json!({"n": "2"}), &json!({ "ipNATs": nat }));
        for (name, cidr) in [("v4", "10.65.0.0/16"), ("v6", "fd65::/64")] {
            let pool = json!({"metadata": {"name": name}, "spec": {
                "cidr": cidr, "natOutgoing": true}});
            host.put(&format!("{RESOURCES}ippools/{name}"), &pool);
            host.until("masquerade", || {
                let listed = run("nft list table inet cambric-felix");
                listed.contains("masquerade") && listed.contains(cidr)
            });
        }
        for address in floating {
            host.until("a floating address", || {
                outside.within(|| crate::world::ping(&format!("-w 1 {address}")))
            });
        }
        let mut inward: Vec<Box<dyn Ends>> = Vec::new();
        for (address, own) in floating.into_iter().zip(own) {
            inward.push(Box::new(tcp(&outside, &two.namespace, address, 80)));
            inward.push(Box::new(udp_to(
                &outside,
                &two.namespace,
                [address, own],
                80,
            )));
        }
        let mut outward: Vec<Box<dyn Ends>> = Vec::new();
        for (address, masqueraded) in [("10.66.0.1", "10.0.0.11"), ("fd66::1", "fd00::11")] {
            let masqueraded: IpAddr = masqueraded.parse().unwrap();
            let connection = tcp(&one.namespace, &outside, address, 80);
            let peer = connection.1.peer_addr().unwrap().ip();
            assert_eq!(peer.to_canonical(), masqueraded);
            outward.push(Box::new(connection));
            let connection = udp(&one.namespace, &outside, address, 80);
            assert_eq!(connection.1.peer_addr().unwrap().ip(), masqueraded);
            outward.push(Box::new(connection));
        }
        for connection in inward.iter().chain(&outward) {
            assert!(connection.passes(true) && connection.passes(false));
        }
        policy(&host, 2, &all_but(80), &everything());
        host.until("the inward ones are cut", || cut(&host) == 4);
        for connection in &inward {
            is_dead(&host, &**connection, &[true, false]);
        }
        for connection in &outward {
            assert!(connection.passes(true) && connection.passes(false));
        }
        policy(&host, 1, &everything(), &all_but(80));
        host.until("the outward ones are cut", || cut(&host) == 8);
        for connection in &outward {
            is_dead(&host, &**connection, &[false, true]);
        }
    });
}

// Promise (Felix): A program of the host gets an error on the socket of a cut connection.
#[test]
fn socket_of_the_host_is_destroyed() {
    lab("socket_of_the_host_is_destroyed", || {
        let (host, one, _two) = pair("cutting.enabled = true");
        host.configure(&json!({"defaultEndpointToHostAction": "Accept"}));
        host.until("open to the host", || {
            run("nft list table inet cambric-felix").contains("endpoint to host: accept")
        });
        let own = |address: &str, port| {
            let listener = TcpListener::bind(("::", port)).unwrap();
            let connect = || TcpStream::connect_timeout(&at(address, port), PATIENCE).unwrap();
            let client = one.namespace.within(connect);
            let (server, _) = listener.accept().unwrap();
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            (Both(client, server), listener)
        };
        let (v4, _one) = own("10.0.0.11", 8080);
        let (v6, _two) = own("fd00::11", 8081);
        let (kept, listener) = own("10.0.0.11", 8082);
        for connection in [&v4, &v6, &kept] {
            assert!(connection.passes(true) && connection.passes(false));
        }
        let denied = json!([
            {"action": "Deny", "protocol": "TCP", "destination": {"ports": ["8080:8081"]}},
            {"action": "Allow"},
        ]);
        policy(&host, 1, &everything(), &denied);
        host.until("two are cut", || cut(&host) == 2);
        for connection in [&v4, &v6] {
            let mut server = &connection.1;
            let error = server.read(&mut [0]).expect_err("no octet");
            assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
        }
        assert!(kept.passes(true) && kept.passes(false));
        // Listening sockets stay.
        let again = TcpStream::connect_timeout(&at("10.0.0.11", 8082), PATIENCE);
        assert!(again.is_ok() && listener.accept().is_ok());
    });
}

// Promise: as felix forbidden_connections_end_in_both_directions
#[test]
fn listening_sockets_of_the_host_survive_a_cut() {
    lab("listening_sockets_of_the_host_survive_a_cut", || {
        let (host, one, two) = pair("cutting.enabled = true");
        host.configure(&json!({"defaultEndpointToHostAction": "Accept"}));
        host.until("open to the host", || {
            run("nft list table inet cambric-felix").contains("endpoint to host: accept")
        });
        // Workloads choose the source ports of their connections as well.
        let v6 = TcpListener::bind(("::", 80)).unwrap();
        let v4 = TcpListener::bind(("0.0.0.0", 81)).unwrap();
        let other = TcpListener::bind(("::", 8080)).unwrap();
        let accepts = |address: &str, listener: &TcpListener| {
            let port = listener.local_addr().unwrap().port();
            let connect = || TcpStream::connect_timeout(&at(address, port), PATIENCE).unwrap();
            let client = one.namespace.within(connect);
            let (server, _) = listener.accept().unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            Both(client, server)
        };
        let (from, to) = (&one.namespace, &two.namespace);
        let forwarded = [
            tcp(from, to, "10.65.0.2", 80),
            tcp(from, to, "10.65.0.2", 81),
            tcp(from, to, "fd65::2", 80),
        ];
        // The host has closed its sockets of these connections; their entries remain.
        let closed = [
            accepts("10.0.0.11", &v6),
            accepts("fd00::11", &v6),
            accepts("10.0.0.11", &v4),
        ];
        let open = accepts("10.0.0.11", &other);
        for connection in forwarded.iter().chain([&open]).chain(&closed) {
            assert!(connection.passes(true) && connection.passes(false));
        }
        sysctl("netfilter/nf_conntrack_tcp_timeout_close", "1000");
        run("ss --kill state established sport = :80 or sport = :81");
        let denied = json!([
            {"action": "Deny", "protocol": "TCP", "destination": {"ports": ["80:81", 8080]}},
            {"action": "Allow"},
        ]);
        policy(&host, 1, &everything(), &denied);
        host.until("all are cut", || cut(&host) == 7);
        let error = (&open.1).read(&mut [0]).expect_err("no octet");
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
        policy(&host, 1, &everything(), &everything());
        for (address, listener) in [("10.0.0.11", &v6), ("fd00::11", &v6), ("10.0.0.11", &v4)] {
            host.until("open to the host again", || {
                let port = listener.local_addr().unwrap().port();
                let connect = || TcpStream::connect_timeout(&at(address, port), SILENCE);
                from.within(connect).is_ok()
            });
            assert!(listener.accept().is_ok());
        }
    });
}

// Promise: as felix ended_entry_of_a_cut_connection_revives_nothing
#[test]
fn middle_of_a_connection_of_the_host_opens_no_new_one() {
    lab(
        "middle_of_a_connection_of_the_host_opens_no_new_one",
        || {
            let (host, one, _two) = pair("cutting.enabled = true");
            host.configure(&json!({"defaultEndpointToHostAction": "Accept"}));
            host.until("open to the host", || {
                run("nft list table inet cambric-felix").contains("endpoint to host: accept")
            });
            for address in ["10.0.0.11", "fd00::11"] {
                let listener = TcpListener::bind(("::", 8080)).unwrap();
                let connect = || TcpStream::connect_timeout(&at(address, 8080), PATIENCE).unwrap();
                let client = one.namespace.within(connect);
                let (server, _) = listener.accept().unwrap();
                let both = Both(client, server);
                both.wait_at_most(PATIENCE);
                assert!(both.passes(true) && both.passes(false));
                for from_client in [true, false] {
                    let _ = try_run("conntrack -D -p tcp --dport 8080");
                    let _ = try_run("conntrack -D -p tcp --sport 8080");
                    both.wait_at_most(SILENCE);
                    let dropped = dropped_as(&host, MIDDLE);
                    host.until("segments are dropped", || {
                        both.send(from_client);
                        dropped_as(&host, MIDDLE) >= dropped + 2
                    });
                    assert!(!both.receives(!from_client), "{address} {from_client}");
                }
            }
        },
    );
}

/// Opens a TCP connection between a peer and the host itself.
fn of_host(peer: &Namespace, to: &str, port: u16, from_peer: bool) -> Both<TcpStream> {
    let listen = || TcpListener::bind(("::", port)).unwrap();
    let connect = || TcpStream::connect_timeout(&at(to, port), PATIENCE).unwrap();
    let (listener, client) = match from_peer {
        true => {
            let listener = listen();
            (listener, peer.within(connect))
        }
        false => (peer.within(listen), connect()),
    };
    let (server, _) = listener.accept().unwrap();
    let both = Both(client, server);
    both.wait_at_most(PATIENCE);
    both
}

/// Creates a peer behind another interface of the host.
fn second_outside(peer: &Namespace) -> Namespace {
    let second = Namespace::new();
    run("ip link add second type veth peer name far-second");
    second.take("far-second", "eth0");
    run("ip address add 10.1.0.11/24 dev second");
    run("ip link set second up");
    second.run("ip link set eth0 up");
    second.run("ip address add 10.1.0.1/24 dev eth0");
    second.run("ip route add default via 10.1.0.11");
    peer.run("ip route add 10.1.0.0/24 via 10.0.0.11");
    second
}

/// Writes a policy of host endpoints.
fn host_policy(host: &Host, name: &str, spec: &Value) {
    let mut policy = json!({"metadata": {"name": name}, "spec": {"selector": "role == 'host'"}});
    for (field, value) in spec.as_object().unwrap() {
        policy["spec"][field] = value.clone();
    }
    host.put(&format!("{RESOURCES}globalnetworkpolicies/{name}"), &policy);
}

/// Writes an open host endpoint for the uplink.
fn open_uplink(host: &Host) {
    let endpoint = json!({
        "metadata": {"name": "uplink", "labels": {"role": "host"}},
        "spec": {"node": "n1", "interfaceName": "uplink", "profiles": OPEN},
    });
    host.put(&format!("{RESOURCES}hostendpoints/uplink"), &endpoint);
    host.until("the host endpoint", || {
        run("nft list table inet cambric-felix").contains("chain host-in-uplink")
    });
}

// Promise (Felix): With `cutting.enabled`, established connections of the host that a changed policy of a host
// endpoint forbids end, except for those of failsafe ports.
#[test]
fn connections_forbidden_by_host_policies_end() {
    lab("connections_forbidden_by_host_policies_end", || {
        let (host, _one, _two) = pair("cutting.enabled = true");
        let peer = crate::guard::outside();
        open_uplink(&host);
        let forbidden = [
            (of_host(&peer, "10.0.0.11", 8080, true), false),
            (of_host(&peer, "fd00::11", 8081, true), false),
            (of_host(&peer, "10.0.0.1", 8080, false), true),
            (of_host(&peer, "fd00::1", 8081, false), true),
        ];
        let kept = [
            of_host(&peer, "10.0.0.11", 8082, true),
            of_host(&peer, "10.0.0.1", 8082, false),
            // Failsafe ports.
            of_host(&peer, "10.0.0.11", 22, true),
            of_host(&peer, "fd00::1", 179, false),
        ];
        for connection in forbidden.iter().map(|(one, _)| one).chain(&kept) {
            assert!(connection.passes(true) && connection.passes(false));
        }
        let denied = json!([
            {"action": "Deny", "protocol": "TCP",
                "destination": {"ports": ["8080:8081", 22, 179]}},
            {"action": "Allow"},
        ]);
        let both = json!({"ingress": denied, "egress": denied, "types": ["Ingress", "Egress"]});
        host_policy(&host, "h", &both);
        host.until("four are cut", || cut(&host) == 4);
        for (connection, client_is_own) in &forbidden {
            let mut own = match client_is_own {
                true => &connection.0,
                false => &connection.1,
            };
            let error = own.read(&mut [0]).expect_err("no octet");
            assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
        }
        for connection in &kept {
            assert!(connection.passes(true) && connection.passes(false));
        }
        assert_eq!(cut(&host), 4);
    });
}

// Promise: as felix connections_forbidden_by_host_policies_end
#[test]
fn forwarded_connections_forbidden_by_host_policies_end() {
    lab(
        "forwarded_connections_forbidden_by_host_policies_end",
        || {
            let (host, one, two) = pair("cutting.enabled = true");
            host.configure(&json!({"floatingIPs": "Enabled"}));
            let peer = crate::guard::outside();
            peer.run("ip route add 172.16.0.0/16 via 10.0.0.11");
            let nat = json!([{"internalIP": "10.65.0.2", "externalIP": "172.16.0.2"}]);
            host.endpoint_with(2, &json!({"n": "2"}), &json!({ "ipNATs": nat }));
            open_uplink(&host);
            host.until("a floating address", || {
                peer.within(|| crate::world::ping("-w 1 172.16.0.2"))
            });
            let inward = tcp(&peer, &one.namespace, "10.65.0.1", 80);
            let outward = tcp(&one.namespace, &peer, "fd00::1", 80);
            let second = second_outside(&peer);
            let transit = tcp(&peer, &second, "10.1.0.1", 80);
            let translated = tcp(&peer, &two.namespace, "172.16.0.2", 80);
            // Another way to the same workload, and between workloads.
            let kept = [
                tcp(&peer, &two.namespace, "10.65.0.2", 81),
                tcp(&one.namespace, &two.namespace, "10.65.0.2", 80),
            ];
            let all = [&inward, &outward, &transit, &translated];
            for connection in all.into_iter().chain(&kept) {
                assert!(connection.passes(true) && connection.passes(false));
            }
            let deny = |destination: &str| {
                json!({"preDNAT": true, "applyOnForward": true, "types": ["Ingress"],
                    "ingress": [{"action": "Deny", "protocol": "TCP",
                        "destination": {"nets": [destination], "ports": [80]}}]})
            };
            host_policy(&host, "d", &deny("172.16.0.2/32"));
            host.until("the translated one is cut", || cut(&host) == 1);
            is_dead(&host, &translated, &[true, false]);
            let forward = |ingress: &Value, egress: &Value| {
                json!({"applyOnForward": true, "ingress": ingress, "egress": egress,
                    "types": ["Ingress", "Egress"]})
            };
            host_policy(&host, "f", &forward(&all_but(80), &everything()));
            host.until("two more are cut", || cut(&host) == 3);
            is_dead(&host, &inward, &[true, false]);
            is_dead(&host, &transit, &[true, false]);
            assert!(outward.passes(true) && outward.passes(false));
            host_policy(&host, "f", &forward(&all_but(80), &all_but(80)));
            host.until("the outward one is cut", || cut(&host) == 4);
            is_dead(&host, &outward, &[false, true]);
            for connection in &kept {
                assert!(connection.passes(true) && connection.passes(false));
            }
            // Without its entry, it is no new connection in the other direction.
            host_policy(&host, "f", &forward(&all_but(80), &everything()));
            let before = host.counted("cut-host-forward", MIDDLE);
            run("conntrack -D -p tcp --dport 80 -d 10.1.0.1");
            host.until("the middle is dropped", || {
                transit.send(false);
                dropped_as(&host, MIDDLE) > before
            });
            assert!(!transit.receives(true));
            assert_eq!(cut(&host), 4);
        },
    );
}

// Promise (Felix): With `cutting.enabled`, forbidden connections of a workload to other hosts end, also from
// sources of `allowSpoofedSourcePrefixes`.
#[test]
fn forbidden_connections_of_spoofed_sources_end() {
    lab("forbidden_connections_of_spoofed_sources_end", || {
        let (host, one, _two) = pair("cutting.enabled = true");
        host.configure(&json!({"workloadSourceSpoofing": "Any"}));
        let peer = crate::guard::outside();
        peer.run("ip route add 192.0.2.0/24 via 10.0.0.11");
        let prefixes = json!({"allowSpoofedSourcePrefixes": ["192.0.2.0/25"]});
        host.endpoint_with(1, &json!({"n": "1"}), &prefixes);
        host.until("the prefix", || {
            run("nft list table inet cambric-felix").contains("192.0.2.0/25")
        });
        // One address that is routed to the workload, and one that is routed nowhere.
        for command in [
            "ip address add 192.0.2.1/32 dev eth0",
            "ip address add 192.0.2.3/32 dev eth0",
            "ip route add 10.0.0.1/32 via 169.254.1.1 dev eth0 src 192.0.2.1",
        ] {
            one.namespace.run(command);
        }
        run("ip route add 192.0.2.1/32 dev cali1");
        let routed = tcp(&one.namespace, &peer, "10.0.0.1", 80);
        let kept = tcp(&one.namespace, &peer, "10.0.0.1", 443);
        for connection in [&routed, &kept] {
            assert!(connection.passes(true) && connection.passes(false));
            let source = connection.0.local_addr().unwrap().ip();
            assert_eq!(source, IpAddr::from([192, 0, 2, 1]));
        }
        let server = peer.within(|| UdpSocket::bind(("10.0.0.1", 80)).unwrap());
        let client = one
            .namespace
            .within(|| UdpSocket::bind(("192.0.2.3", 0)).unwrap());
        client.connect(("10.0.0.1", 80)).unwrap();
        let unrouted = Both(client, server);
        unrouted.wait_at_most(PATIENCE);
        assert!(unrouted.passes(true));
        policy(&host, 1, &everything(), &all_but(80));
        host.until("both are cut", || cut(&host) == 2);
        is_dead(&host, &routed, &[true, false]);
        is_dead(&host, &unrouted, &[true]);
        assert!(kept.passes(true) && kept.passes(false));
        assert_eq!(cut(&host), 2);
    });
}

#[test]
fn connections_are_kept_without_the_key() {
    lab("connections_are_kept_without_the_key", || {
        let (mut host, one, two) = pair("");
        sysctl("netfilter/nf_conntrack_tcp_loose", "1");
        let kept = tcp(&one.namespace, &two.namespace, "10.65.0.2", 80);
        assert!(kept.passes(true) && kept.passes(false));
        policy(&host, 2, &all_but(80), &everything());
        host.until("the policy", || {
            let connect = || TcpStream::connect_timeout(&at("10.65.0.2", 80), SILENCE);
            one.namespace
                .within(connect)
                .is_err_and(|error| error.kind() == ErrorKind::TimedOut)
        });
        assert!(kept.passes(true) && kept.passes(false));
        assert_eq!(cut(&host), 0);
        // A policy that changed while Felix was stopped counts as well.
        host.stop();
        host.settings = "cutting.enabled = true\ncutting.mark = 0x100".into();
        host.start();
        host.until("it is cut", || cut(&host) == 1);
        host.until("the rule", || {
            run("nft list table inet cambric-felix").contains("ct mark & 0x00000100")
        });
        is_dead(&host, &kept, &[true, false]);
    });
}
