//! kubectl as another client of the API server of the tests.

use std::path::{Path, PathBuf};
use std::process::Output;

use interop_tests::{ApiServer, foreign};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::rig::{LOOPBACK, namespace, run};

/// kubectl with a server.
struct Kubectl<'a> {
    program: PathBuf,
    server: &'a ApiServer,
    home: &'a Path,
}

impl Kubectl<'_> {
    async fn output(&self, words: &str) -> Output {
        let mut command = Command::new(&self.program);
        command
            .args(["--server", &self.server.url(), "--request-timeout", "30s"])
            .args(words.split(' '))
            .env_clear()
            .env("HOME", self.home)
            .current_dir(self.home);
        command.output().await.expect("kubectl runs")
    }

    async fn json(&self, words: &str) -> Value {
        let output = self.output(words).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {errors}");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }
}

fn path(mount: &Value) -> &Path {
    Path::new(mount["mountPath"].as_str().expect("a path"))
}

/// Only programs that ask the API server have a token, no container has the host's `/run`, and the BGP
/// client has the passwords in the directory that `configure` writes.
fn rights_of_containers_are_least(pod: &Value) {
    let none = Vec::new();
    let list = |of: &Value, field: &str| of[field].as_array().unwrap_or(&none).clone();
    assert_eq!(pod["automountServiceAccountToken"], false);
    let all = [list(pod, "initContainers"), list(pod, "containers")].concat();
    let with = |volume: &str| {
        let has = |of: &&Value| {
            let mounts = list(of, "volumeMounts");
            mounts.iter().any(|mount| mount["name"] == volume)
        };
        let names = all.iter().filter(has);
        names
            .map(|of| of["name"].as_str().expect("a name"))
            .collect::<Vec<_>>()
    };
    assert_eq!(with("api-token"), ["configure", "start"]);
    assert_eq!(with("bgp-passwords"), ["bgp-client"]);
    for volume in list(pod, "volumes") {
        let host = volume["hostPath"]["path"].as_str().unwrap_or_default();
        let is_whole = matches!(
            host.trim_end_matches('/'),
            "/run" | "/var/run" | "/var" | "/etc"
        );
        assert!(!is_whole, "{volume}");
    }
    let words = list(&all[0], "command");
    let at = words.iter().position(|word| word == "--peer-passwords");
    let directory = words[at.expect("the option") + 1].as_str().expect("a path");
    let client = all.iter().find(|of| of["name"] == "bgp-client");
    let mounts = list(client.expect("a BGP client"), "volumeMounts");
    let of_passwords = mounts.iter().find(|one| one["name"] == "bgp-passwords");
    let of_passwords = path(of_passwords.expect("a mount"));
    assert_eq!(of_passwords, Path::new(directory).join("bgp-passwords"));
}

#[test]
fn kubectl_reads_and_writes_objects() {
    let Some(program) = foreign("kubectl") else {
        return;
    };
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        server.apply(namespace("prod"));
        let home = tempfile::tempdir().expect("a directory");
        let kubectl = Kubectl {
            program,
            server: &server,
            home: home.path(),
        };
        let list = kubectl.json("get namespaces -o json --chunk-size=2").await;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(5));
        assert_eq!(server.count("namespaces", "list"), 3, "pages");
        let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "web", "namespace": "prod"}, "spec": {"podSelector": {}}});
        std::fs::write(home.path().join("policy.json"), policy.to_string()).expect("written");
        let created = "create --validate=false -f policy.json -o json";
        let created = kubectl.json(created).await;
        assert_eq!(created["spec"]["policyTypes"], json!(["Ingress"]));
        let labels = kubectl
            .json("label -n prod networkpolicy web team=a -o json")
            .await;
        assert_eq!(labels["metadata"]["labels"], json!({"team": "a"}));
        let found = "get networkpolicies -A -l team=a -o json";
        let found = kubectl.json(found).await;
        assert_eq!(found["items"][0]["metadata"]["name"], "web");
        kubectl
            .json("delete -n prod networkpolicy web --wait=false -o name")
            .await;
        let missing = kubectl.output("get -n prod networkpolicy web").await;
        let errors = String::from_utf8_lossy(&missing.stderr).into_owned();
        assert!(errors.contains("(NotFound)"), "{errors}");
    });
}

// Promise (Kubernetes): kubectl creates the objects of `packaging/kubernetes`, and applies them again
// without a change.
#[test]
fn manifests_are_applied_by_kubectl() {
    let Some(program) = foreign("kubectl") else {
        return;
    };
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        let home = tempfile::tempdir().expect("a directory");
        let kubectl = Kubectl {
            program,
            server: &server,
            home: home.path(),
        };
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/kubernetes");
        let apply = async |more: &str| {
            let words = format!("apply --validate=false{more} -k {directory}");
            let output = kubectl.output(&words).await;
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{words}: {errors}");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let all_end = |lines: &[String], end: &str| {
            assert_eq!(lines.len(), 18, "{lines:?}");
            assert!(lines.iter().all(|line| line.ends_with(end)), "{lines:?}");
        };
        all_end(&apply(" --dry-run=client").await, " created (dry run)");
        assert_eq!(server.objects("DaemonSet").len(), 0);
        all_end(&apply("").await, " created");
        all_end(&apply("").await, " unchanged");

        let daemons = server.objects("DaemonSet");
        let [daemons] = &daemons[..] else {
            panic!("{daemons:?}");
        };
        let pod = &daemons["spec"]["template"]["spec"];
        let none = Vec::new();
        let list = |field: &str| pod[field].as_array().unwrap_or(&none).iter();
        let all: Vec<_> = list("initContainers").chain(list("containers")).collect();
        assert!(all.len() > 2, "{pod}");
        // Each container reads what the manifests have.
        let config = server.objects("ConfigMap");
        let config = config
            .iter()
            .find(|one| one["metadata"]["name"] == "calico-config");
        let config = &config.expect("calico-config")["data"];
        let volumes: Vec<_> = list("volumes").map(|volume| &volume["name"]).collect();
        for container in all {
            for variable in container["env"].as_array().unwrap_or(&none) {
                let key = &variable["valueFrom"]["configMapKeyRef"]["key"];
                if let Some(key) = key.as_str() {
                    assert!(config[key].is_string(), "{key} of {}", container["name"]);
                }
            }
            let mounts = container["volumeMounts"].as_array().unwrap_or(&none);
            for mount in mounts {
                assert!(volumes.contains(&&mount["name"]), "{mount}");
                // The runtime can make no mount point below a read-only one.
                let below = |other: &&Value| {
                    other["readOnly"] == true
                        && path(mount) != path(other)
                        && path(mount).starts_with(path(other))
                };
                assert_eq!(mounts.iter().find(below), None, "{mount}");
            }
        }
        rights_of_containers_are_least(pod);
        let accounts = server.objects("ServiceAccount");
        let has_account = |one: &Value| one["metadata"]["name"] == pod["serviceAccountName"];
        assert!(accounts.iter().any(has_account), "{accounts:?}");
    });
}
