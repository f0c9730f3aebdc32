//! Resources as Calico's clients write them, on the embedded store.

use crate::common::forward;
use bytes::Bytes;
use calico_model::{DEFAULT_ALLOW_PROFILE, Kind, ResourceKey};
use calico_store::resources::*;
use calico_store::*;
use etcd_lite::Local;
use serde_json::{Value, json};

fn resources() -> Resources {
    Resources::new(Local::empty())
}

fn pool(name: &str, cidr: &str) -> Value {
    json!({"kind": "IPPool", "metadata": {"name": name}, "spec": {"cidr": cidr}})
}

fn set(nets: &[&str]) -> Value {
    json!({"kind": "GlobalNetworkSet", "metadata": {"name": "s", "labels": {"a": "b"}}, "spec": {"nets": nets}})
}

fn key(kind: Kind, name: &str) -> ResourceKey {
    ResourceKey::new(kind, None, name).expect("stored")
}

async fn stored(all: &Resources, key: &ResourceKey) -> Value {
    let found = all
        .store()
        .get(key.to_string().into())
        .await
        .expect("stored");
    serde_json::from_slice(&found.expect("stored").value).expect("stored")
}

#[tokio::test]
async fn a_resource_is_created_once_with_an_id_and_a_time() {
    let all = resources();
    let mut given = set(&["10.0.0.0/8"]);
    given["metadata"]["uid"] = json!("somebody else's");
    let made = all.create(given).await.unwrap();
    let value = stored(&all, &made.key).await;
    let metadata = &value["metadata"];
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_eq!(metadata["creationTimestamp"].as_str().unwrap().len(), 20);
    assert_eq!(metadata.get("resourceVersion"), None);
    assert_eq!(
        made.value["metadata"]["resourceVersion"],
        made.revision.to_string()
    );
    let again = all.create(set(&[])).await.unwrap_err();
    assert_eq!(again.to_string(), "GlobalNetworkSet(s) already exists");
    let mut versioned = set(&[]);
    versioned["metadata"]["resourceVersion"] = json!("7");
    let error = all.create(versioned).await.unwrap_err().to_string();
    assert!(error.contains("metadata.resourceVersion"), "{error}");
}

#[tokio::test]
async fn replacing_keeps_what_is_not_the_writers() {
    let all = resources();
    let missing = all.replace(set(&[])).await.unwrap_err();
    assert_eq!(missing.to_string(), "GlobalNetworkSet(s) does not exist");
    let made = all.create(set(&["10.0.0.0/8"])).await.unwrap();
    let mut reported = stored(&all, &made.key).await;
    reported["status"] = json!({"seen": 1});
    reported["metadata"]["generation"] = json!(3);
    let octets = Bytes::from(reported.to_string());
    all.store()
        .put(made.key.to_string().into(), octets, LeaseId::NONE)
        .await
        .unwrap();

    let mut new = set(&["192.0.2.0/24"]);
    new["metadata"]["labels"] = json!({"c": "d"});
    all.replace(new).await.unwrap();
    let value = stored(&all, &made.key).await;
    assert_eq!(value["spec"], json!({"nets": ["192.0.2.0/24"]}));
    assert_eq!(value["status"], json!({"seen": 1}));
    let (was, is) = (&reported["metadata"], &value["metadata"]);
    for field in ["uid", "creationTimestamp", "generation", "name"] {
        assert_eq!(is[field], was[field], "{field}");
    }
    assert_eq!(is["labels"], json!({"c": "d"}));
}

/// Creates a pool as written by a newer version.
async fn newer_pool(all: &Resources) -> Item {
    let at = key(Kind::IpPool, "p");
    let value = json!({"kind": "IPPool", "metadata": {"name": "p"},
        "spec": {"cidr": "10.65.0.0/16", "newer": {"a": [1]}}});
    let octets = Bytes::from(value.to_string());
    let written = all
        .store()
        .put(at.to_string().into(), octets, LeaseId::NONE);
    written.await.expect("written");
    all.get(&at).await.expect("written")
}

#[tokio::test]
async fn unknown_fields_survive_read_and_write() {
    let all = resources();
    let read = newer_pool(&all).await;
    let mut edited = read.value.clone();
    edited["spec"]["natOutgoing"] = json!(true);
    edited["spec"]["newer"]["a"] = json!([2]);
    all.check_replace(edited.clone()).await.unwrap();
    let replaced = all.replace(edited.clone()).await.unwrap();
    let value = stored(&all, &read.key).await;
    assert_eq!(value["spec"]["newer"], json!({"a": [2]}));
    all.apply(replaced.value).await.unwrap();

    edited["metadata"]["resourceVersion"] = json!("");
    edited["spec"]["newest"] = json!(1);
    let fault = "spec.newest: unknown field";
    for refused in [
        all.check_replace(edited.clone()).await.unwrap_err(),
        all.check_apply(edited.clone(), &Planned::default())
            .await
            .unwrap_err(),
        all.replace(edited.clone()).await.unwrap_err(),
        all.apply(edited.clone()).await.unwrap_err(),
    ] {
        assert_eq!(refused.to_string(), fault);
    }
    edited["metadata"]["name"] = json!("other");
    let refused = all.apply(edited).await.unwrap_err().to_string();
    assert!(refused.contains("spec.newer: "), "not stored: {refused}");

    all.apply(pool("p", "10.65.0.0/16")).await.unwrap();
    let value = stored(&all, &read.key).await;
    assert_eq!(
        value["spec"].get("newer"),
        None,
        "the spec is the given one"
    );
}

#[tokio::test]
async fn patch_keeps_unknown_fields() {
    let all = resources();
    let read = newer_pool(&all).await;
    let version = read.revision.to_string();
    let disable = |pool: &mut Value| {
        pool["spec"]["disabled"] = json!(true);
        true
    };
    let patched = all.patch(&read.key, Some(&version), disable).await.unwrap();
    let value = stored(&all, &read.key).await;
    assert_eq!(patched.value, value);
    assert_eq!(
        value["spec"],
        json!({"cidr": "10.65.0.0/16", "newer": {"a": [1]}, "disabled": true})
    );
    let stale = all.patch(&read.key, Some(&version), disable).await;
    assert!(matches!(stale, Err(ResourceError::Stale { .. })));
    let untouched = all.patch(&read.key, None, |_| false).await.unwrap();
    assert_eq!(untouched.revision, patched.revision);
}

#[tokio::test]
async fn outdated_version_is_rejected_with_the_latest_one() {
    let all = resources();
    let read = all.create(set(&["10.0.0.0/8"])).await.unwrap();
    let other = all.apply(set(&["192.0.2.0/24"])).await.unwrap().item;
    for attempt in [
        all.replace(read.value.clone()).await,
        all.apply(read.value.clone())
            .await
            .map(|applied| applied.item),
    ] {
        let error = attempt.unwrap_err().to_string();
        assert!(
            error.contains(&format!("version {} is out of date", read.revision)),
            "{error}"
        );
        assert!(
            error.contains(&format!("latest is {}", other.revision)),
            "{error}"
        );
    }
    let mut unquoted = read.value.clone();
    unquoted["metadata"]["resourceVersion"] = json!(read.revision.0);
    let error = all.replace(unquoted).await.unwrap_err().to_string();
    assert!(error.contains("out of date"), "{error}");
    let error = all
        .delete(&read.key, Some("1"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("out of date"), "{error}");
    all.replace(other.value).await.unwrap();
}

#[tokio::test]
async fn unreadable_stored_value_can_be_replaced() {
    let all = resources();
    let at = key(Kind::GlobalNetworkSet, "s");
    all.store()
        .put(at.to_string().into(), "{".into(), LeaseId::NONE)
        .await
        .unwrap();
    let error = all.get(&at).await.unwrap_err().to_string();
    assert!(
        error.starts_with("GlobalNetworkSet(s): not a readable GlobalNetworkSet"),
        "{error}"
    );
    let items = all.list(Kind::GlobalNetworkSet, None).await.unwrap();
    assert_eq!((items.items.len(), items.unreadable.len()), (0, 1));
    all.apply(set(&["10.0.0.0/8"])).await.unwrap();
    let value = stored(&all, &at).await;
    assert!(
        value["metadata"]["uid"].is_string() && value["metadata"]["name"] == "s",
        "{value}"
    );
}

#[tokio::test]
async fn the_first_node_makes_the_store_ready() {
    let all = resources();
    let node = json!({"kind": "Node", "metadata": {"name": "n1"}, "spec": {}});
    all.create(node).await.unwrap();
    let cluster = stored(&all, &key(Kind::ClusterInformation, "default")).await;
    assert_eq!(cluster["spec"]["clusterGUID"].as_str().unwrap().len(), 32);
    assert_eq!(cluster["spec"]["datastoreReady"], true);
    let tier = stored(&all, &key(Kind::Tier, "default")).await;
    assert_eq!(
        tier["spec"],
        json!({"order": 1_000_000, "defaultAction": "Deny"})
    );
    assert_eq!(all.list(Kind::Tier, None).await.unwrap().items.len(), 3);

    let at = key(Kind::ClusterInformation, "default").to_string();
    let off = json!({"spec": {"datastoreReady": false}}).to_string();
    all.store()
        .put(at.into(), off.into(), LeaseId::NONE)
        .await
        .unwrap();
    all.initialize().await.unwrap();
    let cluster = stored(&all, &key(Kind::ClusterInformation, "default")).await;
    assert_eq!(
        cluster["spec"]["datastoreReady"], false,
        "configured fields stay"
    );
    assert_eq!(cluster["spec"]["clusterGUID"].as_str().unwrap().len(), 32);
}

/// A store in which another program writes each key before the write under test.
struct Busy(Local);

impl Store for Busy {
    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply> {
        Box::pin(async move {
            let at = key(Kind::ClusterInformation, "default").to_string();
            let theirs = Bytes::from_static(br#"{"spec":{}}"#);
            self.0.put(at.into(), theirs, LeaseId::NONE).await?;
            self.0.txn(txn).await
        })
    }

    forward!(0: range watch others);
}

#[tokio::test]
async fn writer_overtaken_every_time_returns_an_error() {
    let all = Resources::new(Busy(Local::empty()));
    let error = all.initialize().await.unwrap_err().to_string();
    assert!(
        error.starts_with("ClusterInformation(default): others write it"),
        "{error}"
    );
}

#[tokio::test]
async fn pools_neither_overlap_nor_change_their_range() {
    let all = resources();
    all.create(pool("a", "10.65.0.0/16")).await.unwrap();
    let error = all
        .create(pool("b", "10.0.0.0/8"))
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "IPPool(b): spec.cidr: 10.0.0.0/8 overlaps with 10.65.0.0/16 of IPPool(a)"
    );
    all.create(pool("b", "10.66.0.0/16")).await.unwrap();
    let error = all
        .apply(pool("a", "10.64.0.0/16"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("spec.cidr"), "{error}");
    let mut sized = pool("a", "10.65.0.0/16");
    sized["spec"]["blockSize"] = json!(28);
    let error = all.apply(sized).await.unwrap_err().to_string();
    assert!(error.contains("spec.blockSize"), "{error}");
    let block = "/calico/ipam/v2/assignment/ipv4/block/10.67.3.64-28";
    all.store()
        .put(block.into(), "{}".into(), LeaseId::NONE)
        .await
        .unwrap();
    let error = all
        .create(pool("c", "10.67.0.0/16"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("10.67.3.64/28"), "{error}");
}

#[tokio::test]
async fn planned_pool_is_checked_against_stored_and_earlier_ones() {
    let all = resources();
    all.create(pool("stored", "10.65.0.0/16")).await.unwrap();
    let manifest = [
        pool("first", "10.66.0.0/16"),
        pool("within", "10.66.1.0/24"),
        pool("beside", "10.67.0.0/16"),
        pool("around", "10.64.0.0/15"),
        pool("stored", "10.65.0.0/16"),
    ];
    let planned = Planned::new(&manifest);
    let mut refused = Vec::new();
    for resource in &manifest {
        let applied = all.check_apply(resource.clone(), &planned).await;
        let created = all.check_create(resource.clone(), &planned).await;
        assert_eq!(applied.is_err(), created.is_err(), "{resource}");
        refused.extend(applied.err().map(|error| error.to_string()));
    }
    assert_eq!(
        refused,
        [
            "IPPool(within): spec.cidr: 10.66.1.0/24 overlaps with 10.66.0.0/16 of IPPool(first)",
            "IPPool(around): spec.cidr: 10.64.0.0/15 overlaps with 10.65.0.0/16 of IPPool(stored)",
        ]
    );
    // An existing resource is replaced, or rejected by the write itself.
    all.check_create(pool("stored", "10.0.0.0/8"), &planned)
        .await
        .unwrap();
    let error = all.check_replace(pool("stored", "10.0.0.0/8")).await;
    assert!(error.unwrap_err().to_string().contains("spec.cidr"));
    all.check_replace(pool("missing", "10.66.0.0/16"))
        .await
        .unwrap();
}

#[tokio::test]
async fn planned_policy_finds_its_tier_anywhere_in_the_manifest() {
    let all = resources();
    let policy = |tier: &str| json!({"kind": "GlobalNetworkPolicy", "metadata": {"name": "p"}, "spec": {"tier": tier}});
    let manifest = [
        policy("security"),
        json!({"kind": "Tier", "metadata": {"name": "security"}, "spec": {"order": 1}}),
    ];
    let planned = Planned::new(&manifest);
    for tier in ["security", "default", ""] {
        all.check_apply(policy(tier), &planned).await.unwrap();
    }
    let error = all.check_apply(policy("absent"), &planned).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("there is no tier \"absent\""), "{error}");
}

#[tokio::test]
async fn policies_need_their_tier_and_are_found_under_both_names() {
    let all = resources();
    let policy = |name: &str, tier: &str| json!({"kind": "GlobalNetworkPolicy", "metadata": {"name": name}, "spec": {"tier": tier}});
    let error = all
        .create(policy("p", "security"))
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "GlobalNetworkPolicy(p): spec.tier: there is no tier \"security\""
    );
    let tier = json!({"kind": "Tier", "metadata": {"name": "security"}, "spec": {"order": 1}});
    all.create(tier).await.unwrap();
    all.create(policy("p", "security")).await.unwrap();
    let error = all
        .delete(&key(Kind::Tier, "security"), None)
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "Tier(security): GlobalNetworkPolicy(p) is in the tier"
    );

    all.initialize().await.unwrap();
    let older = key(Kind::GlobalNetworkPolicy, "default.q");
    let value = json!({"metadata": {"name": "default.q"}, "spec": {"order": 1}}).to_string();
    all.store()
        .put(older.to_string().into(), value.into(), LeaseId::NONE)
        .await
        .unwrap();
    let q = key(Kind::GlobalNetworkPolicy, "q");
    assert_eq!(all.get(&q).await.unwrap().value["metadata"]["name"], "q");
    all.apply(policy("q", "default")).await.unwrap();
    let names: Vec<String> = all
        .list(Kind::GlobalNetworkPolicy, None)
        .await
        .unwrap()
        .items
        .iter()
        .map(|item| item.value["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["q", "p"], "written over where it was");
    all.delete(&q, None).await.unwrap();
    assert!(
        all.store()
            .get(older.to_string().into())
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn built_in_resource_is_shown_and_not_written() {
    let all = resources();
    let profile = key(Kind::Profile, DEFAULT_ALLOW_PROFILE);
    let shown = all.get(&profile).await.unwrap();
    assert_eq!(shown.value["spec"]["ingress"], json!([{"action": "Allow"}]));
    assert_eq!(shown.value["metadata"]["resourceVersion"], "1");
    assert_eq!(
        all.list(Kind::Profile, None).await.unwrap().items,
        std::slice::from_ref(&shown)
    );
    assert!(all.apply(shown.value).await.is_err());
    assert!(all.delete(&profile, None).await.is_err());
    let cluster =
        json!({"kind": "ClusterInformation", "metadata": {"name": "default"}, "spec": {}});
    for attempt in [
        all.create(cluster.clone()).await,
        all.replace(cluster).await,
    ] {
        let error = attempt.unwrap_err().to_string();
        assert!(error.contains("the daemons look after it"), "{error}");
    }
    let error = all
        .delete(&key(Kind::Tier, "default"), None)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "Tier(default): the tier is always there");
}

#[tokio::test]
async fn a_list_can_be_that_of_a_namespace() {
    let all = resources();
    for namespace in ["a", "a-b"] {
        let set = json!({"kind": "NetworkSet", "metadata": {"name": "s", "namespace": namespace}, "spec": {}});
        all.create(set).await.unwrap();
    }
    let count = async |namespace| {
        all.list(Kind::NetworkSet, namespace)
            .await
            .unwrap()
            .items
            .len()
    };
    assert_eq!(count(None).await, 2);
    assert_eq!(count(Some("a")).await, 1);
    assert_eq!(count(Some("c")).await, 0);
}
