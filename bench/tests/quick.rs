//! The benchmark in small sizes, to test its checks rather than to measure.

use std::process::Command;

/// Runs the benchmark and returns its output; every run has finished correctly.
fn bench(arguments: &[&str]) -> String {
    let bench = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["--quick", "--daemons", "cambric"])
        .args(arguments)
        .output()
        .expect("the benchmark can be started");
    let output = String::from_utf8_lossy(&bench.stdout);
    let complained = String::from_utf8_lossy(&bench.stderr);
    assert!(bench.status.success(), "{output}\n{complained}");
    output.into_owned()
}

/// Returns whether a goal is met, by the title of its row. Goals of time need an otherwise idle
/// machine.
fn is_met(output: &str, title: &str) -> bool {
    has_row(output, title, &["| met"])
}

/// Returns whether a goal's measure was taken, with any value.
fn has_verdict(output: &str, title: &str) -> bool {
    has_row(output, title, &["| met", "| MISSED"])
}

fn has_row(output: &str, title: &str, verdicts: &[&str]) -> bool {
    let mut rows = output.lines().filter(|line| line.starts_with('|'));
    let is = |row: &str| verdicts.iter().any(|verdict| row.contains(verdict));
    rows.any(|row| row.contains(title) && is(row))
}

#[test]
fn every_workload_ends_right() {
    if !netns_lab::allowed("every_workload_ends_right") {
        return;
    }
    let output = bench(&["--work", "s1,s2,s3,s3b,storm,rack,stall,floods,keep,fib"]);
    for work in [
        "s1", "s2", "s3", "s3b", "storm", "rack", "stall", "floods", "keep", "fib",
    ] {
        assert!(
            output.contains(&format!("{work} 1/1 cambric: ")),
            "{output}"
        );
    }
    for title in [
        "sessions lost on the way",
        "routes written then",
        "memory for the stalled one",
    ] {
        assert!(is_met(&output, title), "{title}:\n{output}");
    }
    // A busy machine can miss hold times of 3 s, and the limits of latency.
    for title in [
        "sessions lost while a table loads",
        "1,000 connects of strangers",
        "200 OPENs of a session's client",
        "1,000 OPENs of 4 KB",
        "strangers while the log is not read",
    ] {
        assert!(has_verdict(&output, title), "{title}:\n{output}");
    }
}

#[test]
fn fabric_with_origin_validation_is_compared_with_one_without() {
    let name = "fabric_with_origin_validation_is_compared_with_one_without";
    if !netns_lab::allowed(name) {
        return;
    }
    if !bench::fabric::can_run() {
        println!("skipped: there is no etcd, or our daemons are not built (make build)");
        return;
    }
    let output = bench(&["--work", "path", "--origins", "enforce"]);
    for measure in [
        "busy_p999_ms",
        "busy_off_p999_ms",
        "busy_origins_p999_ratio",
    ] {
        assert!(output.contains(&format!("{measure} ")), "{output}");
    }
}

#[test]
fn two_minutes_of_churn_leave_nothing_wrong_and_nothing_behind() {
    if !netns_lab::allowed("two_minutes_of_churn_leave_nothing_wrong_and_nothing_behind") {
        return;
    }
    let output = bench(&["--work", "churn", "--churn", "120"]);
    assert!(
        is_met(&output, "memory, second half less first"),
        "{output}"
    );
}

/// With `CAMBRIC_SOAK`, an hour of each half.
#[test]
fn two_minutes_of_bfd_have_no_false_down() {
    let name = "two_minutes_of_bfd_have_no_false_down";
    if !netns_lab::allowed(name) {
        return;
    }
    // Of each half.
    let seconds = std::env::var_os("CAMBRIC_SOAK").map_or("60", |_| "3600");
    let sizes = ["--bfd-sessions", "1000", "--bfd-routes", "1000000"];
    let output = bench(&[&["--work", "bfd", "--bfd", seconds], &sizes[..]].concat());
    for title in ["3 x 100 ms: false downs", "the same at the peer"] {
        assert!(is_met(&output, title), "{title}:\n{output}");
    }
}

#[test]
fn a_fabric_is_measured_from_its_store_to_its_kernels() {
    if !netns_lab::allowed("a_fabric_is_measured_from_its_store_to_its_kernels") {
        return;
    }
    if !bench::fabric::can_run() {
        println!("skipped: there is no etcd, or our daemons are not built (make build)");
        return;
    }
    let output = bench(&[
        "--work",
        "path,live,many,records,felix,rules,watch,ipam,kube",
    ]);
    for title in [
        "of it for 10,000 endpoints",
        "lists that etcd served again",
        "a listing compared with the policies",
        "sent to each of them then",
    ] {
        assert!(is_met(&output, title), "{title}:\n{output}");
    }
    for title in [
        "idle: put to kernel p50",
        "a BGPPeer's filters p99",
        "a BGPFilter p99",
        "an IPPool's disableBGPExport p99",
        "an IPPool's mode, to the kernel p99",
        "a block of addresses p99",
        "a label of the node, its services p99",
        "a drain p99",
        "a BGPPeer, to the session p99",
        "a Node, to the session p99",
        "etcd answers until all records are read",
        "longest that octets lay unread then",
        "Felix started until all rules are written",
        "an endpoint with 30 policies: put to kernel p99",
        "idle: percent of a core",
        "etcd killed until all in sync",
        "100 hosts start",
        "10,000 pods: from an empty etcd",
        "heartbeats of 1,000 nodes",
        "from the API server into the kernel, p50",
    ] {
        assert!(has_verdict(&output, title), "{title}:\n{output}");
    }
}

#[test]
fn failed_paths_and_dead_hosts_are_measured() {
    let name = "failed_paths_and_dead_hosts_are_measured";
    if !netns_lab::allowed(name) {
        return;
    }
    if !bench::fabric::can_run() {
        println!("skipped: there is no etcd, or our daemons are not built (make build)");
        return;
    }
    let output = bench(&["--work", "bfd,death,nexthop"]);
    let title = "messages that move 100,000 routes";
    assert!(is_met(&output, title), "{title}:\n{output}");
    for title in [
        "3 x 100 ms: false downs",
        "processors, with all softirq",
        "3 x 50 ms: routes removed, p50",
        "then routes present again, p50",
        "deleted without another gateway",
        "while they are deleted one by one",
    ] {
        assert!(has_verdict(&output, title), "{title}:\n{output}");
    }
}

#[test]
fn felix_is_measured_with_packets_and_with_crowds() {
    let name = "felix_is_measured_with_packets_and_with_crowds";
    if !netns_lab::allowed(name) {
        return;
    }
    if !bench::fabric::can_run() {
        println!("skipped: there is no etcd, or our daemons are not built (make build)");
        return;
    }
    let works = [
        "cutting",
        "forwarding",
        "order",
        "members",
        "crowded",
        "labels",
        "idle",
        "noisy",
    ];
    let output = bench(&["--work", &works.join(",")]);
    for title in [
        "the last packet: one flow, TCP",
        "the last packet: 10,000 flows, UDP",
        "throughput without policies to that with 1,000",
        "new flows/s of plain rules to those with 1,000 policies",
        "new flows/s without the flow log to those with it",
        "start of Felix: slowest order of lists to the fastest",
        "CPU of Felix for a member of a set of 10,000",
        "with 2,000 sets and chains",
        "until 1,500 endpoints are up",
        "ADD among them, ten at a time, p99",
        "longest answer to a probe",
        "200 endpoints and 1,000 policies, idle",
        "a flood of new neighbors",
        "a flood of connections",
        "a flood of fragments",
    ] {
        assert!(has_verdict(&output, title), "{title}:\n{output}");
    }
}
