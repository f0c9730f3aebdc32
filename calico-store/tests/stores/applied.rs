//! Several resources that are applied together, on the embedded store.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::forward;
use calico_store::limits::{APPLY_OPERATIONS_MAX, REPLACE_ATTEMPTS_MAX};
use calico_store::resources::*;
use calico_store::*;
use etcd_lite::Local;
use serde_json::{Value, json};

const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

fn set(name: &str, net: &str) -> Value {
    json!({"kind": "GlobalNetworkSet", "metadata": {"name": name}, "spec": {"nets": [net]}})
}

fn sets(count: usize) -> Vec<Value> {
    let names = (0..count).map(|number| format!("s{number:03}"));
    names.map(|name| set(&name, "10.0.0.0/8")).collect()
}

/// Returns each outcome as one word.
fn words(outcomes: &[Outcome]) -> Vec<&'static str> {
    let words = outcomes.iter().map(|outcome| match outcome {
        Outcome::Applied(applied) => applied.effect.word(),
        Outcome::Refused(_) => "refused",
        Outcome::Unknown(_) => "unknown",
        Outcome::NotWritten => "not written",
    });
    words.collect()
}

async fn count(store: &Local) -> usize {
    let range = KeyRange::prefix(format!("{PREFIX}globalnetworksets/"));
    store.list(range).await.unwrap().items.len()
}

#[tokio::test]
async fn each_resource_has_its_effect_at_one_revision() {
    let all = Resources::new(Local::empty());
    let outcomes = all
        .apply_all(&[set("a", "10.0.0.0/8"), set("b", "10.0.0.0/8")])
        .await;
    assert_eq!(words(&outcomes), ["created", "created"]);
    let revisions: Vec<Revision> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Outcome::Applied(applied) => applied.item.revision,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(revisions.first(), revisions.last());

    let outcomes = all
        .apply_all(&[
            set("c", "10.0.0.0/8"),
            set("a", "10.0.0.0/8"),
            set("b", "192.0.2.0/24"),
        ])
        .await;
    assert_eq!(words(&outcomes), ["created", "unchanged", "configured"]);
    let Some(Outcome::Applied(unchanged)) = outcomes.get(1) else {
        panic!("{outcomes:?}");
    };
    assert_eq!(Some(&unchanged.item.revision), revisions.first());
}

#[tokio::test]
async fn refused_resource_keeps_the_others_from_being_written() {
    let store = Local::empty();
    let all = Resources::new(store.clone());
    let read = all.apply(set("a", "10.0.0.0/8")).await.unwrap().item;
    all.apply(set("a", "192.0.2.0/24")).await.unwrap();
    let before = store.list(KeyRange::all()).await.unwrap().header.revision;
    let twice = set("b", "10.0.0.0/8");
    let outcomes = all
        .apply_all(&[set("n", "10.0.0.0/8"), read.value, twice.clone(), twice])
        .await;
    assert_eq!(
        words(&outcomes),
        ["not written", "refused", "not written", "refused"]
    );
    let after = store.list(KeyRange::all()).await.unwrap().header.revision;
    assert_eq!(after, before);
}

/// A store in which others write the resource `s001` before each of so many transactions.
struct Busy {
    store: Local,
    left: AtomicUsize,
}

impl Store for Busy {
    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply> {
        Box::pin(async move {
            let is_theirs = txn.then.len() > 1 && self.left.load(Ordering::Relaxed) > 0;
            if is_theirs {
                self.left.fetch_sub(1, Ordering::Relaxed);
                let key = format!("{PREFIX}globalnetworksets/s001");
                let theirs = set("s001", "198.51.100.0/24").to_string();
                self.store
                    .put(key.into(), theirs.into(), LeaseId::NONE)
                    .await?;
            }
            self.store.txn(txn).await
        })
    }

    forward!(store: range watch others);
}

#[tokio::test]
async fn resource_that_others_write_is_read_again() {
    let (store, left) = (Local::empty(), AtomicUsize::new(1));
    let busy = Busy {
        store: store.clone(),
        left,
    };
    let outcomes = Resources::new(busy).apply_all(&sets(3)).await;
    assert_eq!(words(&outcomes), ["created", "configured", "created"]);
    let key = format!("{PREFIX}globalnetworksets/s001");
    let stored = store.get(key.into()).await.unwrap().unwrap().value;
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    assert_eq!(stored["spec"]["nets"], json!(["10.0.0.0/8"]));
}

#[tokio::test]
async fn resource_that_others_write_every_time_is_named() {
    let (store, left) = (Local::empty(), AtomicUsize::new(REPLACE_ATTEMPTS_MAX));
    let busy = Busy {
        store: store.clone(),
        left,
    };
    let outcomes = Resources::new(busy).apply_all(&sets(3)).await;
    assert_eq!(words(&outcomes), ["not written", "refused", "not written"]);
    assert_eq!(count(&store).await, 1, "that of the other writer");
}

/// A store that fails from its second large transaction on.
struct Failing {
    store: Local,
    done: AtomicUsize,
    error: Error,
}

impl Store for Failing {
    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply> {
        Box::pin(async move {
            if txn.then.len() > 1 && self.done.fetch_add(1, Ordering::Relaxed) > 0 {
                return Err(self.error.clone());
            }
            self.store.txn(txn).await
        })
    }

    forward!(store: range watch others);
}

#[tokio::test]
async fn failure_behind_a_transaction_leaves_its_outcomes() {
    let lost = Error::Unavailable("it is gone".into());
    for (error, word) in [(Error::NoSpace, "refused"), (lost, "unknown")] {
        let (store, done) = (Local::empty(), AtomicUsize::new(0));
        let failing = Failing {
            store: store.clone(),
            done,
            error,
        };
        let all = Resources::new(failing);
        let outcomes = all.apply_all(&sets(2 * APPLY_OPERATIONS_MAX + 1)).await;
        let words = words(&outcomes);
        let (first, rest) = words.split_at(APPLY_OPERATIONS_MAX);
        let (second, third) = rest.split_at(APPLY_OPERATIONS_MAX);
        assert!(first.iter().all(|word| *word == "created"), "{first:?}");
        assert!(second.iter().all(|one| *one == word), "{second:?}");
        assert_eq!(third, ["not written"]);
        assert_eq!(count(&store).await, APPLY_OPERATIONS_MAX);
    }
}
