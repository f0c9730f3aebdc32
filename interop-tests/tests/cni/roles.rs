//! A fabric whose parts have the roles of `cambric etcd-roles`.

use std::path::Path;
use std::process::Command;

use calico_store::KeyRange;
use interop_tests::{Certificates, PATIENCE, foreign, in_ground, own};
use netns_lab::{Process, Program};
use serde_json::{Value, json};

use crate::ID;
use crate::host::{Backing, Container, Fabric, Node, addresses};

const ROLES: &str = "etcd-roles --node h1 --node h2 --reflector h3=10.0.0.3";

/// Returns the printed roles.
fn printed(format: &str) -> String {
    let mut command = Command::new(own("cambric"));
    let output = command.args(ROLES.split(' ')).args(["-o", format]).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Creates the roles, and users whose certificates have their names; then enables them.
async fn enable(fabric: &mut Fabric, etcdctl: &Path) {
    let roles: Vec<Value> = serde_json::from_str(&printed("json")).expect("JSON");
    let mut names: Vec<&str> = roles
        .iter()
        .map(|role| role["role"].as_str().unwrap())
        .collect();
    let mut script = format!("set -e\n{}", printed("commands"));
    names.push("root");
    for name in &names {
        script.push_str(&format!("etcdctl user add {name} --no-password\n"));
        script.push_str(&format!("etcdctl user grant-role {name} {name}\n"));
    }
    script.push_str("etcdctl auth enable\n");
    let files = fabric.certificates();
    Certificates::of_users(&files, names.iter().copied());
    let path = std::env::var("PATH").unwrap_or_default();
    let directory = etcdctl.parent().expect("a directory").display();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &script]).current_dir(&files);
    command.env("PATH", format!("{directory}:{path}"));
    for (name, value) in [
        ("API", "3"),
        ("ENDPOINTS", fabric.url()),
        ("CACERT", "ca.pem"),
        ("CERT", "client.pem"),
        ("KEY", "client.key"),
        ("DIAL_TIMEOUT", "600s"),
        ("COMMAND_TIMEOUT", "600s"),
    ] {
        command.env(format!("ETCDCTL_{name}"), value);
    }
    let output = command.output().expect("a shell");
    assert!(output.status.success(), "{output:?}");
    fabric.become_user("root").await;
}

/// Starts the route reflector of host 3.
async fn reflector(fabric: &mut Fabric) -> (interop_tests::Site, Process) {
    fabric.become_user("cambric-route-reflector-h3").await;
    let site = fabric.ground.site(3).await.expect("a host");
    let path = site.save(
        "rr.toml",
        &format!("hostname = \"h3\"\n{}", fabric.datastore()),
    );
    let program = Program::new(own("cambric-route-reflector"));
    let program = program.arg("--config").arg(path);
    let process = site.host.spawn("reflector", &program).expect("a reflector");
    (site, process)
}

/// Starts a host whose daemons and plugin have their own users.
async fn node(fabric: &mut Fabric, number: u8) -> Node {
    fabric
        .become_user(&format!("cambric-felix-h{number}"))
        .await;
    let mut node = fabric.run(number).await;
    fabric
        .become_user(&format!("cambric-bgp-client-h{number}"))
        .await;
    node.follow_access(fabric);
    node.start_bgp();
    fabric.become_user(&format!("cambric-cni-h{number}")).await;
    node.follow_access(fabric);
    node
}

/// Waits until keys with this prefix are stored.
async fn stored(fabric: &Fabric, prefix: &'static str) {
    netns_lab::until::<(), netns_lab::Error>(PATIENCE, prefix, async || {
        let listing = fabric
            .resources
            .store()
            .list(KeyRange::prefix(prefix))
            .await;
        let items = listing.map_err(|error| error.to_string());
        Ok(items.and_then(|listing| match listing.items.is_empty() {
            true => Err("no key".to_owned()),
            false => Ok(()),
        }))
    })
    .await
    .unwrap();
}

// Promise (Datastore): A fabric with a separate role of etcd for each part works.
#[test]
fn fabric_works_with_a_role_for_each_part() {
    let Some(etcdctl) = foreign("etcdctl") else {
        return;
    };
    in_ground(&[], "roles of etcd", async |ground| {
        let Some(mut fabric) = Fabric::new(ground, Backing::Secured).await else {
            return;
        };
        for number in 1..=3 {
            fabric.describe(number).await;
        }
        let no_mesh = json!({"nodeToNodeMeshEnabled": false});
        fabric.create("BGPConfiguration", "default", no_mesh).await;
        let reports = json!({"endpointReportingEnabled": true});
        fabric
            .create("FelixConfiguration", "default", reports)
            .await;
        enable(&mut fabric, &etcdctl).await;
        let (_site, reflector) = reflector(&mut fabric).await;
        let nodes = [node(&mut fabric, 1).await, node(&mut fabric, 2).await];
        let [one, two] = &nodes;
        let containers = [
            Container::new(&fabric, ID).await,
            Container::new(&fabric, "second").await,
        ];

        // The plugin cannot create profiles.
        let config = [one.network(json!({})), two.network(json!({}))];
        let denied = one.asks("ADD", &containers[0], &config[0]).await;
        let denied = denied.unwrap_err().to_string();
        assert!(denied.contains("permission denied"), "{denied}");
        fabric.become_user("cambric-operator").await;
        let open = json!({"ingress": [{"action": "Allow"}], "egress": [{"action": "Allow"}]});
        fabric.create("Profile", "kns.default", open).await;

        let first = one
            .asks("ADD", &containers[0], &config[0])
            .await
            .expect("connected");
        let second = two
            .asks("ADD", &containers[1], &config[1])
            .await
            .expect("connected");
        for address in addresses(&second) {
            // Reflected by host 3 as soon as the sessions are up.
            netns_lab::until::<(), netns_lab::Error>(PATIENCE, "a ping", async || {
                let limit = std::time::Duration::from_secs(2);
                let answered = containers[0].pings_within(&first, address, limit).await;
                Ok(answered.then_some(()).ok_or_else(|| address.to_string()))
            })
            .await
            .unwrap();
        }
        stored(&fabric, "/calico/felix/v2/no-region/host/h1/status").await;
        stored(&fabric, "/calico/felix/v2/no-region/host/h2/workload/").await;
        stored(&fabric, "/cambric/v1/reflector/h3").await;
        stored(&fabric, "/cambric/v1/cluster/10.0.0.3").await;
        let mut checked = config[0].clone();
        checked["prevResult"] = first;
        let check = one.asks("CHECK", &containers[0], &checked).await;
        assert_eq!(check, Ok(Value::Null));
        let status = one.asks("STATUS", &containers[0], &config[0]).await;
        assert_eq!(status, Ok(Value::Null));

        // The runtime has lost the first container; the second one is removed by DEL.
        let mut collected = config[0].clone();
        collected["cni.dev/valid-attachments"] = json!([]);
        let collect = one.asks("GC", &containers[0], &collected).await;
        assert_eq!(collect, Ok(Value::Null));
        let removed = two.asks("DEL", &containers[1], &config[1]).await;
        assert_eq!(removed, Ok(Value::Null));
        assert_eq!(fabric.left().await, [""; 0]);
        let logs = nodes
            .iter()
            .flat_map(|node| [Some(&node.felix), node.client.as_ref()]);
        for log in logs.flatten().chain([&reflector]).map(Process::log_tail) {
            assert!(!log.contains("permission denied"), "{log}");
        }
    });
}
