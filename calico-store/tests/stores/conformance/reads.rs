use calico_store::{KeyRange, Order, OrderBy, Query, Revision, RevisionBounds};

use super::suite::Bench;

pub(crate) async fn a_written_key_reads_back(bench: Bench) {
    let first = bench.put("a", "1").await;
    let second = bench.put("a", "2").await;
    assert!(second > first);
    let item = bench.store.get(bench.key("a")).await.unwrap().unwrap();
    assert_eq!(item.value.as_ref(), b"2");
    assert_eq!(
        (item.create_revision, item.mod_revision, item.version),
        (first, second, 2)
    );
    assert!(bench.store.delete(bench.key("a")).await.unwrap());
    let third = bench.put("a", "").await;
    let item = bench.store.get(bench.key("a")).await.unwrap().unwrap();
    assert_eq!(
        (item.create_revision, item.version, item.value.len()),
        (third, 1, 0)
    );
}

pub(crate) async fn nothing_there_is_no_error(bench: Bench) {
    assert_eq!(bench.get("a").await, None);
    assert!(!bench.store.delete(bench.key("a")).await.unwrap());
    let listing = bench.store.list(bench.all()).await.unwrap();
    assert_eq!(
        (listing.items.len(), listing.count, listing.more),
        (0, 0, false)
    );
    assert!(listing.header.revision > Revision::ZERO && listing.header.cluster != 0);
}

pub(crate) async fn a_list_is_of_one_revision(bench: Bench) {
    bench.put("b", "1").await;
    let last = bench.put("a", "1").await;
    // A key with a similar name is not below the prefix.
    let listing = bench.store.list(bench.all()).await.unwrap();
    assert_eq!(listing.header.revision, last);
    let names: Vec<String> = listing
        .items
        .iter()
        .map(|item| bench.name(&item.key))
        .collect();
    assert_eq!(names, ["a", "b"]);
}

pub(crate) async fn pages_join_up(bench: Bench) {
    let names: Vec<String> = (0..2100).map(|nth| format!("{nth:05}")).collect();
    for chunk in names.chunks(100) {
        let then = chunk.iter().map(|name| bench.put_op(name, name)).collect();
        bench
            .txn(calico_store::Txn {
                then,
                ..Default::default()
            })
            .await;
    }
    let listing = bench.store.list(bench.all()).await.unwrap();
    let found: Vec<String> = listing
        .items
        .iter()
        .map(|item| bench.name(&item.key))
        .collect();
    assert_eq!(found, names);
    assert!(!listing.more);

    // Page by page, during concurrent writes.
    let mut query = Query {
        limit: 1500,
        ..Query::new(bench.all())
    };
    let first = bench.store.range(query.clone()).await.unwrap();
    assert_eq!(
        (first.items.len(), first.more, first.count),
        (1500, true, 2100)
    );
    bench.store.delete(bench.key("02000")).await.unwrap();
    query.at = Some(first.header.revision);
    query.range = query.range.after(&first.items.last().unwrap().key);
    let second = bench.store.range(query).await.unwrap();
    assert_eq!((second.items.len(), second.more), (600, false));
    assert!(
        second.header.revision > first.header.revision,
        "the header is of now"
    );
}

pub(crate) async fn the_past_can_be_read(bench: Bench) {
    let first = bench.put("a", "1").await;
    bench.put("b", "1").await;
    bench.store.delete(bench.key("a")).await.unwrap();
    let then = Query {
        at: Some(first),
        ..Query::new(bench.all())
    };
    let listing = bench.store.range(then).await.unwrap();
    assert_eq!(listing.items.len(), 1);
    assert_eq!(bench.name(&listing.items[0].key), "a");
}

pub(crate) async fn order_bounds_and_counts(bench: Bench) {
    let mut at = Vec::new();
    for (name, value) in [("a", "3"), ("b", "1"), ("c", "2")] {
        at.push(bench.put(name, value).await);
    }
    at.push(bench.put("a", "3").await);
    let names = async |query: Query| {
        let listing = bench.store.range(query).await.unwrap();
        listing
            .items
            .iter()
            .map(|item| bench.name(&item.key))
            .collect::<String>()
    };
    let query = Query::new(bench.all());
    let by = |by, descending| Query {
        order: Some(Order { by, descending }),
        ..query.clone()
    };
    assert_eq!(names(by(OrderBy::Key, true)).await, "cba");
    assert_eq!(names(by(OrderBy::Value, false)).await, "bca");
    assert_eq!(names(by(OrderBy::ModRevision, false)).await, "bca");
    assert_eq!(names(by(OrderBy::CreateRevision, true)).await, "cba");
    assert_eq!(
        names(Query {
            limit: 1,
            ..by(OrderBy::Version, true)
        })
        .await,
        "a"
    );

    let bounds = RevisionBounds {
        mod_min: Some(at[2]),
        ..RevisionBounds::default()
    };
    assert_eq!(
        names(Query {
            bounds,
            ..query.clone()
        })
        .await,
        "ac"
    );
    let bounds = RevisionBounds {
        create_max: Some(at[1]),
        ..RevisionBounds::default()
    };
    assert_eq!(
        names(Query {
            bounds,
            ..query.clone()
        })
        .await,
        "ab"
    );

    // Bounds and limit leave out keys, but the count includes them.
    for (mod_min, left) in [(at[2], 2), (at[3].next(), 0)] {
        let bounds = RevisionBounds {
            mod_min: Some(mod_min),
            ..RevisionBounds::default()
        };
        for (limit, listed) in [(0, left), (1, left.min(1))] {
            let query = Query {
                bounds,
                limit,
                ..query.clone()
            };
            let found = bench.store.range(query).await.unwrap();
            assert_eq!((found.items.len(), found.count), (listed, 3));
            assert_eq!(found.more, listed < left);
        }
    }

    let counted = bench
        .store
        .range(Query {
            count_only: true,
            ..query.clone()
        })
        .await
        .unwrap();
    assert_eq!((counted.items.len(), counted.count), (0, 3));
    let keys = bench
        .store
        .range(Query {
            keys_only: true,
            limit: 2,
            ..query.clone()
        })
        .await
        .unwrap();
    assert_eq!((keys.items.len(), keys.count, keys.more), (2, 3, true));
    assert!(
        keys.items
            .iter()
            .all(|item| item.value.is_empty() && item.version > 0)
    );

    let one = KeyRange::key(bench.key("b"));
    assert_eq!(names(Query::new(one)).await, "b");
}
