//! kube: the controller of Kubernetes with objects of real size, and the way of a NetworkPolicy into the kernel.

mod services;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use calico_model::{EndpointName, Kind, RESOURCES_PREFIX};
use calico_store::{KeyRange, Query, Watch, WatchRequest};
use serde_json::{Value, json};
use tokio::time::{sleep, sleep_until, timeout};

use crate::fabric::{self, Cluster, Ground, SetChanges};
use crate::limits::{FABRIC_WITHIN, PAUSE, SETTLED};
use crate::stage::{Measures, Options, quantiles};

const NODE: usize = 0;

/// A pod as a server returns it, with `managedFields` and status: 8 KB.
const POD: &str = include_str!("kube/pod.json");

/// The namespace of the measured endpoint.
const OWN: &str = "bench";

/// Sizes of a run.
struct Size {
    namespaces: usize,
    pods: usize,
    policies: usize,
    nodes: usize,
    /// Changes of a policy, and services with a measured route.
    changes: usize,
    /// Services of the fabric, each with ten pods.
    services: usize,
    /// The time of one heartbeat of each node.
    beat: Duration,
}

const FULL: Size = Size {
    namespaces: 1_000,
    pods: 10_000,
    policies: 2_000,
    nodes: 1_000,
    changes: 200,
    services: 500,
    beat: Duration::from_secs(10),
};
const QUICK: Size = Size {
    namespaces: 10,
    pods: 100,
    policies: 20,
    nodes: 10,
    changes: 5,
    services: 20,
    beat: Duration::from_secs(1),
};

/// Measures the first start, a start with a complete datastore, heartbeats, and single policies.
pub(super) fn kube(options: &Options) -> Result<Measures> {
    let size = if options.quick { QUICK } else { FULL };
    let mut measures = fabric::apart(async |lab| {
        let mut ground = Ground::at_rest(lab, 1).await?;
        let measured = measure(&mut ground, &size).await;
        ground.with_logs(measured)
    })?;
    measures.extend(services::services(&size)?);
    Ok(measures)
}

async fn measure(ground: &mut Ground, size: &Size) -> Result<Measures> {
    let mut measures = Measures::new();
    let cluster = ground.cluster()?;
    fill(&cluster, size, &ground.fabric.node(NODE)?.plan.name)?;

    let empty = started(ground).await?;
    // Each Namespace and each account has a profile. The server has four namespaces of its own.
    let own = 4;
    let profiles = count(ground, &Kind::Profile.prefix()).await?;
    ensure!(
        profiles == 2 * (size.namespaces + 1) + own,
        "{profiles} profiles"
    );
    let policies = count(ground, &Kind::NetworkPolicy.prefix()).await?;
    ensure!(policies == size.policies, "{policies} policies");
    measures.insert("kube_empty_s", empty.as_secs_f64());
    measures.insert("kube_peak_mb", peak_mb(ground)?);

    // The plugin has written the endpoints; the controller adds their labels.
    let endpoints = (0..size.pods).map(|number| endpoint(number, &Place::of(number, size)));
    let endpoints = endpoints.collect::<Result<Vec<_>>>()?;
    let local = ground.endpoints(NODE, 1).await?;
    let local = local.first().context("an endpoint")?.labeled(&json!({}))?;
    let began = Instant::now();
    fabric::fill(&*ground.etcd.store, [endpoints, vec![local]].concat()).await?;
    let (range, labeled) = (Kind::WorkloadEndpoint.prefix(), size.pods + 1);
    netns_lab::until(FABRIC_WITHIN, "all endpoints have labels", async || {
        let all = ground.etcd.store.list(KeyRange::prefix(range.clone()));
        let all = all.await?.items;
        // Written by the plugin, then by the controller.
        let changed = all.iter().filter(|item| item.version == 2).count();
        anyhow::Ok(
            (changed == labeled)
                .then_some(())
                .ok_or_else(|| format!("{changed}")),
        )
    })
    .await?;
    measures.insert("kube_labels_s", began.elapsed().as_secs_f64());

    ground.controlled(NODE).await?;
    ground.kill_controller(NODE).await?;
    let before = revision(ground).await?;
    let right = started(ground).await?;
    ensure!(
        revision(ground).await? == before,
        "a right store is written"
    );
    measures.insert("kube_right_s", right.as_secs_f64());
    measures.insert("kube_right_peak_mb", peak_mb(ground)?);

    let share = heartbeats(ground, &cluster, size).await?;
    ensure!(revision(ground).await? == before, "heartbeats are written");
    measures.insert("kube_heartbeats_percent", share * 100.0);

    // A label of a pod costs one write.
    let place = Place::of(0, size);
    let mut pod = place.pod(serde_json::from_str(POD)?);
    pod["metadata"]["labels"]["release"] = json!("next");
    cluster.server.apply(pod);
    let written = async || {
        let now = revision(ground).await?;
        anyhow::Ok((now > before).then_some(()).ok_or_else(|| format!("{now}")))
    };
    netns_lab::until(FABRIC_WITHIN, "the label is written", written).await?;
    sleep(SETTLED).await;
    let writes = revision(ground).await? - before;
    measures.insert("kube_label_writes", writes as f64);

    policy_changes(ground, &cluster, size, &mut measures).await?;
    ground.fabric.check()?;
    Ok(measures)
}

/// Starts the controller. Returns the time until it has written everything.
async fn started(ground: &mut Ground) -> Result<Duration> {
    let began = Instant::now();
    ground.start_controller(NODE)?;
    ground.controlled(NODE).await?;
    Ok(began.elapsed())
}

fn peak_mb(ground: &mut Ground) -> Result<f64> {
    let used = ground.controller(NODE)?.usage();
    let peak = used.context("the controller has ended")?.peak_octets;
    Ok(peak as f64 / 1e6)
}

async fn count(ground: &Ground, prefix: &str) -> Result<usize> {
    let query = Query {
        keys_only: true,
        ..Query::new(KeyRange::prefix(prefix.to_owned()))
    };
    Ok(ground.etcd.store.range(query).await?.items.len())
}

async fn revision(ground: &Ground) -> Result<i64> {
    let query = Query {
        limit: 1,
        ..Query::new(KeyRange::all())
    };
    let listing = ground.etcd.store.range(query).await?;
    Ok(listing.header.revision.0)
}

/// Lets each node send its heartbeat, and as many pods change their status. Returns the share of a core
/// that the controller uses.
async fn heartbeats(ground: &mut Ground, cluster: &Cluster, size: &Size) -> Result<f64> {
    let mut status = serde_json::from_str::<Value>(POD)?["status"].take();
    status["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T00:01:00Z");
    sleep(SETTLED).await;
    let before = ground.cpu("kube");
    let began = tokio::time::Instant::now();
    for number in 0..size.nodes {
        let share = number as f64 / size.nodes as f64;
        sleep_until(began + size.beat.mul_f64(share)).await;
        let name = format!("n{number}");
        cluster.server.set_status("Node", "", &name, node_status(1));
        let place = Place::of(number, size);
        let (namespace, name) = (&place.namespace, &place.name);
        cluster
            .server
            .set_status("Pod", namespace, name, status.clone());
    }
    sleep_until(began + size.beat).await;
    let used = ground.cpu("kube").saturating_sub(before);
    // The answers to the last ones.
    sleep(SETTLED).await;
    Ok(used.as_secs_f64() / size.beat.as_secs_f64())
}

/// Changes a policy of the API server, and in turn one in the datastore.
async fn policy_changes(
    ground: &mut Ground,
    cluster: &Cluster,
    size: &Size,
    measures: &mut Measures,
) -> Result<()> {
    cluster.server.apply(policy("measured", OWN, 0));
    ground.controlled(NODE).await?;
    ground.start_felix(NODE)?;
    ground.programmed(NODE, 1).await?;
    sleep(SETTLED).await;
    let store = &ground.etcd.store;
    let path = format!("{RESOURCES_PREFIX}networkpolicies/{OWN}/");
    let measured = format!("{path}knp.default.measured");
    let mut kernel = SetChanges::listen_to_rules(&ground.fabric.node(NODE)?.host)?;
    let mut watch = store
        .watch(WatchRequest {
            range: KeyRange::key(measured.clone()),
            from: None,
            previous: false,
        })
        .await?;
    let (mut stored, mut applied, mut direct) = (vec![], vec![], vec![]);
    let since =
        |began: Instant, at: Instant| at.saturating_duration_since(began).as_secs_f64() * 1e3;
    for number in 1..=size.changes {
        sleep(PAUSE).await;
        kernel.forget();
        let began = Instant::now();
        cluster.server.apply(policy("measured", OWN, number));
        let at = written(&mut watch).await?;
        stored.push(since(began, at));
        applied.push(since(began, kernel.next(FABRIC_WITHIN).await?));

        let value = store
            .get(measured.clone().into())
            .await?
            .context("the policy")?;
        let mut value: Value = serde_json::from_slice(&value.value)?;
        value["metadata"]["name"] = json!("default.direct");
        let value = value.to_string().into_bytes();
        sleep(PAUSE).await;
        kernel.forget();
        let began = Instant::now();
        fabric::put(&**store, format!("{path}default.direct"), value).await?;
        direct.push(since(began, kernel.next(FABRIC_WITHIN).await?));
    }
    let [stored_p50, stored_p99] = quantiles(stored, [0.5, 0.99])?;
    let [p50, p99] = quantiles(applied, [0.5, 0.99])?;
    let [direct_p50, direct_p99] = quantiles(direct, [0.5, 0.99])?;
    measures.extend([
        ("kube_policy_stored_p50_ms", stored_p50),
        ("kube_policy_stored_p99_ms", stored_p99),
        ("kube_policy_p50_ms", p50),
        ("kube_policy_p99_ms", p99),
        ("kube_direct_p50_ms", direct_p50),
        ("kube_direct_p99_ms", direct_p99),
        ("kube_added_p50_ms", p50 - direct_p50),
        ("kube_added_p99_ms", p99 - direct_p99),
    ]);
    Ok(())
}

/// Waits for a change of the watched key.
async fn written(watch: &mut Watch) -> Result<Instant> {
    loop {
        let batch = timeout(FABRIC_WITHIN, watch.next()).await;
        let batch = batch.context("no policy was written")??;
        if !batch.events.is_empty() {
            return Ok(Instant::now());
        }
    }
}

/// Creates all objects.
fn fill(cluster: &Cluster, size: &Size, node: &str) -> Result<()> {
    let pod: Value = serde_json::from_str(POD)?;
    let server = &cluster.server;
    let names = (0..size.namespaces).map(|number| format!("ns{number}"));
    for name in names.chain([OWN.to_owned()]) {
        server.apply(json!({"kind": "Namespace", "metadata": {"name": name,
            "labels": {"team": name, "environment": "production"}}}));
        server.apply(json!({"kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name}}));
    }
    for number in 0..size.nodes {
        let name = format!("n{number}");
        let labels = json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": "a"});
        server.apply(json!({"kind": "Node", "metadata": {"name": name, "labels": labels}}));
        server.set_status("Node", "", &name, node_status(0));
    }
    server.apply(json!({"kind": "Node", "metadata": {"name": node}}));
    for number in 0..size.pods {
        let place = Place::of(number, size);
        server.apply(place.pod(pod.clone()));
    }
    let own = Place {
        name: "w0".to_owned(),
        namespace: OWN.to_owned(),
        node: node.to_owned(),
    };
    server.apply(own.pod(pod));
    for number in 0..size.policies {
        let namespace = format!("ns{}", number % size.namespaces);
        server.apply(policy(&format!("p{number}"), &namespace, number));
    }
    Ok(())
}

/// The names of a pod.
struct Place {
    name: String,
    namespace: String,
    node: String,
}

impl Place {
    fn of(number: usize, size: &Size) -> Self {
        Self {
            name: format!("web{number}"),
            namespace: format!("ns{}", number % size.namespaces),
            node: format!("n{}", number % size.nodes),
        }
    }

    fn pod(&self, mut pod: Value) -> Value {
        pod["metadata"]["name"] = json!(self.name);
        pod["metadata"]["namespace"] = json!(self.namespace);
        pod["spec"]["nodeName"] = json!(self.node);
        pod
    }
}

/// Returns the endpoint of a pod, as the plugin writes it.
fn endpoint(number: usize, place: &Place) -> Result<(String, Vec<u8>)> {
    let Place {
        name,
        namespace,
        node,
    } = place;
    let of = EndpointName::new(node, "k8s", name, "eth0")?;
    let address = fabric::address(u32::try_from(number)? + 1_000);
    let value = json!({"kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": of.to_string(), "namespace": namespace,
            "labels": {"projectcalico.org/namespace": namespace,
                "projectcalico.org/orchestrator": "k8s"}},
        "spec": {"node": node, "orchestrator": "k8s", "pod": name, "endpoint": "eth0",
            "interfaceName": format!("cali{number}"), "ipNetworks": [format!("{address}/32")],
            "profiles": [format!("kns.{namespace}")]}});
    let key = format!("{RESOURCES_PREFIX}workloadendpoints/{namespace}/{of}");
    Ok((key, value.to_string().into_bytes()))
}

/// Returns a policy with a network that depends on the number.
fn policy(name: &str, namespace: &str, number: usize) -> Value {
    let network = format!("10.9.{}.0/24", number % 256);
    let of_namespace = json!({"matchLabels": {"environment": "production"}});
    json!({"kind": "NetworkPolicy", "metadata": {"name": name, "namespace": namespace,
        "managedFields": [{"manager": "kubectl-client-side-apply", "operation": "Update",
            "apiVersion": "networking.k8s.io/v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:ingress": {}, "f:podSelector": {},
                "f:policyTypes": {}}}}]},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [
            {"from": [{"ipBlock": {"cidr": network}}],
                "ports": [{"protocol": "TCP", "port": 8080}]},
            {"from": [{"namespaceSelector": of_namespace}],
                "ports": [{"protocol": "TCP", "port": 9090}]}]}})
}

/// Returns the status of a node with the time of a heartbeat.
fn node_status(beat: u32) -> Value {
    let time = format!("2026-01-01T00:00:{:02}Z", beat % 60);
    let kinds = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
    let conditions = kinds.map(|kind| {
        json!({"type": kind, "status": if kind == "Ready" { "True" } else { "False" },
            "lastHeartbeatTime": time, "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": "Kubelet", "message": "kubelet has reported this condition"})
    });
    // The kubelet reports up to 50 images.
    let images = (0..25).map(|at| {
        json!({"names": [format!("registry.example/shop/service-{at}@sha256:2c26b46b68ffc68ff99b453c1d"),
            format!("registry.example/shop/service-{at}:1.42.0")], "sizeBytes": 104_857_600})
    });
    json!({"conditions": conditions, "images": images.collect::<Vec<_>>(),
        "capacity": {"cpu": "64", "memory": "263842Mi", "pods": "250"},
        "nodeInfo": {"kubeletVersion": "v1.36.0", "osImage": "Debian GNU/Linux 13",
            "containerRuntimeVersion": "containerd://2.1.4", "architecture": "amd64"}})
}
