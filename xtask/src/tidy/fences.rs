//! Words that only certain places may use.

use super::Finding;
use super::directions::TABLE;
use super::files::File;
use super::metadata::Workspace;

/// Crates of floors 0 to 2 that are `no_std` (I1); `calico-model` and `mrt` are `std` without I/O.
pub const NO_STD: &[&str] = &[
    "bfd",
    "bgp-proto",
    "instant",
    "bgp-fsm",
    "rib",
    "bgp-speaker",
];

/// External dependencies allowed for floors 0 to 2. Each is `no_std` with its default features off,
/// or an optional feature for embedders.
const CORE_DEPENDENCIES: &[&str] = &[
    "bytes",
    "foldhash",
    "hashbrown",
    "ipnet",
    "md-5",
    "nom",
    "sha1",
    "slab",
    "smallvec",
    "thiserror",
    // Behind features that the suite's core never enables.
    "proptest",
    "serde",
    "tokio-util",
];

/// External dependencies forbidden below floor 3, except in tests (I4).
pub const OUTSIDE: &[&str] = &[
    "tokio",
    "tokio-stream",
    "tracing",
    "mio",
    "socket2",
    "nix",
    "libc",
];

/// A word of the source and the places that may use it.
struct Fence {
    word: &'static str,
    places: &'static [&'static str],
    why: &'static str,
}

/// I4. A place is a prefix of a path.
const FENCES: &[Fence] = &[
    Fence {
        word: "rtnetlink::",
        places: &[
            "fib-sync/src/netlink",
            "felix/src/",
            "netns-lab/src/",
            "cni-plugin/src/link",
        ],
        why: "a host's routes are written by fib-sync's driver alone; felix, netns-lab and cni-plugin use it \
              for links, and the last for what is inside a container",
    },
    Fence {
        word: "etcd_client::",
        places: &[
            "calico-store/src/",
            "calico-store/tests/",
            "etcd-lite/src/serve",
            "etcd-lite/src/wire",
        ],
        why: "the messages of the etcd API stay inside calico-store and the server of etcd-lite",
    },
    Fence {
        word: "etcd_client::Client",
        places: &["calico-store/src/etcd", "calico-store/tests/"],
        why: "only the etcd driver is a client; everything else uses the port",
    },
    Fence {
        word: "unbounded_channel(",
        places: &[],
        why: "every queue is bounded (I5)",
    },
];

/// Pairs that must not be in one tree (I2, I3): the program and the prefix of a crate's name.
const APART: &[(&str, &str, &str)] = &[
    (
        "felix",
        "bgp-",
        "I2: felix and BGP meet in the kernel, not in a process",
    ),
    (
        "bgp-client",
        "felix",
        "I2: felix and BGP meet in the kernel, not in a process",
    ),
    (
        "route-reflector",
        "fib-sync",
        "I3: a reflector never writes a route",
    ),
];

/// Checks I1 to I5.
pub fn check(workspace: &Workspace, files: &[File]) -> Vec<Finding> {
    let mut findings = apart(workspace);
    findings.extend(core(workspace));
    findings.extend(no_std(workspace, files));
    findings.extend(words(files));
    findings
}

fn apart(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (program, start, why) in APART {
        for below in workspace.members_below(program) {
            if below.starts_with(start) {
                let text = format!("{below} is in the tree of {program} ({why})");
                findings.push(Finding::file(format!("{program}/Cargo.toml"), text));
            }
        }
    }
    findings
}

fn core(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for row in TABLE.iter().filter(|row| row.floor <= 2) {
        let Some(package) = workspace.packages.get(row.directory) else {
            continue;
        };
        let manifest = format!("{}/Cargo.toml", row.directory);
        let outside = package
            .normal
            .iter()
            .filter(|name| !workspace.packages.contains_key(*name));
        for name in outside {
            let is_core = NO_STD.contains(&row.directory);
            let must_be_optional = match name.as_str() {
                "proptest" | "tokio-util" => true,
                "serde" => is_core,
                _ => false,
            };
            let text = if OUTSIDE.contains(&name.as_str()) {
                format!("{name} stands for I/O, which begins at floor 3 (I4)")
            } else if is_core && !CORE_DEPENDENCIES.contains(&name.as_str()) {
                format!("{name} is not in the list of the no_std core's dependencies (I1)")
            } else if must_be_optional && !package.optional.contains(name) {
                format!("{name} must stay behind a feature (I1)")
            } else {
                continue;
            };
            findings.push(Finding::file(&manifest, text));
        }
    }
    findings
}

fn no_std(workspace: &Workspace, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for directory in NO_STD
        .iter()
        .filter(|directory| workspace.packages.contains_key(**directory))
    {
        let path = format!("{directory}/src/lib.rs");
        let lib = files
            .iter()
            .find(|file| file.path.as_os_str() == path.as_str());
        let declared = lib.is_some_and(|file| {
            file.text.lines().any(|line| {
                line.starts_with("#![no_std]")
                    || line.starts_with("#![cfg_attr(not(feature = \"std\"), no_std)]")
            })
        });
        if !declared {
            findings.push(Finding::file(path, "must be #![no_std] (I1)"));
        }
    }
    findings
}

fn words(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.is_rust() && file.member() != "xtask")
    {
        let path = file.path.to_string_lossy();
        for fence in FENCES {
            if fence.places.iter().any(|place| path.starts_with(place)) {
                continue;
            }
            for (index, line) in file.text.lines().enumerate() {
                if code(line).contains(fence.word) {
                    let text = format!("`{}` here: {}", fence.word, fence.why);
                    findings.push(Finding::line(&file.path, index + 1, text));
                }
            }
        }
    }
    findings
}

/// Returns the line without a comment.
fn code(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}
