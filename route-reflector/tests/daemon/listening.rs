//! The listening addresses of the running program, as the datastore configures them.

use std::net::TcpStream;

use calico_store::Store;
use etcd_lite::Local;

use super::metrics::{own_address, put, store};
use super::*;

/// Waits until it listens on exactly this address.
async fn listens(reflector: &Reflector, expected: &str) {
    let what = format!("it listens on {expected}");
    let there = |status: &Status| {
        let mut facts = status.facts.iter();
        facts.any(|fact| fact.name == "listening" && fact.value == expected)
    };
    reflector.until(&what, there).await;
}

/// Starts the reflector `rr` with the datastore at this address.
fn reflector_of(at: SocketAddr) -> Reflector {
    let directory = tempfile::tempdir().expect("a directory");
    let (config, control) = (
        directory.path().join("rr.toml"),
        directory.path().join("rr.sock"),
    );
    let keys = format!(
        "control = {control:?}\nhostname = \"rr\"\nguard = {{ enabled = false }}\n[datastore]\nendpoints = [\"http://{at}\"]\n"
    );
    std::fs::write(&config, keys).expect("written");
    let process = start(&config, &[]).expect("the program starts");
    Reflector { process, directory }
}

/// Configures the reflector `rr` to listen on the address of its node only.
async fn listen_at_node(store: &Local, port: u16, node: IpAddr) {
    let settings = format!(r#"{{"spec":{{"listenPort":{port},"bindMode":"NodeIP"}}}}"#);
    put(store, "bgpconfigurations", "default", &settings).await;
    let node = format!(r#"{{"spec":{{"bgp":{{"ipv4Address":"{node}/8"}}}}}}"#);
    put(store, "nodes", "rr", &node).await;
}

async fn is_stored(store: &Local, key: &str) -> bool {
    let found = store.get(key.to_owned().into()).await;
    found.expect("the store answers").is_some()
}

// Promise (Route reflectors): A reflector registers only after it listens.
/// Nodes dial a reflector as soon as it is registered. It claims its cluster ID before.
#[tokio::test]
async fn reflector_registers_only_after_it_listens() {
    const REGISTRATION: &str = "/cambric/v1/reflector/rr";
    let (store, at) = store().await;
    let (own, port) = (own_address().ip(), two_ports());
    listen_at_node(&store, port, IpAddr::from([192, 0, 2, 1])).await;
    let reflector = reflector_of(at);
    let refused = |status: &Status| {
        let mut notes = status.notes.iter();
        notes.any(|note| note.starts_with("cannot listen on 192.0.2.1:"))
    };
    reflector.until("it cannot listen", refused).await;
    assert!(is_stored(&store, "/cambric/v1/cluster/192.0.2.1").await);
    assert!(!is_stored(&store, REGISTRATION).await);

    listen_at_node(&store, port, own).await;
    let registered = async {
        while !is_stored(&store, REGISTRATION).await {
            tokio::task::yield_now().await;
        }
    };
    timeout(DEADLINE, registered).await.expect("it registers");
    TcpStream::connect((own, port)).expect("it listens");
}

// Promise: as bgp-io listen_addresses_change_without_session_reset
/// The addresses and the port of a node change, and its bind mode changes to all addresses; each
/// change takes effect without a restart.
#[tokio::test]
async fn a_node_that_moves_listens_where_it_is() {
    let (store, at) = store().await;
    let (first, second) = (own_address().ip(), own_address().ip());
    let port = two_ports();
    let listen = async |port: u16, mode: &str| {
        let spec = format!(r#"{{"spec":{{"listenPort":{port},"bindMode":"{mode}"}}}}"#);
        put(&store, "bgpconfigurations", "default", &spec).await;
    };
    let live = async |address: IpAddr| {
        let node = format!(r#"{{"spec":{{"bgp":{{"ipv4Address":"{address}/8"}}}}}}"#);
        put(&store, "nodes", "rr", &node).await;
    };
    listen(port, "NodeIP").await;
    live(first).await;
    let reflector = reflector_of(at);
    listens(&reflector, &format!("{first}:{port}")).await;
    assert!(TcpStream::connect((first, port)).is_ok());

    live(second).await;
    listens(&reflector, &format!("{second}:{port}")).await;
    assert!(TcpStream::connect((first, port)).is_err());
    assert!(TcpStream::connect((second, port)).is_ok());

    listen(port + 1, "NodeIP").await;
    listens(&reflector, &format!("{second}:{}", port + 1)).await;
    listen(port + 1, "None").await;
    let all = format!("0.0.0.0:{0} [::]:{0}", port + 1);
    listens(&reflector, &all).await;
    assert!(TcpStream::connect((first, port + 1)).is_ok());
    // The daemon waits for an address that the machine does not have, and reports it.
    listen(port + 1, "NodeIP").await;
    live(IpAddr::from([192, 0, 2, 1])).await;
    let named = format!("cannot listen on 192.0.2.1:{} yet", port + 1);
    let is_reported = |status: &Status| status.notes.iter().any(|note| note.starts_with(&named));
    reflector
        .until("a report of the port without a listener", is_reported)
        .await;
    live(first).await;
    listens(&reflector, &format!("{first}:{}", port + 1)).await;
    let is_reported = |status: &Status| status.notes.iter().all(|note| !note.contains("listen"));
    reflector.until("no report of listening", is_reported).await;
}
