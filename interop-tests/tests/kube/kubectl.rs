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
