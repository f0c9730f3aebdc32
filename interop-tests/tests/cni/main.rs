//! Cambric's CNI plugin between runtimes, a datastore and Felix.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod again;
mod chosen;
mod collected;
mod host;
mod kubernetes;
mod pods;
mod policed;
mod roles;
mod rolling;
mod runtime;
mod shaped;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use calico_model::Kind;
use host::{Backing, Container, Fabric, Node, addresses, on_a_host};
use interop_tests::{PATIENCE, in_ground};
use netns_lab::Process;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

const ID: &str = "9f3c0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab";

/// Tests every command of a runtime with two containers of one host.
async fn from_add_to_del(fabric: &Fabric) {
    let node = fabric.node(1).await;
    let config = node.network(json!({}));
    let (one, two) = (
        Container::new(fabric, ID).await,
        Container::new(fabric, "second").await,
    );
    let first = node.asks("ADD", &one, &config).await.expect("connected");
    assert_eq!(first["cniVersion"], "1.1.0");
    assert_eq!(
        first["interfaces"][0],
        json!({"name": "cali9f3c0123456", "mac": "ee:ee:ee:ee:ee:ee"})
    );
    assert_eq!(first["interfaces"][1]["name"], "eth0");
    assert_eq!(first["interfaces"][1]["sandbox"], one.netns.as_str());
    let own = addresses(&first);
    assert!(
        own.len() == 2 && own[0].is_ipv4() && own[1].is_ipv6(),
        "{first}"
    );
    assert!(
        first["ips"]
            .as_array()
            .unwrap()
            .iter()
            .all(|ip| ip["interface"] == 1 && ip.get("gateway").is_none())
    );

    // A repeated ADD of a connected container has the same result.
    assert_eq!(
        node.asks("ADD", &one, &config).await.expect("the same"),
        first
    );
    let second = node.asks("ADD", &two, &config).await.expect("connected");
    for address in addresses(&second) {
        assert!(one.pings(&first, address).await, "{address}");
    }

    let mut checked = config.clone();
    checked["prevResult"] = first.clone();
    assert_eq!(node.asks("CHECK", &one, &checked).await, Ok(Value::Null));
    let links = node.site.host.links().unwrap();
    links.down("cali9f3c0123456").await.unwrap();
    let changed = node.asks("CHECK", &one, &checked).await.unwrap_err();
    assert_eq!(
        (&changed["code"], &changed["msg"]),
        (&json!(103), &json!("interface cali9f3c0123456 is down"))
    );

    // One container is deleted without DEL: GC removes its state.
    let mut collected = config.clone();
    collected["cni.dev/valid-attachments"] = json!([{"containerID": "second", "ifname": "eth0"}]);
    assert_eq!(node.asks("GC", &one, &collected).await, Ok(Value::Null));
    assert_eq!(node.interfaces().await.len(), 1);
    checked["prevResult"] = second;
    assert_eq!(node.asks("CHECK", &two, &checked).await, Ok(Value::Null));
    for _ in 0..2 {
        assert_eq!(node.asks("DEL", &one, &config).await, Ok(Value::Null));
        assert_eq!(node.asks("DEL", &two, &config).await, Ok(Value::Null));
    }
    assert_eq!(fabric.left().await, [""; 0]);
    assert_eq!(node.interfaces().await, [""; 0]);
}

#[test]
fn container_is_connected_over_the_embedded_store() {
    in_ground(&[], "cni over the embedded store", async |ground| {
        let fabric = Fabric::new(ground, Backing::Embedded)
            .await
            .expect("a store");
        from_add_to_del(&fabric).await;
    });
}

#[test]
fn a_container_is_connected_until_it_is_not_over_etcd() {
    in_ground(&[], "cni over etcd", async |ground| {
        if let Some(fabric) = Fabric::new(ground, Backing::Etcd).await {
            from_add_to_del(&fabric).await;
        }
    });
}

#[test]
fn container_is_connected_over_an_etcd_with_certificates() {
    in_ground(&[], "cni over TLS", async |ground| {
        if let Some(fabric) = Fabric::new(ground, Backing::Secured).await {
            from_add_to_del(&fabric).await;
        }
    });
}

// Promise (Workloads): A container is connected only if Felix reports its endpoint as up.
#[test]
fn an_endpoint_that_felix_refuses_is_no_connection() {
    on_a_host("cni and a refusing Felix", async |fabric, node| {
        let config = node.network(json!({}));
        let container = Container::bare(ID);
        let add = node
            .call("ADD", &container, &config)
            .env("FELIX_INTERFACEPREFIX", "veth");
        let refused = node.answer(&add).await.unwrap_err();
        assert_eq!(refused["code"], 102, "{refused}");
        let message = refused["msg"].as_str().unwrap();
        assert!(
            message.contains("does not begin with an interface prefix"),
            "{message}"
        );
        assert_eq!(fabric.left().await, [""; 0]);

        // Without Felix there is no connectivity.
        let mut node = node;
        node.felix.kill().await.unwrap();
        let hurried = node.network(json!({"policy_setup_timeout_seconds": 1}));
        let late = node.asks("ADD", &container, &hurried).await.unwrap_err();
        assert_eq!(late["code"], 11, "{late}");
        assert_eq!(fabric.left().await, [""; 0]);
        // This does not apply if the plugin does not wait for Felix.
        let unwatched = node.network(json!({"policy_setup_timeout_seconds": 0}));
        node.asks("ADD", &container, &unwatched)
            .await
            .expect("connected");
    });
}

#[test]
fn containers_of_two_hosts_reach_each_other() {
    in_ground(&[], "cni on two hosts", async |ground| {
        let Some(fabric) = Fabric::new(ground, Backing::Etcd).await else {
            return;
        };
        let mut nodes = [fabric.node(1).await, fabric.node(2).await];
        nodes.iter_mut().for_each(Node::start_bgp);
        let [here, there] = &nodes;
        let (one, two) = (
            Container::new(&fabric, "one").await,
            Container::new(&fabric, "two").await,
        );
        // The network's own profile accepts ingress from the same network.
        let more = json!({"policy": {}});
        let first = here.asks("ADD", &one, &here.network(more.clone())).await;
        let first = first.expect("connected");
        let second = there.asks("ADD", &two, &there.network(more)).await;
        for address in addresses(&second.expect("connected")) {
            let what = format!("{address} answers");
            netns_lab::until::<(), netns_lab::Error>(PATIENCE, &what, async || {
                let soon = Duration::from_secs(1);
                let answered = one.pings_within(&first, address, soon).await;
                Ok(answered.then_some(()).ok_or_else(String::new))
            })
            .await
            .unwrap();
        }
    });
}

/// Returns the output of a call that must succeed.
async fn result(mut process: Process) -> Value {
    let status = process.wait(2 * PATIENCE).await.unwrap();
    let text = process.log_tail();
    assert!(status.success(), "{text}");
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

#[test]
fn two_hundred_at_once_lose_nothing() {
    in_ground(&[], "two hundred containers at once", async |ground| {
        let Some(fabric) = Fabric::new(ground, Backing::Etcd).await else {
            return;
        };
        let node = fabric.node(1).await;
        let config = node.network(json!({"policy_setup_timeout_seconds": 400}));
        let ids = (0..200).map(|number| format!("container{number}"));
        let containers: Vec<Container> = ids.map(|id| Container::bare(&id)).collect();
        let start = |command: &str, nth: usize, name: String| {
            let call = node.call(command, &containers[nth], &config);
            node.site.host.spawn(&name, &call).unwrap()
        };
        // One container is requested twice at the same time.
        let twice = start("ADD", 0, "twice".into());
        let adding: Vec<Process> = (0..200)
            .map(|nth| start("ADD", nth, format!("add{nth}")))
            .collect();
        let mut given = BTreeSet::new();
        let mut first = None;
        for process in adding {
            let result = result(process).await;
            given.extend(addresses(&result));
            first.get_or_insert(result);
        }
        assert_eq!(given.len(), 400);
        assert_eq!(Some(result(twice).await), first);
        assert_eq!(node.interfaces().await.len(), 200);
        let endpoints = fabric
            .resources
            .list(Kind::WorkloadEndpoint, None)
            .await
            .unwrap();
        assert_eq!(endpoints.items.len(), 200);
        let deleting: Vec<Process> = (0..200)
            .map(|nth| start("DEL", nth, format!("del{nth}")))
            .collect();
        for process in deleting {
            result(process).await;
        }
        assert_eq!(fabric.left().await, [""; 0]);
        assert_eq!(node.interfaces().await, [""; 0]);
    });
}

/// How many times an ADD is killed, each a bit later.
const KILLS: u32 = 30;

/// The states that killed ADDs have left: in the datastore, and as interfaces.
type Found = BTreeSet<(Vec<String>, Vec<String>)>;

/// Returns whether some ADDs were killed before they had any effect, and others midway.
fn are_all_kinds(half_made: &Found) -> bool {
    half_made.len() > 1 && half_made.iter().any(|(_, links)| !links.is_empty())
}

/// Returns how long an ADD takes when the address block is assigned and the files are cached: the
/// median of several, after a first one without these.
async fn usual(node: &Node, container: &Container, config: &Value) -> Duration {
    let mut times = Vec::new();
    for _ in 0..6 {
        let began = Instant::now();
        let added = node.asks("ADD", container, config).await;
        times.push(began.elapsed());
        added.expect("connected");
        let removed = node.asks("DEL", container, config).await;
        removed.expect("disconnected");
    }
    times.remove(0);
    times.sort_unstable();
    times[times.len() / 2]
}

/// Kills an ADD this long after its start. Returns its duration if it finished earlier.
async fn cut(
    node: &Node,
    container: &Container,
    config: &Value,
    after: Duration,
) -> Result<(), Duration> {
    let call = node.call("ADD", container, config);
    let began = Instant::now();
    let mut process = node.site.host.spawn("killed", &call).unwrap();
    let _ = process.wait(after).await;
    let took = began.elapsed();
    let _ = process.signal(Signal::SIGKILL);
    let status = process.wait(PATIENCE).await.unwrap();
    match status.signal() {
        Some(_) => Ok(()),
        None => {
            assert!(status.success(), "{}", process.log_tail());
            Err(took)
        }
    }
}

// Promise (Workloads): Wherever the CNI plugin is killed, DEL or GC removes the rest, and ADD
// works again.
#[test]
fn killed_add_is_cleaned_by_del_or_gc_and_repeatable() {
    on_a_host("cni and SIGKILL", async |fabric, node| {
        let config = node.network(json!({}));
        let mut collected = config.clone();
        collected["cni.dev/valid-attachments"] = json!([]);
        let container = Container::bare(ID);
        let mut whole = usual(&node, &container, &config).await;
        let mut half_made = Found::new();
        for nth in 0.. {
            if nth >= KILLS && are_all_kinds(&half_made) {
                break;
            }
            assert!(nth < 10 * KILLS, "{half_made:?}");
            if nth > 0 && nth % KILLS == 0 {
                // The first ones are slower: all processes have just started.
                whole *= 2;
            }
            let after = |whole: Duration| whole * (nth % KILLS) / KILLS;
            // An ADD that finished before its kill yields the current duration.
            while let Err(took) = cut(&node, &container, &config, after(whole)).await {
                whole = whole.min(took) * 9 / 10;
                let removed = node.asks("DEL", &container, &config).await;
                removed.expect("disconnected");
            }
            half_made.insert((fabric.left().await, node.interfaces().await));
            let steps: &[(&str, &Value)] = match nth % 3 {
                0 => &[("DEL", &config)],
                1 => &[("GC", &collected)],
                _ => &[("ADD", &config), ("DEL", &config)],
            };
            for (command, config) in steps {
                let done = node.asks(command, &container, config).await;
                done.unwrap_or_else(|error| panic!("{command} after kill {nth}: {error}"));
            }
            assert_eq!(fabric.left().await, [""; 0], "after kill {nth}");
            assert_eq!(node.interfaces().await, [""; 0], "after kill {nth}");
        }
    });
}

#[test]
fn pod_keeps_its_name_with_a_new_sandbox() {
    on_a_host("cni and pods", async |fabric, node| {
        let address = r#"["10.65.7.7"]"#;
        let annotations = json!({"cni.projectcalico.org/ipAddrs": address, "cni.projectcalico.org/hwAddr": "02:00:00:00:07:07"});
        let config = node.network(json!({
            "runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations},
            "ipam": {"type": "cambric-ipam"},
        }));
        let (old, new) = (Container::pod("old"), Container::pod("new"));
        let first = node.asks("ADD", &old, &config).await.expect("connected");
        assert_eq!(first["interfaces"][0]["name"], "caliaa960f0d82e");
        assert_eq!(first["interfaces"][1]["mac"], "02:00:00:00:07:07");
        assert_eq!(addresses(&first), ["10.65.7.7".parse::<IpAddr>().unwrap()]);
        let endpoints = fabric
            .resources
            .list(Kind::WorkloadEndpoint, Some("prod"))
            .await
            .unwrap()
            .items;
        let [endpoint] = &endpoints[..] else {
            panic!("{endpoints:?}")
        };
        assert_eq!(endpoint.key.name(), "h1-k8s-web--0-eth0");
        assert_eq!(
            endpoint.value["spec"]["profiles"],
            json!(["kns.prod", "ksa.prod.web"])
        );
        let labels = &endpoint.value["metadata"]["labels"];
        for (label, value) in [
            ("app", "web"),
            ("projectcalico.org/namespace", "prod"),
            ("projectcalico.org/orchestrator", "k8s"),
            ("projectcalico.org/serviceaccount", "web"),
        ] {
            assert_eq!(labels[label], value, "{label}");
        }

        // The address belongs to the old sandbox until that one is deleted.
        let taken = node.asks("ADD", &new, &config).await.unwrap_err();
        assert_eq!(taken["code"], 100, "{taken}");
        let other = node.network(json!({"ipam": {"type": "cambric-ipam"}}));
        let second = node.asks("ADD", &new, &other).await.expect("connected");
        assert_eq!(second["interfaces"][0]["name"], "caliaa960f0d82e");
        node.asks("DEL", &old, &config).await.expect("disconnected");
        let mut checked = other.clone();
        checked["prevResult"] = second;
        assert_eq!(node.asks("CHECK", &new, &checked).await, Ok(Value::Null));
        node.asks("DEL", &new, &other).await.expect("disconnected");
        assert_eq!(fabric.left().await, [""; 0]);
    });
}

#[test]
fn ipam_works_across_plugins_in_both_directions() {
    on_a_host("cni and other address management", async |fabric, node| {
        if interop_tests::foreign("/usr/lib/cni/host-local").is_none() {
            return;
        }
        let container = Container::bare(ID);
        let data = node.site.host.directory().join("host-local");
        let delegated = node.network(json!({
            "cniVersion": "1.0.0",
            "ipam": {"type": "host-local", "subnet": "10.65.9.0/24", "dataDir": data},
        }));
        let first = node
            .asks("ADD", &container, &delegated)
            .await
            .expect("connected");
        assert_eq!(first["ips"][0]["address"], "10.65.9.2/32", "{first}");
        let mut checked = delegated.clone();
        checked["prevResult"] = first;
        assert_eq!(
            node.asks("CHECK", &container, &checked).await,
            Ok(Value::Null)
        );
        node.asks("DEL", &container, &delegated)
            .await
            .expect("disconnected");
        let missing = node.network(json!({"ipam": {"type": "no-such-plugin"}}));
        assert_eq!(
            node.asks("ADD", &container, &missing).await.unwrap_err()["code"],
            7
        );
        assert_eq!(fabric.left().await, [""; 0]);

        let mut own = node.network(json!({"type": "cambric-ipam"}));
        let given = node.asks("ADD", &container, &own).await.expect("addresses");
        assert_eq!(
            (addresses(&given).len(), given.get("interfaces")),
            (2, None)
        );
        own["prevResult"] = given;
        assert_eq!(node.asks("CHECK", &container, &own).await, Ok(Value::Null));
        assert_eq!(node.asks("DEL", &container, &own).await, Ok(Value::Null));
        assert_eq!(
            node.asks("CHECK", &container, &own).await.unwrap_err()["code"],
            103
        );
        assert_eq!(fabric.left().await, [""; 0]);
    });
}

#[test]
fn status_reports_whether_add_is_possible() {
    on_a_host("cni and STATUS", async |fabric, mut node| {
        let config = node.network(json!({}));
        let container = Container::bare(ID);
        // The region of its reports is another, which only Felix's own environment sets.
        for lives in [false, true, false] {
            match lives {
                true => node.restart_felix(&[("FELIX_OPENSTACKREGION", "east")]),
                false => node.felix.kill().await.unwrap(),
            }
            let what = if lives {
                "Felix answers"
            } else {
                "Felix is gone"
            };
            netns_lab::until::<(), netns_lab::Error>(PATIENCE, what, async || {
                let status = node.asks("STATUS", &container, &config).await;
                let is_reported = match &status {
                    Ok(_) => lives,
                    Err(error) => !lives && error["code"] == 50,
                };
                Ok(is_reported
                    .then_some(())
                    .ok_or_else(|| format!("{status:?}")))
            })
            .await
            .unwrap();
        }
        fabric
            .create(
                "FelixConfiguration",
                "default",
                json!({"reportingInterval": "0s"}),
            )
            .await;
        assert_eq!(
            node.asks("STATUS", &container, &config).await,
            Ok(Value::Null)
        );
        let none =
            node.network(json!({"ipam": {"type": "cambric-ipam", "ipv4_pools": ["10.99.0.0/16"]}}));
        let none = node.asks("STATUS", &container, &none).await.unwrap_err();
        assert!(
            none["code"] == 50 && none["msg"].as_str().unwrap().contains("10.99.0.0/16"),
            "{none}"
        );
        let away = node.network(json!({"etcd_endpoints": "http://10.0.0.253:2379"}));
        assert_eq!(
            node.asks("STATUS", &container, &away).await.unwrap_err()["code"],
            50
        );
        let newer = node.network(json!({"cniVersion": "9.9.9"}));
        assert_eq!(
            node.asks("ADD", &container, &newer).await.unwrap_err()["code"],
            1
        );
        let version = node
            .asks("VERSION", &container, &newer)
            .await
            .expect("versions");
        assert!(
            version["supportedVersions"]
                .as_array()
                .unwrap()
                .contains(&json!("1.1.0"))
        );
    });
}

/// A server for the Perl that every Debian has.
const SERVER: &str = "use IO::Socket::INET; \
    my $s = IO::Socket::INET->new(LocalPort => 80, Listen => 5, ReuseAddr => 1) or die; \
    while (my $c = $s->accept) { print $c 'hello'; close $c }";

/// Returns the server's greeting through the host's port, as soon as it listens.
async fn greeting() -> String {
    let greets = netns_lab::until::<String, netns_lab::Error>(PATIENCE, "a greeting", async || {
        let read = async {
            let mut stream = TcpStream::connect("10.0.0.1:8080").await?;
            let mut greeting = String::new();
            stream.read_to_string(&mut greeting).await.map(|_| greeting)
        };
        let read = timeout(Duration::from_secs(10), read).await;
        Ok(match read {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(late) => Err(late.to_string()),
        })
    });
    greets.await.unwrap().0
}

/// Returns the first address of a host's endpoint, once the endpoint is stored.
async fn address_on(fabric: &Fabric, node: &str) -> Result<IpAddr, String> {
    let endpoints = fabric.resources.list(Kind::WorkloadEndpoint, None).await;
    let endpoints = endpoints.map_err(|error| error.to_string())?.items;
    let its = endpoints
        .iter()
        .find(|item| item.value["spec"]["node"] == node);
    let address = its.and_then(|item| item.value["spec"]["ipNetworks"][0].as_str());
    let address = address.ok_or("there is no endpoint")?;
    Ok(address
        .split('/')
        .next()
        .unwrap_or_default()
        .parse()
        .expect("an address"))
}

#[test]
fn containers_of_podman_and_containerd_reach_each_other() {
    if !runtime::are_installed() {
        return;
    }
    in_ground(&[], "podman and containerd", async |ground| {
        let Some(fabric) = Fabric::new(ground, Backing::Etcd).await else {
            return;
        };
        let mut nodes = [fabric.node(1).await, fabric.node(2).await];
        for node in &mut nodes {
            node.start_bgp();
            node.prepare(&node.network(json!({}))).await;
        }
        let [podman, containerd] = &nodes;
        let server = ["perl", "-e", SERVER];
        podman
            .podman_run(&["-d", "--name", "web", "-p", "8080:80"], &server)
            .await;
        let web = address_on(&fabric, "h1")
            .await
            .expect("an endpoint")
            .to_string();
        let _daemon = containerd.start_containerd().await;
        // From one host to the other, as soon as BGP has advertised the route.
        containerd
            .ctr_to_end(
                "ping",
                &["/usr/bin/ping", "-n", "-c", "1", "-w", "240", &web],
            )
            .await;
        let sleeper = containerd.ctr_spawn("sleeper", &["/usr/bin/sleep", "600"]);
        let what = "the container has an endpoint";
        let (other, _) = netns_lab::until::<IpAddr, netns_lab::Error>(PATIENCE, what, async || {
            Ok(address_on(&fabric, "h2").await)
        })
        .await
        .unwrap();
        let ping = ["ping", "-n", "-c", "1", "-w", "240", &other.to_string()];
        podman.podman_run(&["--rm"], &ping).await;

        // Chained after this plugin, portmap forwards a port of the host into the container.
        assert_eq!(greeting().await, "hello");

        podman.podman_remove("web").await;
        containerd.ctr_kill("sleeper", sleeper).await;
        assert_eq!(fabric.left().await, [""; 0]);
    });
}
