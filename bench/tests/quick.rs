//! The whole benchmark in small, for what it checks rather than for what it measures: every
//! workload ends with the right path of every prefix at every receiver.

use std::process::Command;

#[test]
fn every_workload_ends_right() {
    if !lab::allowed("every_workload_ends_right") {
        return;
    }
    let bench = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["--quick", "--daemons", "cambric", "--churn", "4"])
        .output()
        .expect("the benchmark can be started");
    let said = String::from_utf8_lossy(&bench.stdout);
    let complained = String::from_utf8_lossy(&bench.stderr);
    assert!(bench.status.success(), "{said}\n{complained}");
    for work in ["s1", "s2", "s3", "s3b", "storm", "rack", "stall", "churn"] {
        assert!(said.contains(&format!("{work} 1/1 cambric: ")), "{said}");
    }
}
