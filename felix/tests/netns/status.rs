//! Felix's reports about endpoints, with a real kernel. Needs root and `CAMBRIC_LAB=1`.

use std::collections::BTreeMap;

use crate::world::host::{Host, OPEN, PATIENCE, announce, key, mac, workload};
use crate::world::{Workload, lab, run};
use calico_model::EndpointFile;
use calico_store::{KeyRange, Revision, WatchRequest};
use daemon_common::command::EventQuery;
use daemon_common::report::{EventPage, EventRecord};
use daemon_common::{Command, Reply};
use serde_json::{Value, json};

const UP: &str = EndpointFile::UP;
const ERROR: &str = EndpointFile::ERROR;

const STATUS: &str = "/calico/felix/v2/no-region/host/n1/";

/// Returns everything that Felix reports into the datastore, by the rest of its key.
fn reported(host: &Host) -> BTreeMap<String, Value> {
    let list = host.store.list(KeyRange::prefix(STATUS));
    let listing = host.handle().block_on(list).unwrap();
    let items = listing.items.iter().map(|item| {
        let key = String::from_utf8_lossy(&item.key).replace(STATUS, "");
        (key, serde_json::from_slice(&item.value).unwrap())
    });
    items.collect()
}

fn endpoint_of(host: &Host, pod: &str) -> Option<Value> {
    reported(host).remove(&format!("workload/k8s/ns%2f{pod}/endpoint/eth0"))
}

/// Creates a host that reports endpoints quickly.
fn reporting() -> Host {
    let host = Host::new();
    host.configure(&json!({
        "endpointReportingEnabled": true, "endpointReportingDelay": "10ms",
        "reportingInterval": "1s", "reportingTTL": "3s",
    }));
    host
}

/// Waits until the endpoint is rejected in every view; returns the reason.
fn refused(host: &Host, pod: &str) -> String {
    host.until("an error", || {
        let status = endpoint_of(host, pod);
        status.is_some_and(|status| status["status"] == "error")
    });
    let reason = endpoint_of(host, pod).unwrap()["reason"].clone();
    host.until("a file", || {
        let file = host.file(ERROR, pod);
        file.is_some_and(|file| file["reason"] == reason)
    });
    let endpoints = host.endpoints().endpoints;
    let name = format!("ns/n1-k8s-{pod}-eth0");
    let shown = endpoints.iter().find(|endpoint| endpoint.name == name);
    let shown = shown.expect("it is shown");
    assert_eq!(shown.state, "error");
    assert_eq!(shown.problem.as_deref(), reason.as_str());
    reason.as_str().unwrap().to_owned()
}

fn up(host: &Host, pod: &str) {
    host.until("up", || {
        endpoint_of(host, pod) == Some(json!({"status": "up"}))
    });
}

// Promise: as felix plugins_find_a_file_while_an_endpoint_is_up
#[test]
fn rejected_endpoint_is_reported_with_its_reason() {
    lab("rejected_endpoint_is_reported_with_its_reason", || {
        let host = reporting();
        let (_one, _two) = (workload(1), workload(2));
        announce(&host, 1, OPEN);
        up(&host, "w1");

        // An interface and an address that another endpoint has; the rejected endpoint takes over.
        host.endpoint("w2", "cali1", None, &["10.65.0.2/32"], OPEN);
        let reason = refused(&host, "w2");
        assert_eq!(reason, "cali1 is the interface of endpoint k8s/ns/w1/eth0");
        host.endpoint("w2", "cali2", None, &["10.65.0.1/32"], OPEN);
        host.until("another reason", || {
            endpoint_of(&host, "w2").is_some_and(|status| status["reason"] != reason.as_str())
        });
        let reason = refused(&host, "w2");
        assert_eq!(
            reason,
            "10.65.0.1 is the address of endpoint k8s/ns/w1/eth0"
        );
        host.delete(&key("w1"));
        up(&host, "w2");
        assert_eq!(endpoint_of(&host, "w1"), None, "its key goes with it");

        // A foreign route in place of Felix's.
        run("ip route add 10.65.0.3/32 dev uplink proto static metric 256");
        host.endpoint("w2", "cali2", None, &["10.65.0.3/32"], OPEN);
        let reason = refused(&host, "w2");
        assert!(reason.contains("route to 10.65.0.3 is refused"), "{reason}");
        run("ip route del 10.65.0.3/32 dev uplink proto static metric 256");
        up(&host, "w2");
    });
}

#[test]
fn unclaimed_interface_is_reported() {
    lab("unclaimed_interface_is_reported", || {
        let host = reporting();
        let (one, two) = (workload(1), workload(2));
        announce(&host, 2, OPEN);
        up(&host, "w2");
        let unclaimed = || {
            let unclaimed = host.endpoints().unclaimed.into_iter();
            unclaimed.map(|one| one.interface).collect::<Vec<_>>()
        };
        assert_eq!(unclaimed(), ["cali1"]);
        assert!(one.namespace.is_cut_off("10.65.0.2") && two.namespace.is_cut_off("10.65.0.1"));
        announce(&host, 1, OPEN);
        up(&host, "w1");
        assert!(unclaimed().is_empty());
        assert!(one.namespace.pings("10.65.0.2"));
    });
}

#[test]
fn prefixes_of_interfaces_change_while_it_runs() {
    lab("prefixes_of_interfaces_change_while_it_runs", || {
        let host = reporting();
        let tap = Workload::new("tap1", &mac(1), Some("10.65.0.1"), None);
        let _cali = workload(2);
        announce(&host, 2, OPEN);
        host.endpoint("w1", "tap1", Some(&mac(1)), &["10.65.0.1/32"], OPEN);
        up(&host, "w2");
        up(&host, "w1");
        assert!(tap.namespace.pings("10.65.0.2"));
        let settings = |prefixes: &str| {
            host.configure(&json!({
                "endpointReportingEnabled": true, "endpointReportingDelay": "10ms",
                "interfacePrefix": prefixes,
            }));
        };
        settings("cali");
        let reason = refused(&host, "w1");
        assert!(reason.contains("tap1 does not begin with"), "{reason}");
        assert!(!run("ip route show proto 80").contains("tap1"));
        settings("cali,tap");
        up(&host, "w1");
        assert!(tap.namespace.pings("10.65.0.2"));
        // Reports start again under the keys of another region.
        host.configure(&json!({
            "endpointReportingEnabled": true, "endpointReportingDelay": "10ms",
            "openstackRegion": "east",
        }));
        let east = "/calico/felix/v2/region-east/host/n1/workload/";
        host.until("two keys", || {
            let list = host.store.list(KeyRange::prefix(east));
            host.handle().block_on(list).unwrap().items.len() == 2
        });
    });
}

/// Returns the first report under a key, whatever the later ones.
fn first_of(host: &Host, key: &str) -> Value {
    let range = KeyRange::key(format!("{STATUS}{key}"));
    let expected = host.handle().block_on(async {
        let from = WatchRequest::from(range, Revision(1));
        let mut watch = host.store.watch(from).await.unwrap();
        watch.next().await.unwrap()
    });
    serde_json::from_slice(&expected.events[0].item.value).unwrap()
}

// Promise (Felix): A dead agent is detected by its lease.
#[test]
fn a_dead_felix_is_seen_by_its_lease() {
    lab("a_dead_felix_is_seen_by_its_lease", || {
        let mut host = reporting();
        let alive = |host: &Host| reported(host).remove("status");
        host.until("the first report", || alive(&host).is_some());
        let first = first_of(&host, "status");
        assert_eq!(first["first_update"], true);
        assert!(first["uptime"].as_f64().unwrap() >= 10.0, "{first}");
        host.until("more reports", || {
            let last = reported(&host).remove("last_reported_status");
            last.is_some_and(|report| report["first_update"] == false)
        });
        host.stop();
        host.until("the end of the lease", || alive(&host).is_none());
        let last = reported(&host).remove("last_reported_status").unwrap();
        assert_eq!(last["first_update"], false);
        assert!(last["time"].as_str().unwrap().ends_with('Z'), "{last}");
    });
}

// Promise (Felix): The reported state of an endpoint is its state in the kernel, and a rejected
// endpoint has its reason.
#[test]
fn plugins_find_a_file_while_an_endpoint_is_up() {
    lab("plugins_find_a_file_while_an_endpoint_is_up", || {
        let mut host = Host::new();
        let _one = workload(1);
        announce(&host, 1, OPEN);
        host.until("a file", || host.file(UP, "w1").is_some());
        // The file exists only after everything else.
        let routes = run("ip route show proto 80") + &run("ip -6 route show proto 80");
        assert!(routes.contains("10.65.0.1 dev cali1"), "{routes}");
        assert!(routes.contains("fd65::1 dev cali1"), "{routes}");
        let rules = run("nft list table inet cambric-felix");
        assert!(rules.contains("\"cali1\" . 10.65.0.1"), "{rules}");
        let link = run("ip -o link show cali1");
        let index: u32 = link.split(':').next().unwrap().parse().unwrap();
        let expected = json!({
            "ifaceName": "cali1", "mac": mac(1), "ifIndex": index,
            "ipv4Nets": ["10.65.0.1/32"], "ipv6Nets": ["fd65::1/128"],
        });
        assert_eq!(host.file(UP, "w1"), Some(expected));

        run("ip link set cali1 down");
        host.until("no file", || host.file(UP, "w1").is_none());
        run("ip link set cali1 up");
        host.until("a file again", || host.file(UP, "w1").is_some());

        // The reason of a rejected endpoint is elsewhere.
        host.endpoint("w2", "eth7", None, &["10.65.0.2/32"], OPEN);
        host.until("a reason", || host.file(ERROR, "w2").is_some());
        let refused = host.file(ERROR, "w2").unwrap();
        let reason = refused["reason"].as_str().unwrap();
        assert!(reason.contains("eth7 does not begin"), "{reason}");
        assert_eq!(host.file(UP, "w2"), None);

        // Files survive the program; those of endpoints that were deleted in the meantime are
        // removed at its start.
        host.stop();
        assert!(host.file(UP, "w1").is_some());
        host.delete(&key("w1"));
        host.start();
        host.until("no file", || host.file(UP, "w1").is_none());
        host.delete(&key("w2"));
        host.until("no reason", || host.file(ERROR, "w2").is_none());
    });
}

fn events(host: &Host, query: EventQuery) -> EventPage {
    match host.ask(&Command::Events(query)) {
        Reply::Events(page) => page,
        other => panic!("{other:?}"),
    }
}

/// Waits for the next event of a watch that has this name.
fn watched(host: &Host, watch: Option<u64>, after: &mut u64, name: &str) -> EventRecord {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        assert!(std::time::Instant::now() < deadline, "no {name}");
        let query = EventQuery {
            watch,
            after: Some(*after),
            wait: true,
            ..EventQuery::default()
        };
        let page = events(host, query);
        let found = page.events.into_iter().find(|event| event.event == name);
        if let Some(event) = found {
            *after = event.number;
            return event;
        }
        *after = page.next;
    }
}

// Promise: as bgp-client events_of_a_route_are_in_order
#[test]
fn kernel_routes_are_reported_one_by_one_while_watched() {
    lab(
        "kernel_routes_are_reported_one_by_one_while_watched",
        || {
            let host = Host::new();
            let _one = workload(77);
            let query = EventQuery {
                prefix: Some("10.65.0.77/32".parse().unwrap()),
                wait: true,
                ..EventQuery::default()
            };
            let watch = events(&host, query).watch;
            let mut after = 0;
            announce(&host, 77, OPEN);
            let installed = watched(&host, watch, &mut after, "route.installed");
            assert_eq!(installed.fields["prefix"], "10.65.0.77/32");
            host.delete(&key("w77"));
            let deleted = watched(&host, watch, &mut after, "route.deleted");
            assert_eq!(deleted.fields["prefix"], "10.65.0.77/32");
            assert_eq!(deleted.fields["cause"], "withdrawn");
        },
    );
}
