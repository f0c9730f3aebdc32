mod model;

use std::time::Duration;

use super::*;
use calico_store::WatchRequest;
use calico_store::{Delete, Op, Put, Txn};
use calico_store::{KeyRange, LeaseId, Query};

fn put(core: &mut Core, key: &'static str, value: &'static str) -> Result<Revision, Error> {
    let txn = Txn {
        then: vec![Op::Put(Put::new(key, value))],
        ..Txn::default()
    };
    core.txn(&txn).map(|reply| reply.header.revision)
}

#[test]
fn history_is_bounded_by_itself() {
    let mut core = Core::new(CoreConfig {
        history_revisions_max: 100,
        ..CoreConfig::default()
    });
    let mut watch = core
        .watch(WatchRequest::from(KeyRange::all(), Revision(2)))
        .unwrap();
    for _ in 0..1000 {
        put(&mut core, "a", "x").unwrap();
    }
    assert!(
        core.log.len() <= 101 && core.octets() <= 101 * 2,
        "{} {}",
        core.log.len(),
        core.octets()
    );
    assert!(matches!(
        core.poll_watch(&mut watch),
        WatchPoll::Ended(Error::Compacted { .. })
    ));
    assert_eq!(
        core.range(&Query::new(KeyRange::all())).unwrap().items[0].version,
        1000
    );
}

#[test]
fn value_replaced_at_the_compacted_revision_is_dropped() {
    let mut core = Core::new(CoreConfig::default());
    put(&mut core, "a", "1").unwrap();
    let second = put(&mut core, "b", "1").unwrap();
    core.compact(second).unwrap();
    let third = put(&mut core, "a", "2").unwrap();
    assert_eq!(core.octets(), 6);
    core.compact(third).unwrap();
    assert_eq!(core.octets(), 4);
}

#[test]
fn a_full_store_takes_no_more_but_can_be_read_and_emptied() {
    let mut core = Core::new(CoreConfig {
        octets_max: 100,
        ..CoreConfig::default()
    });
    let fitting = (0..100)
        .take_while(|_| put(&mut core, "a", "0123456789").is_ok())
        .count();
    assert_eq!(fitting, 9);
    assert_eq!(put(&mut core, "b", "0123456789"), Err(Error::NoSpace));
    let delete = Delete {
        range: KeyRange::all(),
        previous: false,
    };
    core.txn(&Txn {
        then: vec![Op::Delete(delete)],
        ..Txn::default()
    })
    .unwrap();
    core.compact(core.header().revision).unwrap();
    assert!(put(&mut core, "b", "0123456789").is_ok());
}

#[test]
fn full_disk_rejects_writes_in_every_branch() {
    let mut core = Core::new(CoreConfig::default());
    put(&mut core, "a", "1").unwrap();
    core.set_full(true);
    assert_eq!(put(&mut core, "a", "2"), Err(Error::NoSpace));
    let nested = Txn {
        then: vec![Op::Txn(Box::new(Txn {
            then: vec![Op::Put(Put::new("b", "1"))],
            ..Txn::default()
        }))],
        ..Txn::default()
    };
    assert_eq!(core.txn(&nested), Err(Error::NoSpace));
    assert!(core.lease_grant(Duration::ZERO, LeaseId::NONE, 60).is_err());
    // The branch that is not taken does not matter.
    let other = Txn {
        otherwise: nested.then,
        ..Txn::default()
    };
    assert!(core.txn(&other).is_ok());
    let delete = Delete {
        range: KeyRange::key("a"),
        previous: false,
    };
    let delete = Txn {
        then: vec![Op::Delete(delete)],
        ..Txn::default()
    };
    assert!(core.txn(&delete).is_ok());
    core.compact(core.header().revision).unwrap();
    core.set_full(false);
    assert!(put(&mut core, "a", "2").is_ok());
}

#[test]
fn faults_can_be_switched_on_and_off() {
    let mut core = Core::new(CoreConfig::default());
    put(&mut core, "a", "1").unwrap();
    put(&mut core, "a", "2").unwrap();
    let mut watch = core
        .watch(WatchRequest::from(KeyRange::all(), Revision(2)))
        .unwrap();
    let value = |core: &Core| {
        core.range(&Query::new(KeyRange::all())).unwrap().items[0]
            .value
            .clone()
    };

    core.set_faults(Faults {
        stale_by: 1,
        ..Faults::default()
    });
    assert_eq!(
        (value(&core).as_ref(), core.header().revision),
        (&b"1"[..], Revision(2))
    );
    let WatchPoll::Events(batch) = core.poll_watch(&mut watch) else {
        panic!()
    };
    assert_eq!(batch.revision, Revision(2));
    assert_eq!(core.poll_watch(&mut watch), WatchPoll::Idle);

    core.set_faults(Faults {
        watches_silent: true,
        ..Faults::default()
    });
    assert_eq!(
        (core.poll_watch(&mut watch), core.progress()),
        (WatchPoll::Idle, None)
    );

    core.set_faults(Faults::default());
    assert_eq!(value(&core).as_ref(), b"2");
    let WatchPoll::Events(batch) = core.poll_watch(&mut watch) else {
        panic!()
    };
    assert_eq!(batch.revision, Revision(3));

    core.set_faults(Faults {
        unavailable: true,
        ..Faults::default()
    });
    assert!(matches!(
        core.range(&Query::new(KeyRange::all())),
        Err(Error::Unavailable(_))
    ));
    assert!(matches!(
        put(&mut core, "a", "3"),
        Err(Error::Unavailable(_))
    ));
    assert!(matches!(
        core.poll_watch(&mut watch),
        WatchPoll::Ended(Error::WatchLost(_))
    ));
}

#[test]
fn lease_ids_of_another_history_are_not_taken_up() {
    let grant = |cluster| {
        let mut core = Core::new(CoreConfig {
            cluster,
            ..CoreConfig::default()
        });
        core.lease_grant(Duration::ZERO, LeaseId::NONE, 10)
            .unwrap()
            .id
    };
    assert_ne!(grant(0x1234_5678_9abc_def0), grant(0x0fed_cba9_8765_4321));
    assert!(grant(u64::MAX).0 > 0);
}
