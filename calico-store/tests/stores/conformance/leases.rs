use std::time::Instant;

use calico_store::{Error, EventKind, LeaseId};

use super::suite::{Bench, events};

pub(crate) async fn keys_go_with_their_lease(bench: Bench) {
    let began = Instant::now();
    let lease = bench.store.lease_grant(600).await.unwrap();
    assert!(lease.ttl_s >= 600 && lease.id != LeaseId::NONE);
    let from = bench.put("stays", "").await.next();
    for name in ["a", "b"] {
        bench
            .store
            .put(bench.key(name), "".into(), lease.id)
            .await
            .unwrap();
    }
    // The leader answers this, and may lag behind the member that accepted the write.
    let mut state = loop {
        let state = bench.store.lease_state(lease.id).await.unwrap();
        if state.keys.len() == 2 {
            break state;
        }
    };
    state.keys.sort(); // etcd returns them in any order
    assert_eq!(state.keys, [bench.key("a"), bench.key("b")]);
    let passed_s = i64::try_from(began.elapsed().as_secs()).unwrap() + 1;
    let remaining = state.granted_s - passed_s..=state.granted_s;
    assert!(remaining.contains(&state.remaining_s), "{state:?}");
    assert_eq!(
        bench.store.lease_keep_alive(lease.id).await,
        Ok(lease.ttl_s)
    );

    let mut watch = bench.watch(from).await;
    bench.store.lease_revoke(lease.id).await.unwrap();
    let seen = events(&mut watch, 4).await;
    let gone: Vec<_> = seen
        .iter()
        .filter(|event| event.kind == EventKind::Delete)
        .collect();
    assert_eq!(gone.len(), 2);
    assert_eq!(
        gone[0].item.mod_revision, gone[1].item.mod_revision,
        "they go at once"
    );
    assert_eq!(bench.get("stays").await.as_deref(), Some(""));
    assert_eq!(bench.get("a").await, None);
}

pub(crate) async fn a_lease_that_is_not_kept_ends(bench: Bench) {
    let from = bench.now().await.next();
    // A lease that has expired before its use cannot serve for this test.
    let lease = loop {
        let lease = bench.store.lease_grant(1).await.unwrap();
        match bench.store.put(bench.key("a"), "".into(), lease.id).await {
            Ok(_) => break lease,
            Err(error) => assert_eq!(error, Error::NoLease(lease.id)),
        }
    };
    let mut watch = bench.watch(from).await;
    let seen = events(&mut watch, 2).await;
    assert_eq!(seen[1].kind, EventKind::Delete);
    assert_eq!(
        bench.store.lease_keep_alive(lease.id).await,
        Err(Error::NoLease(lease.id))
    );
}

pub(crate) async fn a_key_moves_between_leases(bench: Bench) {
    let [one, two] = [
        bench.store.lease_grant(600).await.unwrap(),
        bench.store.lease_grant(600).await.unwrap(),
    ];
    assert_ne!(one.id, two.id);
    for name in ["a", "b", "c"] {
        bench
            .store
            .put(bench.key(name), "".into(), one.id)
            .await
            .unwrap();
    }
    bench
        .store
        .put(bench.key("b"), "".into(), two.id)
        .await
        .unwrap();
    bench.put("c", "free").await;
    bench.store.lease_revoke(one.id).await.unwrap();
    assert_eq!(
        (bench.get("a").await, bench.get("b").await),
        (None, Some(String::new()))
    );
    assert_eq!(bench.get("c").await.as_deref(), Some("free"));
    bench.store.lease_revoke(two.id).await.unwrap();
    assert_eq!(bench.get("b").await, None);
}

pub(crate) async fn leases_that_are_not_there(bench: Bench) {
    let none = LeaseId(0x0123_4567_89ab_cdef);
    let put = bench.store.put(bench.key("a"), "".into(), none).await;
    assert!(matches!(put, Err(Error::NoLease(_))), "{put:?}");
    assert_eq!(bench.get("a").await, None);
    assert_eq!(
        bench.store.lease_revoke(none).await,
        Err(Error::NoLease(none))
    );
    assert_eq!(
        bench.store.lease_keep_alive(none).await,
        Err(Error::NoLease(none))
    );
    assert_eq!(
        bench.store.lease_state(none).await,
        Err(Error::NoLease(none))
    );
}
