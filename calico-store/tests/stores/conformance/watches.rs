use calico_store::{EventKind, KeyRange, LeaseId, Txn, WatchRequest};

use super::suite::{Bench, events};
use crate::common::soon;

pub(crate) async fn a_watch_from_the_past_misses_nothing(bench: Bench) {
    let first = bench.put("a", "1").await;
    bench.put("b", "1").await;
    bench.store.delete(bench.key("a")).await.unwrap();
    let mut watch = bench.watch(first).await;
    assert!(watch.header().revision > first);
    let mut seen = events(&mut watch, 3).await;
    bench.put("a", "2").await;
    seen.extend(events(&mut watch, 1).await);
    let events: Vec<_> = seen
        .iter()
        .map(|event| (event.kind, bench.name(&event.item.key), event.item.version))
        .collect();
    assert_eq!(
        events,
        [
            (EventKind::Put, "a".into(), 1),
            (EventKind::Put, "b".into(), 1),
            (EventKind::Delete, "a".into(), 0),
            (EventKind::Put, "a".into(), 1),
        ]
    );
    assert!(
        seen.windows(2)
            .all(|pair| pair[0].item.mod_revision < pair[1].item.mod_revision)
    );
    assert!(seen[2].item.value.is_empty());
}

pub(crate) async fn watch_reports_only_its_range(bench: Bench) {
    let from = bench.now().await.next();
    let range = KeyRange::key(bench.key("b"));
    let mut watch = bench
        .store
        .watch(WatchRequest::from(range, from))
        .await
        .unwrap();
    for name in ["a", "b", "b/c", "c"] {
        bench.put(name, "").await;
    }
    bench.put("b", "last").await;
    let seen = events(&mut watch, 2).await;
    assert!(seen.iter().all(|event| bench.name(&event.item.key) == "b"));
    assert_eq!(seen[1].item.value.as_ref(), b"last");
}

pub(crate) async fn a_revision_comes_whole(bench: Bench) {
    let from = bench.now().await.next();
    let mut watch = bench.watch(from).await;
    let then = (0..100)
        .map(|nth| bench.put_op(&format!("{nth:03}"), ""))
        .collect();
    let revision = bench
        .txn(Txn {
            then,
            ..Txn::default()
        })
        .await
        .header
        .revision;
    let batch = soon("a batch", watch.next()).await.unwrap();
    assert_eq!((batch.events.len(), batch.revision), (100, revision));
    assert!(
        batch
            .events
            .iter()
            .all(|event| event.item.mod_revision == revision)
    );
}

pub(crate) async fn watch_can_report_previous_items(bench: Bench) {
    let from = bench.put("a", "1").await;
    let request = WatchRequest {
        previous: true,
        ..WatchRequest::from(bench.all(), from)
    };
    let mut watch = bench.store.watch(request).await.unwrap();
    bench.put("a", "2").await;
    bench.store.delete(bench.key("a")).await.unwrap();
    let seen = events(&mut watch, 3).await;
    let before: Vec<_> = seen
        .iter()
        .map(|event| event.previous.as_ref().map(|item| item.value.to_vec()))
        .collect();
    assert_eq!(before, [None, Some(b"1".to_vec()), Some(b"2".to_vec())]);
}

pub(crate) async fn a_watch_answers_a_probe(bench: Bench) {
    let revision = bench.put("a", "1").await;
    let mut watch = bench.watch(revision.next()).await;
    watch.prober().probe();
    let batch = soon("a sign of life", watch.next()).await.unwrap();
    assert!(
        batch.events.is_empty() && batch.revision >= revision,
        "{batch:?}"
    );
    bench.put("a", "2").await;
    assert_eq!(events(&mut watch, 1).await.len(), 1);
}

pub(crate) async fn a_watch_from_now_begins_now(bench: Bench) {
    bench.put("a", "before").await;
    let request = WatchRequest {
        range: bench.all(),
        from: None,
        previous: false,
    };
    let mut watch = bench.store.watch(request).await.unwrap();
    let after = bench
        .store
        .put(bench.key("a"), "after".into(), LeaseId::NONE)
        .await
        .unwrap();
    let seen = events(&mut watch, 1).await;
    assert_eq!((seen.len(), seen[0].item.mod_revision), (1, after));
}

/// Checks that each watch gets its own events, although proxies combine many watches into one.
pub(crate) async fn watches_of_one_range_do_not_disturb_each_other(bench: Bench) {
    let first = bench.put("a", "1").await;
    bench.put("a", "2").await;
    let now = bench.now().await;
    let mut watches = Vec::new();
    for from in [first, now.next(), now.next(), first.next(), now.next()] {
        let watch = bench.watch(from).await;
        assert!(watch.header().cluster != 0 && watch.header().revision >= now);
        watches.push((from, watch));
    }
    let last = bench.put("a", "3").await;
    for (from, watch) in &mut watches {
        let wanted = usize::from(*from <= first) + usize::from(*from <= now) + 1;
        let seen = events(watch, wanted).await;
        assert_eq!(seen.len(), wanted, "{from}: {seen:?}");
        assert_eq!(seen[wanted - 1].item.mod_revision, last);
        watch.prober().probe();
        let batch = soon("a sign of life", watch.next()).await.unwrap();
        assert!(batch.events.is_empty() && batch.revision >= last);
    }
    // One ends, the others stay.
    drop(watches.swap_remove(1));
    bench.put("a", "4").await;
    for (_, watch) in &mut watches {
        assert_eq!(events(watch, 1).await[0].item.value.as_ref(), b"4");
    }
}
