//! A node is ready when packets can follow its routes; and a drained node is the last choice.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use daemon_common::report::{DrainFigures, Status};
use interop_tests::{Ground, Kind, PATIENCE, Site, Speaker, Store, in_ground, own};
use netns_lab::{Error, Process, Program, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The address of a lab's datastore.
pub(crate) const STORE: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254)), 2379);

const HEALTH: u16 = 9098;

/// The block of node 1, and a service of both nodes.
const BLOCK: &str = "10.65.1.0/26";
const SERVICE: &str = "10.96.0.0/12";

/// Starts two nodes of a full mesh, the first one with probes.
async fn nodes(ground: &Ground, store: &Store, site: Site) -> [Speaker; 2] {
    for number in [1, 2] {
        store.node(number, "").await;
    }
    let health = SocketAddr::new(Site::v4(1).into(), HEALTH);
    let keys = format!("health = {{ listen = \"{health}\" }}\n");
    let one = Speaker::start_stored_with(Kind::Client, site, &[STORE], &keys);
    [one.expect("started"), ground.stored(Kind::Client, 2).await]
}

fn missing(status: &Status) -> Vec<&str> {
    let readiness = status.readiness.iter();
    let missing = readiness.flat_map(|readiness| &readiness.missing);
    missing.filter_map(|line| line.split(':').next()).collect()
}

/// Returns the status code of a probe of node 1, and the answer.
async fn probe(path: &str) -> (String, String) {
    let health = SocketAddr::new(Site::v4(1).into(), HEALTH);
    let mut stream = TcpStream::connect(health).await.expect("connected");
    let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let code = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    (code, answer)
}

pub(crate) fn save_felix(site: &Site, number: u8) {
    let text = format!(
        "hostname = \"h{number}\"\ncontrol = {:?}\n[datastore]\nendpoints = [\"http://{STORE}\"]\n",
        site.host.directory().join("felix.sock"),
    );
    site.save("felix.toml", &text);
}

pub(crate) fn start_felix(site: &Site) -> Process {
    let path = site.host.directory().join("felix.toml");
    let program = Program::new(own("cambric-felix")).arg("--config").arg(path);
    site.host.spawn("felix", &program).expect("Felix")
}

// Promise: as bgp-client host_is_ready_when_felix_has_programmed_it
#[test]
fn node_is_ready_only_when_felix_has_programmed_it() {
    let name = "node_is_ready_only_when_felix_has_programmed_it";
    in_ground(&[], name, async |ground| {
        let store = ground.store().await.expect("a store");
        let site = ground.site(1).await.expect("a host");
        save_felix(&site, 1);
        let [one, mut two] = nodes(&ground, &store, site).await;
        let waits = |status: &Status| missing(status) == ["felix"];
        one.reports("only Felix is missing", waits).await;
        let (code, answer) = probe("/readiness").await;
        assert_eq!(code, "503", "{answer}");
        assert!(
            answer.contains("felix: Felix has not programmed"),
            "{answer}"
        );
        assert_eq!(probe("/liveness").await.0, "200");

        let mut felix = start_felix(&one.site);
        let ready = |status: &Status| missing(status).is_empty();
        one.reports("it is ready", ready).await;
        assert_eq!(probe("/readiness").await.0, "200");

        // Rules and routes stay while Felix is away.
        felix.kill().await.expect("killed");
        let _felix = start_felix(&one.site);
        assert_eq!(probe("/readiness").await.0, "200");
        one.reports("it is still ready", ready).await;

        // Without any neighbor there are no routes.
        two.stop().await.expect("stopped");
        let alone = |status: &Status| missing(status) == ["end-of-rib"];
        one.reports("its neighbor is missing", alone).await;
        two.start_stored_again().expect("started");
        one.reports("it is ready again", ready).await;
    });
}

/// Waits until node 2 has a route of node 1 as the last choice, or as usual.
async fn is_last_choice(two: &Speaker, route: &str, wanted: bool) {
    let net = route.parse().expect("a prefix");
    let what = format!("{route} is the last choice: {wanted}");
    let waited = until(PATIENCE, &what, async || {
        let paths = two.paths(net).await;
        let from = |path: &&daemon_common::report::Path| path.neighbor != "local";
        let found = paths
            .iter()
            .find(from)
            .map(|path| path.local_pref == Some(0));
        let is_so = found == Some(wanted);
        Ok::<_, Error>(is_so.then_some(()).ok_or_else(|| format!("{paths:?}")))
    });
    if let Err(error) = waited.await {
        panic!("{error}\n{}", two.log_tail());
    }
}

fn stage(status: &Status) -> Option<&str> {
    let drain: Option<&DrainFigures> = status.drain.as_deref();
    drain.map(|drain| drain.stage.as_str())
}

// Promise: as bgp-daemon services_are_drained_before_workloads_and_sessions_stay
#[test]
fn drained_node_is_the_last_choice_also_after_a_restart() {
    let name = "drained_node_is_the_last_choice_also_after_a_restart";
    in_ground(&[], name, async |ground| {
        let store = ground.store().await.expect("a store");
        let services = format!(
            r#"{{"metadata":{{"name":"default"}},
                "spec":{{"serviceClusterIPs":[{{"cidr":"{SERVICE}"}}]}}}}"#
        );
        store.put("bgpconfigurations", "default", &services).await;
        store.block(1, BLOCK).await;
        let site = ground.site(1).await.expect("a host");
        let [mut one, two] = nodes(&ground, &store, site).await;
        two.is_up().await;
        for route in [SERVICE, BLOCK] {
            is_last_choice(&two, route, false).await;
        }
        let drain = "/cambric/v1/drain/h1";
        store.write(drain, r#"{"since":"noon"}"#).await;
        let drained = |status: &Status| stage(status) == Some("drained");
        one.reports("it is drained", drained).await;
        for route in [SERVICE, BLOCK] {
            is_last_choice(&two, route, true).await;
        }
        one.kill().await.expect("killed");
        one.start_stored_again().expect("started");
        one.reports("it is drained after a restart", drained).await;
        one.is_up().await;
        for route in [SERVICE, BLOCK] {
            is_last_choice(&two, route, true).await;
        }
        store.remove(drain).await;
        for route in [SERVICE, BLOCK] {
            is_last_choice(&two, route, false).await;
        }
        one.reports("it is no longer drained", |status| stage(status).is_none())
            .await;
    });
}
