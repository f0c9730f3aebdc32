//! `cambric check rules --monitor`, with the rules of a host in a network namespace. Needs root and
//! `CAMBRIC_LAB=1`.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use netns_lab::{Host, Lab};
use serde_json::Value;

/// The rules of a host with three endpoints, as `nft` lists them.
const LISTING: &str = include_str!("../../rule-audit/tests/listing.json");

const MANIFEST: &str = include_str!("monitor/endpoints.yaml");

/// Maximum number of lines that were not read yet: the program waits beyond it.
const LINES_MAX: usize = 1000;

/// Maximum time for any step.
const PATIENCE: Duration = Duration::from_secs(60);

/// Killed when dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the program in a host, with a pipe for its output.
fn start(host: &Host, arguments: &[&str], store: &str) -> (Program, ChildStdout) {
    let spawn = || {
        Command::new(env!("CARGO_BIN_EXE_cambric"))
            .args(arguments)
            .env("DATASTORE_TYPE", "etcdv3")
            .env("ETCD_ENDPOINTS", store)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut child = host.run(spawn).unwrap();
    let output = child.stdout.take().unwrap();
    (Program(child), output)
}

fn run(host: &Host, program: &str, arguments: &[&str]) {
    let run = || Command::new(program).args(arguments).status().unwrap();
    let status = host.run(run).unwrap();
    assert!(status.success(), "{program} {arguments:?}: {status}");
}

/// Returns the listing in an order that `nft` can load: maps after the chains that they name.
fn loadable() -> String {
    let mut listing: Value = serde_json::from_str(LISTING).unwrap();
    let objects = listing["nftables"].as_array_mut().unwrap();
    let kinds = ["metainfo", "table", "chain", "set", "map", "rule"];
    objects.sort_by_key(|object| kinds.iter().position(|kind| object.get(kind).is_some()));
    listing.to_string()
}

/// Returns the lines of an output.
fn lines(output: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = sync_channel(LINES_MAX);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            if sender.send(line.unwrap()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Returns the lines up to the first one that has a text.
fn until(lines: &Receiver<String>, text: &str) -> String {
    let mut all = String::new();
    while !all.lines().last().unwrap_or_default().contains(text) {
        let next = lines.recv_timeout(PATIENCE);
        let line = next.unwrap_or_else(|error| panic!("{text}: {error}: {all}"));
        all.push_str(&format!("{line}\n"));
    }
    all
}

#[tokio::test]
async fn monitor_compares_only_the_endpoints_of_a_commit() {
    if !netns_lab::allowed("monitor_compares_only_the_endpoints_of_a_commit") {
        return;
    }
    let lab = Lab::new().await.unwrap();
    let host = lab.host("n1").await.unwrap();
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let nft = |arguments: &[&str]| run(&host, "nft", arguments);
    nft(&["--json", "--file", &file("listing.json", &loadable())]);
    let manifests = files.path().join("manifests");
    std::fs::create_dir(&manifests).unwrap();
    file("manifests/endpoints.yaml", MANIFEST);
    let manifests = manifests.display().to_string();
    let serve = [
        "store",
        "serve",
        "--listen",
        "127.0.0.1:2379",
        "--manifests",
        &manifests,
    ];
    let (_store, _output) = start(&host, &serve, "");
    let url = "http://127.0.0.1:2379";
    let check = [
        "check",
        "rules",
        "--node",
        "n1",
        "--control-port-exceptions",
        "10.65.0.1",
    ];
    // The store may not listen yet.
    netns_lab::until(PATIENCE, "the rules are equal", async || {
        let (mut program, _output) = start(&host, &check, url);
        let status = program.0.wait().unwrap();
        Ok::<_, netns_lab::Error>(
            status
                .success()
                .then_some(())
                .ok_or_else(|| status.to_string()),
        )
    })
    .await
    .unwrap();
    let (_monitor, output) = start(&host, &[&check[..], &["--monitor"]].concat(), url);
    let output = lines(output);
    let first = until(&output, "unknown");
    assert!(
        first.ends_with("7 equal, 0 different, 0 unknown\n"),
        "{first}"
    );

    // A chain of one endpoint, then its removal.
    nft(&[
        "insert",
        "rule",
        "inet",
        "cambric-felix",
        "to-tap3",
        "accept",
    ]);
    let found = until(&output, "    kernel:");
    let head = found.lines().next().unwrap();
    assert!(head.starts_with("commit "), "{found}");
    assert!(
        head.ends_with(": 1 compared: 0 equal, 1 different, 0 unknown"),
        "{found}"
    );
    assert!(
        found.contains("endpoint prod/n1-k8s-p3-eth0 (tap3): different"),
        "{found}"
    );

    // An element of a map, whose key is an interface.
    let map = ["element", "inet", "cambric-felix", "dispatch-to"];
    let (own, other) = ("{ \"cali2\" : goto to-cali2 }", "{ \"cali2\" : drop }");
    nft(&[&["delete"], &map[..], &[own]].concat());
    let found = until(&output, "compared: ");
    let found = found.lines().last().unwrap();
    assert!(
        found.contains(": 1 compared: 0 equal, 1 different"),
        "{found}"
    );
    nft(&[&["add"], &map[..], &[other]].concat());
    let found = until(&output, "compared: ");
    assert!(
        found.contains(": 1 compared: 0 equal, 1 different"),
        "{found}"
    );

    // A shared chain: all three endpoints, and interfaces without one.
    nft(&[
        "add",
        "rule",
        "inet",
        "cambric-felix",
        "control-closed",
        "drop",
    ]);
    let found = until(&output, "compared: ");
    assert!(
        found.lines().last().unwrap().contains(": 5 compared: "),
        "{found}"
    );

    // Another table is not followed: the next line is that of a later commit.
    nft(&["add", "table", "inet", "other"]);
    nft(&["add", "rule", "inet", "cambric-felix", "from-cali1", "drop"]);
    let found = until(&output, "compared: ");
    assert!(
        found.lines().last().unwrap().contains(": 1 compared: "),
        "{found}"
    );
}
