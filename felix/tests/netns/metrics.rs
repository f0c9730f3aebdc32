//! Metrics with Calico's names, as a scraper gets them. Needs root and `CAMBRIC_LAB=1`.

use std::cell::RefCell;
use std::time::Instant;

use daemon_common::{Command, Reply};
use netns_lab::Exposition;
use serde_json::json;

use crate::world::host::{Host, OPEN, PATIENCE, RESOURCES, announce, pair, workload};
use crate::world::{lab, run, try_run};

pub(crate) fn scrape(host: &Host, at: &str) -> Option<Exposition> {
    let scrape = netns_lab::scrape(at.parse().unwrap());
    host.handle().block_on(scrape).ok()
}

fn wait(host: &Host, at: &str, what: &str, wanted: impl Fn(&Exposition) -> bool) {
    let last = RefCell::new(None);
    let deadline = Instant::now() + PATIENCE;
    while !last.borrow().as_ref().is_some_and(&wanted) {
        assert!(Instant::now() < deadline, "{what}: {last:#?}");
        last.replace(scrape(host, at));
    }
}

// Promise (Felix): Metrics of Felix have the names of Calico's, and the values of this host.
#[test]
fn metrics_of_calico_have_the_values_of_the_host() {
    lab("metrics_of_calico_have_the_values_of_the_host", || {
        let (mut host, _one, _two) = pair();
        let local = "127.0.0.1:9091";
        assert!(scrape(&host, local).is_none(), "off by default");
        let rule = json!({"action": "Allow", "source": {"selector": "all()"}});
        let policy = json!({"spec": {"selector": "all()", "ingress": [rule]}});
        host.put(&format!("{RESOURCES}globalnetworkpolicies/p"), &policy);
        let other = json!({
            "metadata": {"name": "n2-k8s-x-eth0", "namespace": "ns"},
            "spec": {"orchestrator": "k8s", "node": "n2", "pod": "x", "endpoint": "eth0",
                "interfaceName": "cali9", "ipNetworks": ["10.65.0.9/32"]},
        });
        host.put(
            &format!("{RESOURCES}workloadendpoints/ns/n2-k8s-x-eth0"),
            &other,
        );
        let node = json!({"spec": {"bgp": {"ipv4Address": "10.0.0.11/24"}}});
        host.put(&format!("{RESOURCES}nodes/n1"), &node);
        host.configure(&json!({"prometheusMetricsEnabled": true}));
        wait(&host, local, "the numbers", |page| {
            page.has(&[
                ("felix_active_local_endpoints", 2),
                ("felix_active_local_policies", 1),
                ("felix_active_local_selectors", 1),
                ("felix_cluster_num_hosts", 1),
                ("felix_cluster_num_policies", 1),
                ("felix_cluster_num_workload_endpoints", 3),
                ("felix_int_dataplane_failures", 0),
                // Of the selector, and of all pools.
                ("felix_ipsets_calico{ip_version=\"ipv4\"}", 2),
                ("felix_resync_state", 3),
                ("felix_resyncs_started", 1),
                ("felix_route_table_num_ifaces", 2),
            ])
        });
        let page = scrape(&host, local).expect("a page");
        let table = run("nft list table inet cambric-felix");
        let chains = table.matches("\tchain ").count() as u64;
        let arp = run("nft list table arp cambric-felix")
            .matches("\tchain ")
            .count() as u64;
        assert_eq!(page.value("felix_nft_chains"), Some(chains + arp));
        assert!(page.value("felix_calc_graph_updates_processed") >= Some(6));

        // The kernel rejects a route, because another program has its place.
        let _three = workload(3);
        run("ip route add 10.65.0.3/32 dev lo proto 99 metric 256");
        announce(&host, 3, OPEN);
        let failures = "felix_int_dataplane_failures";
        wait(&host, local, "a failure", |page| {
            page.value(failures) > Some(0)
        });

        // The key of the file has precedence.
        host.stop();
        host.settings = "metrics.listen = \"127.0.0.1:9092\"".into();
        host.start();
        let count = ("felix_active_local_endpoints", 3);
        wait(&host, "127.0.0.1:9092", "the file's address", |page| {
            page.has(&[count])
        });
        assert!(scrape(&host, local).is_none(), "only where the file has it");
    });
}

#[test]
fn metrics_are_served_over_tls_with_files() {
    lab("metrics_are_served_over_tls_with_files", || {
        let host = Host::new();
        let files = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../daemon-common/src/scrape_tls/files"
        );
        let file = |name: &str| format!("{files}/{name}");
        host.configure(&json!({"prometheusMetricsEnabled": true,
            "prometheusMetricsCertFile": file("server.pem"),
            "prometheusMetricsKeyFile": file("server.key"),
            "prometheusMetricsCAFile": file("ca.pem"),
            "prometheusMetricsClientAuth": "RequireAndVerifyClientCert"}));
        let ca = file("ca.pem");
        let url = "https://localhost:9091/metrics";
        let own = format!("--cert {} --key {}", file("client.pem"), file("client.key"));
        let served = |more: &str| {
            let output = try_run(&format!("curl -s -m 5 --cacert {ca} {more} {url}"));
            String::from_utf8_lossy(&output.stdout).contains("felix_resync_state")
        };
        host.until("a page over TLS", || served(&own));
        assert!(!served(""), "without a certificate");
        assert!(scrape(&host, "127.0.0.1:9091").is_none(), "without TLS");
        // A missing part closes it.
        host.configure(&json!({"prometheusMetricsEnabled": true,
            "prometheusMetricsCertFile": file("server.pem")}));
        host.until("the reason", || match host.ask(&Command::Status {}) {
            Reply::Status(status) => {
                let words = "metrics are not served: prometheusMetricsKeyFile is missing";
                status.notes.iter().any(|note| note == words)
            }
            other => panic!("{other:?}"),
        });
        assert!(!served(&own) && scrape(&host, "127.0.0.1:9091").is_none());
    });
}
