//! A rolling update of a service under new connections, as a Deployment with a `preStop` makes it. The
//! addresses of the service reach a client by BGP. The hosts translate them by a table of this test, which
//! follows the API server and never the controller.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use interop_tests::{ApiServer, PATIENCE, Site, in_ground, own};
use netns_lab::{Error, Host, Process, Program, until};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::host::{Backing, Container, Fabric, Node, addresses};
use crate::kubernetes::{api_address, ready, start_controller};

/// The external address of the service, and its port.
const SERVICE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)), 80);

/// The port of the pods.
const PORT: u16 = 8080;

/// The time in which a pod still serves after its deletion has begun.
const PRE_STOP: Duration = Duration::from_secs(2);

/// How long each tenth connection lasts.
const LONG: Duration = Duration::from_millis(1_500);

/// How long a connection may take before it counts as failed.
const LIMIT: Duration = Duration::from_secs(20);

/// How often the table of this test follows the API server.
const PROXY_EVERY: Duration = Duration::from_millis(50);

/// New connections in a second, without the variable.
const RATE: u32 = 100;

/// The variable with another number.
const RATE_VARIABLE: &str = "CAMBRIC_CONNECTIONS_PER_S";

/// The end of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    Not,
    /// SIGTERM: open connections are served to their ends.
    Softly,
    /// A fault: all connections are cut.
    Hard,
}

/// A pod with a server.
struct Pod {
    name: String,
    node: u8,
    container: Container,
    address: IpAddr,
    stop: watch::Sender<Stop>,
    /// Returns the number of accepted connections.
    thread: JoinHandle<u32>,
}

/// The state of an endpoint in its slice.
#[derive(Clone, Copy)]
enum State {
    Ready,
    Draining,
}

/// The results of connections.
#[derive(Debug, Default)]
struct Tally {
    opened: u32,
    failures: Vec<String>,
}

/// A client that opens connections until it is stopped.
struct Load {
    stop: Arc<AtomicBool>,
    began: Instant,
    thread: JoinHandle<Tally>,
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(work)
}

/// Serves one connection: its first octet selects how long.
async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let long = stream.read_u8().await? != 0;
    if long {
        sleep(LONG).await;
    }
    stream.write_u8(1).await?;
    stream.shutdown().await
}

/// Serves connections in a container until it is stopped. The thread returns their number.
fn serve(host: Host) -> (watch::Sender<Stop>, JoinHandle<u32>) {
    let (stop, mut stopped) = watch::channel(Stop::Not);
    let (sender, bound) = sync_channel(1);
    let work = async move {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).await;
        let listener = listener.expect("a port");
        sender.send(()).expect("the test");
        let mut open = JoinSet::new();
        let mut count = 0;
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    let (stream, _) = accepted.expect("accepted");
                    count += 1;
                    open.spawn(answer(stream));
                }
                // Errors are those of clients that a fault has cut, and the clients count them.
                Some(_) = open.join_next() => {}
                _ = stopped.changed() => break,
            }
        }
        let how = *stopped.borrow();
        drop(listener);
        if how == Stop::Softly {
            while open.join_next().await.is_some() {}
        }
        count
    };
    let thread = spawn(move || host.run(|| block_on(work)).expect("a thread"));
    bound.recv().expect("it listens");
    (stop, thread)
}

impl Load {
    fn start(host: Host, per_second: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let work = async move {
            let mut tally = Tally::default();
            let mut due = interval(Duration::from_secs(1) / per_second);
            let mut open = JoinSet::new();
            let mut note = |done: Result<Result<(), String>, _>| {
                if let Err(failure) = done.expect("a task") {
                    tally.failures.push(failure);
                }
            };
            while !is_stopped.load(Ordering::Relaxed) {
                due.tick().await;
                tally.opened += 1;
                open.spawn(exchange(tally.opened % 10 == 0));
                while let Some(done) = open.try_join_next() {
                    note(done);
                }
            }
            while let Some(done) = open.join_next().await {
                note(done);
            }
            tally
        };
        Self {
            stop,
            began: Instant::now(),
            thread: spawn(move || host.run(|| block_on(work)).expect("a thread")),
        }
    }

    /// Stops it, and waits for the open connections.
    async fn end(self) -> (Tally, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        let elapsed = self.began.elapsed();
        let joined = tokio::task::spawn_blocking(move || self.thread.join());
        let tally = joined.await.expect("a thread").expect("a tally");
        (tally, elapsed)
    }
}

/// Makes one connection to the service.
async fn exchange(long: bool) -> Result<(), String> {
    let work = async {
        let mut stream = TcpStream::connect(SERVICE).await?;
        stream.write_u8(long.into()).await?;
        let mut octets = Vec::new();
        stream.read_to_end(&mut octets).await?;
        std::io::Result::Ok(octets)
    };
    match timeout(LIMIT, work).await {
        Ok(Ok(octets)) if octets == [1] => Ok(()),
        Ok(Ok(_)) => Err("it ended without an answer".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

/// The service under test, and its two hosts.
struct Bench<'f> {
    fabric: &'f Fabric,
    api: &'f ApiServer,
    nodes: &'f [Node; 2],
    kubeconfig: String,
    /// The connections that the pods of each host have accepted.
    served: Cell<[u32; 2]>,
    /// Whether the table of each host has been loaded with an endpoint.
    translates: Cell<[bool; 2]>,
}

impl Bench<'_> {
    fn node(&self, number: u8) -> &Node {
        &self.nodes[usize::from(number) - 1]
    }

    fn network(&self, node: u8) -> Value {
        let more = json!({ "kubernetes": { "kubeconfig": self.kubeconfig } });
        self.node(node).network(more)
    }

    /// Starts a pod with a server.
    async fn start(&self, name: &str, node: u8) -> Pod {
        self.api.apply(json!({"kind": "Pod",
            "metadata": {"name": name, "namespace": "prod", "labels": {"app": "web"}},
            "spec": {"nodeName": format!("h{node}"), "serviceAccountName": "web",
                "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": PORT}]}]}}));
        let container = Container::new(self.fabric, name).await.of_kubelet(name);
        let network = self.network(node);
        let added = self.node(node).asks("ADD", &container, &network).await;
        let address = addresses(&added.expect("connected"))[0];
        let (stop, thread) = serve(container.host().clone());
        Pod {
            name: name.to_owned(),
            node,
            container,
            address,
            stop,
            thread,
        }
    }

    /// Writes the slice of the service.
    fn publish(&self, endpoints: &[(&Pod, State)]) {
        let endpoint = |(pod, state): &(&Pod, State)| {
            let conditions = match state {
                State::Ready => json!({"ready": true, "serving": true, "terminating": false}),
                State::Draining => json!({"ready": false, "serving": true, "terminating": true}),
            };
            json!({"addresses": [pod.address], "conditions": conditions,
                "nodeName": format!("h{}", pod.node),
                "targetRef": {"kind": "Pod", "namespace": "prod", "name": pod.name}})
        };
        self.api.apply(json!({"kind": "EndpointSlice",
            "metadata": {"name": "web-1", "namespace": "prod",
                "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": PORT, "protocol": "TCP"}],
            "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()}));
    }

    /// Adds the connections of a server that has ended to those of its host.
    fn count(&self, node: u8, server: JoinHandle<u32>) {
        let mut served = self.served.get();
        served[usize::from(node) - 1] += server.join().expect("it ended");
        self.served.set(served);
    }

    /// Replaces a pod by a new one on its host, as a rolling update does.
    async fn update(&self, old: Pod, new: &str, other: &Pod) -> Pod {
        let new = self.start(new, old.node).await;
        self.publish(&[
            (&old, State::Ready),
            (&new, State::Ready),
            (other, State::Ready),
        ]);
        // The deletion begins when the new pod is ready. The old one still serves during preStop.
        self.publish(&[
            (&old, State::Draining),
            (&new, State::Ready),
            (other, State::Ready),
        ]);
        sleep(PRE_STOP).await;
        old.stop.send_replace(Stop::Softly);
        while !old.thread.is_finished() {
            sleep(PROXY_EVERY).await;
        }
        self.count(old.node, old.thread);
        self.publish(&[(&new, State::Ready), (other, State::Ready)]);
        let network = self.network(old.node);
        let removed = self
            .node(old.node)
            .asks("DEL", &old.container, &network)
            .await;
        removed.expect("disconnected");
        self.api.remove("Pod", "prod", &old.name);
        new
    }

    /// Translates the address of the service on both hosts, as kube-proxy does, until the test ends.
    async fn proxy(&self) {
        let mut applied = [String::new(), String::new()];
        loop {
            let slices = self.api.objects("EndpointSlice");
            for (node, applied) in self.nodes.iter().zip(&mut applied) {
                let rules = rules(&slices, node.site.number);
                if rules != *applied {
                    let path = node.site.save("services.nft", &rules);
                    node.output(&format!("nft -f {}", path.display())).await;
                    let mut translates = self.translates.get();
                    translates[usize::from(node.site.number) - 1] = rules.contains("dnat");
                    self.translates.set(translates);
                    *applied = rules;
                }
            }
            sleep(PROXY_EVERY).await;
        }
    }
}

/// Returns the table of a host: its ready endpoints, or without one those that terminate and serve.
fn rules(slices: &[Value], node: u8) -> String {
    let node = format!("h{node}");
    let endpoints = slices
        .iter()
        .filter_map(|slice| slice["endpoints"].as_array());
    let local = endpoints.flatten().filter(|one| one["nodeName"] == *node);
    let local: Vec<_> = local.collect();
    let with = |condition: &str| {
        let found = local
            .iter()
            .filter(|one| one["conditions"][condition] == true);
        let addresses = found.filter_map(|one| one["addresses"][0].as_str());
        addresses.collect::<Vec<_>>()
    };
    let ready = with("ready");
    let targets = if ready.is_empty() {
        with("serving")
    } else {
        ready
    };
    let numbered = targets.iter().enumerate();
    let numbered = numbered.map(|(number, address)| format!("{number} : {address}"));
    let to = match &targets[..] {
        [] => String::new(),
        all => format!(
            "ip daddr {} tcp dport {} dnat to numgen inc mod {} map {{ {} }}:{PORT}",
            SERVICE.ip(),
            SERVICE.port(),
            all.len(),
            numbered.collect::<Vec<_>>().join(", ")
        ),
    };
    format!(
        "table ip services\ndelete table ip services\ntable ip services {{\n  chain translate {{\n    \
         type nat hook prerouting priority dstnat;\n    {to}\n  }}\n}}\n"
    )
}

/// Starts a client of both hosts that learns the routes of services by BGP, and is no node. Its kernel
/// selects one of both hosts for each connection.
fn start_client(site: &Site) -> Process {
    let number = site.number;
    let ports_count = site.host.sysctl("net/ipv4/fib_multipath_hash_policy", "1");
    ports_count.expect("set");
    let neighbors = [1, 2].map(|node| {
        let address = Site::v4(node);
        format!("[[neighbor]]\nname = \"h{node}\"\naddress = \"{address}\"\nasn = 64512\n")
    });
    let text = format!(
        "asn = 64512\nrouter_id = \"{}\"\nfamilies = [\"ipv4-unicast\"]\nmultipath = 2\n{}",
        Site::v4(number),
        neighbors.concat()
    );
    let path = site.save("bgp-client.toml", &text);
    let program = Program::new(own("cambric-bgp-client"))
        .arg("--config")
        .arg(path);
    site.host.spawn("bgp-client", &program).expect("BGP")
}

/// Returns the rate of new connections.
fn rate() -> u32 {
    let set = std::env::var(RATE_VARIABLE).ok();
    set.map_or(RATE, |text| text.parse().expect(RATE_VARIABLE))
}

// Promise (Kubernetes): In a rolling update with a preStop, no new connection to the external address of a
// service fails, and none is cut that ends in its grace period.
#[test]
fn rolling_update_fails_no_connection() {
    if interop_tests::foreign("nft").is_none() {
        return;
    }
    in_ground(&[], "a rolling update of a service", async |ground| {
        let Some(fabric) = Fabric::new(ground, Backing::Etcd).await else {
            return;
        };
        let ranges = json!([{"cidr": "192.0.2.0/24"}]);
        let settings = json!({"asNumber": 64512, "serviceExternalIPs": ranges});
        fabric.create("BGPConfiguration", "default", settings).await;
        let peer = json!({"peerIP": Site::v4(30), "asNumber": 64512});
        fabric.create("BGPPeer", "client", peer).await;
        let mut nodes = [fabric.node(1).await, fabric.node(2).await];
        nodes.iter_mut().for_each(Node::start_bgp);
        let api = ApiServer::start(api_address(), 1).await;
        api.apply(json!({"kind": "Namespace", "metadata": {"name": "prod"}}));
        let account = json!({"name": "web", "namespace": "prod"});
        api.apply(json!({"kind": "ServiceAccount", "metadata": account}));
        for node in ["h1", "h2"] {
            api.apply(json!({"kind": "Node", "metadata": {"name": node}}));
        }
        api.apply(json!({"kind": "Service", "metadata": {"name": "web", "namespace": "prod"},
            "spec": {"type": "NodePort", "clusterIPs": ["10.96.0.10"], "externalIPs": [SERVICE.ip()],
                "externalTrafficPolicy": "Local", "selector": {"app": "web"},
                "ports": [{"port": SERVICE.port(), "targetPort": PORT, "protocol": "TCP"}]}}));
        let kubeconfig = nodes[0]
            .site
            .save("kubeconfig", &api.kubeconfig(None, None));
        let (control, outside) = (
            fabric.ground.site(20).await.expect("a host"),
            fabric.ground.site(30).await.expect("a host"),
        );
        let _controller = start_controller(&fabric, &control);
        ready(&control).await;
        let _client = start_client(&outside);
        let bench = Bench {
            fabric: &fabric,
            api: &api,
            nodes: &nodes,
            kubeconfig: kubeconfig.display().to_string(),
            served: Cell::default(),
            translates: Cell::default(),
        };
        let test =
            async {
                let here = bench.start("a1", 1).await;
                let there = bench.start("a2", 2).await;
                bench.publish(&[(&here, State::Ready), (&there, State::Ready)]);
                // The routes of a service may come before a host translates its address.
                let links = outside.host.links().expect("links");
                until::<(), Error>(
                    PATIENCE,
                    "the service is reachable by both hosts",
                    async || {
                        let routes = links.routes().await?;
                        let route = routes.iter().find(|route| route.net.addr() == SERVICE.ip());
                        let hosts = route.map_or(0, |route| route.hops.len());
                        let translates = bench.translates.get();
                        let is_complete = hosts == 2 && translates == [true; 2];
                        Ok(is_complete.then_some(()).ok_or_else(|| {
                    format!("{hosts} hosts are next hops, and the hosts translate: {translates:?}")
                }))
                    },
                )
                .await
                .expect("in time");

                let load = Load::start(outside.host.clone(), rate());
                let here = bench.update(here, "b1", &there).await;
                let there = bench.update(there, "b2", &here).await;
                let (tally, elapsed) = load.end().await;
                let wanted = f64::from(rate()) * elapsed.as_secs_f64() / 2.0;
                assert!(f64::from(tally.opened) > wanted, "{tally:?} in {elapsed:?}");
                assert_eq!(tally.failures, [""; 0], "of {} connections", tally.opened);
                println!("{} connections in {elapsed:?}, none failed", tally.opened);
                let opened = tally.opened;

                // The clients notice pods that end without a preStop.
                let load = Load::start(outside.host.clone(), rate());
                for pod in [here, there] {
                    pod.stop.send_replace(Stop::Hard);
                    bench.count(pod.node, pod.thread);
                }
                let served = bench.served.get();
                assert!(served.iter().all(|count| *count > opened / 5), "{served:?}");
                sleep(PRE_STOP / 2).await;
                let (tally, _) = load.end().await;
                assert!(!tally.failures.is_empty(), "{tally:?}");
            };
        tokio::select! {
            () = test => {}
            () = bench.proxy() => {}
        }
    });
}
