//! The allowed dependencies between crates. The table is the one of ARCHITECTURE.md; dependencies
//! point downwards only.

use super::Finding;
use super::metadata::Workspace;

/// One member: its floor and the members that its code may use.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The directory.
    pub directory: &'static str,
    /// 0 vocabulary, 1 mechanisms, 2 composed core, 3 ports and drivers, 4 programs, 5 proving
    /// ground.
    pub floor: u8,
    /// The members that it may depend on.
    pub may: &'static [&'static str],
}

/// The floor of the programs.
pub const PROGRAMS: u8 = 4;

const fn row(directory: &'static str, floor: u8, may: &'static [&'static str]) -> Row {
    Row {
        directory,
        floor,
        may,
    }
}

/// All members.
pub const TABLE: &[Row] = &[
    row("bgp-proto", 0, &[]),
    row("calico-model", 0, &[]),
    row("instant", 0, &[]),
    row("bfd", 1, &["instant"]),
    row("bgp-fsm", 1, &["bgp-proto", "instant"]),
    row("capture", 1, &["bgp-proto"]),
    row("mrt", 1, &["bgp-proto"]),
    row("rib", 1, &["bgp-proto"]),
    row("bgp-speaker", 2, &["bgp-proto", "bgp-fsm", "rib"]),
    row("bfd-client", 3, &["instant"]),
    row("netlink", 3, &[]),
    row("host-guard", 3, &["netlink"]),
    row("fib-sync", 3, &["instant"]),
    row("calico-store", 3, &["calico-model"]),
    row(
        "calico-manifests",
        3,
        &["calico-model", "calico-store", "daemon-common"],
    ),
    row("etcd-lite", 3, &["calico-store", "calico-manifests"]),
    row("calico-ipam", 3, &["calico-model", "calico-store"]),
    row("calico-kubernetes", 3, &["calico-model"]),
    row("bgp-io", 3, &["bgp-proto", "bgp-fsm", "rib", "bgp-speaker"]),
    row("testkit", 3, &["bgp-proto", "bgp-speaker"]),
    row("daemon-common", 3, &[]),
    row("kube-client", 3, &[]),
    row("kernel-events", 3, &["fib-sync", "daemon-common"]),
    row(
        "bgp-config",
        3,
        &[
            "bgp-proto",
            "bgp-fsm",
            "rib",
            "bgp-speaker",
            "daemon-common",
        ],
    ),
    row(
        "calico-bgp",
        3,
        &[
            "bgp-proto",
            "bgp-fsm",
            "rib",
            "bgp-speaker",
            "bgp-config",
            "calico-model",
        ],
    ),
    row(
        "bgp-daemon",
        3,
        &[
            "bfd-client",
            "bgp-proto",
            "bgp-fsm",
            "rib",
            "bgp-speaker",
            "bgp-io",
            "bgp-config",
            "calico-bgp",
            "calico-store",
            "host-guard",
            "calico-model",
            "daemon-common",
        ],
    ),
    row("netns-lab", 3, &[]),
    row("rule-audit", 3, &[]),
    // The library as one crate, for programs outside.
    row(
        "cambric",
        4,
        &[
            "bfd",
            "bgp-proto",
            "bgp-fsm",
            "rib",
            "bgp-speaker",
            "bgp-io",
            "mrt",
            "fib-sync",
            "netlink",
            "testkit",
        ],
    ),
    row("bfd-daemon", 4, &["bfd", "bfd-client", "daemon-common"]),
    row(
        "bgp-client",
        4,
        &[
            "bgp-proto",
            "bgp-fsm",
            "rib",
            "bgp-speaker",
            "bgp-io",
            "bgp-daemon",
            "bgp-config",
            "calico-bgp",
            "fib-sync",
            "kernel-events",
            "calico-store",
            "calico-model",
            "daemon-common",
        ],
    ),
    row(
        "route-reflector",
        4,
        &[
            "bgp-proto",
            "bgp-fsm",
            "rib",
            "bgp-speaker",
            "bgp-io",
            "bgp-daemon",
            "bgp-config",
            "calico-bgp",
            "calico-store",
            "calico-model",
            "daemon-common",
        ],
    ),
    row(
        "felix",
        4,
        &[
            "fib-sync",
            "kernel-events",
            "netlink",
            "calico-store",
            "calico-model",
            "daemon-common",
        ],
    ),
    row(
        "cni-plugin",
        4,
        &[
            "calico-model",
            "calico-store",
            "calico-ipam",
            "calico-kubernetes",
            "daemon-common",
            "kube-client",
        ],
    ),
    row(
        "kube-controller",
        4,
        &[
            "calico-kubernetes",
            "calico-ipam",
            "calico-model",
            "calico-store",
            "daemon-common",
            "kube-client",
        ],
    ),
    row(
        "cli",
        4,
        &[
            "bgp-proto",
            "capture",
            "mrt",
            "calico-store",
            "calico-manifests",
            "etcd-lite",
            "calico-model",
            "calico-bgp",
            "calico-ipam",
            "calico-kubernetes",
            "bgp-config",
            "host-guard",
            "kube-client",
            "netlink",
            "daemon-common",
            "netns-lab",
            "rule-audit",
        ],
    ),
    // The simulator runs the fabric of the lab: its names, addresses and configuration files.
    row(
        "sim",
        5,
        &[
            "bfd",
            "bfd-client",
            "bfd-daemon",
            "bgp-proto",
            "bgp-fsm",
            "rib",
            "bgp-speaker",
            "bgp-daemon",
            "fib-sync",
            "kernel-events",
            "calico-store",
            "etcd-lite",
            "calico-model",
            "bgp-config",
            "calico-bgp",
            "daemon-common",
            "bgp-client",
            "route-reflector",
            "felix",
            "netns-lab",
            "rule-audit",
        ],
    ),
    row(
        "fuzz",
        5,
        &[
            "bfd",
            "bgp-proto",
            "capture",
            "mrt",
            "bgp-fsm",
            "rib",
            "bgp-speaker",
            "fib-sync",
            "bgp-daemon",
            "calico-kubernetes",
            "calico-model",
            "testkit",
        ],
    ),
    row(
        "interop-tests",
        5,
        &[
            "bgp-proto",
            "bgp-io",
            "mrt",
            "netns-lab",
            "daemon-common",
            "calico-store",
            "etcd-lite",
            "calico-model",
            "bgp-config",
            "kube-client",
            "kube-controller",
            "testkit",
        ],
    ),
    row(
        "bench",
        5,
        &[
            "bfd",
            "bfd-client",
            "netlink",
            "netns-lab",
            "bgp-io",
            "testkit",
            "fib-sync",
            "calico-store",
            "etcd-lite",
            "calico-model",
            "calico-ipam",
            "daemon-common",
            "interop-tests",
        ],
    ),
    row("xtask", 5, &[]),
];

/// The crates that tests of any crate may use, also of a crate that the tool itself depends on: its
/// integration tests then test the speaker with the same tool as those of a program. Its unit tests
/// cannot, because cargo would build the crate twice, with distinct types.
const TEST_TOOLS: &[&str] = &["testkit"];

/// Compares the workspace with the table.
pub fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (directory, package) in &workspace.packages {
        let manifest = format!("{directory}/Cargo.toml");
        let Some(row) = TABLE.iter().find(|row| row.directory == directory) else {
            let text = "a crate without a row in xtask/src/tidy/directions.rs: give it a floor";
            findings.push(Finding::file(manifest, text));
            continue;
        };
        let members = |name: &&String| workspace.packages.contains_key(*name);
        for dependency in package.normal.iter().filter(members) {
            if !row.may.contains(&dependency.as_str()) {
                let text = format!(
                    "{directory} (floor {}) may not depend on {dependency}",
                    row.floor
                );
                findings.push(Finding::file(&manifest, text));
            }
        }
        // Tests may use crates of the same floor or below, and the test tools.
        for dependency in package.dev.iter().filter(members) {
            if floor(dependency) > Some(row.floor) && !TEST_TOOLS.contains(&dependency.as_str()) {
                let text = format!("tests of {directory} may not look up to {dependency}");
                findings.push(Finding::file(&manifest, text));
            }
        }
    }
    findings.extend(upward());
    findings
}

/// Returns the rows of the table that point upwards, or from a program to another program.
fn upward() -> Vec<Finding> {
    let mut findings = Vec::new();
    for row in TABLE {
        for below in row.may {
            let allowed = match floor(below) {
                // A mechanism, a driver or the proving ground may use a crate of its floor, but
                // programs share no code (I8), and vocabulary crates do not depend on each other.
                Some(floor) if floor == row.floor => matches!(row.floor, 1 | 3 | 5),
                Some(floor) => floor < row.floor,
                None => false,
            };
            if !allowed {
                let text = format!(
                    "the table lets {} depend on {below}, which is not below it",
                    row.directory
                );
                findings.push(Finding::file("xtask/src/tidy/directions.rs", text));
            }
        }
    }
    findings
}

fn floor(directory: &str) -> Option<u8> {
    TABLE
        .iter()
        .find(|row| row.directory == directory)
        .map(|row| row.floor)
}
