//! Hosts whose containers are connected by Cambric's plugin: a store, Felix, BGP, and whatever calls
//! the plugin.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::time::Duration;

use datastore::resources::Resources;
use datastore::{EtcdOptions, EtcdStore, KeyRange, Store as _};
use interop_tests::{Etcd, Ground, Site, Store, own};
use lab::{Host, Links, Pinger, Process, Program};
use model::Kind;
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    Embedded,
    Etcd,
}

/// A store, and hosts on a switch with it.
pub(crate) struct Fabric {
    pub(crate) resources: Resources,
    url: String,
    pub(crate) embedded: Option<Store>,
    _etcd: Option<Etcd>,
    /// The last to go: it waits for all processes.
    pub(crate) ground: Ground,
}

impl Fabric {
    /// None, with a notice, where etcd is asked for and not installed.
    pub(crate) async fn new(ground: Ground, backing: Backing) -> Option<Self> {
        let (embedded, etcd, address) = match backing {
            Backing::Embedded => {
                let store = ground.store().await.expect("a store");
                (Some(store), None, "10.0.0.254:2379".to_owned())
            }
            Backing::Etcd => {
                ground.join().await.expect("on the switch");
                let etcd = Etcd::start(&ground, &[9]).await.expect("etcd")?;
                let address = etcd.endpoints()[0].to_string();
                (None, Some(etcd), address)
            }
        };
        let url = format!("http://{address}");
        let store = EtcdStore::connect(&EtcdOptions::new([url.as_str()]))
            .await
            .expect("a store");
        lab::until::<(), lab::Error>(PATIENCE, "the store answers", async || {
            let answer = store.get("/".into()).await;
            Ok(answer.map(drop).map_err(|error| error.to_string()))
        })
        .await
        .expect("a store that answers");
        let fabric = Self {
            ground,
            resources: Resources::new(store),
            url,
            embedded,
            _etcd: etcd,
        };
        if backing == Backing::Etcd {
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

    /// A host with Felix, as node `h<number>`.
    pub(crate) async fn node(&self, number: u8) -> Node {
        let site = self.ground.site(number).await.expect("a host");
        let spec = json!({"bgp": {"ipv4Address": format!("10.0.0.{number}/24"), "ipv6Address": format!("fd00::{number}/64")}});
        self.create("Node", &format!("h{number}"), spec).await;
        let felix = format!(
            "hostname = \"h{number}\"\nendpoint_status_path_prefix = \"/run/cambric\"\n\
             [datastore]\nendpoints = [\"{}\"]\n",
            self.url
        );
        let path = site.save("felix.toml", &felix);
        let program = Program::new(own("cambric-felix")).arg("--config").arg(path);
        let felix = site.host.spawn("felix", &program).expect("Felix");
        Node {
            url: self.url.clone(),
            site,
            felix,
            _client: None,
        }
    }

    /// What address management and the store know of containers.
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
    _client: Option<Process>,
    url: String,
}

/// What the plugin answered: its result, or its error.
pub(crate) type Answered = Result<Value, Value>;

impl Node {
    /// Starts BGP, which takes its peers from the store.
    pub(crate) fn start_bgp(&mut self) {
        let number = self.site.number;
        let text = format!(
            "hostname = \"h{number}\"\n[datastore]\nendpoints = [\"{}\"]\n",
            self.url
        );
        let path = self.site.save("bgp-client.toml", &text);
        let program = Program::new(own("cambric-bgp-client"))
            .arg("--config")
            .arg(path);
        self._client = Some(self.site.host.spawn("bgp-client", &program).expect("BGP"));
    }

    /// Starts Felix again, with these variables.
    pub(crate) fn restart_felix(&mut self, variables: &[(&str, &str)]) {
        let path = self.site.host.directory().join("felix.toml");
        let program = Program::new(own("cambric-felix")).arg("--config").arg(path);
        let program = variables
            .iter()
            .fold(program, |program, (name, value)| program.env(name, value));
        self.felix = self.site.host.spawn("felix", &program).expect("Felix");
    }

    /// The configuration of a network, with these fields besides or instead.
    pub(crate) fn network(&self, more: Value) -> Value {
        let mut config = json!({
            "cniVersion": "1.1.0", "name": "fabric", "type": "cambric-cni",
            "etcd_endpoints": self.url, "nodename": format!("h{}", self.site.number),
            "endpoint_status_dir": "/run/cambric/endpoint-status",
            "ipam": {"type": "cambric-ipam", "assign_ipv6": "true"},
            "policy": {"type": "k8s"}, "policy_setup_timeout_seconds": 30,
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            config[field] = value.clone();
        }
        config
    }

    /// A call of the plugin, as a runtime makes it.
    pub(crate) fn call(&self, command: &str, container: &Container, config: &Value) -> Program {
        let name = format!(
            "{}-{}-{command}.json",
            container.id,
            config["name"].as_str().unwrap_or("x")
        );
        let input = self.site.save(&name, &config.to_string());
        let plugin = match config["type"].as_str() {
            Some("cambric-ipam") => own("cambric-ipam"),
            Some("cambric-cni") | None => own("cambric-cni"),
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

    /// Calls the plugin, and waits for its answer.
    pub(crate) async fn asks(
        &self,
        command: &str,
        container: &Container,
        config: &Value,
    ) -> Answered {
        self.answer(&self.call(command, container, config)).await
    }

    /// Workload interfaces of the host, its own one left out.
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
    /// One that can be pinged from.
    pub(crate) async fn new(fabric: &Fabric, id: &str) -> Self {
        let host = fabric.ground.host(id).await.expect("namespaces");
        let descriptor = host.namespace_files().network;
        Self {
            host: Some(host),
            ..Self::at(id, descriptor)
        }
    }

    /// One that only has a namespace.
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

    /// A sandbox of a pod.
    pub(crate) fn pod(id: &str) -> Self {
        Self {
            args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=prod;K8S_POD_NAME=web-0;\
                   K8S_POD_SERVICE_ACCOUNT=web;K8S_POD_LABELS=app=web"
                .to_owned(),
            ..Self::bare(id)
        }
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

    /// Its interfaces.
    pub(crate) fn links(&self) -> Links {
        let host = self.host.as_ref().expect("namespaces");
        host.links().expect("links")
    }

    /// Whether a ping to this address is answered.
    pub(crate) async fn pings(&self, result: &Value, to: IpAddr) -> bool {
        let host = self.host.as_ref().expect("namespaces");
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
        let pinger = Pinger::open(host, v4.expect("an address"), v6.unwrap_or(unspecified))
            .expect("sockets");
        pinger.ping(to, Duration::from_secs(2)).await.is_some()
    }
}

/// The addresses of a result.
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
