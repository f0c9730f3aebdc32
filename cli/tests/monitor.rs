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

/// The address of the datastore.
const URL: &str = "http://127.0.0.1:2379";

/// A host with the rules of the listing, and a datastore that fits them.
struct Ground {
    host: Host,
    files: tempfile::TempDir,
    _store: (Program, ChildStdout),
    _lab: Lab,
}

impl Ground {
    async fn new() -> Self {
        let lab = Lab::new().await.unwrap();
        let host = lab.host("n1").await.unwrap();
        let files = tempfile::tempdir().unwrap();
        let path = |name: &str| files.path().join(name).display().to_string();
        std::fs::write(path("listing.json"), loadable()).unwrap();
        run(&host, "nft", &["--json", "--file", &path("listing.json")]);
        std::fs::create_dir(path("manifests")).unwrap();
        std::fs::write(path("manifests/endpoints.yaml"), MANIFEST).unwrap();
        let manifests = path("manifests");
        let serve = [
            "store",
            "serve",
            "--listen",
            "127.0.0.1:2379",
            "--manifests",
            &manifests,
        ];
        let store = start(&host, &serve, "");
        Self {
            host,
            files,
            _store: store,
            _lab: lab,
        }
    }

    /// Writes a file, and returns its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Returns the exit status of a check, and its output.
    fn check(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let (mut program, output) = start(&self.host, arguments, URL);
        let text = std::io::read_to_string(output).unwrap();
        (program.0.wait().unwrap().code(), text)
    }

    /// Waits until a check succeeds: the store may not listen yet.
    async fn until_equal(&self, arguments: &[&str]) {
        netns_lab::until(PATIENCE, "the rules are equal", async || {
            let (status, text) = self.check(arguments);
            let is_equal = status == Some(0);
            Ok::<_, netns_lab::Error>(is_equal.then_some(()).ok_or(text))
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn monitor_compares_only_the_endpoints_of_a_commit() {
    if !netns_lab::allowed("monitor_compares_only_the_endpoints_of_a_commit") {
        return;
    }
    let ground = Ground::new().await;
    let host = &ground.host;
    let nft = |arguments: &[&str]| run(host, "nft", arguments);
    let check = [
        "check",
        "rules",
        "--node",
        "n1",
        "--no-files",
        "--control-port-exceptions",
        "10.65.0.1",
    ];
    ground.until_equal(&check).await;
    let (_monitor, output) = start(host, &[&check[..], &["--monitor"]].concat(), URL);
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

    // A table without a verdict is no subject; one that drops is.
    nft(&["add", "table", "inet", "other"]);
    let found = until(&output, "compared: ");
    assert!(found.contains(": 0 compared: "), "{found}");
    let hook = "{ type filter hook forward priority 5 ; policy drop ; }";
    nft(&["add", "chain", "inet", "other", "closed", hook]);
    let found = until(&output, "datastore: ");
    let wanted = ": 1 compared: 0 equal, 0 different, 1 unknown\ntable inet other: unknown";
    assert!(found.contains(wanted), "{found}");
    let known = [&check[..], &["--known-table", "inet other"]].concat();
    for (check, has_table) in [(&check[..], true), (&known[..], false)] {
        let (_, text) = ground.check(check);
        assert_eq!(
            text.contains("table inet other: unknown"),
            has_table,
            "{text}"
        );
        assert_eq!(
            text.contains("note: table inet other "),
            !has_table,
            "{text}"
        );
    }
}

#[tokio::test]
async fn control_ports_of_files_are_compared() {
    if !netns_lab::allowed("control_ports_of_files_are_compared") {
        return;
    }
    let ground = Ground::new().await;
    let own = ground.file(
        "own.toml",
        "listen = [\"0.0.0.0:179\"]\nguard = { enabled = false }\n",
    );
    let other = "listen = [\"0.0.0.0:1179\"]\nguard = { enabled = false }\n";
    let other = ground.file("other.toml", other);
    let guarded = ground.file("guarded.toml", "listen = [\"0.0.0.0:179\"]\n");
    let felix = |name: &str, lines: &str| {
        let rest = "control_port_exceptions = [\"10.65.0.1/32\"]\n[datastore]\nendpoints = []\n";
        ground.file(name, &format!("{lines}\n{rest}"))
    };
    let named = |path: &str| format!("bgp_files = [\"{path}\"]");
    let equal = felix("equal.toml", &named(&own));
    let check = |file: &'_ str| -> Vec<String> {
        let words = ["check", "rules", "--node", "n1", "--felix-file", file];
        words.map(str::to_owned).into()
    };
    let words = check(&equal);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    ground.until_equal(&words).await;
    let metrics = format!("{}\nmetrics = {{ listen = \"0.0.0.0:9191\" }}", named(&own));
    let settings = format!("{}\nfelix_configuration = {{}}", named(&own));
    for (name, lines, status, part) in [
        ("port.toml", named(&other), 1, "port 1179, "),
        ("metrics.toml", metrics, 1, "port 9191, "),
        (
            "guard.toml",
            named(&guarded),
            1,
            "table inet cambric-guard: different",
        ),
        (
            "missing.toml",
            named("/nowhere/bgp.toml"),
            3,
            "control ports are not known",
        ),
        ("settings.toml", settings, 3, "felix_configuration of "),
    ] {
        let file = felix(name, &lines);
        let words = check(&file);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (found, text) = ground.check(&words);
        assert_eq!(found, Some(status), "{name}: {text}");
        assert!(text.contains(part), "{name}: {text}");
    }
}

// Promise (Daemons): `cambric check rules` finds a user of a host that the host guard does not keep
// from BGP ports.
#[tokio::test]
async fn host_guard_is_compared_with_the_files() {
    if !netns_lab::allowed("host_guard_is_compared_with_the_files") {
        return;
    }
    let ground = Ground::new().await;
    let host = &ground.host;
    let bgp = ground.file("bgp.toml", "listen = [\"0.0.0.0:179\"]\n");
    let text = format!(
        "control_port_exceptions = [\"10.65.0.1\"]\nbgp_files = [\"{bgp}\"]\n[datastore]\nendpoints = []\n"
    );
    let felix = ground.file("felix.toml", &text);
    let program = env!("CARGO_BIN_EXE_cambric");
    let load = ["guard", "--route-reflector", &bgp, "--user", "4242"];
    run(host, program, &load);
    let check = [
        "check",
        "rules",
        "--node",
        "n1",
        "--all",
        "--felix-file",
        &felix,
        "--guard-user",
        "4242",
    ];
    ground.until_equal(&check).await;
    let (_, text) = ground.check(&check);
    assert!(
        text.contains("table inet cambric-guard: equal (2 comparisons equal)"),
        "{text}"
    );

    let unknown = ["check", "rules", "--node", "n1"];
    let (status, text) = ground.check(&unknown);
    assert!(status != Some(0), "{text}");
    assert!(text.contains("table inet cambric-guard: unknown"), "{text}");

    let nft = |text: &str| run(host, "nft", &[text]);
    let table = "inet cambric-guard";
    for (change, part) in [
        (
            format!("add element {table} route-reflector-users {{ 4243 }}"),
            "user 4243",
        ),
        (
            format!("delete element {table} route-reflector-ports {{ 179 }}"),
            "port 179",
        ),
        (
            format!("delete element {table} bfd-ports {{ 3784 }}"),
            "port 3784",
        ),
        (format!("insert rule {table} output accept"), "accept"),
        (format!("delete table {table}"), "no such table"),
    ] {
        nft(&change);
        let (status, text) = ground.check(&check);
        assert_eq!(status, Some(1), "{change}: {text}");
        assert!(
            text.contains("table inet cambric-guard: different"),
            "{change}: {text}"
        );
        assert!(text.contains(part), "{change}: {text}");
        if part != "no such table" {
            nft(&format!("delete table {table}"));
            run(host, program, &load);
        }
    }
}
