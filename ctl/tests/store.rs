//! `cambric store serve` as a program: it fills itself from manifests, answers, and leaves when
//! told.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use datastore::{EtcdOptions, EtcdStore, Store};
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

/// The address that the log names.
fn address(log: &mut impl BufRead) -> String {
    for line in log.lines() {
        let line = line.expect("text");
        if let Some((_, address)) = line.split_once("the store is served address=") {
            return address.trim().to_owned();
        }
    }
    panic!("it ended without serving");
}

#[tokio::test]
async fn it_serves_manifests_until_told_to_leave() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("vm1.yaml"), ENDPOINT).expect("write");
    let started = Command::new(env!("CARGO_BIN_EXE_cambric"))
        .args(["store", "serve", "--listen", "127.0.0.1:0", "--manifests"])
        .arg(directory.path())
        .env_remove("CAMBRIC_LOG")
        .stderr(Stdio::piped())
        .spawn();
    let mut program = Program(started.expect("the program starts"));
    // Kept open for what the program says later.
    let mut log = BufReader::new(program.0.stderr.take().expect("piped"));
    let address = address(&mut log);
    let options = EtcdOptions::new([format!("http://{address}")]);
    let store = EtcdStore::connect(&options).await.expect("connected");
    let key =
        "/calico/resources/v3/projectcalico.org/workloadendpoints/prod/node1-openstack-vm1-eth0";
    let found = store
        .get(key.into())
        .await
        .expect("an answer")
        .expect("the endpoint");
    assert!(String::from_utf8_lossy(&found.value).contains("10.65.0.1/32"));

    let pid = Pid::from_raw(i32::try_from(program.0.id()).expect("a pid"));
    kill(pid, Signal::SIGTERM).expect("signalled");
    let status = program.0.wait().expect("it ends");
    assert!(status.success(), "{status}");
}
