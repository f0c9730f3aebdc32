//! What the running program tells scrapers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use datastore::serve::{ServeConfig, Server};
use datastore::{LeaseId, Local, Store};

use super::*;

/// An address on loopback that nobody listens on.
fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    listener.local_addr().expect("an address")
}

/// The numbers of one scrape.
fn scrape(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, page) = answer.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(page.ends_with("\n# EOF\n"), "{page}");
    Some(page.to_owned())
}

/// Scrapes until these lines are on the page.
async fn until(address: SocketAddr, lines: &[&str]) -> String {
    let mut last = None;
    let scraped = async {
        loop {
            let page = tokio::task::spawn_blocking(move || scrape(address));
            last = page.await.expect("scraped");
            if let Some(page) = &last {
                let has = |line: &&str| page.lines().any(|one| one == *line);
                if lines.iter().all(has) {
                    return page.clone();
                }
            }
        }
    };
    let page = timeout(DEADLINE, scraped).await.ok();
    page.unwrap_or_else(|| panic!("never: {lines:?}, but {last:?}"))
}

async fn put(store: &Local, kind: &str, name: &str, value: &str) {
    let key = format!("/calico/resources/v3/projectcalico.org/{kind}/{name}");
    let value = value.to_owned().into();
    let put = store.put(key.into(), value, LeaseId::NONE);
    put.await.expect("written");
}

/// A store without anything but that it is ready.
async fn store() -> (Local, SocketAddr) {
    let listen = vec!["127.0.0.1:0".parse().expect("an address")];
    let config = ServeConfig {
        listen,
        ..ServeConfig::default()
    };
    let server = Server::bind(config).await.expect("bound");
    let (store, address) = (server.store(), server.addresses()[0]);
    tokio::spawn(server.run(std::future::pending()));
    let ready = r#"{"spec":{"datastoreReady":true}}"#;
    put(&store, "clusterinformations", "default", ready).await;
    (store, address)
}

const GOOD: &str = r#"{"metadata":{"name":"p"},"spec":{"peerIP":"127.0.0.8","asNumber":64512}}"#;
const BROKEN: &str = r#"{"metadata":{"name":"p"},"spec":{"peerIP":"nowhere","asNumber":64512}}"#;

/// A value that cannot be read is counted as long as it is there, before the store has said what the
/// reflector is, and afterwards, when it costs nobody a session.
#[tokio::test]
async fn values_that_are_refused_are_counted_while_they_are() {
    let (store, at) = store().await;
    let (metrics, bgp) = (free(), free().port());
    let directory = tempfile::tempdir().expect("a directory");
    let (config, control) = (
        directory.path().join("rr.toml"),
        directory.path().join("rr.sock"),
    );
    let keys = format!(
        "control = {control:?}\nhostname = \"rr\"\n[metrics]\nlisten = \"{metrics}\"\n\
         [datastore]\nendpoints = [\"http://{at}\"]\n"
    );
    std::fs::write(&config, keys).expect("written");
    let process = start(&config, &[]).expect("the program starts");
    let _reflector = Reflector { process, directory };

    until(
        metrics,
        &["cambric_store_in_sync 1", "cambric_store_bad_values 0"],
    )
    .await;
    put(&store, "bgppeers", "p", BROKEN).await;
    let page = until(metrics, &["cambric_store_bad_values 1", "cambric_ready 0"]).await;
    assert!(!page.contains("cambric_neighbor"), "{page}");
    put(&store, "bgppeers", "p", GOOD).await;
    until(metrics, &["cambric_store_bad_values 0"]).await;

    let settings = format!(r#"{{"spec":{{"listenPort":{bgp},"bindMode":"NodeIP"}}}}"#);
    put(&store, "bgpconfigurations", "default", &settings).await;
    let node = r#"{"metadata":{"name":"rr"},"spec":{"bgp":{"ipv4Address":"127.0.0.7/8"}}}"#;
    put(&store, "nodes", "rr", node).await;
    let page = until(metrics, &["cambric_table_paths 0"]).await;
    let neighbors = |page: &str| {
        let lines = page
            .lines()
            .filter(|line| line.starts_with("cambric_neighbor_up{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let before = neighbors(&page);
    assert_eq!(before.len(), 1, "{page}");
    put(&store, "bgppeers", "p", BROKEN).await;
    let page = until(metrics, &["cambric_store_bad_values 1"]).await;
    assert_eq!(neighbors(&page), before, "the last good one stays");
    put(&store, "bgppeers", "p", GOOD).await;
    until(metrics, &["cambric_store_bad_values 0"]).await;
}

/// Sessions in numbers, as they come and go; and who connects and says nothing is in nobody's way.
#[tokio::test]
async fn sessions_are_told_while_a_scraper_is_slow() {
    let metrics = free();
    let directory = tempfile::tempdir().expect("a directory");
    let (config, control) = (
        directory.path().join("rr.toml"),
        directory.path().join("rr.sock"),
    );
    let keys = format!("control = {control:?}\n{CONFIG}\n[metrics]\nlisten = \"{metrics}\"\n");
    std::fs::write(&config, keys).expect("written");
    let process = start(&config, &[]).expect("the program starts");
    let reflector = Reflector { process, directory };
    until(metrics, &["cambric_ready 1"]).await;
    let _slow = TcpStream::connect(metrics).expect("connected");

    let mut one = client(2, reflector.address().await);
    up(&mut [&mut one]).await;
    let of = |what: &str, number: u8| {
        format!("cambric_neighbor_{what}{{neighbor=\"127.0.0.0/24-127.0.0.2\"}} {number}")
    };
    let (is_up, once) = (of("up", 1), of("established_total", 1));
    let page = until(metrics, &[&is_up, &once]).await;
    let daemon = "cambric_build_info{daemon=\"cambric-route-reflector\",version=\"";
    assert!(page.contains(daemon), "{page}");
    assert!(!page.contains("cambric_store"), "{page}");
}

#[test]
fn an_address_that_is_none_or_is_taken_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("rr.toml");
    let control = directory.path().join("rr.sock");
    let write = |listen: &str| {
        let keys = format!("control = {control:?}\n{CONFIG}\n[metrics]\nlisten = \"{listen}\"\n");
        std::fs::write(&config, keys).expect("written");
    };
    write("127.0.0.1");
    let (good, said) = outcome(&config, &["--check"]);
    assert!(!good && said.contains("rr.toml:15:10"), "{said}");

    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address");
    write(&address.to_string());
    let (good, said) = outcome(&config, &[]);
    let words = format!("metrics: cannot listen on {address}");
    assert!(!good && said.contains(&words), "{said}");
}
