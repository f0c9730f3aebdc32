use std::fs;

use std::time::Duration;

use super::*;
use crate::core::WatchPoll;
use crate::local::Local;
use calico_store::{Delete, Op, Put, Txn};
use calico_store::{Event, KeyRange, KeyValue, LeaseId, Query, Revision};
use calico_store::{Store, WatchRequest};

const NOW: Duration = Duration::ZERO;

/// Everything that a client can see of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Picture {
    cluster: u64,
    revision: Revision,
    /// The content of each readable revision.
    past: Vec<(Revision, Vec<KeyValue>)>,
    events: Vec<Event>,
    leases: Vec<(LeaseId, i64, Vec<Bytes>)>,
    octets: usize,
}

fn picture(core: &Core) -> Picture {
    let header = core.header();
    let all = Query::new(KeyRange::all());
    let past = (1..=header.revision.0).filter_map(|at| {
        let at = Revision(at);
        let query = Query {
            at: Some(at),
            ..all.clone()
        };
        Some((at, core.range(&query).ok()?.items))
    });
    let past: Vec<_> = past.collect();
    let mut watch = core
        .watch(WatchRequest::from(KeyRange::all(), past[0].0))
        .unwrap();
    let mut events = Vec::new();
    while let WatchPoll::Events(batch) = core.poll_watch(&mut watch) {
        events.extend(batch.events);
    }
    let lease = |id| {
        let state = core.lease_state(NOW, id).unwrap();
        (id, state.granted_s, state.keys)
    };
    Picture {
        cluster: header.cluster,
        revision: header.revision,
        past,
        events,
        leases: core.leases().into_iter().map(lease).collect(),
        octets: core.octets(),
    }
}

fn put(core: &mut Core, key: &str, value: &str, lease: LeaseId) {
    let put = Put {
        lease: Some(lease),
        ..Put::new(key.to_owned(), value.to_owned())
    };
    txn(core, vec![Op::Put(put)]);
}

fn txn(core: &mut Core, then: Vec<Op>) {
    core.txn(&Txn {
        then,
        ..Txn::default()
    })
    .unwrap();
}

fn grant(core: &mut Core, id: LeaseId, ttl_s: i64) {
    core.lease_grant(NOW, id, ttl_s).unwrap();
}

fn delete(range: KeyRange) -> Op {
    Op::Delete(Delete {
        range,
        previous: false,
    })
}

/// Returns a sequence of all kinds of changes to a store.
fn story() -> Vec<fn(&mut Core)> {
    fn leases(core: &Core) -> Vec<LeaseId> {
        core.leases()
    }
    vec![
        |core| put(core, "a", "1", LeaseId::NONE),
        |core| grant(core, LeaseId::NONE, 60),
        |core| put(core, "b", "leased", leases(core)[0]),
        |core| put(core, "a", "2", LeaseId::NONE),
        |core| {
            let puts = ["c", "d", "e"].map(|key| Op::Put(Put::new(key, "")));
            txn(core, puts.into());
        },
        |core| txn(core, vec![delete(KeyRange::prefix("d"))]),
        |core| grant(core, LeaseId(77), 600),
        |core| put(core, "c", "moves", LeaseId(77)),
        |core| put(core, "b", "moves", LeaseId(77)),
        |core| {
            core.compact(Revision(core.header().revision.0 - 2))
                .unwrap()
        },
        |core| put(core, "d", "again", LeaseId::NONE),
        |core| core.lease_revoke(leases(core)[1]).unwrap(),
        |core| core.expire(Duration::from_secs(1000)),
        |core| put(core, "f", "last", LeaseId::NONE),
        |core| core.compact(core.header().revision).unwrap(),
        |core| put(core, "a", "end", LeaseId::NONE),
    ]
}

const CONFIG: CoreConfig = CoreConfig {
    cluster: 4711,
    history_revisions_max: 1000,
    history_octets_max: 1 << 20,
    octets_max: 1 << 20,
};

/// Another cluster ID, for a store that starts empty.
const OTHER: CoreConfig = CoreConfig {
    cluster: 9,
    ..CONFIG
};

fn open(path: &Path) -> Result<Core, String> {
    let opened = Kept::open(path, OTHER);
    opened
        .map(|(_, core)| core)
        .map_err(|error| error.to_string())
}

/// Writes the sequence into a file; returns the visible state at each length of the file.
fn played(path: &Path) -> Vec<(u64, Picture)> {
    let (mut kept, mut core) = Kept::open(path, CONFIG).unwrap();
    let mut seen = vec![(kept.length, picture(&core))];
    for happens in story() {
        happens(&mut core);
        kept.append(&core.take_journal()).unwrap();
        seen.push((kept.length, picture(&core)));
    }
    seen
}

#[test]
fn journal_after_every_event_restores_the_same_store() {
    let directory = tempfile::tempdir().unwrap();
    for stop in 1..=story().len() {
        let path = directory.path().join(stop.to_string());
        let (mut kept, mut core) = Kept::open(&path, CONFIG).unwrap();
        for happens in &story()[..stop] {
            happens(&mut core);
        }
        kept.append(&core.take_journal()).unwrap();
        drop(kept);
        assert_eq!(
            picture(&open(&path).unwrap()),
            picture(&core),
            "after {stop}"
        );

        // A rewritten file has the same content, except for the previous values of a compacted
        // revision's first event.
        let (mut kept, mut back) = Kept::open(&path, OTHER).unwrap();
        kept.rewrite(&back.base(64)).unwrap();
        drop(kept);
        let mut wanted = picture(&back);
        let oldest = wanted.past[0].0;
        for event in &mut wanted.events {
            if event.item.mod_revision == oldest {
                event.previous = None;
            }
        }
        assert_eq!(
            picture(&open(&path).unwrap()),
            wanted,
            "read again after {stop}"
        );
        // The restored store continues as the original would.
        let (mut kept, mut again) = Kept::open(&path, OTHER).unwrap();
        for happens in &story()[stop..] {
            happens(&mut again);
            happens(&mut back);
        }
        kept.append(&again.take_journal()).unwrap();
        drop(kept);
        let (again, back) = (picture(&open(&path).unwrap()), picture(&back));
        assert_eq!((again.past, again.leases), (back.past, back.leases));
    }
}

// Promise (Datastore): After a truncation at any point, the file of the small store has the
// state of some flush.
#[test]
fn journal_cut_at_any_octet_restores_the_state_of_a_flush() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let seen = played(&path);
    let whole = fs::read(&path).unwrap();
    let begun = seen[0].0;
    for length in 0..=whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let length = length as u64;
        let opened = open(&path);
        if length < HEAD as u64 {
            assert_eq!(
                opened.unwrap().header().cluster,
                OTHER.cluster,
                "it starts empty"
            );
            continue;
        }
        if length < begun {
            assert!(
                opened
                    .unwrap_err()
                    .contains("truncated within its initial content"),
                "cut at {length}"
            );
            continue;
        }
        let then = seen.iter().rfind(|(end, _)| *end <= length).unwrap();
        assert_eq!(picture(&opened.unwrap()), then.1, "cut at {length}");
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            then.0,
            "the rest is dropped"
        );
        // Later changes are stored.
        let (mut kept, mut core) = Kept::open(&path, OTHER).unwrap();
        put(&mut core, "next", "x", LeaseId::NONE);
        kept.append(&core.take_journal()).unwrap();
        drop(kept);
        assert_eq!(picture(&open(&path).unwrap()), picture(&core));
    }
}

#[test]
fn file_changed_anywhere_is_an_error_or_torn_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let seen = played(&path);
    let whole = fs::read(&path).unwrap();
    let last = seen[seen.len() - 2].0;
    for at in 0..whole.len() {
        let mut octets = whole.clone();
        octets[at] ^= 0x20;
        fs::write(&path, &octets).unwrap();
        match open(&path) {
            Ok(core) => {
                assert!(at as u64 >= last, "not noticed at {at}");
                assert_eq!(picture(&core), seen[seen.len() - 2].1);
            }
            Err(error) => {
                let place = format!("{}: octet ", path.display());
                assert!(error.starts_with(&place), "{error}");
            }
        }
    }
    fs::write(&path, [&whole[..], &[0; 100]].concat()).unwrap();
    assert_eq!(picture(&open(&path).unwrap()), seen[seen.len() - 1].1);
    fs::write(&path, "# something else\n".repeat(10)).unwrap();
    assert!(
        open(&path)
            .unwrap_err()
            .contains("octet 0: not the file of a store")
    );
}

#[test]
fn one_store_has_it_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let first = Kept::open(&path, CONFIG).unwrap();
    assert!(open(&path).unwrap_err().contains("another store"));
    drop(first);
    open(&path).unwrap();
}

#[tokio::test]
async fn file_stays_below_twice_its_content() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let config = CoreConfig {
        history_octets_max: 1 << 20,
        octets_max: 1 << 26,
        ..CONFIG
    };
    let (kept, core) = Kept::open(&path, config).unwrap();
    let (store, _failure) = Local::spawn_kept(core, Some(kept));
    let value = Bytes::from(vec![b'x'; 100_000]);
    for nth in 0..300 {
        let key = format!("{}", nth % 3);
        store
            .put(key.into(), value.clone(), LeaseId::NONE)
            .await
            .unwrap();
        // Two thirds of the history may be left after a compaction, plus the slack.
        let length = fs::metadata(&path).unwrap().len();
        assert!(
            length < 2 * (2 << 20) + KEPT_SLACK_OCTETS + (1 << 20),
            "{length} octets after {nth}"
        );
    }
    let seen = store.call(|core, _| picture(core)).await.unwrap();
    drop(store);
    let core = loop {
        // The previous owner task ends asynchronously.
        match open(&path) {
            Err(error) if error.contains("another store") => tokio::task::yield_now().await,
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(picture(&core).past, seen.past);
}
