//! Paths whose origin is not confirmed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use bgp_proto::{Net, Prefix};
use rib::{
    Cursor, DownMode, Ineligible, OriginCheck, PathLimit, PeerId, PrefixRange, ReceivedPath,
};

use crate::{Budget, FAMILY, Progress, Rib, announce, attributes, prefix, rib, settle};

/// Confirms all paths but those of one peer.
#[derive(Debug, Default)]
struct AllBut(AtomicU16);

impl OriginCheck for AllBut {
    fn confirms(&self, path: &ReceivedPath<'_>) -> bool {
        path.peer.0 != self.0.load(Ordering::Relaxed)
    }
}

fn best(rib: &Rib) -> Option<PeerId> {
    let view = rib.lookup(FAMILY, Net::V4(prefix(1)));
    view.and_then(|view| view.best().map(|path| path.peer))
}

/// Returns the peers of the routes that a reader is given, in their order.
fn read(rib: &mut Rib, cursor: &mut Cursor) -> Vec<Option<PeerId>> {
    let mut read = Vec::new();
    while rib.changes(FAMILY, cursor, Budget(64), &mut |change| {
        let best = change
            .route
            .and_then(|route| route.paths().next().map(|path| path.peer));
        read.push(best);
    }) == Progress::More
    {}
    read
}

// Promise (BGP): A path with an unconfirmed origin is never used, but counts against the limits of
// its peer.
#[test]
fn unconfirmed_path_is_held_counted_and_not_used() {
    let mut rib = rib();
    let check = Arc::new(AllBut(2.into()));
    rib.set_origin_check(Some(check.clone()));
    let limit = PathLimit::new(1, true);
    rib.limit_paths(PeerId(2), FAMILY, Some(limit));
    let mut reader = Cursor::default();
    assert_eq!(read(&mut rib, &mut reader), []);
    let done = announce(&mut rib, 2, &attributes(2, 1), [(1, 0), (2, 0)].into_iter());
    assert_eq!((done.reach, done.limited), (1, 1));
    assert_eq!(read(&mut rib, &mut reader), [], "before any decision");
    settle(&mut rib);
    assert_eq!((best(&rib), read(&mut rib, &mut reader)), (None, vec![]));
    let counters = rib.counters(PeerId(2), FAMILY);
    let counts = (counters.paths, counters.ineligible, counters.unconfirmed);
    assert_eq!(counts, (1, 1, 1));
    let path = rib.lookup(FAMILY, Net::V4(prefix(1))).expect("held").paths;
    assert_eq!(path[0].ineligible, Some(Ineligible::Unconfirmed));

    // The path of another peer is worse, and stays in use.
    announce(&mut rib, 3, &attributes(3, 4), [(1, 0)].into_iter());
    announce(&mut rib, 2, &attributes(2, 2), [(1, 0)].into_iter());
    settle(&mut rib);
    assert_eq!(read(&mut rib, &mut reader), [Some(PeerId(3))]);

    // Its data changes: the path is evaluated again at once.
    check.0.store(3, Ordering::Relaxed);
    let range = PrefixRange::equal(Prefix::V4(prefix(1)));
    rib.reevaluate(FAMILY, &range);
    settle(&mut rib);
    assert_eq!(read(&mut rib, &mut reader), [Some(PeerId(2))]);
    assert_eq!(rib.counters(PeerId(2), FAMILY).unconfirmed, 0);
    assert_eq!(rib.counters(PeerId(3), FAMILY).unconfirmed, 1);
    check.0.store(2, Ordering::Relaxed);
    rib.reevaluate(FAMILY, &range);
    settle(&mut rib);
    assert_eq!(best(&rib), Some(PeerId(3)));

    // Without the check all are used again, and no count is left when they are removed.
    rib.set_origin_check(None);
    settle(&mut rib);
    assert_eq!(best(&rib), Some(PeerId(2)));
    rib.set_origin_check(Some(check));
    settle(&mut rib);
    assert_eq!(best(&rib), Some(PeerId(3)));
    rib.peer_down(PeerId(2), DownMode::Flush);
    settle(&mut rib);
    assert_eq!(rib.counters(PeerId(2), FAMILY).unconfirmed, 0);
}
