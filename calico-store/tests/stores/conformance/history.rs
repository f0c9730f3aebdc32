use calico_store::{Error, Query, Revision};

use super::suite::{Bench, events};
use crate::common::soon;

pub(crate) async fn what_is_compacted_is_gone(bench: Bench) {
    let first = bench.put("a", "1").await;
    let second = bench.put("a", "2").await;
    let third = bench.put("a", "3").await;
    bench.store.compact(second).await.unwrap();
    let at = |at| Query {
        at: Some(at),
        ..Query::new(bench.all())
    };
    let compacted = bench.store.range(at(first)).await;
    assert!(
        matches!(compacted, Err(Error::Compacted { .. })),
        "{compacted:?}"
    );
    let item = bench.store.range(at(second)).await.unwrap().items.remove(0);
    assert_eq!(item.value.as_ref(), b"2");
    assert!(matches!(
        bench.store.compact(first).await,
        Err(Error::Compacted { .. })
    ));

    // A watch from there fails, when it is opened or immediately after.
    let outcome = match bench
        .store
        .watch(calico_store::WatchRequest::from(bench.all(), first))
        .await
    {
        Ok(mut watch) => soon("the end of the watch", watch.next()).await.map(|_| ()),
        Err(error) => Err(error),
    };
    assert_eq!(outcome, Err(Error::Compacted { at: second }));
    let mut watch = bench.watch(third).await;
    assert_eq!(events(&mut watch, 1).await[0].item.value.as_ref(), b"3");
}

pub(crate) async fn the_future_cannot_be_read(bench: Bench) {
    let now = bench.put("a", "1").await;
    let future = Revision(now.0 + 1000);
    let query = Query {
        at: Some(future),
        ..Query::new(bench.all())
    };
    assert_eq!(bench.store.range(query).await, Err(Error::FutureRevision));
    assert_eq!(
        bench.store.compact(future).await,
        Err(Error::FutureRevision)
    );
}

/// Compacts under a watch that has not read the compacted events yet: it gets all of them, or an
/// error.
pub(crate) async fn a_compaction_under_a_watch_leaves_no_gap(bench: Bench) {
    let from = bench.now().await.next();
    let mut watch = bench.watch(from).await;
    let mut revisions = Vec::new();
    for nth in 0..10 {
        revisions.push(bench.put("a", &nth.to_string()).await);
    }
    bench.store.compact(revisions[9]).await.unwrap();
    revisions.push(bench.put("a", "last").await);
    let mut seen = Vec::new();
    while seen.len() < revisions.len() {
        match soon("changes, or the end", watch.next()).await {
            Ok(batch) => seen.extend(batch.events.iter().map(|event| event.item.mod_revision)),
            Err(error) => {
                assert!(matches!(error, Error::Compacted { .. }), "{error}");
                break;
            }
        }
    }
    assert_eq!(seen, revisions[..seen.len()]);
    // Events already received do not matter: a watch from the compacted revision continues.
    let mut watch = bench.watch(revisions[10]).await;
    assert_eq!(events(&mut watch, 1).await[0].item.value.as_ref(), b"last");
}
