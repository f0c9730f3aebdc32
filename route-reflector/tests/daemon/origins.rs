//! Origin validation of the running program: the datastore, a client with a session, and the
//! operator's commands.

use daemon_common::command::EventQuery;
use daemon_common::report::{OriginFigures, Path};
use etcd_lite::serve::{ServeConfig, Server};
use etcd_lite::{Core, CoreConfig, Local};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::metrics::{own_address, put, store};
use super::*;

/// Returns a client that dials from this address.
fn client_at(own: IpAddr, reflector: SocketAddr) -> Io {
    let text = format!(
        "asn = 64512\nrouter_id = \"{own}\"\nlisten = []\n[[neighbor]]\naddress = \"{}\"\n\
         port = {}\nsource = \"{own}\"\nasn = 64512\n",
        reflector.ip(),
        reflector.port()
    );
    let source = Source::new("client.toml", text);
    let (_, intent) = BgpFile::<NoKernel>::read(&source, NextHops::AssumeReachable).expect("good");
    Io::new(Speaker::new(intent.speaker, 7), IoConfig::default()).expect("no sockets")
}

/// Waits for counts, while the client's session goes on.
async fn until(
    (reflector, client): (&Reflector, &mut Io),
    what: &str,
    wanted: impl Fn(&OriginFigures) -> bool,
) -> Status {
    let wanted = |status: &Status| status.origins.as_deref().is_some_and(&wanted);
    until_status((reflector, client), what, wanted).await
}

async fn until_status(
    (reflector, client): (&Reflector, &mut Io),
    what: &str,
    wanted: impl Fn(&Status) -> bool,
) -> Status {
    let waits = reflector.until(what, wanted);
    let turns = async {
        loop {
            client.next().await;
        }
    };
    tokio::select! {
        status = waits => status,
        () = turns => unreachable!("the client takes turns for ever"),
    }
}

// Promise: as bgp-daemon route_of_another_node_is_reported_after_five_seconds
#[tokio::test]
async fn route_without_record_is_reported_until_the_store_has_one() {
    let path = unconfirmed("warn", None).await;
    assert!(path.best, "the route stays in use");
}

// Promise: as bgp-daemon route_is_used_as_long_as_it_has_a_record
#[tokio::test]
async fn route_without_record_is_not_used_until_the_store_has_one() {
    unused(&unconfirmed("enforce", None).await);
}

// Promise: as bgp-daemon mode_of_a_neighbor_has_precedence_over_the_daemons
#[tokio::test]
async fn mode_of_a_bgppeer_applies_to_its_sessions() {
    unused(&unconfirmed("off", Some("enforce")).await);
    let path = unconfirmed("enforce", Some("warn")).await;
    assert!(path.best, "the route stays in use");
}

fn unused(path: &Path) {
    assert!(!path.best);
    let lost = path.lost.as_deref();
    assert_eq!(lost, Some("not eligible: origin not confirmed"));
}

/// Turns of the loop in five seconds without a change: keepalives and timers. A loop that does not
/// wait takes more in a tenth of a second.
const IDLE_TURNS_MAX: u64 = 1_000;

#[tokio::test]
async fn daemon_with_a_datastore_waits_while_nothing_changes() {
    let (store, at) = store().await;
    let addresses = (own_address().ip(), own_address().ip(), two_ports());
    record(&store, addresses).await;
    let (reflector, mut client) = begin("warn", at, addresses).await;
    let before = until((&reflector, &mut client), "it answers", |_| true).await;
    // The event of a path without a record comes after five seconds.
    let query = EventQuery {
        name: Some("route.unconfirmed".to_owned()),
        wait: true,
        ..EventQuery::default()
    };
    let reported = async {
        loop {
            match reflector.call(Command::Events(query.clone())).await {
                Ok(Reply::Events(page)) if page.events.is_empty() => {}
                Ok(Reply::Events(_)) => return,
                other => panic!("{other:?}"),
            }
        }
    };
    let turns = async {
        loop {
            client.next().await;
        }
    };
    tokio::select! {
        () = reported => {}
        () = turns => unreachable!("the client takes turns for ever"),
    }
    let is_reported = |figures: &OriginFigures| figures.unconfirmed == 1;
    let after = until((&reflector, &mut client), "it is reported", is_reported).await;
    let turns = after.turns.expect("counted") - before.turns.expect("counted");
    assert!(turns < IDLE_TURNS_MAX, "{turns} turns");
}

/// Writes the Nodes of a reflector and a client, with the port of the reflector.
async fn record(store: &Local, (own, node, port): (IpAddr, IpAddr, u16)) {
    let settings = format!(r#"{{"spec":{{"listenPort":{port},"bindMode":"NodeIP"}}}}"#);
    put(store, "bgpconfigurations", "default", &settings).await;
    let rr = format!(r#"{{"spec":{{"bgp":{{"ipv4Address":"{own}/8"}}}}}}"#);
    put(store, "nodes", "rr", &rr).await;
    // A loopback address is not a valid next hop, so the node has another address, too.
    let n2 = format!(
        r#"{{"spec":{{"bgp":{{"ipv4Address":"{node}/8"}},"addresses":[{{"address":"10.0.0.2"}}]}}}}"#
    );
    put(store, "nodes", "n2", &n2).await;
}

/// Starts a reflector with a datastore, and a client that announces a route.
async fn begin(
    mode: &str,
    at: SocketAddr,
    (own, node, port): (IpAddr, IpAddr, u16),
) -> (Reflector, Io) {
    let directory = tempfile::tempdir().expect("a directory");
    let (config, control) = (
        directory.path().join("rr.toml"),
        directory.path().join("rr.sock"),
    );
    let keys = format!(
        "control = {control:?}\nhostname = \"rr\"\nguard = {{ enabled = false }}\n\
         origin_validation = \"{mode}\"\n[datastore]\nendpoints = [\"http://{at}\"]\n"
    );
    std::fs::write(&config, keys).expect("written");
    let process = start(&config, &[]).expect("the program starts");
    let reflector = Reflector { process, directory };
    let mut client = client_at(node, SocketAddr::new(own, port));
    up(&mut [&mut client]).await;
    client.handle(Input::Local {
        family: Family::IPV4_UNICAST,
        net: Net::V4(prefix()),
        attributes: Some(Attributes {
            next_hop: Some(NextHop::V4(Ipv4Addr::new(10, 0, 0, 2))),
            ..Attributes::default()
        }),
        interface: None,
    });
    (reflector, client)
}

/// A datastore that is served until the sender is dropped.
type Served = (Local, SocketAddr, oneshot::Sender<()>, JoinHandle<()>);

/// Serves an empty datastore of this cluster ID.
async fn served(cluster: u64, at: SocketAddr) -> Served {
    let core = Core::new(CoreConfig {
        cluster,
        ..CoreConfig::default()
    });
    let config = ServeConfig {
        listen: vec![at],
        ..ServeConfig::default()
    };
    let server = Server::bind_core(core, config).await.expect("bound");
    let (store, at) = (server.store(), server.addresses()[0]);
    let (stop, stopped) = oneshot::channel();
    let end = async move {
        let stopped = async { drop(stopped.await) };
        server.run(stopped).await.expect("no fault");
    };
    (store, at, stop, tokio::spawn(end))
}

const READY: &str = r#"{"spec":{"datastoreReady":true}}"#;
const ENDPOINT: &str = r#"{"spec":{"node":"n2","ipNetworks":["10.65.0.1/32"]}}"#;

/// Lets a reflector use a route, and restores the datastore with a cluster ID from a backup without
/// the record of the route. Returns the path when the reflector has noticed that.
async fn restored(cluster: u64, noticed: impl Fn(&Status) -> bool) -> Path {
    let (store, at, stop, end) = served(7, own_address()).await;
    let addresses = (own_address().ip(), own_address().ip(), two_ports());
    put(&store, "clusterinformations", "default", READY).await;
    record(&store, addresses).await;
    put(&store, "workloadendpoints", "ns/e", ENDPOINT).await;
    let (reflector, mut client) = begin("enforce", at, addresses).await;
    let in_sync = |figures: &OriginFigures| figures.in_sync;
    until((&reflector, &mut client), "the records are read", in_sync).await;
    let is_used = async || {
        let mut routes = reflector.routes().await.routes.into_iter();
        routes.any(|route| route.paths.iter().any(|path| path.best))
    };
    while !is_used().await {
        client.next().await;
    }

    drop((stop, store));
    end.await.expect("no panic");
    let (store, _, _stop, _) = served(cluster, at).await;
    record(&store, addresses).await;
    put(&store, "clusterinformations", "default", READY).await;
    until_status((&reflector, &mut client), "it is restored", noticed).await;
    reflector.routes().await.routes.remove(0).paths.remove(0)
}

// Promise: as bgp-daemon route_is_used_as_long_as_it_has_a_record
#[tokio::test]
async fn route_without_record_in_a_restored_cluster_is_unused() {
    let is_excluded = |status: &Status| {
        let figures = status.origins.as_deref();
        figures.is_some_and(|figures| !figures.excluded.is_empty())
    };
    unused(&restored(8, is_excluded).await);
}

/// Lets a node announce a route before its record arrives, with a mode of the daemon, and possibly
/// one of the node's BGPPeer. Returns the path as it was before.
async fn unconfirmed(mode: &str, own_mode: Option<&str>) -> Path {
    let (store, at) = store().await;
    let (own, node, port) = (own_address().ip(), own_address().ip(), two_ports());
    record(&store, (own, node, port)).await;
    if let Some(mode) = own_mode {
        let peer = format!(
            r#"{{"metadata":{{"annotations":{{"cambric.io/origin-validation":"{mode}"}}}},
                "spec":{{"node":"rr","peerIP":"{node}"}}}}"#
        );
        put(&store, "bgppeers", "n2", &peer).await;
    }
    let (reflector, mut client) = begin(mode, at, (own, node, port)).await;
    let reported = |figures: &OriginFigures| figures.unconfirmed == 1;
    let status = until((&reflector, &mut client), "it is reported", reported).await;
    let mut facts = status.facts.iter();
    let fact = facts.find(|fact| fact.name == "origin validation");
    let value = fact.map(|fact| fact.value.as_str());
    let own = own_mode.map(|own| format!(", {own} for 1 of the neighbors"));
    let mode = format!("{mode}{}", own.unwrap_or_default());
    let expected = format!("{mode}, records in-sync, 1 unconfirmed, 0 pending, oldest for ");
    assert!(
        value.is_some_and(|value| value.starts_with(&expected)),
        "{value:?}"
    );
    let mut notes = status.notes.iter();
    assert!(
        notes.any(|note| note.starts_with("1 route of a neighbor")),
        "{status:?}"
    );
    let path = reflector.routes().await.routes.remove(0).paths.remove(0);
    assert_eq!(path.unconfirmed.as_deref(), Some("no record of the node"));
    let query = EventQuery {
        name: Some("route.unconfirmed".to_owned()),
        ..EventQuery::default()
    };
    let page = match reflector.call(Command::Events(query)).await {
        Ok(Reply::Events(page)) => page,
        other => panic!("{other:?}"),
    };
    let event = format!("{:?}", page.events);
    assert_eq!(page.events.len(), 1, "{event}");
    assert!(
        event.contains("n2") && event.contains("10.65.0.1/32"),
        "{event}"
    );

    put(&store, "workloadendpoints", "ns/e", ENDPOINT).await;
    let is_confirmed = |figures: &OriginFigures| figures.unconfirmed + figures.pending == 0;
    let status = until((&reflector, &mut client), "it is confirmed", is_confirmed).await;
    let figures = status.origins.expect("counts");
    assert_eq!(figures.reported, [("n2".to_owned(), 1)].into());
    assert!(figures.excluded.is_empty());
    let used = reflector.routes().await.routes.remove(0).paths.remove(0);
    assert!(used.best);
    path
}
