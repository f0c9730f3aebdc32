//! Pods that the plugin reads from the API server: labels, ports, account and annotations.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use calico_model::Kind;
use interop_tests::{ApiServer, Certificates, Site};
use serde_json::{Value, json};

use crate::ID;
use crate::host::{Container, Fabric, Node, addresses, on_a_host};
use crate::kubernetes::api_address;

/// Pairs of calls whose times are compared.
const PAIRS: usize = 15;

/// A server that requires TLS and a token, and the configuration of a network that uses it.
struct Secured {
    api: ApiServer,
    network: Value,
}

impl Secured {
    /// Starts the server. Returns `None`, with a notice, where OpenSSL is not installed.
    async fn start(node: &Node) -> Option<Self> {
        let directory = node.site.host.directory();
        let certificates = Certificates::make(directory, Site::v4(254))?;
        let api = ApiServer::start_secured(api_address(), 1, &certificates).await;
        api.require_token("QXZQXZ");
        api.enforce("calico-cni-plugin");
        let token = node.site.save("token", "QXZQXZ\n");
        let text = api.kubeconfig(Some(&directory.join("ca.pem")), Some(&token));
        let kubeconfig = node.site.save("kubeconfig", &text);
        let network = node.network(json!({
            "kubernetes": {"kubeconfig": kubeconfig},
            "feature_control": {"floating_ips": true, "ip_addrs_no_ipam": true},
        }));
        Some(Self { api, network })
    }

    /// Writes the namespace and a pod with these annotations.
    fn apply(&self, of_namespace: Value, of_pod: Value) {
        self.api
            .apply(json!({"kind": "Namespace", "metadata": {"name": "prod",
            "labels": {"team": "a"}, "annotations": of_namespace}}));
        self.api.apply(json!({"kind": "Pod",
            "metadata": {"name": "web-0", "namespace": "prod",
                "labels": {"app": "web"}, "annotations": of_pod},
            "spec": {"nodeName": "h1", "serviceAccountName": "web", "containers": [
                {"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}]}}));
    }
}

async fn endpoint(fabric: &Fabric) -> Value {
    let all = fabric.resources.list(Kind::WorkloadEndpoint, Some("prod"));
    let mut items = all.await.expect("endpoints").items;
    assert_eq!(items.len(), 1);
    items.remove(0).value
}

// Promise (Workloads): With a kubeconfig, an endpoint has the labels, ports, profiles and addresses that
// the API server has for its pod.
#[test]
fn pod_of_the_api_server_is_followed() {
    on_a_host("cni and a pod of the API server", async |fabric, node| {
        let Some(secured) = Secured::start(&node).await else {
            return;
        };
        let other = json!({"cidr": "10.66.0.0/16", "namespaceSelector": "team == 'a'"});
        fabric.create("IPPool", "other-v4", other).await;
        secured.apply(
            json!({"cni.projectcalico.org/ipv4pools": r#"["other-v4"]"#}),
            json!({
                "cni.projectcalico.org/ipFamilies": r#"["IPv4"]"#,
                "cni.projectcalico.org/floatingIPs": r#"["203.0.113.9"]"#,
                "cni.projectcalico.org/allowedSourcePrefixes": r#"["192.0.2.0/28"]"#,
                "cni.projectcalico.org/hwAddr": "02:00:00:00:07:07",
            }),
        );
        let pod = Container::bare(ID).of_kubelet("web-0");
        let result = node.asks("ADD", &pod, &secured.network).await;
        let result = result.expect("connected");
        let [IpAddr::V4(own)] = addresses(&result)[..] else {
            panic!("{result}");
        };
        assert!(own.to_string().starts_with("10.66."), "{own}");
        assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:07:07");
        let written = endpoint(&fabric).await;
        let labels = json!({"app": "web", "projectcalico.org/namespace": "prod",
            "projectcalico.org/orchestrator": "k8s", "projectcalico.org/serviceaccount": "web"});
        assert_eq!(written["metadata"]["labels"], labels);
        let spec = &written["spec"];
        assert_eq!(spec["profiles"], json!(["kns.prod", "ksa.prod.web"]));
        assert_eq!(spec["serviceAccountName"], "web");
        assert_eq!(
            spec["ports"],
            json!([{"name": "http", "protocol": "TCP", "port": 8080}])
        );
        let nats = json!([{"internalIP": own, "externalIP": "203.0.113.9"}]);
        assert_eq!(spec["ipNATs"], nats);
        assert_eq!(spec["allowSpoofedSourcePrefixes"], json!(["192.0.2.0/28"]));
        // Two objects are read, and nothing is listed.
        assert_eq!(secured.api.count("pods", "get"), 1);
        assert_eq!(secured.api.count("namespaces", "get"), 1);
        assert_eq!(secured.api.count("pods", "list"), 0);
        // DEL needs no server.
        secured.api.stall(true);
        let removed = node.asks("DEL", &pod, &secured.network).await;
        removed.expect("disconnected");
        assert_eq!(fabric.left().await, [""; 0]);
    });
}

// Promise (Workloads): A pod that cannot be read, or requests something impossible, is refused by name, and
// DEL removes it all the same.
#[test]
fn pod_that_cannot_be_followed_is_refused_by_name() {
    on_a_host("cni and refused pods", async |fabric, node| {
        let Some(secured) = Secured::start(&node).await else {
            return;
        };
        let pod = Container::bare(ID).of_kubelet("web-0");
        let refused = async |code: u16, words: &str| {
            let failure = node.asks("ADD", &pod, &secured.network).await;
            let failure = failure.expect_err(words);
            assert_eq!(failure["code"], code, "{failure}");
            let text = failure.to_string();
            assert!(text.contains(words), "{failure}");
            assert!(!text.contains("QXZ"), "{failure}");
            let removed = node.asks("DEL", &pod, &secured.network).await;
            removed.expect("disconnected");
            assert_eq!(fabric.left().await, [""; 0]);
            assert_eq!(node.interfaces().await, [""; 0]);
        };
        refused(11, "/api/v1/namespaces/prod: the server answered 404").await;
        for (annotation, text, words) in [
            ("ipv4pools", "a", "annotation ipv4pools"),
            ("ipFamilies", r#"["IPv5"]"#, "annotation ipFamilies"),
            ("ipAddrs", r#"["10.0.0.300"]"#, "annotation ipAddrs"),
            (
                "floatingIPs",
                r#"["2001:db8::9"]"#,
                "annotation floatingIPs",
            ),
            ("hwAddr", "02", "annotation hwAddr"),
            (
                "ipAddr",
                r#"["10.65.3.3"]"#,
                "annotation ipAddr: is unknown",
            ),
        ] {
            let name = format!("cni.projectcalico.org/{annotation}");
            let mut annotations = json!({"cni.projectcalico.org/ipFamilies": r#"["IPv4"]"#});
            annotations[&name] = json!(text);
            secured.apply(json!({}), annotations);
            refused(7, words).await;
        }
        let limit = json!({"qos.projectcalico.org/ingressBandwidth": "1M"});
        secured.apply(json!({}), limit);
        refused(2, "qos.projectcalico.org/ingressBandwidth").await;
        secured.apply(json!({}), json!({}));
        secured.api.deny("get", "pods", true);
        refused(11, "pods/web-0: the server answered 403").await;
        secured.api.deny("get", "pods", false);
        // A token that is replaced takes effect at once.
        node.site.save("token", "other\n");
        refused(11, "401").await;
        node.site.save("token", "QXZQXZ\n");
        let connected = node.asks("ADD", &pod, &secured.network).await;
        connected.expect("connected");
        let removed = node.asks("DEL", &pod, &secured.network).await;
        removed.expect("disconnected");
        // A pod that was created again under the same name is another one.
        let mut again = Container::bare(ID).of_kubelet("web-0");
        again
            .args
            .push_str(";K8S_POD_UID=00000000-0000-0000-0000-000000000000");
        let failure = node.asks("ADD", &again, &secured.network).await;
        let failure = failure.expect_err("another pod");
        assert_eq!(failure["code"], 11, "{failure}");
        // A broken kubeconfig is named, and does not prevent DEL.
        node.site.save("kubeconfig", "users: [QXZ]\n");
        refused(7, "kubernetes.kubeconfig").await;
        let mut network = secured.network.clone();
        network["kubernetes"] = json!(["QXZ", 7]);
        network["device_type"] = json!("netkit");
        let removed = node.asks("DEL", &pod, &network).await;
        removed.expect("disconnected");
    });
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Compares the time of ADD with and without the API server, call by call. The difference is printed: how
/// long a call takes depends on the load of the machine.
#[test]
fn time_of_add_with_and_without_the_api_server() {
    on_a_host(
        "cni and the time of the API server",
        async |_fabric, node| {
            let Some(secured) = Secured::start(&node).await else {
                return;
            };
            secured.apply(json!({}), json!({}));
            let pod = Container::bare(ID).of_kubelet("web-0");
            let mut without = secured.network.clone();
            without["kubernetes"] = json!({});
            let networks = [&secured.network, &without];
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..PAIRS {
                for (network, times) in networks.iter().zip(&mut times) {
                    let begin = Instant::now();
                    let connected = node.asks("ADD", &pod, network).await;
                    connected.expect("connected");
                    times.push(begin.elapsed());
                    let removed = node.asks("DEL", &pod, network).await;
                    removed.expect("disconnected");
                }
            }
            // Namespace and pod, each time.
            let reads = secured.api.count("pods", "get") + secured.api.count("namespaces", "get");
            assert_eq!(reads, 2 * PAIRS as u64);
            let [with, without] = times.map(median);
            println!("ADD with the API server: {with:?}, without: {without:?} (p50 of {PAIRS})");
        },
    );
}
