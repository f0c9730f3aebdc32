use bytes::Bytes;
use calico_store::limits::REQUEST_OCTETS_MAX;
use calico_store::{Error, LeaseId};

use super::suite::{Bench, events};

/// Checks that readers and watchers get exactly the written octets.
pub(crate) async fn any_octets_are_kept(bench: Bench) {
    let values: [&[u8]; 6] = [
        b"",
        b"\0",
        b"\xff\xfe\xfd",
        b"{\"kind\":",
        b"\xed\xa0\x80",
        &[b'['; 4096],
    ];
    let from = bench.now().await.next();
    let mut watch = bench.watch(from).await;
    for (nth, value) in values.iter().enumerate() {
        let mut key = bench.key("").to_vec();
        key.extend([b'\xff', u8::try_from(nth).unwrap(), b'/', 0]);
        bench
            .store
            .put(key.into(), Bytes::from_static(b"before"), LeaseId::NONE)
            .await
            .unwrap();
        let mut key = bench.key("").to_vec();
        key.extend([b'\xff', u8::try_from(nth).unwrap(), b'/', 0]);
        bench
            .store
            .put(key.into(), Bytes::copy_from_slice(value), LeaseId::NONE)
            .await
            .unwrap();
    }
    let listing = bench.store.list(bench.all()).await.unwrap();
    let listed: Vec<_> = listing.items.iter().map(|item| &item.value[..]).collect();
    assert_eq!(listed, values);
    let seen = events(&mut watch, 2 * values.len()).await;
    let watched: Vec<_> = seen
        .iter()
        .filter(|event| event.item.version == 2)
        .map(|event| &event.item.value[..])
        .collect();
    assert_eq!(watched, values);
}

pub(crate) async fn the_largest_value_fits_and_no_larger_one(bench: Bench) {
    let from = bench.now().await.next();
    let mut watch = bench.watch(from).await;
    let put = async |octets: usize| {
        let value = vec![b'x'; octets];
        bench
            .store
            .put(bench.key("a"), value.into(), LeaseId::NONE)
            .await
    };
    // The limit applies to the request, whose other parts take some octets.
    let largest = REQUEST_OCTETS_MAX - 512;
    put(largest).await.unwrap();
    assert_eq!(put(REQUEST_OCTETS_MAX + 1).await, Err(Error::TooLarge));
    assert_eq!(put(REQUEST_OCTETS_MAX * 4).await, Err(Error::TooLarge));
    assert_eq!(events(&mut watch, 1).await[0].item.value.len(), largest);
    assert_eq!(bench.get("a").await.map(|value| value.len()), Some(largest));
}
