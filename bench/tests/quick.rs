//! The benchmark in small, for what it checks rather than for what it measures.

use std::process::Command;

/// Runs the benchmark and returns what it said; every run has ended right.
fn bench(arguments: &[&str]) -> String {
    let bench = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["--quick", "--daemons", "cambric"])
        .args(arguments)
        .output()
        .expect("the benchmark can be started");
    let said = String::from_utf8_lossy(&bench.stdout);
    let complained = String::from_utf8_lossy(&bench.stderr);
    assert!(bench.status.success(), "{said}\n{complained}");
    said.into_owned()
}

/// Whether a bar is met, by the title of its row.
fn is_met(said: &str, title: &str) -> bool {
    let mut rows = said.lines().filter(|line| line.starts_with('|'));
    rows.any(|row| row.contains(title) && row.contains("| met"))
}

#[test]
fn every_workload_ends_right() {
    if !lab::allowed("every_workload_ends_right") {
        return;
    }
    let said = bench(&["--work", "s1,s2,s3,s3b,storm,rack,stall,keep,fib"]);
    for work in [
        "s1", "s2", "s3", "s3b", "storm", "rack", "stall", "keep", "fib",
    ] {
        assert!(said.contains(&format!("{work} 1/1 cambric: ")), "{said}");
    }
    for title in [
        "sessions lost on the way",
        "sessions lost while",
        "routes written then",
        "memory for the stalled one",
    ] {
        assert!(is_met(&said, title), "{title}:\n{said}");
    }
}

#[test]
fn two_minutes_of_churn_leave_nothing_wrong_and_nothing_behind() {
    if !lab::allowed("two_minutes_of_churn_leave_nothing_wrong_and_nothing_behind") {
        return;
    }
    let said = bench(&["--work", "churn", "--churn", "120"]);
    assert!(is_met(&said, "memory, second half less first"), "{said}");
}

#[test]
fn a_fabric_is_measured_from_its_store_to_its_kernels() {
    if !lab::allowed("a_fabric_is_measured_from_its_store_to_its_kernels") {
        return;
    }
    if !bench::fabric::can_run() {
        println!("skipped: there is no etcd, or our daemons are not built (make build)");
        return;
    }
    let said = bench(&["--work", "path,many,watch,ipam"]);
    for title in [
        "idle: put to kernel p50",
        "of it for 10,000 endpoints",
        "etcd killed until all in sync",
        "lists that etcd served again",
        "sent to each of them then",
        "100 hosts start",
    ] {
        assert!(is_met(&said, title), "{title}:\n{said}");
    }
}
