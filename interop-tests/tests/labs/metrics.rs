//! The metrics of a host's daemons while the fabric around them changes. Each page is parsed
//! strictly, and no counter may decrease.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use calico_store::Revision;
use interop_tests::{Ground, Kind, Own, PATIENCE, Site, Speaker, Store, in_ground, own};
use netns_lab::{Exposition, Process, Program, Scraper};

const BGP: u16 = 9179;
const FELIX: u16 = 9091;

/// The address of a lab's datastore.
const STORE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 254)), 2379);

/// An endpoint of host 1 with the interface `cali0`, which the lab has made.
const ENDPOINT: &str = "ns/h1-k8s-web-eth0";

/// Returns the metrics address of a daemon on host 1.
fn at(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Site::v4(1)), port)
}

/// Returns the configuration lines that enable a daemon's metrics.
fn scraped(port: u16) -> String {
    format!("metrics = {{ listen = \"{}\" }}\n", at(port))
}

/// Scrapes until these series have these values.
async fn until(scraper: &mut Scraper, series: &[(&str, u64)]) -> Exposition {
    let what = format!("{series:?}");
    let page = scraper.until(PATIENCE, &what, |page| page.has(series));
    page.await.expect("a page as wanted")
}

/// Scrapes until the revision `then` is applied, with these values.
async fn applied(scraper: &mut Scraper, then: Revision, series: &[(&str, u64)]) -> Exposition {
    let then = u64::try_from(then.0).expect("no sign");
    let what = format!("revision {then} and {series:?}");
    let is_there = |page: &Exposition| page.value("cambric_store_revision") >= Some(then);
    let page = scraper.until(PATIENCE, &what, |page| is_there(page) && page.has(series));
    page.await.expect("a page as wanted")
}

/// Writes a resource, and returns the revision.
async fn put(store: &Store, plural: &str, name: &str, text: &str) -> Revision {
    store.put(plural, name, text).await;
    store.written(plural, name).await
}

fn value(page: &Exposition, series: &str) -> u64 {
    let value = page.value(series);
    value.unwrap_or_else(|| panic!("no {series}: {page:#?}"))
}

/// Starts two nodes of a full mesh, the first one with metrics and a snapshot.
async fn nodes(ground: &Ground, store: &Store) -> (Speaker, Speaker) {
    for number in [1, 2] {
        store.node(number, "").await;
    }
    let site = ground.site(1).await.expect("a host");
    let kept = site.host.directory().join("bgp-client.snapshot");
    let kept = format!("datastore_snapshot = {{ file = {kept:?} }}\n");
    let (stores, keys) = ([STORE], format!("{}{kept}", scraped(BGP)));
    let one = Speaker::start_stored_with(Kind::Client, site, &stores, &keys);
    (one.expect("started"), ground.stored(Kind::Client, 2).await)
}

// Promise (Daemons): Metrics are OpenMetrics text and follow the state of the fabric.
#[test]
fn client_metrics_have_sessions_routes_and_store() {
    let name = "client_metrics_have_sessions_routes_and_store";
    in_ground(&[], name, async |ground| {
        let store = ground.store().await.expect("a store");
        let (mut one, mut two) = nodes(&ground, &store).await;
        let mut bgp = Scraper::new(at(BGP));
        let neighbor =
            |what: &str| format!("cambric_neighbor_{what}{{neighbor=\"Mesh_10_0_0_2\"}}");
        let (is_up, often) = (neighbor("up"), neighbor("established_total"));
        let store_is = [
            ("cambric_store_in_sync", 1),
            ("cambric_store_away", 0),
            ("cambric_store_unready", 0),
            ("cambric_store_snapshot", 0),
            ("cambric_store_bad_values", 0),
        ];
        let sessions = [
            (&*is_up, 1),
            ("cambric_table_paths", 0),
            ("cambric_ready", 1),
        ];
        let page = until(&mut bgp, &[store_is.as_slice(), &sessions].concat()).await;
        assert_eq!(value(&page, "cambric_kernel_writes_total"), 0);
        assert_eq!(value(&page, "cambric_store_silent_seconds") / 60, 0);
        assert!(value(&page, &often) >= 1);

        // A route is added, and removed.
        let received =
            "cambric_neighbor_paths_received{neighbor=\"Mesh_10_0_0_2\",family=\"ipv4-unicast\"}";
        let route = Own::plain("10.65.0.2/32".parse().expect("a prefix"));
        two.announce(&route).await.expect("announced");
        let installed = "cambric_kernel_routes_installed";
        let held = [(received, 1), (installed, 1), ("cambric_table_prefixes", 1)];
        let page = until(&mut bgp, &held).await;
        let updates = value(&page, &neighbor("updates_in_total"));
        assert_eq!(value(&page, "cambric_kernel_writes_total"), 1);
        two.withdraw(route.net).await.expect("withdrawn");
        let page = until(&mut bgp, &[(received, 0), (installed, 0)]).await;
        assert!(value(&page, &neighbor("updates_in_total")) > updates);
        assert_eq!(value(&page, "cambric_kernel_writes_total"), 2);

        // An invalid value, and one without a change.
        let bad = r#"{"spec":{"peerIP":"nowhere","asNumber":64700}}"#;
        let then = put(&store, "bgppeers", "tor", bad).await;
        applied(&mut bgp, then, &[("cambric_store_bad_values", 1)]).await;
        store.delete("bgppeers", "tor").await;
        until(&mut bgp, &[("cambric_store_bad_values", 0)]).await;

        // A neighbor's daemon is killed.
        two.kill().await.expect("killed");
        let page = until(&mut bgp, &[(&is_up, 0)]).await;
        let established = value(&page, &often);
        two.start_stored_again().expect("started");
        // Of two connections opened at the same time one may be taken for the session, and then the
        // other.
        let again =
            |page: &Exposition| page.has(&[(&is_up, 1)]) && page.value(&often) > Some(established);
        let again = bgp.until(PATIENCE, "one more session", again).await;
        again.expect("one more session");

        // The datastore stops: the state stays, also if the client starts without a datastore.
        let begun = |kept: Vec<u8>| !kept.is_empty();
        let snapshot = one.site.host.directory().join("bgp-client.snapshot");
        let written =
            netns_lab::until::<(), netns_lab::Error>(PATIENCE, "a snapshot", async || {
                let there = std::fs::read(&snapshot).is_ok_and(begun);
                Ok(there.then_some(()).ok_or_else(String::new))
            });
        written.await.expect("a snapshot");
        let page = until(&mut bgp, &store_is).await;
        let revision = value(&page, "cambric_store_revision");
        drop(store);
        let away = [("cambric_store_away", 1), ("cambric_store_in_sync", 0)];
        let page = until(&mut bgp, &[away.as_slice(), &[(&*is_up, 1)]].concat()).await;
        assert_eq!(value(&page, "cambric_store_revision"), revision);
        let silent = value(&page, "cambric_store_silent_seconds");
        assert!(silent >= 4, "{silent}");
        one.kill().await.expect("killed");
        one.start_stored_again().expect("started");
        let mut bgp = Scraper::new(at(BGP));
        let page = until(&mut bgp, &[("cambric_store_snapshot", 1), (&is_up, 1)]).await;
        assert!(value(&page, "cambric_store_revision") <= revision);
        assert_eq!(value(&page, "cambric_store_in_sync"), 0);
    });
}

fn felix(site: &Site) -> Process {
    let text = format!(
        "{}hostname = \"h1\"\ncontrol = {:?}\n[datastore]\nendpoints = [\"http://{STORE}\"]\n",
        scraped(FELIX),
        site.host.directory().join("felix.sock"),
    );
    let path = site.save("felix.toml", &text);
    let program = Program::new(own("cambric-felix")).arg("--config").arg(path);
    site.host.spawn("felix", &program).expect("Felix")
}

fn endpoint(interface: &str, networks: &str) -> String {
    format!(
        r#"{{"spec":{{"orchestrator":"k8s","node":"h1","workload":"web","pod":"web",
            "endpoint":"eth0","interfaceName":"{interface}","ipNetworks":["{networks}"],
            "profiles":["projectcalico-default-allow"]}}}}"#
    )
}

// Promise: as interop-tests client_metrics_have_sessions_routes_and_store
#[test]
fn felix_metrics_count_endpoints_by_state() {
    let name = "felix_metrics_count_endpoints_by_state";
    in_ground(&[], name, async |ground| {
        let store = ground.store().await.expect("a store");
        let site = ground.site(1).await.expect("a host");
        let _felix = felix(&site);
        let mut felix = Scraper::new(at(FELIX));
        let states = |[up, down, error]: [u64; 3]| {
            [
                ("cambric_endpoints{state=\"up\"}", up),
                ("cambric_endpoints{state=\"down\"}", down),
                ("cambric_endpoints{state=\"error\"}", error),
            ]
        };
        let (bad, routes) = (
            "cambric_store_bad_values",
            "cambric_kernel_routes_installed",
        );
        let unclaimed = "cambric_unclaimed_interfaces";
        let none = [("cambric_rules_in_sync", 1), (bad, 0), (unclaimed, 1)];
        let page = until(&mut felix, &[none.as_slice(), &states([0, 0, 0])].concat()).await;
        let transactions = value(&page, "cambric_rules_transactions_total");
        assert!(transactions >= 1);

        let key = "workloadendpoints";
        let good = endpoint("cali0", "10.65.0.9/32");
        let then = put(&store, key, ENDPOINT, &good).await;
        let up = [states([1, 0, 0]).as_slice(), &[(routes, 1), (unclaimed, 0)]].concat();
        let page = applied(&mut felix, then, &up).await;
        assert!(value(&page, "cambric_rules_transactions_total") > transactions);

        // Its peer interface goes down, and comes back.
        let links = site.host.links().expect("links");
        links.down("workload0").await.expect("down");
        until(
            &mut felix,
            &[states([0, 1, 0]).as_slice(), &[(routes, 0)]].concat(),
        )
        .await;
        links.up("workload0").await.expect("up");
        until(&mut felix, &up).await;

        // An invalid value keeps the last valid one in effect; a new key with an invalid value has
        // no effect.
        let then = put(&store, key, ENDPOINT, &endpoint("cali0", "nowhere")).await;
        applied(&mut felix, then, &[(bad, 1), (routes, 1)]).await;
        let other = "ns/h1-k8s-other-eth0";
        let then = put(&store, key, other, &endpoint("cali7", "nowhere")).await;
        applied(
            &mut felix,
            then,
            &[(bad, 2), ("cambric_endpoints{state=\"error\"}", 2)],
        )
        .await;
        store.delete(key, other).await;
        let then = put(&store, key, ENDPOINT, &good).await;
        applied(&mut felix, then, &[up.as_slice(), &[(bad, 0)]].concat()).await;

        // The datastore is not ready, and stops.
        let locked = r#"{"spec":{"clusterGUID":"lab","datastoreReady":false}}"#;
        store.put("clusterinformations", "default", locked).await;
        let unready = [("cambric_store_unready", 1), ("cambric_store_in_sync", 0)];
        until(&mut felix, &[unready.as_slice(), &up].concat()).await;
        drop(store);
        let away = [("cambric_store_away", 1), ("cambric_store_in_sync", 0)];
        until(&mut felix, &[away.as_slice(), &up].concat()).await;
    });
}
