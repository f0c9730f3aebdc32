use calico_store::{
    Compare, CompareWith, Comparison, Delete, Error, KeyRange, LeaseId, Op, OpReply, Put, Query,
    Revision, Txn,
};

use super::suite::{Bench, values};

pub(crate) async fn creating_updating_and_deleting_compare_first(bench: Bench) {
    let (store, key) = (&bench.store, bench.key("a"));
    let first = store
        .create(key.clone(), "1".into(), LeaseId::NONE)
        .await
        .unwrap();
    match store.create(key.clone(), "2".into(), LeaseId::NONE).await {
        Err(Error::Conflict {
            current: Some(current),
        }) => assert_eq!(current.mod_revision, first),
        other => panic!("{other:?}"),
    }
    let second = store
        .update(key.clone(), "2".into(), LeaseId::NONE, first)
        .await
        .unwrap();
    match store
        .update(key.clone(), "3".into(), LeaseId::NONE, first)
        .await
    {
        Err(Error::Conflict {
            current: Some(current),
        }) => assert_eq!(current.value.as_ref(), b"2"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        store.delete_at(key.clone(), first).await,
        Err(Error::Conflict { .. })
    ));
    store.delete_at(key.clone(), second).await.unwrap();
    assert_eq!(
        store.update(key, "4".into(), LeaseId::NONE, second).await,
        Err(Error::Conflict { current: None })
    );
}

pub(crate) async fn everything_happens_at_one_revision(bench: Bench) {
    bench.put("gone", "x").await;
    let delete = Delete {
        range: KeyRange::key(bench.key("gone")),
        previous: true,
    };
    let reply = bench
        .txn(Txn {
            then: vec![
                bench.put_op("a", "1"),
                Op::Range(Query::new(bench.all())),
                Op::Delete(delete),
                bench.put_op("b", "2"),
                Op::Range(Query::new(bench.all())),
            ],
            ..Txn::default()
        })
        .await;
    assert!(reply.succeeded);
    assert_eq!(values(&reply.replies[1]), [&b"1"[..], b"x"]);
    assert!(
        matches!(&reply.replies[2], OpReply::Delete { deleted: 1, previous } if previous.len() == 1)
    );
    assert_eq!(values(&reply.replies[4]), [&b"1"[..], b"2"]);
    let listing = bench.store.list(bench.all()).await.unwrap();
    assert!(
        listing
            .items
            .iter()
            .all(|item| item.mod_revision == reply.header.revision)
    );
}

pub(crate) async fn every_comparison_compares(bench: Bench) {
    let lease = bench.store.lease_grant(100).await.unwrap().id;
    let first = bench
        .store
        .put(bench.key("a"), "m".into(), lease)
        .await
        .unwrap();
    let second = bench
        .store
        .put(bench.key("a"), "m".into(), lease)
        .await
        .unwrap();
    let holds = async |name: &str, comparison, with| {
        let compare = Compare {
            range: KeyRange::key(bench.key(name)),
            comparison,
            with,
        };
        bench.txn(comparing(&bench, compare)).await.succeeded
    };
    use Comparison::{Equal, Greater, Less, NotEqual};
    for (with, less, more) in [
        (
            CompareWith::Version(2),
            CompareWith::Version(1),
            CompareWith::Version(3),
        ),
        (
            CompareWith::CreateRevision(first),
            CompareWith::CreateRevision(Revision(first.0 - 1)),
            CompareWith::CreateRevision(second),
        ),
        (
            CompareWith::ModRevision(second),
            CompareWith::ModRevision(first),
            CompareWith::ModRevision(second.next()),
        ),
        (
            CompareWith::Value("m".into()),
            CompareWith::Value("l".into()),
            CompareWith::Value("ma".into()),
        ),
        (
            CompareWith::Lease(lease),
            CompareWith::Lease(LeaseId(lease.0 - 1)),
            CompareWith::Lease(LeaseId(lease.0 + 1)),
        ),
    ] {
        assert!(holds("a", Equal, with.clone()).await, "{with:?}");
        assert!(!holds("a", NotEqual, with.clone()).await, "{with:?}");
        assert!(
            holds("a", Greater, less.clone()).await && !holds("a", Less, less).await,
            "{with:?}"
        );
        assert!(
            holds("a", Less, more.clone()).await && !holds("a", Greater, more).await,
            "{with:?}"
        );
    }
    // A missing key is all zero, and has no value.
    assert!(holds("none", Equal, CompareWith::Version(0)).await);
    assert!(holds("none", Equal, CompareWith::ModRevision(Revision::ZERO)).await);
    assert!(!holds("none", Equal, CompareWith::Value("".into())).await);
    assert!(!holds("none", NotEqual, CompareWith::Value("x".into())).await);
    bench.store.lease_revoke(lease).await.unwrap();
}

/// Returns a transaction that compares and reads. Without a read or write, a member of a cluster
/// answers from its local state, which may be outdated.
fn comparing(bench: &Bench, compare: Compare) -> Txn {
    let read = || vec![Op::Range(Query::new(KeyRange::key(bench.key("a"))))];
    Txn {
        compares: vec![compare],
        then: read(),
        otherwise: read(),
    }
}

pub(crate) async fn a_range_of_keys_can_be_compared(bench: Bench) {
    bench.put("a", "x").await;
    bench.put("b", "x").await;
    let holds = async |value: &'static str| {
        let with = CompareWith::Value(value.into());
        let compare = Compare {
            range: bench.all(),
            comparison: Comparison::Equal,
            with,
        };
        bench.txn(comparing(&bench, compare)).await.succeeded
    };
    assert!(holds("x").await);
    bench.put("b", "y").await;
    assert!(!holds("x").await);
}

pub(crate) async fn transactions_nest(bench: Bench) {
    bench.put("a", "1").await;
    let absent = Compare {
        range: KeyRange::key(bench.key("a")),
        comparison: Comparison::Equal,
        with: CompareWith::Version(0),
    };
    let inner = Txn {
        compares: vec![absent],
        then: vec![bench.put_op("b", "then")],
        otherwise: vec![
            bench.put_op("b", "otherwise"),
            Op::Range(Query::new(bench.all())),
        ],
    };
    let reply = bench
        .txn(Txn {
            then: vec![bench.put_op("c", "outer"), Op::Txn(Box::new(inner))],
            ..Txn::default()
        })
        .await;
    let OpReply::Txn(inner) = &reply.replies[1] else {
        panic!("{reply:?}")
    };
    assert!(!inner.succeeded);
    assert_eq!(
        values(&inner.replies[1]),
        [&b"1"[..], b"otherwise", b"outer"]
    );
}

pub(crate) async fn a_key_is_written_once(bench: Bench) {
    let refused = async |then: Vec<Op>| {
        bench
            .store
            .txn(Txn {
                then,
                ..Txn::default()
            })
            .await
            .unwrap_err()
    };
    let put = || bench.put_op("a", "1");
    assert_eq!(refused(vec![put(), put()]).await, Error::DuplicateKey);
    let delete = Op::Delete(Delete {
        range: bench.all(),
        previous: false,
    });
    assert_eq!(
        refused(vec![put(), delete.clone()]).await,
        Error::DuplicateKey
    );
    assert_eq!(refused(vec![delete, put()]).await, Error::DuplicateKey);
    let inner = Op::Txn(Box::new(Txn {
        otherwise: vec![put()],
        ..Txn::default()
    }));
    assert_eq!(refused(vec![inner, put()]).await, Error::DuplicateKey);
    // The two branches of a transaction may write the same key.
    let either = Txn {
        then: vec![put()],
        otherwise: vec![put()],
        ..Txn::default()
    };
    assert!(bench.txn(either).await.succeeded);
    assert_eq!(bench.get("a").await.as_deref(), Some("1"));
}

pub(crate) async fn limits_are_kept(bench: Bench) {
    let puts = |count: usize| {
        (0..count)
            .map(|nth| bench.put_op(&nth.to_string(), ""))
            .collect()
    };
    let many = |count| Txn {
        then: puts(count),
        ..Txn::default()
    };
    assert_eq!(
        bench.store.txn(many(129)).await,
        Err(Error::TooManyOperations)
    );
    assert_eq!(bench.get("0").await, None, "nothing of it was done");
    assert!(bench.txn(many(128)).await.succeeded);
    let large = vec![b'x'; 2 * 1024 * 1024];
    let put = bench
        .store
        .put(bench.key("large"), large.into(), LeaseId::NONE)
        .await;
    assert_eq!(put, Err(Error::TooLarge));
    let fitting = vec![b'x'; 1024 * 1024];
    bench
        .store
        .put(bench.key("large"), fitting.into(), LeaseId::NONE)
        .await
        .unwrap();
    assert_eq!(
        bench.get("large").await.map(|value| value.len()),
        Some(1024 * 1024)
    );
}

pub(crate) async fn value_and_lease_can_be_kept(bench: Bench) {
    let lease = bench.store.lease_grant(100).await.unwrap().id;
    let keep_value = Put {
        value: None,
        lease: Some(lease),
        ..Put::new(bench.key("a"), "")
    };
    let keep_lease = Put {
        lease: None,
        ..Put::new(bench.key("a"), "new")
    };
    let txn = |put: &Put| Txn {
        then: vec![Op::Put(put.clone())],
        ..Txn::default()
    };
    assert_eq!(bench.store.txn(txn(&keep_value)).await, Err(Error::NoKey));
    assert_eq!(bench.store.txn(txn(&keep_lease)).await, Err(Error::NoKey));
    bench.put("a", "old").await;
    bench.txn(txn(&keep_value)).await;
    let item = bench.store.get(bench.key("a")).await.unwrap().unwrap();
    assert_eq!((item.value.as_ref(), item.lease), (&b"old"[..], lease));
    bench.txn(txn(&keep_lease)).await;
    let item = bench.store.get(bench.key("a")).await.unwrap().unwrap();
    assert_eq!((item.value.as_ref(), item.lease), (&b"new"[..], lease));
    bench.store.lease_revoke(lease).await.unwrap();
}

pub(crate) async fn deleting_nothing_is_no_change(bench: Bench) {
    let before = bench.put("a", "1").await;
    assert!(!bench.store.delete(bench.key("b")).await.unwrap());
    assert_eq!(bench.now().await, before);
}

pub(crate) async fn deletion_of_a_range_returns_its_items(bench: Bench) {
    for name in ["a", "b", "c"] {
        bench.put(name, name).await;
    }
    let before_c = KeyRange {
        start: bench.key("a"),
        end: calico_store::RangeEnd::Before(bench.key("c")),
    };
    let delete = Op::Delete(Delete {
        range: before_c,
        previous: true,
    });
    let reply = bench
        .txn(Txn {
            then: vec![delete],
            ..Txn::default()
        })
        .await;
    let OpReply::Delete {
        deleted: 2,
        previous,
    } = &reply.replies[0]
    else {
        panic!("{reply:?}")
    };
    let names: Vec<String> = previous.iter().map(|item| bench.name(&item.key)).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(bench.get("c").await.as_deref(), Some("c"));
}
