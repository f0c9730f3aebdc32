//! Metrics of the running program.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};

use calico_store::{LeaseId, Store};
use etcd_lite::Local;
use etcd_lite::serve::{ServeConfig, Server};
use netns_lab::{Exposition, Scraper};

use super::*;

/// Returns a loopback address that no other test uses or dials from.
pub(super) fn own_address() -> SocketAddr {
    static TAKEN: AtomicU8 = AtomicU8::new(0);
    let nth = TAKEN.fetch_add(1, Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, high | 128, low, nth);
    SocketAddr::new(ip.into(), 9180)
}

/// Scrapes until these series have these values.
async fn until(scraper: &mut Scraper, series: &[(&str, u64)]) -> Exposition {
    let what = format!("{series:?}");
    let scraped = scraper.until(DEADLINE, &what, |page| page.has(series));
    scraped.await.expect("a page as wanted")
}

/// Writes a resource, and returns the revision.
pub(super) async fn put(store: &Local, kind: &str, name: &str, value: &str) -> u64 {
    let key = format!("/calico/resources/v3/projectcalico.org/{kind}/{name}");
    let value = value.to_owned().into();
    let put = store.put(key.into(), value, LeaseId::NONE);
    let revision = put.await.expect("written");
    revision.0.try_into().expect("no sign")
}

/// Returns a datastore that is ready and otherwise empty.
pub(super) async fn store() -> (Local, SocketAddr) {
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

/// An invalid value is counted as long as it is stored: before the datastore configures the
/// reflector, and afterwards, when it resets no session.
#[tokio::test]
async fn values_that_are_refused_are_counted_while_they_are() {
    let (store, at) = store().await;
    let (metrics, node) = (own_address(), own_address().ip());
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

    let mut scraper = Scraper::new(metrics);
    let (in_sync, bad) = ("cambric_store_in_sync", "cambric_store_bad_values");
    until(&mut scraper, &[(in_sync, 1), (bad, 0)]).await;
    let broken = put(&store, "bgppeers", "p", BROKEN).await;
    let page = until(&mut scraper, &[(bad, 1), ("cambric_ready", 0)]).await;
    assert!(
        page.families()
            .all(|(name, _)| !name.starts_with("cambric_neighbor"))
    );
    assert_eq!(page.value("cambric_store_revision"), Some(broken));
    put(&store, "bgppeers", "p", GOOD).await;
    until(&mut scraper, &[(bad, 0)]).await;

    let settings = r#"{"spec":{"listenPort":1790,"bindMode":"NodeIP"}}"#;
    put(&store, "bgpconfigurations", "default", settings).await;
    let node = format!(r#"{{"spec":{{"bgp":{{"ipv4Address":"{node}/8"}}}}}}"#);
    put(&store, "nodes", "rr", &node).await;
    let page = until(&mut scraper, &[("cambric_table_paths", 0)]).await;
    let neighbors = |page: &Exposition| {
        let samples = page.samples();
        let up = samples.filter(|(series, _)| series.starts_with("cambric_neighbor_up{"));
        up.map(|(series, _)| series.to_owned()).collect::<Vec<_>>()
    };
    let before = neighbors(&page);
    assert_eq!(before.len(), 1, "{page:?}");
    put(&store, "bgppeers", "p", BROKEN).await;
    let page = until(&mut scraper, &[(bad, 1)]).await;
    assert_eq!(neighbors(&page), before, "the last good one stays");
    put(&store, "bgppeers", "p", GOOD).await;
    until(&mut scraper, &[(bad, 0)]).await;
}

/// Counts of sessions change with the sessions; a silent connection to the metrics port does not
/// block other scrapers.
#[tokio::test]
async fn metrics_are_served_while_a_scraper_is_slow() {
    let metrics = own_address();
    let directory = tempfile::tempdir().expect("a directory");
    let (config, control) = (
        directory.path().join("rr.toml"),
        directory.path().join("rr.sock"),
    );
    let keys = format!("control = {control:?}\n{CONFIG}\n[metrics]\nlisten = \"{metrics}\"\n");
    std::fs::write(&config, keys).expect("written");
    let process = start(&config, &[]).expect("the program starts");
    let reflector = Reflector { process, directory };
    let mut scraper = Scraper::new(metrics);
    until(&mut scraper, &[("cambric_ready", 1)]).await;
    let _slow = TcpStream::connect(metrics).expect("connected");

    let mut one = client(2, reflector.address().await);
    up(&mut [&mut one]).await;
    let of = |what| format!("cambric_neighbor_{what}{{neighbor=\"127.0.0.0/24-127.0.0.2\"}}");
    let (is_up, often) = (of("up"), of("established_total"));
    let page = until(&mut scraper, &[(&is_up, 1), (&often, 1)]).await;
    let daemon = "cambric_build_info{daemon=\"cambric-route-reflector\",version=\"";
    assert!(page.samples().any(|(series, _)| series.starts_with(daemon)));
    assert!(
        page.families()
            .all(|(name, _)| !name.starts_with("cambric_store"))
    );
}

#[test]
fn invalid_or_used_metrics_address_is_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("rr.toml");
    let control = directory.path().join("rr.sock");
    let write = |listen: &str| {
        let keys = format!("control = {control:?}\n{CONFIG}\n[metrics]\nlisten = \"{listen}\"\n");
        std::fs::write(&config, keys).expect("written");
    };
    write("127.0.0.1");
    let (good, output) = outcome(&config, &["--check"]);
    assert!(!good && output.contains("rr.toml:16:10"), "{output}");

    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address");
    write(&address.to_string());
    let (good, output) = outcome(&config, &[]);
    let words = format!("metrics: cannot listen on {address}");
    assert!(!good && output.contains(&words), "{output}");
}
