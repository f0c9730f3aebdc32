use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use netns_lab::{Exposition, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::page::render;
use crate::control::Control;
use crate::limits::{CONNECTIONS_MAX, METRICS_READ};
use crate::report::{
    EndpointFigures, FelixFigures, FlowFigures, KernelFigures, LogFigures, Neighbor,
    NeighborFamily, NeighborRange, Neighbors, OriginFigures, ProcessFigures, Status, StoreFigures,
};
use crate::{Command, Reply};

/// A status that has everything that any daemon has.
fn everything() -> (Status, Neighbors) {
    let status = Status {
        daemon: "cambric-test".into(),
        version: "1.2.3".into(),
        uptime_s: 7,
        resident_kib: Some(2),
        turns: Some(8),
        ready: true,
        notes: vec!["a".into(), "b".into()],
        log: Some(Box::new(LogFigures {
            lost_warn: 6,
            ..LogFigures::default()
        })),
        store: Some(Box::new(StoreFigures {
            bad_values: 3,
            revision: Some(11),
            answered_s: Some(4),
            registered: Some(true),
            ..StoreFigures::default()
        })),
        tables: Some(Box::default()),
        origins: Some(Box::new(OriginFigures {
            reported: [("node7".to_owned(), 2)].into(),
            excluded: [("node8".to_owned(), 3)].into(),
            ..OriginFigures::default()
        })),
        kernel: Some(Box::new(KernelFigures {
            wanted: 5,
            installed: 4,
            ..KernelFigures::default()
        })),
        bfd: Some(Box::default()),
        endpoints: Some(Box::new(EndpointFigures {
            down: 2,
            ..EndpointFigures::default()
        })),
        flows: Some(Box::new(FlowFigures {
            lost: 12,
            unsent: 13,
            ..FlowFigures::default()
        })),
        felix: Some(Box::new(FelixFigures {
            active_local_endpoints: 2,
            int_dataplane_failures: 5,
            ipsets_calico: [3, 1],
            resync_state: 3,
            ..FelixFigures::default()
        })),
        process: Some(Box::new(ProcessFigures {
            cpu_ms: Some(1230),
            open_fds: Some(9),
            max_fds: Some(1024),
            virtual_memory_bytes: Some(4096),
            virtual_memory_max_bytes: Some(u64::MAX),
            resident_memory_bytes: Some(2048),
            start_ms: Some(1_700_000_000_500),
        })),
        ..Status::default()
    };
    let neighbor = Neighbor {
        name: "a \"b\"\\\nc".into(),
        since_s: Some(1),
        flaps: 2,
        messages_in: u64::MAX,
        families: vec![NeighborFamily {
            family: "ipv4-unicast".into(),
            received: 9,
            sent: Some(4),
            ..NeighborFamily::default()
        }],
        ..Neighbor::default()
    };
    let range = NeighborRange {
        prefix: "10.0.0.0/24".parse().ok(),
        used: 3,
        limit: 5,
        failed: [("wrong AS".to_owned(), 6)].into(),
        ..NeighborRange::default()
    };
    let neighbors = Neighbors {
        neighbors: vec![neighbor],
        ranges: vec![range],
        ..Neighbors::default()
    };
    (status, neighbors)
}

fn page() -> String {
    let (status, neighbors) = everything();
    render(status, neighbors, events()).expect("it is text")
}

/// The families of a page, as their samples are called, each with its type.
fn families(page: &Exposition) -> BTreeMap<String, Type> {
    let families = page.families();
    families
        .map(|(family, kind)| (format!("{family}{}", kind.suffix()), kind))
        .collect()
}

#[test]
fn a_page_is_open_metrics_text() {
    let page = Exposition::read(&page()).expect("a page");
    let mut families = page.families();
    let prefixes = ["cambric_", "felix_", "process_"];
    assert!(families.all(|(family, _)| prefixes.iter().any(|one| family.starts_with(one))));
    let neighbor = "{neighbor=\"a \\\"b\\\"\\\\\\nc\"}";
    let series = format!("cambric_neighbor_messages_in_total{neighbor}");
    assert_eq!(page.value(&series), Some(u64::MAX));
}

#[test]
fn page_has_the_values_of_the_reports() {
    let page = page();
    for line in [
        "cambric_build_info{daemon=\"cambric-test\",version=\"1.2.3\"} 1",
        "cambric_flow_log_lost_records_total 12",
        "cambric_flow_log_unsent_records_total 13",
        "cambric_uptime_seconds 7",
        "cambric_resident_memory_bytes 2048",
        "cambric_loop_turns_total 8",
        "cambric_ready 1",
        "cambric_notes 2",
        "cambric_log_lines_lost_total{level=\"warn\"} 6",
        "cambric_store_in_sync 0",
        "cambric_store_bad_values 3",
        "cambric_store_revision 11",
        "cambric_store_silent_seconds 4",
        "cambric_store_registered 1",
        "cambric_origin_paths_excluded{neighbor=\"node8\"} 3",
        "cambric_kernel_routes_wanted 5",
        "cambric_kernel_routes_installed 4",
        "cambric_endpoints{state=\"down\"} 2",
        "felix_active_local_endpoints 2",
        "felix_int_dataplane_failures 5",
        "felix_ipsets_calico{ip_version=\"ipv4\"} 3",
        "felix_ipsets_calico{ip_version=\"ipv6\"} 1",
        "felix_resync_state 3",
        "process_cpu_seconds_total 1.23",
        "process_open_fds 9",
        "process_max_fds 1024",
        "process_virtual_memory_max_bytes 18446744073709551615",
        "process_start_time_seconds 1700000000.5",
        "cambric_range_neighbors{range=\"10.0.0.0/24\"} 3",
        "cambric_range_limit{range=\"10.0.0.0/24\"} 5",
        "cambric_range_handshakes_failed_total{range=\"10.0.0.0/24\",reason=\"wrong AS\"} 6",
        "cambric_neighbor_up{neighbor=\"a \\\"b\\\"\\\\\\nc\"} 1",
        "cambric_neighbor_established_total{neighbor=\"a \\\"b\\\"\\\\\\nc\"} 3",
        "cambric_neighbor_paths_received{neighbor=\"a \\\"b\\\"\\\\\\nc\",family=\"ipv4-unicast\"} 9",
    ] {
        assert!(page.lines().any(|one| one == line), "{line} in\n{page}");
    }
}

/// Metrics of a status; counters without an event start at 0.
#[test]
fn store_state_is_shown_in_words_and_metrics() {
    let of = |figures: StoreFigures| {
        let words = figures.to_string();
        let status = Status {
            uptime_s: 9,
            store: Some(figures.into()),
            ..Status::default()
        };
        let page = render(status, Neighbors::default(), events()).expect("it is text");
        let page = Exposition::read(&page).expect("a page");
        let value = |name: &str| page.value(&format!("cambric_store_{name}"));
        (words, ["revision", "silent_seconds", "snapshot"].map(value))
    };
    let never = StoreFigures::default();
    let expected = (
        "syncing, no answer yet".to_owned(),
        [None, Some(9), Some(0)],
    );
    assert_eq!(of(never.clone()), expected);
    let kept = StoreFigures {
        snapshot_age_s: Some(5),
        revision: Some(7),
        ..never
    };
    let words = "not read, revision 7, a snapshot that was 5 s old at the start, no answer yet";
    assert_eq!(of(kept), (words.to_owned(), [Some(7), Some(9), Some(1)]));
    let figures = |in_sync, away, unready| StoreFigures {
        in_sync,
        away,
        unready,
        revision: Some(8),
        answered_s: Some(3),
        ..StoreFigures::default()
    };
    for (figures, words) in [
        (figures(true, false, false), "in sync"),
        (figures(false, true, false), "away"),
        (figures(false, false, true), "not ready"),
    ] {
        let words = format!("{words}, revision 8, answered 3 s ago");
        assert_eq!(of(figures), (words, [Some(8), Some(3), Some(0)]));
    }
}

#[test]
fn metrics_page_omits_parts_that_a_daemon_lacks() {
    let page = render(Status::default(), Neighbors::default(), events()).expect("it is text");
    for absent in ["store", "kernel", "endpoints", "neighbor"] {
        assert!(!page.contains(&format!("cambric_{absent}")), "{page}");
    }
    assert!(
        !page.contains("felix_") && !page.contains("process_"),
        "{page}"
    );
}

/// Every name of a page is on the operators' page, with its type, and the other way round.
#[test]
fn the_operators_page_names_them_all() {
    let page = Exposition::read(&page()).expect("a page");
    let documented = include_str!("../../../docs/operate/metrics.md");
    let rows = documented.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let name = cells.next()?.trim_end_matches('`');
        let name = name.split('{').next()?;
        let prefixes = ["cambric_", "felix_", "process_"];
        let is_metric = prefixes.iter().any(|one| name.starts_with(one));
        is_metric.then_some((name.to_owned(), cells.next()?.to_owned()))
    });
    let samples = families(&page).into_iter().map(|(name, kind)| {
        let kind = format!("{kind:?}").to_lowercase();
        (name, kind)
    });
    let (rows, samples): (BTreeSet<_>, BTreeSet<_>) = (rows.collect(), samples.collect());
    assert_eq!(rows, samples);
}

/// The metrics of Calico's Felix that Felix has under the same names, with the type of each. A name may
/// only be added: dashboards and alerts have them.
#[test]
fn names_of_calico_are_listed() {
    let page = Exposition::read(&page()).expect("a page");
    let all = families(&page).into_iter();
    let of_calico = all.filter(|(name, _)| name.starts_with("felix_"));
    let listed = of_calico.collect::<Vec<_>>();
    let gauges = [
        "felix_active_local_endpoints",
        "felix_active_local_policies",
        "felix_active_local_selectors",
        "felix_cluster_num_host_endpoints",
        "felix_cluster_num_hosts",
        "felix_cluster_num_policies",
        "felix_cluster_num_profiles",
        "felix_cluster_num_tiers",
        "felix_cluster_num_workload_endpoints",
        "felix_ipsets_calico",
        "felix_nft_chains",
        "felix_nft_rules",
        "felix_nft_sets",
        "felix_resync_state",
        "felix_route_table_num_ifaces",
    ];
    // Counters of Calico, which have no suffix.
    let counts = [
        "felix_calc_graph_updates_processed",
        "felix_int_dataplane_failures",
        "felix_resyncs_started",
    ];
    let gauges = gauges.map(|name| (name.to_owned(), Type::Gauge));
    let counts = counts.map(|name| (name.to_owned(), Type::Unknown));
    let mut wanted = [&gauges[..], &counts].concat();
    wanted.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(listed, wanted);
}

fn events() -> Vec<(&'static str, u64)> {
    vec![("session.closed", 3), ("session.established", 0)]
}

/// A daemon that answers, and the address of its metrics.
async fn daemon() -> (tempfile::TempDir, SocketAddr) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut control = Control::bind(directory.path().join("c.sock")).expect("bound");
    let any = "127.0.0.1:0".parse().expect("an address");
    let address = control.bind_metrics(any).expect("bound");
    tokio::spawn(async move {
        loop {
            let request = control.next().await;
            let (status, neighbors) = everything();
            let reply = match request.command {
                Command::Status {} => Reply::Status(status),
                Command::Neighbors {} => Reply::Neighbors(neighbors),
                _ => Reply::error("not asked here"),
            };
            request.reply(reply);
        }
    });
    (directory, address)
}

/// A page without the counts of other tests in this process.
fn without_events(page: &str) -> Vec<&str> {
    let lines = page.lines();
    lines
        .filter(|line| !line.contains("cambric_events_total"))
        .collect()
}

async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    // A client that is rejected before all of its request is read gets a reset after the answer.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).expect("text")
}

#[tokio::test]
async fn a_scrape_is_answered_and_nothing_else() {
    let (_directory, address) = daemon().await;
    let answer = exchange(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    let kind = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert!(head.contains(kind), "{head}");
    assert_eq!(without_events(body), without_events(&page()));
    Exposition::read(body).expect("a page");
    netns_lab::scrape(address).await.expect("a page");
    for (request, code) in [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "404"),
        (
            "POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "405",
        ),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let answer = exchange(address, request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{answer}");
    }
    let long = format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(9000));
    let answer = exchange(address, &long).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn silent_scraper_is_closed_and_blocks_no_other() {
    let (_directory, address) = daemon().await;
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        // A client that waits too long before that is disconnected even earlier.
        let _ = stream.write_all(b"GET /met").await;
        silent.push(stream);
    }
    // All places are taken, until their clients have been silent for too long.
    let scrape = exchange(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = tokio::time::timeout(METRICS_READ + Duration::from_secs(120), scrape).await;
    assert!(answer.expect("in time").ends_with("# EOF\n"));
    for mut stream in silent {
        let mut rest = Vec::new();
        // Closed; an earlier answer does not matter.
        let _ = stream.read_to_end(&mut rest).await;
    }
}

#[tokio::test]
async fn unavailable_listen_address_is_reported() {
    let (_directory, taken) = daemon().await;
    let directory = tempfile::tempdir().expect("a directory");
    let mut control = Control::bind(directory.path().join("c.sock")).expect("bound");
    let error = control
        .bind_metrics(taken)
        .expect_err("it is taken")
        .to_string();
    let words = format!("metrics: cannot listen on {taken}: ");
    assert!(
        error.starts_with(&words) && error.contains("metrics.listen"),
        "{error}"
    );
}
