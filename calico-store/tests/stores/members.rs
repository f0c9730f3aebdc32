//! The list of a cluster's members.

use std::collections::BTreeSet;

use crate::common::{Etcd, Served, insist, users};
use calico_store::{EtcdOptions, EtcdStore, Store};
use etcd_lite::Local;

/// Returns the members that a client of these endpoints lists.
async fn members(options: &EtcdOptions) -> BTreeSet<String> {
    let store = EtcdStore::connect(options).await.unwrap();
    let listed = insist("the members", async || store.members().await).await;
    listed.into_iter().collect()
}

#[tokio::test]
async fn one_endpoint_lists_all_members_of_a_cluster() {
    let Some(etcd) = Etcd::steady(3).await else {
        return;
    };
    let urls = etcd.members.iter();
    let urls = urls.flat_map(|member| [member.url.clone(), member.peer_url.clone()]);
    let first = EtcdOptions::new([etcd.members[0].url.clone()]);
    assert_eq!(members(&first).await, urls.collect());
}

#[tokio::test]
async fn user_with_few_permissions_lists_members() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let files = tempfile::tempdir().unwrap();
    let Some(options) = users(&etcd, files.path(), "/calico/").await else {
        return;
    };
    assert!(members(&options).await.contains(&etcd.members[0].url));
}

#[tokio::test]
async fn small_store_lists_itself_and_a_local_one_nothing() {
    let served = Served::start().await;
    let url = format!("http://{}", served.address);
    assert_eq!(
        members(&EtcdOptions::new([url.clone()])).await,
        [url].into()
    );
    served.stop().await;
    assert!(Local::empty().members().await.unwrap().is_empty());
}
