//! Origin validation of the running program: the datastore, a client with a session, and the
//! operator's commands.

use daemon_common::command::EventQuery;
use daemon_common::report::{OriginFigures, Path};

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
    let waits = reflector.until(what, |status| {
        status.origins.as_deref().is_some_and(&wanted)
    });
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

/// Lets a node announce a route before its record arrives, with a mode of the daemon, and possibly
/// one of the node's BGPPeer. Returns the path as it was before.
async fn unconfirmed(mode: &str, own_mode: Option<&str>) -> Path {
    let (store, at) = store().await;
    let (own, node, port) = (own_address().ip(), own_address().ip(), two_ports());
    let settings = format!(r#"{{"spec":{{"listenPort":{port},"bindMode":"NodeIP"}}}}"#);
    put(&store, "bgpconfigurations", "default", &settings).await;
    let rr = format!(r#"{{"spec":{{"bgp":{{"ipv4Address":"{own}/8"}}}}}}"#);
    put(&store, "nodes", "rr", &rr).await;
    // A loopback address is not a valid next hop, so the node has another address, too.
    let n2 = format!(
        r#"{{"spec":{{"bgp":{{"ipv4Address":"{node}/8"}},"addresses":[{{"address":"10.0.0.2"}}]}}}}"#
    );
    put(&store, "nodes", "n2", &n2).await;
    if let Some(mode) = own_mode {
        let peer = format!(
            r#"{{"metadata":{{"annotations":{{"cambric.io/origin-validation":"{mode}"}}}},
                "spec":{{"node":"rr","peerIP":"{node}"}}}}"#
        );
        put(&store, "bgppeers", "n2", &peer).await;
    }
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

    let endpoint = r#"{"spec":{"node":"n2","ipNetworks":["10.65.0.1/32"]}}"#;
    put(&store, "workloadendpoints", "ns/e", endpoint).await;
    let is_confirmed = |figures: &OriginFigures| figures.unconfirmed + figures.pending == 0;
    let status = until((&reflector, &mut client), "it is confirmed", is_confirmed).await;
    let figures = status.origins.expect("counts");
    assert_eq!(figures.reported, [("n2".to_owned(), 1)].into());
    assert!(figures.excluded.is_empty());
    let used = reflector.routes().await.routes.remove(0).paths.remove(0);
    assert!(used.best);
    path
}
