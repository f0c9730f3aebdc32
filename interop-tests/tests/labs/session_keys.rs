//! The session key of a fabric with its configuration in the datastore is changed by the commands
//! of `docs/operate/session-keys.md`, host by host, under pings and changes of routes: two nodes of
//! the mesh and a route reflector.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use bgp_io::set_md5_key;
use daemon_common::report::Neighbor;
use interop_tests::{Ground, Kind, Own, PATIENCE, Site, Speaker, Store, in_ground, own};
use ipnet::IpNet;
use netns_lab::{Error, Flow, Pinger, Program, until};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// The secret as `cambric key` names it, which is its file below the directory of secrets, too.
const SECRET: &str = "bgp/fabric";

const CONFIGURATION: &str = r#"{"metadata":{"name":"default"},
    "spec":{"nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"fabric"}}}}"#;

/// The nodes; the third host is the route reflector.
const NODES: [usize; 2] = [0, 1];
const REFLECTOR: usize = 2;

/// How long one dial may take before it is repeated.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Of each session: how often it was reset, and its connection.
type Sessions = BTreeMap<String, (u64, Option<SocketAddr>, Option<SocketAddr>)>;

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

/// Returns the address of a node's workload.
fn workload(number: usize) -> IpNet {
    net(&format!("10.65.{number}.1/32"))
}

fn addresses(speaker: &Speaker) -> [IpAddr; 2] {
    let number = speaker.site.number;
    [Site::v4(number).into(), Site::v6(number).into()]
}

/// The keys of a secret.
struct Keys {
    used: String,
    second: Option<String>,
}

fn keys(site: &Site) -> Keys {
    let text = site.load(SECRET);
    let mut lines = text.lines().map(str::to_owned);
    let used = lines.next().expect("a key");
    let second = lines.next();
    Keys { used, second }
}

/// Copies the secret from one host to another, as a whole.
fn copy(from: &Site, to: &Site) {
    let new = to.save("bgp/.new", &from.load(SECRET));
    std::fs::rename(new, to.host.directory().join(SECRET)).expect("renamed");
}

/// Runs `cambric key` on a host; returns its output.
async fn cambric_key(site: &Site, words: &[&str]) -> String {
    let program = Program::new(own("cambric")).arg("key");
    let program = program.args(words.iter().copied()).arg("--dir");
    let program = program.arg(site.host.directory());
    let (status, text) = site.host.output(&program).await.expect("a process");
    assert!(status.success(), "{words:?}");
    String::from_utf8(text).expect("a report")
}

/// Dials the daemon of another host with one key.
async fn dial(on: &Site, from: &Site, key: &str) -> io::Result<TcpStream> {
    let to = Site::v4(on.number);
    let socket = from.host.run(TcpSocket::new_v4).expect("a thread")?;
    set_md5_key(&socket, to.into(), 32, key.as_bytes())?;
    socket.connect((to, 179).into()).await
}

/// Waits until the daemon on a host accepts a connection from another host with this key alone.
async fn accepts(on: &Site, from: &Site, key: &str) {
    let waited = until(PATIENCE, "a connection", async || {
        let opened = timeout(ATTEMPT, dial(on, from, key)).await;
        Ok::<_, Error>(match opened {
            Ok(Ok(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        })
    });
    waited.await.expect("the key is in effect");
}

/// Waits until the daemon on a host accepts a connection from another host with this key alone, and
/// asserts that it refuses one with any other of these keys: its kernel has dropped the segment by
/// the time when it accepts the next connection.
pub(crate) async fn accepts_only(on: &Site, from: &Site, key: &str, keys: &[&str]) {
    accepts(on, from, key).await;
    for other in keys.iter().filter(|other| **other != key) {
        let before = on.tcp_counter("TCPMD5Failure");
        let mut refused = pin!(dial(on, from, other));
        let at_once = timeout(Duration::ZERO, refused.as_mut()).await;
        assert!(at_once.is_err(), "host {}: {at_once:?}", on.number);
        accepts(on, from, key).await;
        let then = timeout(Duration::from_millis(100), refused).await;
        assert!(then.is_err(), "host {}: {then:?}", on.number);
        assert!(on.tcp_counter("TCPMD5Failure") > before);
    }
}

/// The fabric.
struct Fabric {
    _store: Store,
    hosts: Vec<Speaker>,
    /// Routes announced so far, for one more each time.
    routes: u8,
    /// Whether the reflector runs.
    reflects: bool,
}

impl Fabric {
    async fn new(ground: &Ground) -> Self {
        let store = ground.store().await.expect("a store");
        store
            .put("bgpconfigurations", "default", CONFIGURATION)
            .await;
        let kinds = [Kind::Client, Kind::Client, Kind::Reflector];
        let mut sites = Vec::new();
        for number in 1..=3 {
            store.node(number, "").await;
            let site = ground.site(number).await.expect("a host");
            std::fs::create_dir(site.host.directory().join("bgp")).expect("made");
            sites.push(site);
        }
        cambric_key(&sites[0], &["create", SECRET]).await;
        copy(&sites[0], &sites[1]);
        copy(&sites[0], &sites[2]);
        let mut hosts = Vec::new();
        for (site, kind) in sites.into_iter().zip(kinds) {
            let stores = [SocketAddr::new(Site::v4(254).into(), 2379)];
            hosts.push(Speaker::start_stored(kind, site, &stores).expect("a daemon"));
        }
        let fabric = Self {
            _store: store,
            hosts,
            routes: 10,
            reflects: true,
        };
        fabric.workloads().await;
        fabric.is_up().await;
        fabric
    }

    /// Announces a workload of each node. Its address answers pings.
    async fn workloads(&self) {
        for node in NODES {
            let site = &self.hosts[node].site;
            let links = site.host.links().expect("links");
            let address = workload(node);
            links.add_address("eth0", address).await.expect("added");
            let own = Own::plain(address);
            self.hosts[node].announce(&own).await.expect("announced");
        }
    }

    /// Waits until the sessions of all running daemons are up.
    async fn is_up(&self) {
        for (host, speaker) in self.running() {
            let others = self.running().filter(|(other, _)| *other != host);
            let expected: Vec<_> = others.flat_map(|(_, other)| addresses(other)).collect();
            let waited = until(PATIENCE, "all sessions", async || {
                let neighbors = speaker.neighbors().await.neighbors.into_iter();
                let up = neighbors.filter(|one| one.state == "Established");
                let up: Vec<_> = up.filter_map(|one| one.address).collect();
                let are = expected.iter().all(|address| up.contains(address));
                Ok::<_, Error>(are.then_some(()).ok_or_else(|| format!("{up:?}")))
            });
            if let Err(error) = waited.await {
                panic!("{error}\n{}", speaker.log_tail());
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = (usize, &Speaker)> {
        let hosts = self.hosts.iter().enumerate();
        hosts.filter(|(host, _)| *host != REFLECTOR || self.reflects)
    }

    /// Returns the sessions of these hosts with each other.
    async fn sessions(&self, hosts: &[usize]) -> Vec<Sessions> {
        let mut all = Vec::new();
        for host in hosts {
            let others = hosts.iter().filter(|other| *other != host);
            let others = others.flat_map(|other| addresses(&self.hosts[*other]));
            let others: Vec<IpAddr> = others.collect();
            let neighbors = self.hosts[*host].neighbors().await.neighbors.into_iter();
            let these = neighbors.filter(|one| one.address.is_some_and(|a| others.contains(&a)));
            let sessions = these.map(|one| {
                assert_eq!(one.state, "Established", "{}", one.name);
                (one.name, (one.flaps, one.local, one.remote))
            });
            all.push(sessions.collect());
        }
        all
    }

    /// Has each node announce another route of both families, and waits until it has arrived over
    /// every session; then withdraws it and waits until it is gone.
    async fn routes_pass(&mut self) {
        self.routes += 1;
        let number = self.routes;
        let paths = 1 + usize::from(self.reflects);
        let nets = |node| {
            let v4 = net(&format!("10.65.{node}.{number}/32"));
            [v4, net(&format!("fd65::{node}:{number}/128"))]
        };
        for node in NODES {
            for net in nets(node) {
                let done = self.hosts[node].announce(&Own::plain(net)).await;
                done.expect("announced");
            }
        }
        for node in NODES {
            for net in nets(1 - node) {
                self.has_paths(node, net, paths).await;
            }
        }
        for node in NODES {
            for net in nets(node) {
                self.hosts[node].withdraw(net).await.expect("withdrawn");
            }
        }
        for node in NODES {
            for net in nets(1 - node) {
                self.has_paths(node, net, 0).await;
            }
        }
    }

    async fn has_paths(&self, node: usize, net: IpNet, count: usize) {
        let what = format!("{count} paths to {net}");
        let waited = until(PATIENCE, &what, async || {
            let paths = self.hosts[node].paths(net).await;
            let from: Vec<_> = paths.into_iter().map(|path| path.neighbor).collect();
            let has = from.len() == count;
            Ok::<_, Error>(has.then_some(()).ok_or_else(|| format!("{from:?}")))
        });
        if let Err(error) = waited.await {
            panic!("{error}\n{}", self.hosts[node].log_tail());
        }
    }

    /// Waits until a host's daemon has the keys of its file, and asserts that its kernel accepts
    /// connections with the first one and refuses those with the others.
    async fn in_effect(&self, host: usize, all: &[&str]) {
        let speaker = &self.hosts[host];
        let Keys { used, second } = keys(&speaker.site);
        let has_second = |one: &Neighbor| one.keys.iter().any(|key| key.name == "second_password");
        let from = &self.hosts[usize::from(host == 0)].site;
        let waited = until(PATIENCE, "a session, and the keys", async || {
            let neighbors = speaker.neighbors().await.neighbors;
            let mut up = neighbors
                .iter()
                .filter(|one| one.state == "Established")
                .peekable();
            let is_up = up.peek().is_some();
            let applied = is_up && up.all(|one| has_second(one) == second.is_some());
            Ok::<_, Error>(applied.then_some(()).ok_or_else(String::new))
        });
        if let Err(error) = waited.await {
            panic!("{error}\n{}", speaker.log_tail());
        }
        accepts_only(&speaker.site, from, &used, all).await;
    }

    /// Takes one step on all hosts that run, one after the other. With `missing`, the reflector is
    /// down until the nodes have taken it, and comes back with the keys of the step before.
    async fn step(&mut self, words: &[&str], missing: bool) -> String {
        if missing {
            self.hosts[REFLECTOR].kill().await.expect("killed");
            self.reflects = false;
        }
        let before = keys(&self.hosts[0].site);
        let report = cambric_key(&self.hosts[0].site, words).await;
        let after = keys(&self.hosts[0].site);
        let all = [before.used.clone(), after.used.clone()];
        let all = all.into_iter().chain(before.second).chain(after.second);
        let all: Vec<String> = all.collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        for host in 0..self.hosts.len() {
            if host == REFLECTOR && missing {
                self.hosts[host].start_stored_again().expect("a daemon");
                self.reflects = true;
                self.is_up().await;
                self.routes_pass().await;
            }
            if host > 0 {
                copy(&self.hosts[0].site, &self.hosts[host].site);
            }
            self.in_effect(host, &all).await;
            self.routes_pass().await;
        }
        report
    }

    /// Changes the key as on the operators' page.
    async fn rotate(&mut self, missing: bool) {
        let begun = self.step(&["rotate", "begin", SECRET], missing).await;
        let (_, new) = begun.split_once(" is used, ").expect("two keys");
        let (new, _) = new.split_once(' ').expect("the name of a key");
        let switch = ["rotate", "switch", SECRET, "--to", new];
        self.step(&switch, missing).await;
        let end = ["rotate", "end", SECRET, "--keep", new];
        let ended = self.step(&end, missing).await;
        assert!(
            ended.trim_end().ends_with(&format!("1 key: {new}")),
            "{ended}"
        );
    }

    /// Starts pings between the workloads, in both directions.
    async fn pings(&self) -> Vec<(Pinger, Flow)> {
        let mut flows = Vec::new();
        for node in NODES {
            let Site { number, host } = &self.hosts[node].site;
            let pinger = Pinger::open(host, Site::v4(*number), Site::v6(*number));
            let pinger = pinger.expect("a pinger");
            let to = workload(1 - node).addr();
            let waited = until(PATIENCE, "pings", async || {
                let answer = pinger.ping(to, Duration::from_millis(200)).await;
                Ok::<_, Error>(answer.map(drop).ok_or_else(String::new))
            });
            waited.await.expect("an answer");
            let flow = pinger.flow(to, Duration::from_millis(10));
            flows.push((pinger, flow));
        }
        flows
    }
}

// Promise: as bgp-io key_changes_under_an_established_session
#[test]
fn session_key_of_fabric_changes_without_a_reset() {
    let name = "session_key_of_fabric_changes_without_a_reset";
    in_ground(&[], name, async |ground| {
        let mut fabric = Fabric::new(&ground).await;
        fabric.routes_pass().await;
        let first = keys(&fabric.hosts[0].site).used;
        let flows = fabric.pings().await;
        let before = fabric.sessions(&[0, 1, 2]).await;
        fabric.rotate(false).await;
        assert_eq!(fabric.sessions(&[0, 1, 2]).await, before);
        let second = keys(&fabric.hosts[0].site).used;
        let nodes = fabric.sessions(&NODES).await;
        fabric.rotate(true).await;
        assert_eq!(fabric.sessions(&NODES).await, nodes);
        for (_pinger, flow) in flows {
            let report = flow.stop().await;
            assert!(report.sent > 0 && report.lost() == 0, "{report:?}");
        }
        for host in 0..fabric.hosts.len() {
            fabric.in_effect(host, &[&first, &second]).await;
        }
    });
}
