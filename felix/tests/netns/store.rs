//! Felix as a process, with a real kernel and a real etcd that becomes unreachable, loses all its
//! data, and returns. Needs root and `CAMBRIC_LAB=1`.

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use crate::world::host::{Host, OPEN, PATIENCE, RESOURCES, announce, key, workload};
use crate::world::{Workload, lab, run};
use calico_store::resources::{ResourceError, Resources};
use calico_store::{EtcdOptions, EtcdStore, Store};
use daemon_common::report::Status;
use daemon_common::{Command as Ask, Reply};
use serde_json::{Value, json};

const CLIENTS: &str = "127.0.0.1:2379";
const PEERS: &str = "http://127.0.0.1:2380";

/// A process, killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A host with two workloads that can reach each other, an etcd and a Felix.
struct Bench {
    host: Host,
    one: Workload,
    _two: Workload,
    etcd: Option<Process>,
    felix: Option<Process>,
    monitor: Option<Process>,
    /// Number of clusters that the etcd has been.
    clusters: u32,
    marks: u32,
}

impl Bench {
    fn new() -> Self {
        let host = Host::with(async || {
            let options = EtcdOptions::new([format!("http://{CLIENTS}")]);
            Arc::new(EtcdStore::connect(&options).await.unwrap()) as Arc<dyn Store>
        });
        let mut bench = Self {
            host,
            one: workload(1),
            _two: workload(2),
            etcd: None,
            felix: None,
            monitor: None,
            clusters: 1,
            marks: 0,
        };
        bench.start_etcd();
        bench.initialize();
        announce(&bench.host, 1, OPEN);
        announce(&bench.host, 2, OPEN);
        bench.start_felix(86_400);
        bench.host.wait_up("cali1");
        bench.host.wait_up("cali2");
        bench.snapshot_holds(&key("w2"));
        bench
    }

    fn file(&self, name: &str) -> PathBuf {
        self.host.directory().join(name)
    }

    fn start_etcd(&mut self) {
        let process = Command::new("etcd")
            .arg("--data-dir")
            .arg(self.file("etcd"))
            .args(["--name", "m", "--initial-cluster", &format!("m={PEERS}")])
            .args(["--initial-cluster-token", &self.clusters.to_string()])
            .args(["--listen-client-urls", &format!("http://{CLIENTS}")])
            .args(["--advertise-client-urls", &format!("http://{CLIENTS}")])
            .args(["--listen-peer-urls", PEERS])
            .args(["--initial-advertise-peer-urls", PEERS])
            .env("ETCD_UNSUPPORTED_ARCH", std::env::consts::ARCH)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.etcd = Some(Process(process.expect("etcd is installed")));
        until("etcd listens", || TcpStream::connect(CLIENTS).is_ok());
    }

    /// Deletes all data of the etcd: it starts again, as another cluster.
    fn wipe(&mut self) {
        self.etcd = None;
        fs::remove_dir_all(self.file("etcd")).unwrap();
        self.clusters += 1;
    }

    /// Performs the first write of a Calico client.
    fn initialize(&self) {
        let resources = Resources::from(Arc::clone(&self.host.store));
        until("the first write", || {
            match self.host.handle().block_on(resources.initialize()) {
                Ok(_) => true,
                // It listens before it answers.
                Err(ResourceError::Store(error)) if error.is_transient() => false,
                Err(error) => panic!("{error}"),
            }
        });
    }

    /// Returns the ClusterInformation.
    fn cluster(&self) -> Value {
        let key = format!("{RESOURCES}clusterinformations/default");
        let get = self.host.store.get(key.into());
        let item = self.host.handle().block_on(get).unwrap().unwrap();
        serde_json::from_slice(&item.value).unwrap()
    }

    fn start_felix(&mut self, max_age_s: u32) {
        let text = format!(
            "hostname = \"n1\"\ncontrol = \"{}\"\nlog = \"info\"\n\
             endpoint_status_path_prefix = \"{}\"\n\
             [datastore]\nendpoints = [\"http://{CLIENTS}\"]\n\
             [datastore_snapshot]\nfile = \"{}\"\nmax_age_s = {max_age_s}\n",
            self.host.socket().display(),
            self.host.directory().display(),
            self.file("felix.snapshot").display(),
        );
        fs::write(self.file("felix.toml"), text).unwrap();
        let log = File::create(self.file("felix.log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_cambric-felix"))
            .arg("--config")
            .arg(self.file("felix.toml"))
            .stderr(log)
            .spawn();
        self.felix = Some(Process(process.unwrap()));
        let socket = self.host.socket();
        until("Felix listens", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
    }

    /// Stops Felix as a service manager does.
    fn stop_felix(&mut self) {
        let mut felix = self.felix.take().unwrap();
        run(&format!("kill -TERM {}", felix.0.id()));
        assert!(felix.0.wait().unwrap().success());
    }

    /// Kills Felix and starts it again.
    fn restart_felix(&mut self, max_age_s: u32) {
        self.felix = None;
        self.start_felix(max_age_s);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.file("felix.log")).unwrap()
    }

    fn status(&self) -> Status {
        match self.host.ask(&Ask::Status {}) {
            Reply::Status(status) => status,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the packet filter in effect.
    fn filter(&self) -> String {
        let facts = self.status().facts.into_iter();
        let mut filters = facts.filter(|fact| fact.name == "packet filter");
        filters.next().unwrap().value
    }

    fn filter_is(&self, what: &str) {
        until_or(what, || self.log(), || self.filter() == what);
    }

    /// Waits until Felix reports this text, as an unmet condition or in a note.
    fn reports(&self, what: &str) {
        until_or(
            what,
            || self.log(),
            || {
                let status = self.status();
                let mut lines = status.waiting_for.iter().chain(&status.notes);
                lines.any(|line| line.contains(what))
            },
        );
    }

    /// Waits until the log has a text: another thread writes it.
    fn logs(&self, what: &str) {
        until_or(what, || self.log(), || self.log().contains(what));
    }

    fn snapshot_holds(&self, what: &str) {
        until("the snapshot", || {
            let octets = fs::read(self.file("felix.snapshot")).unwrap_or_default();
            octets
                .windows(what.len())
                .any(|part| part == what.as_bytes())
        });
    }

    /// Starts to monitor all route changes.
    fn watch_routes(&mut self) {
        let out = File::create(self.file("routes")).unwrap();
        let monitor = Command::new("ip")
            .args(["-o", "monitor", "route"])
            .stdout(out)
            .spawn();
        self.monitor = Some(Process(monitor.unwrap()));
        // The monitor works once it has reported a change.
        until("the monitor", || self.mark());
    }

    /// Adds and removes a route that does not belong to Felix; returns whether the monitor has
    /// reported it.
    fn mark(&mut self) -> bool {
        self.marks += 1;
        let net = format!("198.18.{}.{}", self.marks / 200, 1 + self.marks % 200);
        run(&format!("ip route add {net} dev lo"));
        run(&format!("ip route delete {net} dev lo"));
        fs::read_to_string(self.file("routes"))
            .unwrap()
            .contains(&net)
    }

    /// Checks that Felix has written nothing into the kernel since its start, and nothing has
    /// changed.
    fn wrote_nothing(&mut self, before: &str) {
        assert_eq!(kernel(), before);
        until("the monitor", || self.mark());
        let dump = fs::read_to_string(self.file("routes")).unwrap();
        // The kernel writes some routes itself; that of a link-local address after duplicate
        // address detection.
        let by_felix = |line: &&str| line.contains("cali") && !line.contains("proto kernel");
        let routes = dump.lines().filter(by_felix);
        assert_eq!(routes.collect::<Vec<_>>(), [""; 0]);
        let status = self.status();
        let facts = status.facts.iter();
        let written = facts.filter(|fact| fact.name == "nftables transactions");
        let written: Vec<_> = written.map(|fact| fact.value.as_str()).collect();
        assert_eq!(written, ["0"], "{}", self.log());
        assert!(self.one.namespace.pings("10.65.0.2"));
    }

    /// Checks that nothing changes.
    fn stays(&self, before: &str) {
        assert_eq!(kernel(), before);
        assert!(self.one.namespace.pings("10.65.0.2") && self.one.namespace.pings("fd65::2"));
    }
}

fn until(what: &str, done: impl FnMut() -> bool) {
    until_or(what, String::new, done);
}

fn until_or(what: &str, more: impl Fn() -> String, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(
            begun.elapsed() < PATIENCE,
            "not in time: {what}\n{}",
            more()
        );
        std::thread::yield_now();
    }
}

/// Returns Felix's kernel objects, independent of the kernel's order.
fn kernel() -> String {
    let routes = ["ip route show proto 80", "ip -6 route show proto 80"].map(run);
    let tables = ["inet", "arp"].map(|of| run(&format!("nft -s list table {of} cambric-felix")));
    let rules = tables.join("\n\n");
    let parts = rules.split("\n\n");
    // Packets add the elements of dynamic sets.
    let mut parts: Vec<_> = parts
        .filter(|part| !part.contains("flags dynamic"))
        .map(|part| part.trim_end_matches(['}', '\n']))
        .collect();
    parts.sort_unstable();
    routes.concat() + &parts.join("\n")
}

// Promise: as calico-store an_etcd_that_lost_all_takes_nothing_away
#[test]
fn a_store_that_is_emptied_changes_nothing_in_the_kernel() {
    lab(
        "a_store_that_is_emptied_changes_nothing_in_the_kernel",
        || {
            let mut bench = Bench::new();
            let (before, cluster) = (kernel(), bench.cluster());
            bench.stays(&before);

            // Reachable again at once, and empty.
            bench.wipe();
            bench.start_etcd();
            bench.reports("the store is not ready: it has no ClusterInformation default");
            bench.stays(&before);
            // Another program starts to fill it, with one of the two endpoints.
            announce(&bench.host, 1, OPEN);
            bench.initialize();
            bench
                .reports("the store is not ready: its clusterGUID is not that of the store before");
            bench.stays(&before);
            bench.watch_routes();
            bench.restart_felix(86_400);
            bench.reports("its clusterGUID is not that of the store before");
            bench.reports("old at the start is in effect");
            bench.wrote_nothing(&before);

            // Restored in part, and locked; then it is unlocked, and applied.
            let key = format!("{RESOURCES}clusterinformations/default");
            let mut locked = cluster.clone();
            locked["spec"]["datastoreReady"] = json!(false);
            bench.host.put(&key, &locked);
            bench.reports("does not have datastoreReady: true");
            bench.wrote_nothing(&before);
            bench.host.put(&key, &cluster);
            bench.host.until("one endpoint", || {
                bench.host.endpoints().endpoints.len() == 1
            });
            bench.host.wait_up("cali1");
            assert!(!kernel().contains("cali2"));
            announce(&bench.host, 2, OPEN);
            bench.host.wait_up("cali2");
            bench.stays(&before);

            // Unreachable for longer, and empty afterwards.
            bench.wipe();
            bench.reports("the store is away");
            bench.start_etcd();
            bench.reports("it has no ClusterInformation default");
            bench.stays(&before);
            // Without a snapshot, Felix waits for the datastore.
            bench.watch_routes();
            bench.restart_felix(0);
            bench.reports("it has no ClusterInformation default");
            bench.wrote_nothing(&before);
        },
    );
}

// Promise: as felix table_changed_between_two_runs_is_closed
#[test]
fn inherited_table_that_is_flushed_is_closed() {
    lab("inherited_table_that_is_flushed_is_closed", || {
        let mut bench = Bench::new();
        bench.etcd = None;
        // Without a snapshot only the table of the earlier run protects the workloads.
        bench.restart_felix(0);
        bench.reports("a full read of the store");
        until("it watches the table", || {
            bench.filter().ends_with("and watched")
        });
        assert!(bench.one.namespace.pings("10.65.0.2"));
        // Without rules all workload traffic passes, whatever its source.
        run("nft flush table inet cambric-felix");
        bench.filter_is("drops all workload traffic");
        assert!(bench.one.namespace.is_cut_off("10.65.0.2"));
        bench.logs("packet filter closed: all");
        bench.logs("another program changed the inherited table");
        let log = bench.log();
        assert!(!log.contains("undone"), "{log}");

        // The rules of the datastore follow, once it is read.
        bench.start_etcd();
        bench.filter_is("of this run");
        assert!(bench.one.namespace.pings("10.65.0.2"));
    });
}

// Promise (Felix): While the datastore is not read after a start, a packet filter that another
// program has changed drops all workload traffic: after the start, and before it if the earlier run
// recorded its table.
#[test]
fn table_changed_between_two_runs_is_closed() {
    lab("table_changed_between_two_runs_is_closed", || {
        let mut bench = Bench::new();
        let is_recorded = || run("nft list tables").contains("inet cambric-felix-record");
        // Without a snapshot only the table of the earlier run protects the workloads.
        until("the record", is_recorded);
        bench.etcd = None;
        // A killed Felix leaves no record if it was about to write.
        bench.stop_felix();
        bench.start_felix(0);
        bench.filter_is("of an earlier run, unchanged, and watched");
        assert!(bench.one.namespace.pings("10.65.0.2"));

        // Without rules all workload traffic passes until Felix returns.
        bench.stop_felix();
        run("nft flush table inet cambric-felix");
        bench.start_felix(0);
        bench.filter_is("drops all workload traffic");
        assert!(bench.one.namespace.is_cut_off("10.65.0.2"));
        bench.logs("packet filter closed: all");
        bench.logs("the inherited table differs from its record");
        bench.start_etcd();
        bench.filter_is("of this run");
        assert!(bench.one.namespace.pings("10.65.0.2"));

        // Felix records the table also when it is stopped.
        until("the record", is_recorded);
        run("nft delete table inet cambric-felix-record");
        announce(&bench.host, 1, &[]);
        bench.host.wait("cali1", "a new profile", |e| {
            e.is_some_and(|e| e.profiles.is_empty())
        });
        bench.stop_felix();
        assert!(is_recorded());
        bench.etcd = None;
        bench.start_felix(0);
        bench.filter_is("of an earlier run, unchanged, and watched");

        // A Felix that is killed during a change leaves no record: its table stays in effect.
        bench.felix = None;
        run("nft delete table inet cambric-felix-record");
        bench.start_felix(0);
        bench.filter_is("of an earlier run, and watched");
        assert_eq!(bench.log().matches("packet filter closed").count(), 0);

        bench.felix = None;
        run("nft flush ruleset");
        bench.start_felix(0);
        bench.filter_is("drops all workload traffic");
        assert!(bench.one.namespace.is_cut_off("10.65.0.2"));
    });
}

// Promise: as interop-tests daemons_that_restart_without_the_store_go_on
#[test]
fn a_start_without_the_store_writes_nothing_into_the_kernel() {
    lab(
        "a_start_without_the_store_writes_nothing_into_the_kernel",
        || {
            let mut bench = Bench::new();
            let before = kernel();
            bench.etcd = None;
            bench.watch_routes();
            bench.restart_felix(86_400);
            bench.reports("old at the start is in effect");
            bench.host.wait_up("cali1");
            bench.host.wait_up("cali2");
            bench.wrote_nothing(&before);
            // It works: an interface that returns gets its routes.
            run("ip link set cali2 down");
            bench
                .host
                .wait("cali2", "down", |e| e.is_some_and(|e| e.state != "up"));
            run("ip link set cali2 up");
            bench.host.wait_up("cali2");
            bench.stays(&before);

            // Disabled or too old: Felix waits for the datastore, and changes nothing.
            for (max_age_s, reason) in [(0, "0 s are allowed"), (1, "1 s are allowed")] {
                until("the snapshot's age", || {
                    let written = fs::metadata(bench.file("felix.snapshot")).unwrap();
                    written.modified().unwrap().elapsed().unwrap().as_secs() > 2
                });
                bench.watch_routes();
                bench.restart_felix(max_age_s);
                bench.reports("a full read of the store");
                bench.logs(reason);
                bench.wrote_nothing(&before);
            }
            bench.start_etcd();
            bench.host.wait_up("cali1");
            bench.host.wait_up("cali2");
            bench.stays(&before);

            // Then the changes made in the meantime are applied.
            bench.host.delete(&key("w2"));
            bench.host.until("one endpoint", || {
                bench.host.endpoints().endpoints.len() == 1
            });
            assert!(!kernel().contains("cali2"));
        },
    );
}
