//! One suite for every store: the core, the core served over the network, a real etcd, a cluster of
//! three with an additional dead endpoint, the same through etcd's proxy, and one with TLS and
//! users.

mod history;
mod leases;
mod mirrors;
mod reads;
mod suite;
mod transactions;
mod values;
mod watches;

use std::sync::Arc;

use crate::common::{Etcd, Proxy, Served, certificates, free_port, users};
use calico_store::{EtcdOptions, EtcdStore};
use etcd_lite::Local;

#[tokio::test]
async fn the_core_conforms() {
    suite::run(Arc::new(Local::empty()), "").await;
}

#[tokio::test]
async fn the_served_core_conforms() {
    let served = Served::start().await;
    suite::run(Arc::new(served.client().await), "").await;
    served.stop().await;
}

async fn conforms(options: &EtcdOptions, name: &str) {
    let store = EtcdStore::connect(options).await.unwrap();
    suite::run(Arc::new(store), name).await;
}

#[tokio::test]
async fn etcd_conforms() {
    if let Some(etcd) = Etcd::steady(1).await {
        conforms(&EtcdOptions::new(etcd.urls()), "").await;
    }
}

#[tokio::test]
async fn a_cluster_of_etcd_conforms_and_its_proxy_too() {
    let Some(etcd) = Etcd::steady(3).await else {
        return;
    };
    // Wherever a client starts, it reaches the dead endpoint at some time.
    let mut urls = etcd.urls();
    urls.insert(1, format!("http://{}", free_port()));
    conforms(&EtcdOptions::new(urls), "cluster/").await;

    let mut proxy = Proxy::start(&etcd.urls()).await.unwrap();
    conforms(&EtcdOptions::new([proxy.url.clone()]), "proxy/").await;
    assert!(proxy.lives());
}

#[tokio::test]
async fn etcd_with_tls_and_users_conforms() {
    let Some(files) = certificates().await else {
        return;
    };
    let Some(etcd) = Etcd::start_tls(files.path()).await else {
        return;
    };
    let Some(mut options) = users(&etcd, files.path(), "/t/").await else {
        return;
    };
    // A dead member of a cluster with users is skipped as well.
    options
        .endpoints
        .insert(0, format!("https://{}", free_port()));
    conforms(&options, "").await;
}
