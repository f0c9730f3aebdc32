//! A host: the thread's namespace with a datastore, and a Felix on another thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use calico_model::EndpointFile;
use calico_store::resources::Resources;
use calico_store::{LeaseId, Store};
use cambric_felix::config::Config;
use cambric_felix::daemon::{Daemon, DaemonError};
use daemon_common::client::CallError;
use daemon_common::report::{Endpoint, Endpoints};
use daemon_common::{Command, Reply};
use etcd_lite::Local;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;

use super::{Workload, run, try_run};

pub(crate) const OPEN: &[&str] = &["projectcalico-default-allow"];
pub(crate) const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";
/// Maximum time for any step.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A Felix on its own thread, in the namespace of the thread that starts it.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Starts a Felix with this file.
    pub(crate) fn start(store: &Arc<dyn Store>, text: String) -> Self {
        let config = Config::of(&daemon_common::config::Source::new("felix.toml", text)).unwrap();
        let store = Arc::clone(store);
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, opened) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut daemon = open(&config, &store).await;
                ready.send(()).unwrap();
                let stop = async {
                    let _ = stopped.await;
                };
                daemon.serve(stop).await.unwrap();
            });
        });
        opened.recv_timeout(PATIENCE).expect("the daemon opens");
        Self { stop, thread }
    }

    pub(crate) fn stop(self) {
        self.stop.send(()).expect("it still runs");
        self.thread.join().expect("it ends in peace");
    }
}

/// Opens a Felix. A process that another test has just forked has copies of the sockets of this
/// process, and so the claim of an earlier Felix, until it executes its program.
async fn open(config: &Config, store: &Arc<dyn Store>) -> Daemon {
    let own = i32::try_from(std::process::id()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Daemon::open(config.clone(), Arc::clone(store)) {
            Err(DaemonError::Taken(taken))
                if taken.holder.pid == Some(own) && Instant::now() < deadline =>
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            opened => return opened.unwrap(),
        }
    }
}

/// A host with a datastore and optionally a Felix.
pub(crate) struct Host {
    pub(crate) store: Arc<dyn Store>,
    /// Runs the datastore's task.
    runtime: Runtime,
    directory: tempfile::TempDir,
    /// Lines of the configuration file, and the datastore's URLs in it.
    pub(crate) settings: String,
    pub(crate) endpoints: Vec<String>,
    pub(crate) felix: Option<Running>,
}

impl Host {
    /// Creates a host with its own ready datastore, and a Felix.
    pub(crate) fn new() -> Self {
        let mut host = Self::with(async || {
            let store: Arc<dyn Store> = Arc::new(Local::empty());
            let ready = Resources::from(Arc::clone(&store));
            ready.declare_ready().await.unwrap();
            store
        });
        host.start();
        host
    }

    /// Creates a host with this datastore, and nothing else yet.
    pub(crate) fn with(store: impl AsyncFnOnce() -> Arc<dyn Store>) -> Self {
        // An address of the host itself, as a destination for workloads.
        run("ip link add uplink type veth peer name far");
        run("ip link set far up");
        run("ip address add 10.0.0.11/24 dev uplink");
        run("ip address add fd00::11/64 dev uplink nodad");
        run("ip link set uplink up");
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        Self {
            store: runtime.block_on(store()),
            runtime,
            directory: tempfile::tempdir().unwrap(),
            settings: String::new(),
            endpoints: vec!["http://127.0.0.1:1".into()],
            felix: None,
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("felix.sock")
    }

    /// Returns the file in this directory by which plugins learn the state of this pod's endpoint.
    pub(crate) fn file(&self, directory: &str, pod: &str) -> Option<Value> {
        let name = EndpointFile::name("k8s", &format!("ns/{pod}"), "eth0");
        let path = self.directory.path().join(directory).join(name);
        let octets = std::fs::read(path).ok()?;
        Some(serde_json::from_slice(&octets).unwrap())
    }

    pub(crate) fn start(&mut self) {
        let text = format!(
            "hostname = \"n1\"\ncontrol = \"{}\"\nendpoint_status_path_prefix = \"{}\"\n{}\n\
             [datastore]\nendpoints = {:?}\n",
            self.socket().display(),
            self.directory.path().display(),
            self.settings,
            self.endpoints,
        );
        self.felix = Some(Running::start(&self.store, text));
    }

    pub(crate) fn stop(&mut self) {
        self.felix.take().expect("a running Felix").stop();
    }

    pub(crate) fn handle(&self) -> &Handle {
        self.runtime.handle()
    }

    /// Repeats the request without an answer: a server that was just stopped has closed the
    /// connection.
    pub(crate) fn put(&self, key: &str, value: &Value) {
        let deadline = Instant::now() + PATIENCE;
        let put = || {
            let (key, value) = (key.to_owned().into(), value.to_string().into());
            let put = self.store.put(key, value, LeaseId::default());
            self.handle().block_on(put)
        };
        while let Err(error) = put() {
            assert!(error.is_transient() && Instant::now() < deadline, "{error}");
            std::thread::yield_now();
        }
    }

    /// Deletes a key in the same way; an unanswered request may have been carried out.
    pub(crate) fn delete(&self, key: &str) {
        let deadline = Instant::now() + PATIENCE;
        let delete = || {
            let delete = self.store.delete(key.to_owned().into());
            self.handle().block_on(delete)
        };
        let mut was_there = delete();
        let mut asked_again = false;
        while let Err(error) = was_there {
            assert!(error.is_transient() && Instant::now() < deadline, "{error}");
            (was_there, asked_again) = (delete(), true);
        }
        assert!(was_there.unwrap() || asked_again, "{key} is not there");
    }

    pub(crate) fn endpoint(
        &self,
        pod: &str,
        interface: &str,
        mac: Option<&str>,
        networks: &[&str],
        profiles: &[&str],
    ) {
        let value = json!({
            "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": format!("n1-k8s-{pod}-eth0"), "namespace": "ns"},
            "spec": {
                "orchestrator": "k8s", "node": "n1", "pod": pod, "endpoint": "eth0", "mac": mac,
                "interfaceName": interface, "ipNetworks": networks, "profiles": profiles,
            },
        });
        self.put(&key(pod), &value);
    }

    /// Writes an endpoint that anything may pass, with changes of its spec.
    pub(crate) fn endpoint_with(&self, n: u8, labels: &Value, spec: &Value) {
        let pod = format!("p{n}");
        let mut value = json!({
            "kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
            "metadata": {
                "name": format!("n1-k8s-{pod}-eth0"), "namespace": "ns", "labels": labels,
            },
            "spec": {
                "orchestrator": "k8s", "node": "n1", "pod": pod, "endpoint": "eth0",
                "interfaceName": format!("cali{n}"), "profiles": OPEN,
                "ipNetworks": [format!("10.65.0.{n}/32"), format!("fd65::{n}/128")],
            },
        });
        for (field, setting) in spec.as_object().into_iter().flatten() {
            value["spec"][field] = setting.clone();
        }
        self.put(&key(&pod), &value);
    }

    pub(crate) fn configure(&self, spec: &Value) {
        self.put(
            &format!("{RESOURCES}felixconfigurations/default"),
            &json!({"spec": spec}),
        );
    }

    pub(crate) fn ask(&self, command: &Command) -> Reply {
        self.ask_any(command).unwrap()
    }

    /// Sends a command to which the daemon may answer with an error.
    pub(crate) fn ask_any(&self, command: &Command) -> Result<Reply, CallError> {
        self.handle()
            .block_on(daemon_common::client::call(self.socket(), command))
    }

    pub(crate) fn endpoints(&self) -> Endpoints {
        match self.ask(&Command::Endpoints {}) {
            Reply::Endpoints(endpoints) => endpoints,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the endpoint of this interface meets the condition.
    pub(crate) fn wait(
        &self,
        interface: &str,
        what: &str,
        wished: impl Fn(Option<&Endpoint>) -> bool,
    ) {
        self.until(what, || {
            let endpoints = self.endpoints();
            wished(
                endpoints
                    .endpoints
                    .iter()
                    .find(|endpoint| endpoint.interface == interface),
            )
        });
    }

    pub(crate) fn until(&self, what: &str, done: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done() {
            assert!(
                Instant::now() < deadline,
                "not within {PATIENCE:?}: {what}\n{:#?}",
                self.endpoints()
            );
        }
        // nft lists the rules of a transaction a little before the kernel has published its sets. A
        // further one, here without an effect, waits for that.
        try_run("nft --check add table inet published");
    }

    pub(crate) fn wait_up(&self, interface: &str) {
        self.wait(interface, "up", |endpoint| {
            endpoint.is_some_and(|e| e.state == "up")
        });
    }

    /// Returns the packets counted by the rule with this comment in this chain.
    pub(crate) fn counted(&self, chain: &str, comment: &str) -> u64 {
        let Reply::Rules(rules) = self.ask(&Command::Rules {}) else {
            panic!("no rules");
        };
        assert_eq!(rules.table, "inet cambric-felix");
        let rule = rules
            .rules
            .iter()
            .find(|rule| rule.chain == chain && rule.text.contains(comment));
        rule.and_then(|rule| rule.packets)
            .unwrap_or_else(|| panic!("{chain} {comment}: {rules:#?}"))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.felix.is_some() && !std::thread::panicking() {
            self.stop();
        }
    }
}

pub(crate) fn key(pod: &str) -> String {
    format!("{RESOURCES}workloadendpoints/ns/n1-k8s-{pod}-eth0")
}

/// Creates workload `n` with both families: `cali<n>`, 10.65.0.n, fd65::n.
pub(crate) fn workload(n: u8) -> Workload {
    let (v4, v6) = (format!("10.65.0.{n}"), format!("fd65::{n}"));
    Workload::new(&format!("cali{n}"), &mac(n), Some(&v4), Some(&v6))
}

pub(crate) fn mac(n: u8) -> String {
    format!("02:00:00:00:00:{n:02x}")
}

pub(crate) fn announce(host: &Host, n: u8, profiles: &[&str]) {
    let (v4, v6) = (format!("10.65.0.{n}/32"), format!("fd65::{n}/128"));
    host.endpoint(
        &format!("w{n}"),
        &format!("cali{n}"),
        Some(&mac(n)),
        &[&v4, &v6],
        profiles,
    );
}

/// Creates a host with two open workloads that are up.
pub(crate) fn pair() -> (Host, Workload, Workload) {
    let host = Host::new();
    let (one, two) = (workload(1), workload(2));
    announce(&host, 1, OPEN);
    announce(&host, 2, OPEN);
    host.wait_up("cali1");
    host.wait_up("cali2");
    (host, one, two)
}
