//! `cambric node start` and `cambric kube check`, against the API server of the tests with the shipped
//! rights.

use std::net::IpAddr;
use std::path::Path;
use std::process::{Output, Stdio};

use daemon_common::Reply;
use daemon_common::report::Readiness;
use etcd_lite::Local;
use etcd_lite::serve::{ServeConfig, Server};
use interop_tests::{ApiServer, Certificates, PATIENCE, own};
use netns_lab::{Error, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixListener;
use tokio::process::{Child, Command};

use crate::rig::{LOOPBACK, get, namespace, run};

/// The template of a CNI configuration, with placeholders of Calico's manifest.
const TEMPLATE: &str = r#"{"name": "k8s-pod-network", "cniVersion": "1.0.0", "plugins": [{"type": "calico",
    "etcd_endpoints": "__ETCD_ENDPOINTS__", "etcd_ca_cert_file": "__ETCD_CA_CERT_FILE__", "mtu": __CNI_MTU__,
    "nodename": "__KUBERNETES_NODE_NAME__", "ipam": {"type": "calico-ipam"}, "policy": {"type": "k8s"},
    "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"}}]}"#;

/// A datastore and an API server on loopback, and the directories of a node.
pub(crate) struct Bench {
    pub(crate) api: ApiServer,
    pub(crate) store: Local,
    pub(crate) endpoint: String,
    root: TempDir,
    kubeconfig: String,
}

impl Bench {
    /// Returns `None`, with a notice, where OpenSSL is not installed.
    pub(crate) async fn new() -> Option<Self> {
        let root = tempfile::tempdir().expect("a directory");
        for directory in [
            "net.d",
            "bin",
            "programs",
            "run/cambric-felix",
            "run/cambric-bgp-client",
        ] {
            std::fs::create_dir_all(root.path().join(directory)).expect("a directory");
        }
        for program in ["cambric-cni", "cambric-ipam"] {
            let file = root.path().join("programs").join(program);
            std::fs::write(file, program).expect("written");
        }
        let IpAddr::V4(own) = LOOPBACK.ip() else {
            panic!("IPv6");
        };
        let certificates = Certificates::make(root.path(), own)?;
        let api = ApiServer::start_secured(LOOPBACK, 1, &certificates).await;
        api.require_token("secret");
        api.enforce("calico-node");
        let token = root.path().join("token");
        std::fs::write(&token, "secret").expect("written");
        let kubeconfig = root.path().join("kubeconfig");
        let ca = root.path().join("ca.pem");
        std::fs::write(&kubeconfig, api.kubeconfig(Some(&ca), Some(&token))).expect("written");
        api.apply(namespace("prod"));
        let account = json!({"name": "calico-cni-plugin", "namespace": "kube-system"});
        api.apply(json!({"kind": "ServiceAccount", "metadata": account}));
        api.apply(json!({"kind": "ConfigMap",
            "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
            "data": {"ClusterConfiguration":
                "kind: ClusterConfiguration\nnetworking: {podSubnet: 10.244.0.0/16}\n"}}));
        api.apply(json!({"kind": "Node", "metadata": {"name": "c07.example"},
            "status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}));
        let config = ServeConfig {
            listen: vec![LOOPBACK],
            ..ServeConfig::default()
        };
        let server = Server::bind(config).await.expect("a datastore");
        let endpoint = format!("http://{}", server.addresses()[0]);
        let store = server.store();
        tokio::spawn(server.run(std::future::pending()));
        Some(Self {
            api,
            store,
            endpoint,
            kubeconfig: kubeconfig.display().to_string(),
            root,
        })
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.root.path().join(name).display().to_string()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(own("cambric"));
        command
            .args(words)
            .env_clear()
            .env("ETCD_ENDPOINTS", &self.endpoint)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    pub(crate) fn start(&self, more: &[&str]) -> Command {
        let mut command = self.command(&["node", "start", "--kubeconfig", &self.kubeconfig]);
        for (option, place) in [
            ("--nodename-file", "var/nodename"),
            ("--cni-directory", "net.d"),
            ("--cni-programs", "bin"),
            ("--programs", "programs"),
            ("--secrets", "none"),
            ("--run", "run"),
        ] {
            command.args([option, &self.path(place)]);
        }
        command
            .args(more)
            .env("NODENAME", "r1-c07")
            .env("CALICO_K8S_NODE_REF", "c07.example")
            .env("IP_AUTODETECTION_METHOD", "can-reach=127.0.0.1")
            .env("IP", "127.0.0.1/8")
            .env("CNI_NETWORK_CONFIG", TEMPLATE)
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env(
                "KUBERNETES_SERVICE_PORT",
                self.api.address().port().to_string(),
            );
        command
    }

    async fn output(&self, command: &mut Command) -> (bool, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().await.expect("cambric runs");
        let text = [stdout, stderr].map(|octets| String::from_utf8_lossy(&octets).into_owned());
        (status.success(), text.concat())
    }

    /// Returns the conditions of the Node in the API server by their types.
    fn condition(&self, kind: &str) -> Option<Value> {
        let node = self.api.get("Node", "", "c07.example").expect("a Node");
        let mut conditions = node["status"]["conditions"].as_array()?.iter();
        conditions
            .find(|condition| condition["type"] == kind)
            .cloned()
    }

    fn kubeconfig_of_plugin(&self) -> Option<String> {
        std::fs::read_to_string(self.path("net.d/calico-kubeconfig")).ok()
    }

    pub(crate) fn configuration(&self) -> Option<Value> {
        let text = std::fs::read_to_string(self.path("net.d/10-calico.conflist")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Answers as a daemon on its control socket from now on.
    pub(crate) fn daemon(&self, name: &str, missing: &[&str]) {
        let path = self.path(&format!("run/cambric-{name}/{name}.sock"));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(path).expect("a socket");
        let missing = missing.iter().map(|&why| why.to_owned()).collect();
        let ready = Readiness {
            missing,
            met: Vec::new(),
        };
        let reply = serde_json::to_string(&Reply::Readiness(ready)).expect("JSON");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut line = String::new();
                let _ = BufReader::new(&mut stream).read_line(&mut line).await;
                let _ = stream.write_all(format!("{reply}\n").as_bytes()).await;
            }
        });
    }
}

pub(crate) async fn soon(what: &str, is_so: impl Fn() -> bool) {
    until::<(), Error>(PATIENCE, what, async || {
        Ok(is_so().then_some(()).ok_or_else(|| "not yet".to_owned()))
    })
    .await
    .expect("in time");
}

async fn ended(mut child: Child) -> bool {
    let id = child.id().expect("it runs").try_into().expect("an id");
    kill(Pid::from_raw(id), Signal::SIGTERM).expect("signaled");
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
    ended.expect("in time").expect("ended").success()
}

pub(crate) async fn stored(store: &Local, key: &str) -> Value {
    get(store, key).await.unwrap_or_else(|| panic!("no {key}"))
}

// Promise (Kubernetes): The start of a node writes its Node and pool, and lets runtimes and the scheduler use
// the node only when its daemons are ready.
#[test]
fn node_is_opened_when_its_daemons_are_ready() {
    run(async {
        let Some(bench) = Bench::new().await else {
            return;
        };
        let files = bench.path("daemons");
        std::fs::create_dir_all(&files).expect("a directory");
        let mut once = bench.start(&["--once", "--daemon-files", &files]);
        let (is_done, text) = bench.output(&mut once).await;
        assert!(is_done, "{text}");
        let node = stored(&bench.store, "nodes/r1-c07").await;
        assert_eq!(node["spec"]["bgp"]["ipv4Address"], "127.0.0.1/8");
        let refs = json!([{"nodeName": "c07.example", "orchestrator": "k8s"}]);
        assert_eq!(node["spec"]["orchRefs"], refs);
        let pool = stored(&bench.store, "ippools/default-ipv4-ippool").await;
        assert_eq!(
            pool["spec"]["cidr"], "10.244.0.0/16",
            "the range of kubeadm"
        );
        let felix = stored(&bench.store, "felixconfigurations/node.r1-c07").await;
        assert_eq!(felix["spec"]["defaultEndpointToHostAction"], "Return");
        assert_eq!(felix["spec"]["endpointReportingEnabled"], true);
        let name = std::fs::read_to_string(bench.path("var/nodename")).expect("a name");
        assert_eq!(name, "r1-c07\n");
        let file = std::fs::read_to_string(Path::new(&files).join("felix.toml")).expect("a file");
        assert!(file.contains("hostname = \"r1-c07\""), "{file}");

        bench.daemon("felix", &[]);
        bench.daemon("bgp-client", &["end-of-rib: no"]);
        let started = bench.start(&[]).spawn().expect("it starts");
        soon("a token", || bench.kubeconfig_of_plugin().is_some()).await;
        let kubeconfig = bench.kubeconfig_of_plugin().expect("a kubeconfig");
        assert!(
            kubeconfig.contains("kube-system-calico-cni-plugin-1"),
            "{kubeconfig}"
        );
        assert!(!kubeconfig.contains("\"secret\""), "the token of the node");
        // The BGP client is not ready.
        assert_eq!(bench.configuration(), None);
        assert_eq!(bench.condition("NetworkUnavailable"), None);
        bench.daemon("bgp-client", &[]);
        soon("the condition", || {
            bench.condition("NetworkUnavailable").is_some()
        })
        .await;
        let configuration = bench.configuration().expect("written before the condition");
        assert_eq!(configuration["plugins"][0]["nodename"], "r1-c07");
        assert_eq!(
            configuration["plugins"][0]["etcd_endpoints"],
            bench.endpoint
        );
        let condition = bench.condition("NetworkUnavailable").expect("a condition");
        assert_eq!(condition["status"], "False");
        assert_eq!(condition["reason"], "CalicoIsUp");
        let ready = bench.condition("Ready").expect("that of the kubelet");
        assert_eq!(ready["reason"], "KubeletReady");
        assert!(ended(started).await);
        let condition = bench.condition("NetworkUnavailable").expect("a condition");
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["reason"], "CalicoIsDown");
        // Nothing is written again at the next start.
        let before = stored(&bench.store, "nodes/r1-c07").await;
        let (is_done, text) = bench.output(&mut bench.start(&["--once"])).await;
        assert!(is_done && !text.contains("Node written"), "{text}");
        assert_eq!(stored(&bench.store, "nodes/r1-c07").await, before);
        // An address of another node is refused.
        let mut other = bench.start(&["--once"]);
        let (is_done, text) = bench.output(other.env("NODENAME", "r1-c08")).await;
        assert!(
            !is_done && text.contains("is also that of Node r1-c07"),
            "{text}"
        );
    });
}

// Promise (Kubernetes): `cambric kube check` names what stops pods: rights, pools, profiles, names of nodes.
#[test]
fn check_names_what_stops_pods() {
    run(async {
        let Some(bench) = Bench::new().await else {
            return;
        };
        bench.api.enforce("cambric-kube");
        let net = bench.path("net.d");
        let check = async |part: &str| {
            let words = ["kube", "check", "--kubeconfig", &bench.kubeconfig];
            let words = [&words[..], &["--part", part, "--cni-directory", &net]].concat();
            bench.output(&mut bench.command(&words)).await
        };
        let (is_sound, text) = check("controller").await;
        assert!(!is_sound, "{text}");
        for words in [
            "ok       rights of cambric-kube",
            "problem  CNI configuration: ",
            "problem  pools: no enabled IPPool",
            "problem  profiles: no profile of namespace ",
            "problem  names of nodes: the datastore has no Node for node c07.example",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        bench.api.deny("watch", "networkpolicies", true);
        let (_, text) = check("controller").await;
        let words = "cambric-kube may not watch networkpolicies of networking.k8s.io";
        assert!(text.contains(words), "{text}");
        // The account of the controller is not that of a node.
        let (_, text) = check("node").await;
        assert!(
            text.contains("calico-node may not patch nodes/status"),
            "{text}"
        );
        bench.api.deny("watch", "networkpolicies", false);
        bench.api.enforce("calico-node");
        let (is_done, text) = bench.output(&mut bench.start(&["--once"])).await;
        assert!(is_done, "{text}");
        bench.api.enforce("cambric-kube");
        let (_, text) = check("controller").await;
        assert!(text.contains("ok       names of nodes"), "{text}");
        assert!(text.contains("ok       pools"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    });
}
