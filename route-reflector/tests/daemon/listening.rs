//! Where the running program listens, as the store says it.

use std::net::TcpStream;

use super::metrics::{own_address, put, store};
use super::*;

/// Waits until it listens there, and nowhere else.
async fn listens(reflector: &Reflector, expected: &str) {
    let what = format!("it listens on {expected}");
    let there = |status: &Status| {
        let mut facts = status.facts.iter();
        facts.any(|fact| fact.name == "listening" && fact.value == expected)
    };
    reflector.until(&what, there).await;
}

/// A node whose daemon listens on its addresses alone gets others, and another port, and listens on all;
/// nothing of that waits for a restart.
#[tokio::test]
async fn a_node_that_moves_listens_where_it_is() {
    let (store, at) = store().await;
    let (first, second) = (own_address().ip(), own_address().ip());
    let directory = tempfile::tempdir().expect("a directory");
    let (config, control) = (
        directory.path().join("rr.toml"),
        directory.path().join("rr.sock"),
    );
    let keys = format!(
        "control = {control:?}\nhostname = \"rr\"\nguard = {{ enabled = false }}\n[datastore]\nendpoints = [\"http://{at}\"]\n"
    );
    std::fs::write(&config, keys).expect("written");
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
    let process = start(&config, &[]).expect("the program starts");
    let reflector = Reflector { process, directory };
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
    // An address that the machine does not have is waited for, and named.
    listen(port + 1, "NodeIP").await;
    live(IpAddr::from([192, 0, 2, 1])).await;
    let named = format!("cannot listen on 192.0.2.1:{} yet", port + 1);
    let told = |status: &Status| status.notes.iter().any(|note| note.starts_with(&named));
    reflector
        .until("it says where it cannot listen", told)
        .await;
    live(first).await;
    listens(&reflector, &format!("{first}:{}", port + 1)).await;
    let told = |status: &Status| status.notes.iter().all(|note| !note.contains("listen"));
    reflector.until("it says nothing of listening", told).await;
}
