use std::sync::Arc;

use calico_store::{Delete, Op, Status, Txn, follow};

use super::suite::Bench;
use crate::common::Picture;

/// Mirrors two ranges of this store: existing keys, changes, deletions, and a compaction during the
/// mirroring.
pub(crate) async fn a_mirror_keeps_up(bench: Bench) {
    bench.put("a/1", "one").await;
    bench.put("b/1", "one").await;
    let name = |name: &str| String::from_utf8(bench.key(name).to_vec()).unwrap();
    let ranges = ["a/", "b/"].map(|part| calico_store::KeyRange::prefix(bench.key(part)));
    let mut follower = follow(Arc::clone(&bench.store), ranges, 1);
    let mut picture = Picture::default();
    let in_sync = |p: &Picture| p.status == Some(Status::InSync);
    picture
        .until(&mut follower, "the first picture", in_sync)
        .await;
    assert_eq!(picture.state.len(), 2);

    let last = bench.put("a/1", "two").await;
    bench.put("c/1", "not mirrored").await;
    bench.store.compact(last).await.unwrap();
    let delete = Op::Delete(Delete {
        range: calico_store::KeyRange::prefix(bench.key("b/")),
        previous: false,
    });
    bench
        .txn(Txn {
            then: vec![delete, bench.put_op("a/2", "new")],
            ..Txn::default()
        })
        .await;
    let (old, new) = (name("a/1"), name("a/2"));
    picture
        .until(&mut follower, "the changes", |p| {
            p.holds(&old, "two") && p.holds(&new, "new") && p.state.len() == 2 && in_sync(p)
        })
        .await;
}
