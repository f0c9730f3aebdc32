//! Attacks of another user of a host on the BGP sessions of that host: the user dials its route
//! reflector and a node of its mesh, or listens on the port while the daemon is down. Each attack
//! succeeds without the table of `cambric guard`. With the table, no connection is opened: a
//! session that is merely refused can be the work of Collision Resolution.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use bgp_proto::{Family, MessageKind, next_frame};
use bytes::BytesMut;
use daemon_common::client::call;
use daemon_common::report::Status;
use daemon_common::{Command, Reply};
use interop_tests::sender::Opening;
use interop_tests::{Ground, Kind, PATIENCE, Setup, Site, Speaker, Store, in_ground, own};
use netns_lab::{Host, Process, Program, VethEnd};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use nix::unistd::{Uid, setfsuid};
use testkit::{Encode, Keepalive};

const ASN: u32 = 64512;
const CLUSTER: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
const IPV4: &[&str] = &["ipv4-unicast"];
const IPV6: &[&str] = &["ipv6-unicast"];
/// The attacking user.
pub(crate) const STRANGER: u32 = 65534;
/// The addresses of the workload.
const POD: Ipv4Addr = Ipv4Addr::new(10, 65, 2, 9);
const POD_V6: Ipv6Addr = Ipv6Addr::new(0xfd65, 0, 0, 0, 0, 0, 0, 9);
/// The key of Felix that permits the workload what the guard forbids.
pub(crate) const EXCEPTIONS: &str = "control_port_exceptions = [\"10.65.2.9\", \"fd65::9\"]\n";
/// How long an attack is tried that must not succeed.
const IN_VAIN: Duration = Duration::from_millis(1500);

/// The result of an attempt to open a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialed {
    /// There was no TCP connection.
    Unconnected,
    /// There was a connection, and the other side did not accept the OPEN.
    Refused,
    /// The other side accepted the OPEN.
    Session,
}

/// Returns the first messages of a speaker: OPEN and KEEPALIVE.
fn greeting(id: Ipv4Addr, family: Family) -> BytesMut {
    let opening = Opening {
        asn: ASN,
        id,
        hold_time: 90,
        families: &[family],
    };
    let mut octets = opening.open().octets();
    Keepalive.encode(&mut octets);
    octets
}

/// Waits for a KEEPALIVE: the other side has accepted the OPEN.
fn is_accepted(stream: &mut TcpStream, within: Duration) -> io::Result<bool> {
    let late = Instant::now() + within;
    let mut received = BytesMut::new();
    let mut octets = [0; 4096];
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    while Instant::now() < late {
        match stream.read(&mut octets) {
            Ok(0) => return Ok(false),
            Ok(read) => received.extend_from_slice(octets.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Ok(false),
        }
        while let Ok(Some(frame)) = next_frame(&mut received, 4096) {
            if frame.kind == MessageKind::Keepalive {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Dials as another user of a host, with a valid OPEN of the host's daemon.
fn dial(site: &Site, to: IpAddr, within: Duration) -> Dialed {
    dial_as(&site.host, Site::v4(2), to, within)
}

fn dial_as(host: &Host, id: Ipv4Addr, to: IpAddr, within: Duration) -> Dialed {
    let attack = || -> Dialed {
        setfsuid(Uid::from_raw(STRANGER));
        let to = SocketAddr::new(to, 179);
        let Ok(mut stream) = TcpStream::connect_timeout(&to, within) else {
            return Dialed::Unconnected;
        };
        let greeted = stream.write_all(&greeting(id, family(to.ip())));
        match greeted.and_then(|()| is_accepted(&mut stream, within)) {
            Ok(true) => Dialed::Session,
            Ok(false) | Err(_) => Dialed::Refused,
        }
    };
    host.run(attack).expect("a thread")
}

fn family(address: IpAddr) -> Family {
    match address {
        IpAddr::V4(_) => Family::IPV4_UNICAST,
        IpAddr::V6(_) => Family::IPV6_UNICAST,
    }
}

/// Dials until the other side accepts the OPEN: it may be in idle hold.
async fn dial_until_accepted(host: &Host, id: Ipv4Addr, to: IpAddr) {
    let what = format!("a session with {to}, stolen");
    let stolen = netns_lab::until(PATIENCE, &what, async || {
        let dialed = dial_as(host, id, to, Duration::from_secs(5));
        let stolen = dialed == Dialed::Session;
        Ok::<_, netns_lab::Error>(stolen.then_some(()).ok_or_else(|| format!("{dialed:?}")))
    });
    stolen.await.unwrap_or_else(|error| panic!("{error}"));
}

/// Limits how long a listener waits for a connection.
fn patience(listener: &TcpListener, within: Duration) -> io::Result<()> {
    let within = TimeVal::new(within.as_secs() as i64, i64::from(within.subsec_micros()));
    Ok(setsockopt(listener, sockopt::ReceiveTimeout, &within)?)
}

/// Listens as another user of a host, for one connection. Returns how many connections arrived
/// within `within`, and whether the first became a session; otherwise it is closed while an OPEN is
/// in flight.
fn listen(site: &Site, at: IpAddr, within: Duration) -> (usize, bool) {
    let attack = || -> io::Result<(usize, bool)> {
        setfsuid(Uid::from_raw(STRANGER));
        let listener = TcpListener::bind((at, 179))?;
        patience(&listener, within)?;
        let Ok((mut stream, _)) = listener.accept() else {
            return Ok((0, false));
        };
        stream.write_all(&greeting(Site::v4(2), family(at)))?;
        let stolen = is_accepted(&mut stream, IN_VAIN)?;
        // Closed: segments that the kernel retransmits from now on belong to no user.
        drop(stream);
        patience(&listener, IN_VAIN)?;
        let more = usize::from(!stolen && listener.accept().is_ok());
        Ok((1 + more, stolen))
    };
    let run = site.host.run(attack).expect("a thread");
    run.unwrap_or_else(|error| panic!("{error}"))
}

/// Runs `cambric guard` in a host.
pub(crate) async fn cambric_guard(site: &Site, words: &[&str]) -> (bool, String) {
    let program = Program::new(own("cambric"))
        .arg("guard")
        .args(words.iter().copied());
    let output = site.host.output(&program).await;
    let (status, text) = output.expect("the program runs");
    (
        status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

async fn attacked(ground: &Ground, number: u8) -> Speaker {
    let setup = Setup::fabric()
        .neighbor(Site::v4(2), ASN)
        .carrying(IPV4)
        .neighbor(Site::v6(2), ASN)
        .carrying(IPV6);
    match number {
        1 => {
            ground
                .speaker(Kind::Reflector, 1, &setup.reflecting(CLUSTER))
                .await
        }
        _ => ground.speaker(Kind::Client, number, &setup).await,
    }
}

/// Returns the sessions of a speaker: names, whether they are established, and flaps.
async fn sessions(speaker: &Speaker) -> Vec<(String, bool, u64)> {
    let neighbors = speaker.neighbors().await.neighbors.into_iter();
    let of = |neighbor: daemon_common::report::Neighbor| {
        let is_up = neighbor.state == "Established";
        (neighbor.name, is_up, neighbor.flaps)
    };
    neighbors.map(of).collect()
}

/// Returns the addresses of the attacked host.
fn own_addresses() -> [IpAddr; 2] {
    [Site::v4(2).into(), Site::v6(2).into()]
}

fn targets() -> [IpAddr; 4] {
    let of = |number| [Site::v4(number).into(), Site::v6(number).into()];
    let ([a, b], [c, d]) = (of(1), of(3));
    [a, b, c, d]
}

// Promise (Daemons): Other users of a host cannot speak BGP from its addresses.
#[test]
fn another_user_never_speaks_bgp_as_its_host() {
    in_ground(&[], "another user of a host", async |ground| {
        let (reflector, node) = (attacked(&ground, 1).await, attacked(&ground, 3).await);
        let site = ground.site(2).await.expect("a host");
        // Without the table, each of them accepts the attacker's session.
        for to in targets() {
            dial_until_accepted(&site.host, Site::v4(2), to).await;
        }
        // The daemon of the host loads the table.
        let setup = Setup::fabric();
        let setup = [1, 3].into_iter().fold(setup, |setup, number| {
            let setup = setup.neighbor(Site::v4(number), ASN).carrying(IPV4);
            setup.neighbor(Site::v6(number), ASN).carrying(IPV6)
        });
        let started = Speaker::start(Kind::Client, site, &setup).await;
        let client = started.expect("a process");
        let ready = client.reports("all sessions are up", |status| {
            status.ready && guard_of(status).starts_with("in effect")
        });
        ready.await;
        let before = (sessions(&reflector).await, sessions(&node).await);
        for to in targets() {
            let dialed = dial(&client.site, to, IN_VAIN);
            assert_eq!(dialed, Dialed::Unconnected, "{to}");
        }
        assert_eq!((sessions(&reflector).await, sessions(&node).await), before);
        let dropped = client.reports("what was dropped is counted", |status| {
            !guard_of(status).contains(" 0 segments dropped")
        });
        dropped.await;
        the_daemon_is_down(client).await;
    });
}

/// Asserts that the table stays when the daemon stops, and keeps the attacker from taking its
/// place.
async fn the_daemon_is_down(mut client: Speaker) {
    client.stop().await.expect("it stops");
    let site = &client.site;
    // No session of the daemon is left that could win over the attacker's.
    for to in targets() {
        assert_eq!(dial(site, to, IN_VAIN), Dialed::Unconnected, "{to}");
    }
    syn_cookies(site, false);
    for at in own_addresses() {
        no_connection_is_accepted(site, at).await;
    }
    syn_cookies(site, true);
    for at in own_addresses() {
        let (came, stolen) = listen(site, at, PATIENCE);
        assert!(came > 0, "{at}: by a SYN cookie a connection comes about");
        assert!(!stolen, "{at}: a session by a SYN cookie, stolen");
    }
    // Without the table, each attack succeeds.
    let (done, text) = cambric_guard(site, &["--remove"]).await;
    assert!(done && text == "removed\n", "{text}");
    for cookies in [true, false] {
        syn_cookies(site, cookies);
        for at in own_addresses() {
            let what = format!("a session at {at}, stolen");
            let stolen = netns_lab::until(PATIENCE, &what, async || {
                let (_, stolen) = listen(site, at, Duration::from_secs(20));
                Ok::<_, netns_lab::Error>(stolen.then_some(()).ok_or_else(|| "none".to_owned()))
            });
            stolen.await.unwrap_or_else(|error| panic!("{error}"));
        }
    }
    for to in targets() {
        dial_until_accepted(&site.host, Site::v4(2), to).await;
    }
}

/// Has the kernel of a host answer each SYN with a cookie, or none while there is room.
fn syn_cookies(site: &Site, each: bool) {
    let value = if each { "2" } else { "1" };
    let set = site.host.sysctl("net/ipv4/tcp_syncookies", value);
    set.expect("set");
}

/// Asserts that the table drops the SYN-ACK of the attacker's listener, so that a neighbor that
/// dials opens no connection.
async fn no_connection_is_accepted(site: &Site, at: IpAddr) {
    let before = dropped(site).await;
    let what = format!("a dropped SYN-ACK of {at}");
    let seen = netns_lab::until(PATIENCE, &what, async || {
        assert_eq!(listen(site, at, IN_VAIN), (0, false), "{at}");
        let now = dropped(site).await;
        Ok::<_, netns_lab::Error>((now > before).then_some(()).ok_or_else(|| now.to_string()))
    });
    seen.await.unwrap_or_else(|error| panic!("{error}"));
}

/// Returns how many segments the table of a host has dropped.
async fn dropped(site: &Site) -> u64 {
    let file = site.host.directory().join("bgp-client.toml");
    let file = file.to_str().expect("text");
    let (done, text) = cambric_guard(site, &["--check", "--bgp-client", file]).await;
    assert!(done, "{text}");
    let words = text.split(' ').collect::<Vec<_>>();
    let count = words.windows(2).find(|pair| pair[1] == "segments");
    count
        .and_then(|pair| pair[0].parse().ok())
        .unwrap_or_else(|| panic!("{text}"))
}

/// A reflector without CAP_NET_ADMIN reports what `cambric guard` has loaded for it, and never that
/// the table is active.
#[test]
fn unprivileged_reflector_reports_what_guard_has_loaded() {
    in_ground(&[], "a reflector without CAP_NET_ADMIN", async |ground| {
        let site = ground.site(1).await.expect("a host");
        let control = site.host.directory().join("rr.sock");
        let config = site.save(
            "rr.toml",
            &format!(
                "asn = {ASN}\nrouter_id = \"10.0.0.1\"\ncontrol = {control:?}\n\
                 listen = [\"10.0.0.1:1790\"]\n[guard]\nusers = [\"root\", 4242]\n"
            ),
        );
        let file = config.to_str().expect("text");
        let daemon = Program::new("setpriv")
            .args(["--bounding-set", "-net_admin"])
            .arg(own("cambric-route-reflector"))
            .args(["--config", file]);
        let part = ["--route-reflector", file];
        let (state, notes) = started(&site, &daemon, &control).await;
        assert!(state.starts_with("not in effect"), "{state}");
        assert!(
            notes.contains("port 1790 is open to local users"),
            "{notes}"
        );
        let (done, text) = cambric_guard(&site, &part).await;
        let wanted = "ports 179 1790, allowed user ids 0 4242";
        assert!(done && text.contains(wanted), "{text}");
        let (state, notes) = started(&site, &daemon, &control).await;
        assert!(
            state.starts_with("loaded by `cambric guard`, not verified"),
            "{state}"
        );
        assert!(
            state.contains("1790") && !notes.contains("guard"),
            "{notes}"
        );

        let (done, text) = cambric_guard(&site, &["--check", part[0], part[1]]).await;
        assert!(done && text.contains(wanted), "{text}");
        let (done, _) = cambric_guard(&site, &["--remove", part[0], part[1]]).await;
        assert!(done);
        let (done, text) = cambric_guard(&site, &["--check", part[0], part[1]]).await;
        assert!(!done && text.contains("there is no table"), "{text}");
        let (state, _) = started(&site, &daemon, &control).await;
        assert!(state.starts_with("not in effect"), "{state}");
    });
}

/// Starts a daemon, and stops it once it has reported its guard. Returns the state, and all notes.
async fn started(site: &Site, daemon: &Program, control: &Path) -> (String, String) {
    let mut process = site.host.spawn("reflector", daemon).expect("a process");
    let answer = netns_lab::until(PATIENCE, "a status", async || {
        Ok::<_, netns_lab::Error>(match call(control.to_owned(), &Command::Status {}).await {
            Ok(Reply::Status(status)) => Ok(status),
            other => Err(format!("{other:?}")),
        })
    });
    let (status, _) = answer.await.unwrap_or_else(|error| panic!("{error}"));
    process.kill().await.expect("killed");
    (guard_of(&status), status.notes.join("\n"))
}

fn guard_of(status: &Status) -> String {
    let guard = status.facts.iter().find(|fact| fact.name == "host guard");
    guard.map(|fact| fact.value.clone()).unwrap_or_default()
}

/// Serves a datastore with the nodes and the endpoint of the workload, in masqueraded pools.
pub(crate) async fn store_of_workload(ground: &Ground) -> Store {
    let store = ground.store().await.expect("a store");
    for (name, cidr) in [("pool-v4", "10.65.0.0/16"), ("pool-v6", "fd65::/64")] {
        let text = format!(r#"{{"spec":{{"cidr":"{cidr}","natOutgoing":true}}}}"#);
        store.put("ippools", name, &text).await;
    }
    for number in 1..4 {
        store.node(number, "").await;
    }
    // Else this action would close the host to workloads without the guard.
    let accept = r#"{"spec":{"defaultEndpointToHostAction":"Accept"}}"#;
    store.put("felixconfigurations", "default", accept).await;
    let endpoint = r#"{"spec":{"orchestrator":"k8s","node":"h2","workload":"web","pod":"web",
        "endpoint":"eth0","interfaceName":"cali1","ipNetworks":["10.65.2.9/32","fd65::9/128"],
        "profiles":["projectcalico-default-allow"]}}"#;
    store
        .put("workloadendpoints", "ns/h2-k8s-web-eth0", endpoint)
        .await;
    store
}

/// Makes a workload of a host, in a masqueraded pool: the fabric sees its host's address.
pub(crate) async fn workload(ground: &Ground, site: &Site) -> Host {
    let pod = ground.host("pod").await.expect("a host");
    let end = |host, name| VethEnd {
        host,
        name,
        mac: None,
    };
    let links = site.host.links().expect("links");
    let made = links.add_veth(end(&site.host, "cali1"), end(&pod, "eth0"));
    made.await.expect("a link");
    links.up("cali1").await.expect("up");
    for key in ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] {
        site.host.sysctl(key, "1").expect("set");
    }
    for words in [
        "link set eth0 up",
        "address add 10.65.2.9/32 dev eth0",
        "address add fd65::9/128 dev eth0 nodad",
        "route add 169.254.1.1 dev eth0",
        "route add default via 169.254.1.1",
        "-6 route add default via fe80::1 dev eth0",
    ] {
        let ip = Program::new("ip").args(words.split(' '));
        let (status, _) = pod.output(&ip).await.expect("ip runs");
        assert!(status.success(), "ip {words}");
    }
    pod
}

pub(crate) fn felix(site: &Site, keys: &str) -> Process {
    let control = site.host.directory().join("felix.sock");
    let text = format!(
        "{keys}hostname = \"h2\"\ncontrol = {control:?}\n[datastore]\n\
         endpoints = [\"http://10.0.0.254:2379\"]\n"
    );
    let path = site.save("felix.toml", &text);
    let program = Program::new(own("cambric-felix")).arg("--config").arg(path);
    site.host.spawn("felix", &program).expect("Felix")
}

/// Starts Felix, and waits until its table has no exception for the workload.
pub(crate) async fn felix_without_exceptions(site: &Site) -> Process {
    let agent = felix(site, "");
    let closed = netns_lab::until(PATIENCE, "no exception", async || {
        let list = ["list", "table", "inet", "cambric-felix"];
        let nft = Program::new("nft").args(list);
        let (_, text) = site.host.output(&nft).await?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let has = text.contains("workload-guard") && !exceptions(&text).contains("10.65.2.9");
        Ok::<_, netns_lab::Error>(has.then_some(()).ok_or(text))
    });
    closed.await.unwrap_or_else(|error| panic!("{error}"));
    agent
}

/// A workload cannot reach the BGP port of any reflector, of any mesh node, or of its own host,
/// although NAT gives it its host's address. Its own host even has it as a neighbor. With an
/// exception for it, it can: the attack is real.
#[test]
fn workload_never_speaks_bgp_as_its_host() {
    in_ground(&[], "a workload behind NAT", async |ground| {
        let _store = store_of_workload(&ground).await;
        let (reflector, node) = (attacked(&ground, 1).await, attacked(&ground, 3).await);
        let site = ground.site(2).await.expect("a host");
        let pod = workload(&ground, &site).await;

        let mut agent = felix(&site, EXCEPTIONS);
        for to in targets() {
            dial_until_accepted(&pod, Site::v4(2), to).await;
        }
        let client = with_pods_as_neighbors(site).await;
        for to in own_addresses() {
            dial_until_accepted(&pod, POD, to).await;
        }
        agent.kill().await.expect("killed");
        let _agent = felix_without_exceptions(&client.site).await;
        let before = (sessions(&reflector).await, sessions(&node).await);
        for to in targets() {
            let dialed = dial_as(&pod, Site::v4(2), to, IN_VAIN);
            assert_eq!(dialed, Dialed::Unconnected, "{to}");
        }
        for to in own_addresses() {
            let dialed = dial_as(&pod, POD, to, IN_VAIN);
            assert_eq!(dialed, Dialed::Unconnected, "{to}");
        }
        assert_eq!((sessions(&reflector).await, sessions(&node).await), before);
    });
}

/// Starts the daemon of a host with a session to the reflector, and with the addresses of its
/// workload as neighbors that open the connection.
async fn with_pods_as_neighbors(site: Site) -> Speaker {
    let setup = Setup::fabric()
        .neighbor(Site::v4(1), ASN)
        .carrying(IPV4)
        .neighbor(POD, ASN)
        .carrying(IPV4)
        .passive()
        .neighbor(POD_V6, ASN)
        .carrying(IPV6)
        .passive();
    let started = Speaker::start(Kind::Client, site, &setup).await;
    let client = started.expect("a process");
    let reflector = |one: &daemon_common::report::Neighbor| one.address == Some(Site::v4(1).into());
    client.has_up(reflector).await;
    client
}

/// Returns the set of exceptions, as `nft` lists it.
fn exceptions(table: &str) -> &str {
    let (_, rest) = table
        .split_once("set control-exceptions-ipv4")
        .unwrap_or_default();
    rest.split_once("\n\t}").map_or(rest, |(set, _)| set)
}
