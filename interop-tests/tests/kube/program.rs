//! The program itself: its status and its log when another one holds the lease, or when it has no right
//! to it; and its access by a kubeconfig.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;

use daemon_common::client::call;
use daemon_common::report::Status;
use daemon_common::{Command, Reply};
use etcd_lite::Local;
use etcd_lite::serve::{ServeConfig, Server};
use interop_tests::{ApiServer, PATIENCE, READY, own};
use netns_lab::{Error, until};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Child;

use crate::rig::{LOOPBACK, get, namespace, policy, put, revision, run};

const CLOSED: &str = "networkpolicies/prod/knp.default.closed";

/// The namespace and the name of the lease.
const LEASE: (&str, &str) = ("kube-system", "cambric-kube");

/// A datastore and an API server on loopback, for programs.
struct Bench {
    api: ApiServer,
    store: Local,
    endpoint: String,
    root: TempDir,
}

/// A running program.
pub(crate) struct Replica {
    control: PathBuf,
    log: PathBuf,
    _process: Child,
}

impl Bench {
    async fn new() -> Self {
        let api = ApiServer::start(LOOPBACK, 1).await;
        api.enforce("cambric-kube");
        api.apply(namespace("prod"));
        let config = ServeConfig {
            listen: vec![LOOPBACK],
            ..ServeConfig::default()
        };
        let server = Server::bind(config).await.expect("a datastore");
        let endpoint = format!("http://{}", server.addresses()[0]);
        let store = server.store();
        tokio::spawn(server.run(std::future::pending()));
        put(&store, "clusterinformations/default", READY).await;
        Self {
            api,
            store,
            endpoint,
            root: tempfile::tempdir().expect("a directory"),
        }
    }

    /// Starts a replica with this table `kubernetes`.
    fn replica(&self, name: &str, kubernetes: &str) -> Replica {
        let datastore = format!("[datastore]\nendpoints = [{:?}]", self.endpoint);
        let root = self.root.path().display().to_string();
        Replica::start(&root, name, &datastore, kubernetes, &[])
    }

    fn server(&self) -> String {
        format!("server = {:?}", self.api.url())
    }

    /// Writes the lease as another program that holds it for five minutes.
    fn hold(&self, holder: &str) {
        let (namespace, name) = LEASE;
        self.api.apply(json!({"kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 300}}));
    }
}

impl Replica {
    /// Starts a replica with files in a directory: the table of the datastore, the content of the table
    /// `kubernetes`, and variables.
    pub(crate) fn start(
        root: &str,
        name: &str,
        datastore: &str,
        kubernetes: &str,
        variables: &[(&str, &str)],
    ) -> Self {
        let path = |suffix: &str| PathBuf::from(root).join(format!("{name}.{suffix}"));
        let (control, log, file) = (path("sock"), path("log"), path("toml"));
        let text =
            format!("control = {control:?}\n{datastore}\n[kubernetes]\n{kubernetes}\n[lease]\n");
        std::fs::write(&file, text).expect("written");
        let output = File::create(&log).expect("a file");
        let process = tokio::process::Command::new(own("cambric-kube"))
            .arg("--config")
            .arg(file)
            .env_clear()
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a file"))
            .stderr(output)
            .kill_on_drop(true)
            .spawn();
        Self {
            control,
            log,
            _process: process.expect("it starts"),
        }
    }

    /// Waits for a status.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
        let found = until::<Status, Error>(PATIENCE, what, async || {
            Ok(match call(&self.control, &Command::Status {}).await {
                Ok(Reply::Status(status)) if is_so(&status) => Ok(status),
                other => Err(format!("{other:?}\n{}", self.log())),
            })
        });
        found.await.expect("in time").0
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

fn fact(status: &Status, name: &str) -> String {
    let fact = status.facts.iter().find(|fact| fact.name == name);
    fact.map(|fact| fact.value.clone()).unwrap_or_default()
}

pub(crate) fn has_note(status: &Status, words: &str) -> bool {
    status.notes.iter().any(|note| note.contains(words))
}

// Promise (Kubernetes): A holder of the lease that writes nothing is reported by the other replicas after a
// minute, and they are not ready. They write nothing until they hold the lease.
#[test]
fn idle_leader_is_reported_by_the_other_replica() {
    run(async {
        let bench = Bench::new().await;
        bench.hold("another-program");
        bench.api.apply(policy("closed"));
        let replica = bench.replica("a", &bench.server());
        let compared = |status: &Status| fact(status, "left to the leader") != "0";
        let status = replica.until("the comparison", compared).await;
        assert_eq!(fact(&status, "leader"), "another-program");
        assert!(!has_note(&status, "the leader writes nothing"));
        let before = revision(&bench.store).await;
        let idle = |status: &Status| !status.ready && has_note(status, "another-program");
        replica.until("the leader is idle", idle).await;
        let log = replica.log();
        assert!(log.contains("kubernetes.leader_idle"), "{log}");
        assert!(log.contains("another-program"), "{log}");
        assert_eq!(
            revision(&bench.store).await,
            before,
            "a write without the lease"
        );
        bench.api.remove("Lease", LEASE.0, LEASE.1);
        let leads = |status: &Status| status.ready && fact(status, "left to the leader") == "0";
        let status = replica.until("it leads", leads).await;
        assert!(!has_note(&status, "the leader writes nothing"));
        assert!(get(&bench.store, CLOSED).await.is_some());
    });
}

// Promise (Kubernetes): Without a right to its Lease, a replica writes nothing. Its status and an event have
// the answer of the server.
#[test]
fn missing_right_to_the_lease_is_reported_and_writes_nothing() {
    run(async {
        for verb in ["get", "create"] {
            let bench = Bench::new().await;
            bench.api.deny(verb, "leases", true);
            bench.api.apply(policy("closed"));
            let before = revision(&bench.store).await;
            let replica = bench.replica("a", &bench.server());
            let refused = |status: &Status| {
                has_note(status, "403") && fact(status, "NetworkPolicy") == "1, complete"
            };
            let status = replica.until("the reason", refused).await;
            assert!(!status.ready, "{verb}");
            assert!(has_note(&status, "lease"), "{:?}", status.notes);
            // It has compared, so it would have written.
            let left = |status: &Status| fact(status, "left to the leader") != "0";
            replica.until("the comparison", left).await;
            // Lines of the log can be later than the status.
            let log = replica.log();
            assert!(log.contains("kubernetes.request_failed"), "{log}");
            assert!(log.contains("Lease") && log.contains("403"), "{log}");
            assert_eq!(revision(&bench.store).await, before, "{verb}");

            bench.api.deny(verb, "leases", false);
            replica.until("it leads", |status| status.ready).await;
            assert!(get(&bench.store, CLOSED).await.is_some());

            // A leader that loses the right stops before its lease ends.
            bench.api.deny("update", "leases", true);
            let refused = |status: &Status| !status.ready && has_note(status, "403");
            replica.until("it stops", refused).await;
            let before = revision(&bench.store).await;
            bench.api.remove("NetworkPolicy", "prod", "closed");
            let lost = |status: &Status| fact(status, "NetworkPolicy") == "0, complete";
            replica.until("the deletion", lost).await;
            put(&bench.store, "profiles/kns.prod", json!({"spec": {}})).await;
            let left = |status: &Status| fact(status, "left to the leader") != "0";
            replica.until("the comparison", left).await;
            assert_eq!(revision(&bench.store).await, before + 1, "{verb}");
            assert!(get(&bench.store, CLOSED).await.is_some());
        }
    });
}

// Promise (Kubernetes): The controller finds its server by a kubeconfig, and reads a replaced token file.
#[test]
fn kubeconfig_gives_server_and_token() {
    run(async {
        let mut bench = Bench::new().await;
        let std::net::IpAddr::V4(address) = LOOPBACK.ip() else {
            panic!("IPv6");
        };
        let Some(certificates) = interop_tests::Certificates::make(bench.root.path(), address)
        else {
            return;
        };
        bench.api = ApiServer::start_secured(LOOPBACK, 1, &certificates).await;
        bench.api.enforce("cambric-kube");
        bench.api.require_token("QXZ1");
        bench.api.apply(namespace("prod"));
        let (token, kubeconfig) = ("token", bench.root.path().join("kubeconfig"));
        // Relative paths begin at the directory of the file.
        let text = bench
            .api
            .kubeconfig(Some("ca.pem".as_ref()), Some(token.as_ref()));
        std::fs::write(&kubeconfig, text).expect("written");
        let write = |text: &str| std::fs::write(bench.root.path().join(token), text);
        write("QXZ1\n").expect("written");
        let replica = bench.replica("a", &format!("kubeconfig = {kubeconfig:?}"));
        let status = replica.until("ready", |status| status.ready).await;
        assert_eq!(fact(&status, "API server"), bench.api.address().to_string());
        bench.api.require_token("QXZ2");
        let refused = |status: &Status| !status.ready && has_note(status, "401");
        bench.api.end_watches();
        replica.until("the old token is refused", refused).await;
        write("QXZ2\n").expect("written");
        bench.api.apply(policy("closed"));
        let follows =
            |status: &Status| status.ready && fact(status, "NetworkPolicy") == "1, complete";
        replica.until("the new token", follows).await;
        assert!(get(&bench.store, CLOSED).await.is_some());
        assert!(!replica.log().contains("QXZ"), "{}", replica.log());
    });
}
