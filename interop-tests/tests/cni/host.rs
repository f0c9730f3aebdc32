//! Hosts whose containers are connected by Cambric's plugin: a datastore, Felix, BGP, and callers
//! of the plugin.

use std::fmt::Write as _;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::time::Duration;

use calico_model::Kind;
use calico_store::resources::Resources;
use calico_store::{EtcdOptions, EtcdStore, KeyRange, Store as _, TlsFiles};
use interop_tests::{Etcd, Ground, PATIENCE, Site, Store, in_ground, own};
use netns_lab::{Host, Links, Pinger, Process, Program};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

/// The kind of datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    Embedded,
    Etcd,
    /// An etcd that requires client certificates.
    Secured,
}

/// Runs a test on one host with Felix and the embedded store.
pub(crate) fn on_a_host(name: &str, test: impl AsyncFnOnce(Fabric, Node)) {
    in_ground(&[], name, async |ground| {
        let fabric = Fabric::new(ground, Backing::Embedded).await;
        let fabric = fabric.expect("a store");
        let node = fabric.node(1).await;
        test(fabric, node).await;
    });
}

/// A datastore, and hosts on the same switch.
pub(crate) struct Fabric {
    pub(crate) resources: Resources,
    access: EtcdOptions,
    pub(crate) embedded: Option<Store>,
    _etcd: Option<Etcd>,
    /// Dropped last: it waits for all processes.
    pub(crate) ground: Ground,
}

impl Fabric {
    /// Makes the fabric. Returns `None`, with a notice, where etcd is requested and not installed.
    pub(crate) async fn new(ground: Ground, backing: Backing) -> Option<Self> {
        let mut access = EtcdOptions::new(["http://10.0.0.254:2379"]);
        let (mut embedded, mut etcd) = (None, None);
        match backing {
            Backing::Embedded => embedded = Some(ground.store().await.expect("a store")),
            Backing::Etcd => {
                ground.join().await.expect("on the switch");
                etcd = Some(Etcd::start(&ground, &[9]).await.expect("etcd")?);
                access = EtcdOptions::new(["http://10.0.0.9:2379"]);
            }
            Backing::Secured => {
                ground.join().await.expect("on the switch");
                let (secured, _) = Etcd::start_secured(&ground, 9).await.expect("etcd")?;
                let files = secured.directory().to_owned();
                etcd = Some(secured);
                access = EtcdOptions::new(["https://10.0.0.9:2379"]);
                access.tls = Some(TlsFiles {
                    ca_file: files.join("ca.pem"),
                    cert_file: Some(files.join("client.pem")),
                    key_file: Some(files.join("client.key")),
                    server_name: None,
                });
            }
        }
        let store = EtcdStore::connect(&access).await.expect("a store");
        netns_lab::until::<(), netns_lab::Error>(PATIENCE, "the store answers", async || {
            let answer = store.get("/".into()).await;
            Ok(answer.map(drop).map_err(|error| error.to_string()))
        })
        .await
        .expect("a store that answers");
        let fabric = Self {
            ground,
            resources: Resources::new(store),
            access,
            embedded,
            _etcd: etcd,
        };
        if backing != Backing::Embedded {
            fabric
                .create("IPPool", "pool-v4", json!({"cidr": "10.65.0.0/16"}))
                .await;
            fabric
                .create("IPPool", "pool-v6", json!({"cidr": "fd65::/64"}))
                .await;
        }
        Some(fabric)
    }

    pub(crate) async fn create(&self, kind: &str, name: &str, spec: Value) {
        let resource = json!({"kind": kind, "apiVersion": "projectcalico.org/v3", "metadata": {"name": name}, "spec": spec});
        self.resources.create(resource).await.expect("created");
    }

    /// Returns the directory of the certificates.
    pub(crate) fn certificates(&self) -> PathBuf {
        let tls = self.access.tls.as_ref().expect("certificates");
        tls.ca_file.parent().expect("a directory").to_owned()
    }

    /// Returns the URL of a member.
    pub(crate) fn url(&self) -> &str {
        &self.access.endpoints[0]
    }

    /// Accesses the datastore with the certificate of a user from now on. Also nodes that are made
    /// from now on do so.
    pub(crate) async fn become_user(&mut self, user: &str) {
        let files = self.certificates();
        let tls = self.access.tls.as_mut().expect("certificates");
        tls.cert_file = Some(files.join(format!("{user}.pem")));
        tls.key_file = Some(files.join(format!("{user}.key")));
        let store = EtcdStore::connect(&self.access).await.expect("a store");
        self.resources = Resources::new(store);
    }

    /// Returns the datastore section of a daemon's configuration file.
    pub(crate) fn datastore(&self) -> String {
        let mut text = format!("[datastore]\nendpoints = {:?}\n", self.access.endpoints);
        if let Some(tls) = &self.access.tls {
            let own = tls.cert_file.as_ref().zip(tls.key_file.as_ref());
            let (cert, key) = own.expect("a client's");
            let ca = &tls.ca_file;
            let _ = writeln!(
                text,
                "[datastore.tls]\nca_file = {ca:?}\ncert_file = {cert:?}"
            );
            let _ = writeln!(text, "key_file = {key:?}");
        }
        text
    }

    /// Starts a host with Felix, as node `h<number>`.
    pub(crate) async fn node(&self, number: u8) -> Node {
        self.describe(number).await;
        self.run(number).await
    }

    /// Writes the Node of a host.
    pub(crate) async fn describe(&self, number: u8) {
        let spec = json!({"bgp": {"ipv4Address": format!("10.0.0.{number}/24"), "ipv6Address": format!("fd00::{number}/64")}});
        self.create("Node", &format!("h{number}"), spec).await;
    }

    /// Starts a host with Felix, whose Node is stored.
    pub(crate) async fn run(&self, number: u8) -> Node {
        let site = self.ground.site(number).await.expect("a host");
        let datastore = self.datastore();
        let felix = format!(
            "hostname = \"h{number}\"\nendpoint_status_path_prefix = \"/run/cambric\"\n{datastore}"
        );
        let path = site.save("felix.toml", &felix);
        let program = Program::new(own("cambric-felix")).arg("--config").arg(path);
        let felix = site.host.spawn("felix", &program).expect("Felix");
        Node {
            access: self.access.clone(),
            datastore,
            site,
            felix,
            client: None,
        }
    }

    /// Returns the IPAM state and the endpoints of containers.
    pub(crate) async fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for item in self
            .resources
            .list(Kind::WorkloadEndpoint, None)
            .await
            .expect("endpoints")
            .items
        {
            left.push(format!("endpoint {}", item.key.name()));
        }
        let store = self.resources.store();
        for item in store
            .list(KeyRange::prefix("/calico/ipam/v2/handle/"))
            .await
            .expect("handles")
            .items
        {
            left.push(String::from_utf8_lossy(&item.key).into_owned());
        }
        for item in store
            .list(KeyRange::prefix("/calico/ipam/v2/assignment/"))
            .await
            .expect("blocks")
            .items
        {
            let block: Value = serde_json::from_slice(&item.value).expect("a block");
            let taken = block["allocations"].as_array().expect("allocations").iter();
            let taken = taken.filter(|allocation| !allocation.is_null()).count();
            if taken > 0 {
                left.push(format!("{taken} addresses of {}", block["cidr"]));
            }
        }
        left
    }
}

/// A host.
pub(crate) struct Node {
    pub(crate) site: Site,
    pub(crate) felix: Process,
    pub(crate) client: Option<Process>,
    access: EtcdOptions,
    datastore: String,
}

/// The plugin's output: its result, or its error.
pub(crate) type Answered = Result<Value, Value>;

impl Node {
    /// Starts BGP with peers from the datastore.
    pub(crate) fn start_bgp(&mut self) {
        let number = self.site.number;
        let text = format!("hostname = \"h{number}\"\n{}", self.datastore);
        let path = self.site.save("bgp-client.toml", &text);
        let program = Program::new(own("cambric-bgp-client"))
            .arg("--config")
            .arg(path);
        self.client = Some(self.site.host.spawn("bgp-client", &program).expect("BGP"));
    }

    /// Accesses the datastore as the fabric does now, in what is started from now on.
    pub(crate) fn follow_access(&mut self, fabric: &Fabric) {
        self.access = fabric.access.clone();
        self.datastore = fabric.datastore();
    }

    /// Restarts Felix with these environment variables.
    pub(crate) fn restart_felix(&mut self, variables: &[(&str, &str)]) {
        let path = self.site.host.directory().join("felix.toml");
        let program = Program::new(own("cambric-felix")).arg("--config").arg(path);
        let program = variables
            .iter()
            .fold(program, |program, (name, value)| program.env(name, value));
        self.felix = self.site.host.spawn("felix", &program).expect("Felix");
    }

    /// Returns the configuration of a network, with these fields added or replaced.
    pub(crate) fn network(&self, more: Value) -> Value {
        let mut config = json!({
            "cniVersion": "1.1.0", "name": "fabric", "type": "cambric-cni",
            "etcd_endpoints": self.access.endpoints.join(","), "nodename": format!("h{}", self.site.number),
            "endpoint_status_dir": "/run/cambric/endpoint-status",
            "ipam": {"type": "cambric-ipam", "assign_ipv6": "true"},
            "policy": {"type": "k8s"}, "policy_setup_timeout_seconds": PATIENCE.as_secs(),
        });
        if let Some(tls) = &self.access.tls {
            config["etcd_ca_cert_file"] = json!(tls.ca_file);
            config["etcd_cert_file"] = json!(tls.cert_file);
            config["etcd_key_file"] = json!(tls.key_file);
        }
        for (field, value) in more.as_object().into_iter().flatten() {
            config[field] = value.clone();
        }
        config
    }

    /// Returns a call of the plugin, as a runtime makes it.
    pub(crate) fn call(&self, command: &str, container: &Container, config: &Value) -> Program {
        let name = format!(
            "{}-{}-{command}.json",
            container.id,
            config["name"].as_str().unwrap_or("x")
        );
        let input = self.site.save(&name, &config.to_string());
        let plugin = match config["type"].as_str() {
            Some("cambric-ipam") => own("cambric-ipam"),
            Some("cambric-cni" | "calico") | None => own("cambric-cni"),
            Some(other) => PathBuf::from("/usr/lib/cni").join(other),
        };
        let directory = own("cambric-cni")
            .parent()
            .expect("a directory")
            .display()
            .to_string();
        Program::new("/bin/sh")
            .args(["-c", "exec \"$0\" <\"$1\""])
            .arg(plugin)
            .arg(input)
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", &container.id)
            .env("CNI_NETNS", &container.netns)
            .env("CNI_IFNAME", &container.ifname)
            .env("CNI_ARGS", &container.args)
            .env("CNI_PATH", format!("{directory}:/usr/lib/cni"))
    }

    pub(crate) async fn answer(&self, program: &Program) -> Answered {
        let (status, output) = self.site.host.output(program).await.expect("it runs");
        let text = String::from_utf8_lossy(&output).into_owned();
        let value = match text.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap_or_else(|_| panic!("not JSON: {text}")),
        };
        if status.success() {
            Ok(value)
        } else {
            Err(value)
        }
    }

    /// Runs a program on the host and returns its output. The program must succeed.
    pub(crate) async fn output(&self, command: &str) -> String {
        let program = Program::new("/bin/sh").args(["-c", command]);
        let (status, output) = self.site.host.output(&program).await.expect("it runs");
        assert!(status.success(), "{command}");
        String::from_utf8(output).expect("text")
    }

    /// Calls the plugin, and waits for its output.
    pub(crate) async fn asks(
        &self,
        command: &str,
        container: &Container,
        config: &Value,
    ) -> Answered {
        self.answer(&self.call(command, container, config)).await
    }

    /// Returns the workload interfaces of the host, without the one of the lab.
    pub(crate) async fn interfaces(&self) -> Vec<String> {
        let names = self
            .site
            .host
            .links()
            .expect("links")
            .names()
            .await
            .expect("names");
        let names = names.into_iter().map(|(_, name)| name);
        names
            .filter(|name| name.starts_with("cali") && name != "cali0")
            .collect()
    }
}

/// A container: an id, and a network namespace.
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) netns: String,
    pub(crate) ifname: String,
    pub(crate) args: String,
    _file: Option<File>,
    host: Option<Host>,
}

impl Container {
    /// Makes a container that can send pings.
    pub(crate) async fn new(fabric: &Fabric, id: &str) -> Self {
        let host = fabric.ground.host(id).await.expect("namespaces");
        let descriptor = host.namespace_files().network;
        Self {
            host: Some(host),
            ..Self::at(id, descriptor)
        }
    }

    /// Makes a container that only has a namespace.
    pub(crate) fn bare(id: &str) -> Self {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("a namespace");
            File::open("/proc/thread-self/ns/net").expect("its file")
        });
        let file = made.join().expect("a thread");
        let container = Self::at(id, file.as_raw_fd());
        Self {
            _file: Some(file),
            ..container
        }
    }

    /// Makes a sandbox of a pod.
    pub(crate) fn pod(id: &str) -> Self {
        Self::bare(id).of_pod("web-0", "app=web")
    }

    /// Labels it as the sandbox of a pod in namespace `prod`, with these labels.
    pub(crate) fn of_pod(self, name: &str, labels: &str) -> Self {
        let args = format!(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=prod;K8S_POD_NAME={name};\
             K8S_POD_SERVICE_ACCOUNT=web;K8S_POD_LABELS={labels}"
        );
        Self { args, ..self }
    }

    /// Makes it the sandbox of a pod in namespace `prod` with the arguments of the kubelet: neither labels
    /// nor a service account.
    pub(crate) fn of_kubelet(self, name: &str) -> Self {
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=prod;K8S_POD_NAME={name}");
        Self { args, ..self }
    }

    /// Returns the host of a container that can send pings.
    pub(crate) fn host(&self) -> &Host {
        self.host.as_ref().expect("namespaces")
    }

    fn at(id: &str, descriptor: i32) -> Self {
        Self {
            id: id.to_owned(),
            netns: format!("/proc/{}/fd/{descriptor}", std::process::id()),
            ifname: "eth0".to_owned(),
            args: String::new(),
            _file: None,
            host: None,
        }
    }

    /// Returns the links of the container.
    pub(crate) fn links(&self) -> Links {
        self.host().links().expect("links")
    }

    /// Returns whether one ping to this address is answered, at any time.
    pub(crate) async fn pings(&self, result: &Value, to: IpAddr) -> bool {
        self.pings_within(result, to, PATIENCE).await
    }

    /// Returns whether one ping to this address is answered in time.
    pub(crate) async fn pings_within(&self, result: &Value, to: IpAddr, limit: Duration) -> bool {
        let own = addresses(result);
        let v4 = own.iter().find_map(|address| match address {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        });
        let v6 = own.iter().find_map(|address| match address {
            IpAddr::V6(v6) => Some(*v6),
            IpAddr::V4(_) => None,
        });
        let unspecified = std::net::Ipv6Addr::UNSPECIFIED;
        let pinger = Pinger::open(
            self.host(),
            v4.expect("an address"),
            v6.unwrap_or(unspecified),
        )
        .expect("sockets");
        pinger.ping(to, limit).await.is_some()
    }
}

/// Returns the addresses of a result.
pub(crate) fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().expect("addresses");
    let texts = ips.iter().map(|ip| ip["address"].as_str().expect("text"));
    texts
        .map(|text| {
            text.split('/')
                .next()
                .expect("an address")
                .parse()
                .expect("an address")
        })
        .collect()
}
