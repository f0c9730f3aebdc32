//! `cambric store serve` as a program: it loads manifests, answers, and stops after a signal.

#[path = "store/full_disk.rs"]
mod full_disk;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};

use calico_store::{EtcdOptions, EtcdStore, LeaseId, Revision, Store};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ENDPOINT: &str = r#"
apiVersion: projectcalico.org/v3
kind: WorkloadEndpoint
metadata:
  name: node1-openstack-vm1-eth0
  namespace: prod
spec:
  node: node1
  orchestrator: openstack
  workload: vm1
  endpoint: eth0
  interfaceName: cali1
  ipNetworks: [10.65.0.1/32]
"#;

/// Killed when dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The address in the log.
fn address(log: &mut impl BufRead) -> String {
    for line in log.lines() {
        let line = line.expect("text");
        if let Some((_, address)) = line.split_once("the store is served address=") {
            return address.trim().to_owned();
        }
    }
    panic!("it ended without serving");
}

/// Starts it; returns also a client that it answers.
async fn start(arguments: &[&str]) -> (Program, BufReader<ChildStderr>, EtcdStore) {
    let started = Command::new(env!("CARGO_BIN_EXE_cambric"))
        .args(["store", "serve", "--listen", "127.0.0.1:0"])
        .args(arguments)
        .env_remove("CAMBRIC_LOG")
        .stderr(Stdio::piped())
        .spawn();
    let mut program = Program(started.expect("the program starts"));
    // Kept open for later log lines.
    let mut log = BufReader::new(program.0.stderr.take().expect("piped"));
    let address = address(&mut log);
    let options = EtcdOptions::new([format!("http://{address}")]);
    let store = EtcdStore::connect(&options).await.expect("connected");
    (program, log, store)
}

#[tokio::test]
async fn answered_write_survives_sigkill() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("store");
    let arguments = ["--data", data.to_str().expect("text")];
    let mut answered = (0, Revision::ZERO);
    for round in 1..=3 {
        let (mut program, _log, store) = start(&arguments).await;
        if round > 1 {
            let found = store.get("/n".into()).await.expect("an answer");
            let found = found.expect("the key");
            let number: u64 = String::from_utf8_lossy(&found.value)
                .parse()
                .expect("a number");
            // One more write may have been stored without an answer.
            assert!(
                (answered.0..=answered.0 + 1).contains(&number),
                "{number}, {answered:?}"
            );
            assert_eq!(
                found.mod_revision.0 - answered.1.0,
                (number - answered.0).cast_signed()
            );
            answered = (number, found.mod_revision);
        }
        let pid = Pid::from_raw(i32::try_from(program.0.id()).expect("a pid"));
        let enough = answered.0 + 20;
        loop {
            if answered.0 == enough {
                // At any point of the current request.
                std::thread::spawn(move || kill(pid, Signal::SIGKILL).expect("signaled"));
            }
            let next = (answered.0 + 1).to_string();
            match store.put("/n".into(), next.into(), LeaseId::NONE).await {
                Ok(revision) => answered = (answered.0 + 1, revision),
                Err(error) => {
                    assert!(error.is_transient(), "{error}");
                    break;
                }
            }
        }
        program.0.wait().expect("it has ended");
    }
}

#[tokio::test]
async fn store_serves_manifests_until_sigterm() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("vm1.yaml"), ENDPOINT).expect("write");
    let manifests = directory.path().to_str().expect("text");
    let (mut program, _log, store) = start(&["--manifests", manifests]).await;
    let key =
        "/calico/resources/v3/projectcalico.org/workloadendpoints/prod/node1-openstack-vm1-eth0";
    let found = store
        .get(key.into())
        .await
        .expect("an answer")
        .expect("the endpoint");
    assert!(String::from_utf8_lossy(&found.value).contains("10.65.0.1/32"));

    let pid = Pid::from_raw(i32::try_from(program.0.id()).expect("a pid"));
    kill(pid, Signal::SIGTERM).expect("signaled");
    let status = program.0.wait().expect("it ends");
    assert!(status.success(), "{status}");
}
