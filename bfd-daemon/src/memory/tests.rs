use bfd::Discriminator;
use bfd_client::limits::IDLE_MS;
use bfd_client::{Hops, Wanted};

use super::*;
use crate::engine::{EntryRecord, Identity};

/// The wish of a client for a session with 10.0.0.N.
fn record(last: u8, failures: u64) -> Record {
    Record::Entry(EntryRecord {
        identity: Identity {
            uid: 7,
            name: "bgp".to_owned(),
        },
        wanted: Wanted {
            remote: [10, 0, 0, last].into(),
            local: None,
            hops: Hops::Auto,
            interval_ms: 300,
            receive_ms: 300,
            idle_ms: IDLE_MS,
            multiplier: 3,
            ttl_min: 254,
            auth: None,
        },
        id: Discriminator::new(7),
        follows: false,
        failures,
        expires: None,
    })
}

fn put(memory: &mut Memory, record: &Record) {
    memory.put(record.key(), Some(record)).expect("written");
}

fn octets(memory: &Memory) -> Vec<u8> {
    let length = memory.file.metadata().expect("a file").len();
    let mut octets = vec![0; length as usize];
    memory.file.read_exact_at(&mut octets, 0).expect("read");
    octets
}

/// Returns the content of a memory with these octets.
fn read(octets: &[u8]) -> Result<Content, MemoryError> {
    let file = memfd_create(c"test", MFdFlags::MFD_CLOEXEC).expect("a memory");
    let file = File::from(file);
    file.write_all_at(octets, 0).expect("written");
    Memory::open(file.into()).map(|(_, content)| content)
}

/// Returns the failures of each record, by which the tests distinguish them.
fn failures(content: &Content) -> Vec<u64> {
    let failures = content.records.iter().map(|record| match record {
        Record::Entry(entry) => entry.failures,
        Record::Session(_) => panic!("a session"),
    });
    failures.collect()
}

#[test]
fn records_are_read_as_they_were_written_last() {
    let mut memory = Memory::create().expect("a memory");
    for count in 1..=5 {
        put(&mut memory, &record(1, count));
        put(&mut memory, &record(2, count + 10));
    }
    memory.put_time(Instant::from_secs(9)).expect("written");
    let content = read(&octets(&memory)).expect("valid");
    assert_eq!(failures(&content), [5, 15]);
    assert_eq!(content.emptied_at, Instant::from_secs(9));
    memory.put(record(1, 0).key(), None).expect("removed");
    assert_eq!(failures(&read(&octets(&memory)).expect("valid")), [15]);
    // A cell without a record has the next new one.
    let length = octets(&memory).len();
    put(&mut memory, &record(3, 3));
    assert_eq!(octets(&memory).len(), length);
    assert_eq!(failures(&read(&octets(&memory)).expect("valid")), [3, 15]);
}

#[test]
fn torn_write_leaves_the_record_before_it() {
    let mut memory = Memory::create().expect("a memory");
    for count in 0..4 {
        let before = octets(&memory);
        put(&mut memory, &record(1, count));
        let after = octets(&memory);
        let mut torn = before.clone();
        torn.resize(after.len(), 0);
        let former = read(&torn).expect("valid");
        for at in 0..after.len() {
            torn[at] = after[at];
            let found = read(&torn).expect("valid");
            let is_whole = torn == after;
            let expected = match is_whole {
                true => vec![count],
                false => failures(&former),
            };
            assert_eq!(failures(&found), expected, "{count} at {at}");
        }
    }
}

#[test]
fn damaged_memory_is_rejected_with_its_reason() {
    let mut memory = Memory::create().expect("a memory");
    put(&mut memory, &record(1, 1));
    put(&mut memory, &record(1, 2));
    let good = octets(&memory);
    let error = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = good.clone();
        change(&mut changed);
        let error = read(&changed).expect_err("damaged");
        error.to_string()
    };
    let cells = CELLS_AT as usize;
    let damaged = error(&|octets| {
        octets[cells + RECORD_AT] ^= 1;
        octets[cells + COPY_OCTETS + RECORD_AT] ^= 1;
    });
    assert!(damaged.contains("damaged"), "{damaged}");
    let magic = error(&|octets| octets[0] = b'X');
    assert!(magic.contains("another content"), "{magic}");
    let version = error(&|octets| octets[11] = 9);
    assert!(version.contains("format 9"), "{version}");
    for length in [
        0,
        cells - 1,
        cells + (RECORDS_MAX as usize + 1) * CELL_OCTETS,
    ] {
        let length = error(&|octets| octets.resize(length, 0));
        assert!(length.contains("length"), "{length}");
    }
    let repeated = error(&|octets| {
        octets.resize(cells + CELL_OCTETS, 0);
        let copy = octets[cells..].to_vec();
        octets.extend(copy);
    });
    assert!(repeated.contains("one subject"), "{repeated}");
    memory.abandon();
}

#[test]
fn failed_starts_are_counted_until_one_continues() {
    let memory = Memory::create().expect("a memory");
    let again = || memory.file.try_clone().expect("a descriptor").into();
    for _ in 0..3 {
        for _ in 1..TAKE_OVERS_MAX {
            Memory::open(again()).expect("valid");
        }
        let (continued, _) = Memory::open(again()).expect("valid");
        continued.is_continued().expect("written");
    }
    for _ in 0..TAKE_OVERS_MAX {
        Memory::open(again()).expect("valid");
    }
    let error = Memory::open(again()).expect_err("too many");
    assert!(matches!(error, MemoryError::TakeOvers), "{error}");
}

#[test]
fn abandoned_memory_is_not_continued() {
    let mut memory = Memory::create().expect("a memory");
    put(&mut memory, &record(1, 1));
    let again = memory.file.try_clone().expect("a descriptor");
    memory.abandon();
    let error = Memory::open(again.into()).expect_err("empty");
    assert!(matches!(error, MemoryError::Length(0)), "{error}");
}
