//! The roles of `cambric etcd-roles` on a real etcd with users: each role tries every key.

use std::collections::BTreeSet;
use std::process::Command;

use calico_model::{Kind, Scope};
use calico_store::{Error, EtcdOptions, EtcdStore, KeyRange, LeaseId, Op, Put, Store, Txn};
use futures_util::StreamExt;
use futures_util::stream;
use serde_json::Value;

use crate::common::{Etcd, PATIENT, program, soon};
use crate::tool::Tool;

const ARGUMENTS: [&str; 5] = [
    "etcd-roles",
    "--node",
    "node1",
    "--reflector",
    "rr1=10.0.0.9",
];

/// Requests of one role at a time.
const PARALLEL: usize = 48;

/// The password of every user.
const PASSWORD: &str = "secret";

/// Names that look like those of the node and the reflector, and theirs.
const NAMES: [&str; 9] = [
    "node1", "node10", "node1-a", "node1.a", "node", "rr1", "rr10", "rr1-a", "default",
];

/// An etcd whose users have the printed roles.
struct Roles {
    etcd: Etcd,
    files: tempfile::TempDir,
    /// The roles as JSON.
    printed: Vec<Value>,
}

impl Roles {
    /// Starts etcd and runs the printed commands; `None` without the programs for it.
    async fn start() -> Option<Self> {
        let (etcd, etcdctl) = (Etcd::start().await?, program("etcdctl")?);
        let tool = Tool::at(&etcd.url());
        let json = tool.done(&[&ARGUMENTS[..], &["-o", "json"]].concat());
        let printed: Vec<Value> = serde_json::from_str(&json).unwrap();
        let mut script = "set -e\n".to_owned();
        script.push_str(&tool.done(&ARGUMENTS));
        script.push_str("etcdctl user add root:root\netcdctl user grant-role root root\n");
        for role in &printed {
            let name = role["role"].as_str().unwrap();
            script.push_str(&format!("etcdctl user add {name}:{PASSWORD}\n"));
            script.push_str(&format!("etcdctl user grant-role {name} {name}\n"));
        }
        script.push_str("etcdctl auth enable\n");
        let path = std::env::var("PATH").unwrap_or_default();
        let directory = etcdctl.parent().unwrap().display();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).envs(PATIENT);
        command.env("PATH", format!("{directory}:{path}"));
        command
            .env("ETCDCTL_API", "3")
            .env("ETCDCTL_ENDPOINTS", etcd.url());
        let run = tokio::task::spawn_blocking(move || command.output());
        let output = soon("the printed commands", run).await.unwrap().unwrap();
        assert!(output.status.success(), "{output:?}");
        let files = tempfile::tempdir().unwrap();
        std::fs::write(files.path().join("password"), PASSWORD).unwrap();
        std::fs::write(files.path().join("root"), "root").unwrap();
        Some(Self {
            etcd,
            files,
            printed,
        })
    }

    async fn user(&self, name: &str, password: &str) -> EtcdStore {
        let mut options = EtcdOptions::new(self.etcd.urls());
        options.username = Some(name.into());
        options.password_file = Some(self.files.path().join(password));
        EtcdStore::connect(&options).await.unwrap()
    }
}

/// A printed permission.
#[derive(Debug)]
struct Permission {
    access: String,
    first: Vec<u8>,
    /// The first key after the range.
    end: Vec<u8>,
}

impl Permission {
    fn of(role: &Value) -> Vec<Self> {
        let permissions = role["permissions"].as_array().unwrap().iter();
        let one = |permission: &Value| {
            let key = permission["key"].as_str().unwrap();
            let end = match permission["rangeEnd"].as_str() {
                Some(end) => end.to_owned(),
                None => format!("{key}\0"),
            };
            Self {
                access: permission["type"].as_str().unwrap().to_owned(),
                first: key.as_bytes().to_vec(),
                end: end.into_bytes(),
            }
        };
        permissions.map(one).collect()
    }

    fn holds(&self, key: &str, word: &str) -> bool {
        let key = key.as_bytes();
        key >= self.first.as_slice() && key < self.end.as_slice() && self.access.contains(word)
    }

    /// Returns keys at both borders of the range, and just outside of it.
    fn borders(&self) -> Vec<String> {
        let first = String::from_utf8(self.first.clone()).unwrap();
        let end = String::from_utf8(self.end.clone()).unwrap();
        let end = end.trim_end_matches('\0').to_owned();
        let (start, last) = first.split_at(first.len() - 1);
        let before = char::from(last.as_bytes()[0] - 1);
        vec![
            format!("{start}{before}~"),
            start.to_owned(),
            format!("{first}x"),
            format!("{first}/"),
            format!("{first}0"),
            format!("{first}-a"),
            format!("{first}~"),
            first,
            format!("{end}x"),
            end,
        ]
    }
}

/// Returns keys of every kind and of every prefix of the data model.
fn keys() -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for kind in Kind::ALL {
        let all = kind.prefix();
        let names = NAMES.map(|name| match kind.scope() {
            Scope::Cluster => vec![format!("{all}{name}"), format!("{all}node.{name}")],
            Scope::Namespaced => {
                let doubled = name.replace('-', "--");
                let named = |space: &str, by: &str| format!("{all}{space}/{doubled}-{by}-w-eth0");
                vec![
                    named("default", "cni"),
                    named("default", "k8s"),
                    named("default", "openstack"),
                    named("prod", "cni"),
                    format!("{all}default/{name}"),
                ]
            }
        });
        keys.extend(names.into_iter().flatten());
        keys.insert(all.trim_end_matches('/').to_owned());
    }
    for name in NAMES {
        for region in ["no-region", "region-east"] {
            let host = format!("/calico/felix/v2/{region}/host/{name}");
            for rest in [
                "",
                "/status",
                "/status/x",
                "/last_reported_status",
                "/workload/cni/default%2fw/endpoint/eth0",
            ] {
                keys.insert(format!("{host}{rest}"));
            }
        }
        keys.insert(format!("/calico/felix/v1/host/{name}/endpoint/eth0"));
        keys.insert(format!("/calico/ipam/v2/host/{name}"));
        keys.insert(format!(
            "/calico/ipam/v2/host/{name}/ipv4/block/10.65.0.0-26"
        ));
        keys.insert(format!(
            "/calico/ipam/v2/virtual/{name}/ipv4/block/10.65.0.0-26"
        ));
        keys.insert(format!("/calico/ipam/v2/handle/fabric.{name}"));
        for of in ["reflector", "drain"] {
            keys.insert(format!("/cambric/v1/{of}/{name}"));
        }
    }
    let others = [
        "/",
        "a",
        "/calico",
        "/calico/",
        "/calico0",
        "/cambric",
        "/cambric/v1",
        "/cambric/v10",
        "/cambric/v2/x",
        "/cambric0",
        "/other",
        "/calico/ipam/v2/config",
        "/calico/ipam/v2/config/x",
        "/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26",
        "/calico/ipam/v2/other/x",
        "/calico/felix/v2/no-region/host/round-trip-check",
        "/calico/dhcp/v2/no-region/subnet/x",
        "/calico/openstack/v2/no-region/neutron_election",
        "/calico/compaction/v1/trigger",
        "/calico/v1/Ready",
        "/cambric/v1/cluster/10.0.0.9",
        "/cambric/v1/cluster/10.0.0.90",
        "/cambric/v1/cluster/10.0.0.1",
        "/cambric/v1/cluster/",
        "/cambric/v1/secret/x",
    ];
    keys.extend(others.map(str::to_owned));
    keys
}

fn allowed<T>(what: &str, answer: Result<T, Error>) -> bool {
    match answer {
        Ok(_) => true,
        Err(Error::Denied(_)) => false,
        Err(other) => panic!("{what}: {other}"),
    }
}

/// Returns whether a role could read, write and delete a key.
async fn tried(store: &EtcdStore, key: &str) -> [bool; 3] {
    let (at, of) = (|| bytes::Bytes::from(key.to_owned()), LeaseId::NONE);
    let read = allowed(key, soon(key, store.get(at())).await);
    let written = allowed(key, soon(key, store.put(at(), "x".into(), of)).await);
    let deleted = allowed(key, soon(key, store.delete(at())).await);
    [read, written, deleted]
}

// Promise (Datastore): With the printed roles of etcd, each part writes and reads exactly the
// listed keys.
#[tokio::test(flavor = "multi_thread")]
async fn each_role_has_exactly_the_printed_keys() {
    let Some(roles) = Roles::start().await else {
        return;
    };
    let mut keys = keys();
    for role in &roles.printed {
        let permissions = Permission::of(role);
        keys.extend(permissions.iter().flat_map(Permission::borders));
    }
    keys.retain(|key| !key.is_empty());
    for role in &roles.printed {
        let name = role["role"].as_str().unwrap();
        let store = &roles.user(name, "password").await;
        let permissions = Permission::of(role);
        let attempts = stream::iter(&keys).map(|key| async move { (key, tried(store, key).await) });
        let found: Vec<_> = attempts.buffer_unordered(PARALLEL).collect().await;
        assert_eq!(found.len(), keys.len());
        for (key, found) in found {
            let may = |word| permissions.iter().any(|one| one.holds(key, word));
            assert_eq!(
                found,
                [may("read"), may("write"), may("write")],
                "{name} {key}"
            );
        }
    }
}

/// The configuration of the fabric, listed here and not by the program.
#[tokio::test(flavor = "multi_thread")]
async fn role_of_a_node_writes_no_configuration() {
    let Some(roles) = Roles::start().await else {
        return;
    };
    let root = roles.user("root", "root").await;
    let resources = "/calico/resources/v3/projectcalico.org/";
    let mut forbidden: Vec<String> = [
        "nodes/node1",
        "nodes/node2",
        "bgppeers/p",
        "bgpconfigurations/default",
        "bgpfilters/f",
        "ippools/p",
        "ipreservations/r",
        "clusterinformations/default",
        "felixconfigurations/default",
        "felixconfigurations/node.node1",
        "profiles/kns.default",
        "globalnetworkpolicies/p",
        "networkpolicies/default/p",
        "networksets/default/s",
        "hostendpoints/h",
        "tiers/t",
        "workloadendpoints/default/node2-cni-w-eth0",
        "workloadendpoints/default/node10-cni-w-eth0",
        "workloadendpoints/default/node1--a-cni-w-eth0",
        "workloadendpoints/prod/node1-cni-w-eth0",
    ]
    .map(|name| format!("{resources}{name}"))
    .into();
    forbidden.extend([
        "/calico/ipam/v2/config".to_owned(),
        "/calico/ipam/v2/host/node2/ipv4/block/10.65.0.0-26".to_owned(),
        "/calico/felix/v2/no-region/host/node2/status".to_owned(),
        "/cambric/v1/drain/rr1".to_owned(),
        "/cambric/v1/reflector/rr2".to_owned(),
    ]);
    for key in &forbidden {
        let put = root.put(key.clone().into(), "as before".into(), LeaseId::NONE);
        put.await.unwrap();
    }
    let of_nodes = [
        "cambric-felix-node1",
        "cambric-bgp-client-node1",
        "cambric-cni-node1",
        "cambric-route-reflector-rr1",
    ];
    for name in of_nodes {
        let store = roles.user(name, "password").await;
        for key in &forbidden {
            let [_, written, deleted] = tried(&store, key).await;
            assert!(!written && !deleted, "{name} {key}");
        }
        // A transaction with an allowed key, and whole ranges.
        for key in &forbidden {
            let own = "/calico/felix/v2/no-region/host/node1/status".to_owned();
            let puts = [own, key.clone()].map(|key| Op::Put(Put::new(key, "x")));
            let txn = Txn {
                then: puts.into(),
                ..Txn::default()
            };
            assert!(!allowed(key, store.txn(txn).await), "{name} {key}");
        }
        for range in [
            "/",
            "/calico/",
            "/calico/resources/",
            "/calico/ipam/",
            "/calico/felix/",
        ] {
            let listed = store.list(KeyRange::prefix(range)).await;
            assert!(!allowed(range, listed), "{name} {range}");
        }
    }
    for key in &forbidden {
        let kept = root.get(key.clone().into()).await.unwrap();
        assert_eq!(
            kept.map(|item| item.value),
            Some("as before".into()),
            "{key}"
        );
    }
}
