//! One suite for every store: the core, the core served over the network, and a real etcd.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
mod history;
mod leases;
mod reads;
mod suite;
mod transactions;
mod watches;

use std::sync::Arc;

use common::{Etcd, Served};
use datastore::{EtcdOptions, EtcdStore, Local};

#[tokio::test]
async fn the_core_conforms() {
    suite::run(Arc::new(Local::empty())).await;
}

#[tokio::test]
async fn the_served_core_conforms() {
    let served = Served::start().await;
    suite::run(Arc::new(served.client().await)).await;
    served.stop().await;
}

#[tokio::test]
async fn etcd_conforms() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let store = EtcdStore::connect(&EtcdOptions::new([etcd.url.clone()]))
        .await
        .unwrap();
    suite::run(Arc::new(store)).await;
}
