use std::fs;
use std::path::Path;

use bytes::Bytes;
use serde_json::Value;
use tempfile::TempDir;

use crate::*;
use calico_store::{EventKind, KeyRange, LeaseId, Revision};
use calico_store::{Watch, WatchRequest};
use etcd_lite::Local;

const NODE: &str = "\
kind: Node
apiVersion: projectcalico.org/v3
metadata:
  name: n1
spec:
  bgp:
    ipv4Address: 10.0.0.11/24
    asNumber: 64512
";

const ENDPOINT: &str = "\
kind: WorkloadEndpoint
apiVersion: projectcalico.org/v3
metadata:
  name: n1-k8s-web--0-eth0
  namespace: prod
spec:
  node: n1
  orchestrator: k8s
  pod: web-0
  endpoint: eth0
  interfaceName: cali1
  ipNetworks: [10.65.0.1/32]
  profiles: [projectcalico-default-allow]
";

const NODE_KEY: &str = "/calico/resources/v3/projectcalico.org/nodes/n1";
const ENDPOINT_KEY: &str =
    "/calico/resources/v3/projectcalico.org/workloadendpoints/prod/n1-k8s-web--0-eth0";

struct Bench {
    directory: TempDir,
    store: Local,
}

impl Bench {
    fn new(files: &[(&str, &str)]) -> Self {
        let bench = Self {
            directory: tempfile::tempdir().unwrap(),
            store: Local::empty(),
        };
        for (name, text) in files {
            bench.write(name, text);
        }
        bench
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    async fn load(&self) -> Result<Manifests, ManifestError> {
        Manifests::load(self.directory.path().to_owned(), self.store.clone()).await
    }

    async fn refused(&self) -> String {
        self.load().await.err().unwrap().to_string()
    }

    async fn get(&self, key: &str) -> Option<Value> {
        let item = self.store.get(Bytes::from(key.to_owned())).await.unwrap()?;
        Some(serde_json::from_slice(&item.value).unwrap())
    }

    async fn watch(&self, from: Revision) -> Watch {
        self.store
            .watch(WatchRequest::from(KeyRange::all(), from))
            .await
            .unwrap()
    }

    async fn revision(&self) -> Revision {
        self.store
            .list(KeyRange::all())
            .await
            .unwrap()
            .header
            .revision
    }
}

/// Returns the next events, as kind and the last part of the key.
async fn events(watch: &mut Watch, count: usize) -> Vec<(EventKind, String)> {
    let deadline = std::time::Duration::from_secs(30);
    let mut events = Vec::new();
    while events.len() < count {
        let batch = tokio::time::timeout(deadline, watch.next())
            .await
            .expect("an event")
            .unwrap();
        for event in batch.events {
            let key = String::from_utf8(event.item.key.to_vec()).unwrap();
            events.push((event.kind, key.rsplit('/').next().unwrap().to_owned()));
        }
    }
    events
}

#[tokio::test]
async fn every_document_of_every_file_is_stored_complete() {
    let both = format!("---\n# two of them\n{NODE}---\n---\n{ENDPOINT}");
    let json = r#"{"kind": "Profile", "metadata": {"name": "p"}, "spec": {}}"#;
    let bench = Bench::new(&[
        ("a.yaml", &both),
        ("below/b.json", json),
        (".hidden/c.yaml", "{"),
        ("d.txt", "{"),
    ]);
    bench.load().await.unwrap();
    let node = bench.get(NODE_KEY).await.unwrap();
    assert_eq!(node["apiVersion"], "projectcalico.org/v3");
    assert_eq!(node["spec"]["bgp"]["asNumber"], 64512);
    assert_eq!(node["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert!(
        node["metadata"]["creationTimestamp"]
            .as_str()
            .unwrap()
            .ends_with('Z')
    );
    let endpoint = bench.get(ENDPOINT_KEY).await.unwrap();
    assert_eq!(
        endpoint["metadata"]["labels"]["projectcalico.org/namespace"],
        "prod"
    );
    // And `datastoreReady`.
    let key = "/calico/resources/v3/projectcalico.org/clusterinformations/default";
    let cluster = bench.get(key).await.unwrap();
    assert_eq!(cluster["spec"], serde_json::json!({"datastoreReady": true}));
    assert_eq!(
        bench.store.list(KeyRange::all()).await.unwrap().items.len(),
        4
    );
}

#[tokio::test]
async fn a_list_is_its_items() {
    let indented = |text: &str| text.replace('\n', "\n  ");
    let list = format!(
        "kind: List\nitems:\n- {}\n- {}\n",
        indented(NODE).trim(),
        indented(ENDPOINT).trim()
    );
    let bench = Bench::new(&[("a.yaml", &list)]);
    bench.load().await.unwrap();
    assert!(bench.get(NODE_KEY).await.is_some() && bench.get(ENDPOINT_KEY).await.is_some());
}

#[tokio::test]
async fn faults_are_reported_with_place_and_nothing_is_stored() {
    let broken = ENDPOINT.replace("ipNetworks: [10.65.0.1/32]", "ipNetwork: [10.65.0.1/32]");
    let typed = NODE.replace("64512", "many");
    let bench = Bench::new(&[
        ("a.yaml", &format!("{NODE}---\n{broken}")),
        ("b.yaml", &typed),
        ("c.yaml", "kind: Node\n  metadata: [\n"),
        ("d.yaml", "kind: Nod\n"),
        ("e.yaml", NODE),
    ]);
    let text = bench.refused().await;
    let has_fault = |name: &str, place: &str, message: &str| {
        let place = format!(
            "--> {}:{place}",
            bench.directory.path().join(name).display()
        );
        let mut reports = text.split("error: ");
        assert!(
            reports.any(|report| report.contains(&place) && report.contains(message)),
            "{place} {message}\n{text}"
        );
    };
    has_fault("a.yaml", "21:3", "unknown field `spec.ipNetwork`");
    has_fault("a.yaml", "21:3", "did you mean `ipNetworks`?");
    has_fault("b.yaml", "8:15", "`spec.bgp.asNumber` is an AS number");
    has_fault("c.yaml", "2:", "");
    has_fault("d.yaml", "1:7", "unknown kind `Nod`");
    has_fault("e.yaml", "1:1", "Node `n1` is already in");
    assert_eq!(
        bench.store.list(KeyRange::all()).await.unwrap().items.len(),
        0
    );
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_a_fault() {
    let text = Manifests::load("/nonexistent/manifests".into(), Local::empty())
        .await
        .err()
        .unwrap();
    assert!(
        text.to_string().contains("/nonexistent/manifests"),
        "{text}"
    );
}

#[tokio::test]
async fn applying_again_changes_nothing_and_keeps_what_others_report() {
    let bench = Bench::new(&[("a.yaml", NODE)]);
    let mut manifests = bench.load().await.unwrap();
    let before = bench.revision().await;
    manifests.apply().await.unwrap();
    assert_eq!(bench.revision().await, before);

    let mut node = bench.get(NODE_KEY).await.unwrap();
    node["status"] = serde_json::json!({"podCIDRs": ["10.66.7.0/24"]});
    let put = bench
        .store
        .put(NODE_KEY.into(), node.to_string().into(), LeaseId::NONE);
    let reported = put.await.unwrap();
    manifests.apply().await.unwrap();
    assert_eq!(bench.revision().await, reported);
    bench.write("a.yaml", &NODE.replace("64512", "64513"));
    manifests.apply().await.unwrap();
    let after = bench.get(NODE_KEY).await.unwrap();
    assert_eq!(after["spec"]["bgp"]["asNumber"], 64513);
    assert_eq!(
        (&after["status"], &after["metadata"]),
        (&node["status"], &node["metadata"])
    );
}

#[tokio::test]
async fn fault_beside_a_deletion_blocks_changes_until_corrected() {
    let bench = Bench::new(&[("a.yaml", NODE), ("b.yaml", ENDPOINT)]);
    bench
        .store
        .put("/calico/other".into(), "x".into(), LeaseId::NONE)
        .await
        .unwrap();
    let mut manifests = bench.load().await.unwrap();
    let before = bench.revision().await;
    bench.write("a.yaml", "kind: [");
    fs::remove_file(bench.directory.path().join("b.yaml")).unwrap();
    let error = manifests.apply().await.unwrap_err();
    assert!(matches!(error, ManifestError::Faults(_)), "{error}");
    assert_eq!(bench.revision().await, before);

    bench.write("a.yaml", NODE);
    manifests.apply().await.unwrap();
    assert_eq!(bench.get(ENDPOINT_KEY).await, None);
    assert!(bench.get(NODE_KEY).await.is_some());
    // A resource that did not come from the directory stays unchanged.
    assert!(
        bench
            .store
            .get("/calico/other".into())
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_change_of_the_directory_is_followed() {
    let bench = Bench::new(&[("a.yaml", NODE), ("b.yaml", ENDPOINT)]);
    let manifests = bench.load().await.unwrap();
    let mut watch = bench.watch(bench.revision().await.next()).await;
    let following = tokio::spawn(manifests.follow());
    let (node, endpoint) = ("n1".to_owned(), "n1-k8s-web--0-eth0".to_owned());

    bench.write("a.yaml", &NODE.replace("64512", "64513"));
    assert_eq!(
        events(&mut watch, 1).await,
        [(EventKind::Put, node.clone())]
    );
    fs::remove_file(bench.directory.path().join("b.yaml")).unwrap();
    bench.write("a.yaml", &NODE.replace("64512", "64514"));
    let both = [
        (EventKind::Put, node),
        (EventKind::Delete, endpoint.clone()),
    ];
    assert_eq!(events(&mut watch, 2).await, both);
    // A file that is moved into a new directory counts too.
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("c.yaml"), ENDPOINT).unwrap();
    fs::rename(outside.path(), bench.directory.path().join("new")).unwrap();
    assert_eq!(events(&mut watch, 1).await, [(EventKind::Put, endpoint)]);
    following.abort();
}

#[test]
fn number_of_50_digits_is_applied_and_printed_verbatim() {
    const NUMBER: &str = "31415926535897932384626433832795028841971693993751";
    let yaml = format!("é: [&n {NUMBER}, *n, -0.{NUMBER}]\nz: 1.5\ny: -7\nx: 18446744073709551615");
    let json = format!("{{\"z\": {NUMBER}e-3, \"a\": [1.0]}}");
    let value = |text: &str| {
        let read = documents(Path::new("n.yaml"), text).unwrap();
        read.first().unwrap().value()
    };
    let list = format!("[{NUMBER},{NUMBER},-0.{NUMBER}]");
    let read = value(&yaml);
    assert_eq!(read["é"].to_string(), list);
    assert_eq!(read["z"], serde_json::json!(1.5));
    assert_eq!(read["x"], serde_json::json!(u64::MAX));
    assert_eq!(value(&json)["z"].to_string(), format!("{NUMBER}e-3"));
    for value in [read, value(&json)] {
        let printed = to_yaml(&value).unwrap();
        let again = documents(Path::new("n.yaml"), &printed).unwrap();
        assert_eq!(again.first().unwrap().value(), value, "{printed}");
    }
}

#[test]
fn numbers_that_floats_hold_are_printed_in_yaml() {
    let value =
        serde_json::json!({"a": 1, "b": [-2, 1.5, 1e300], "c": {"d": null, "e": true}, "f": "1"});
    let printed = to_yaml(&value).unwrap();
    assert!(printed.starts_with("a: 1\n"), "{printed}");
    assert!(
        !printed.contains('$') && !printed.contains('{'),
        "{printed}"
    );
    let again = documents(Path::new("n.yaml"), &printed).unwrap();
    assert_eq!(again.first().unwrap().value(), value);
}
