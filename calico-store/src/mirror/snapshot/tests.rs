//! Valid and damaged snapshots.

use std::fs;

use super::*;

fn item(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned().into(),
        value: value.to_owned().into(),
        create_revision: Revision(2),
        mod_revision: Revision(3),
        version: 2,
        lease: LeaseId(-4),
    }
}

fn header() -> Header {
    Header {
        written_s: 1_000_000,
        cluster: 7,
        ranges: vec![
            KeyRange::prefix("/a/"),
            KeyRange::key("/k"),
            KeyRange::prefix(&b"\xff"[..]),
        ],
    }
}

fn at(written_s: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(written_s)
}

fn changes(items: &[(&str, Option<&str>)]) -> BTreeMap<Bytes, Option<KeyValue>> {
    let change = |(key, value): &(&str, Option<&str>)| {
        let key = (*key).to_owned();
        (
            Bytes::from(key.clone()),
            value.map(|value| item(&key, value)),
        )
    };
    items.iter().map(change).collect()
}

const DAY: Duration = Duration::from_secs(86_400);

fn read(path: &Path, now: SystemTime) -> Result<Vec<KeyValue>, String> {
    let loaded = load(path, &header().ranges, now, DAY);
    let loaded = loaded.map_err(|fault| fault.to_string())?;
    Ok(loaded.map(|loaded| loaded.items).unwrap_or_default())
}

#[test]
fn each_is_the_one_before_with_what_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot");
    assert_eq!(read(&path, at(1_000_000)), Ok(Vec::new()), "there is none");
    let first = changes(&[("/a/2", Some("2")), ("/a/4", Some("4")), ("/k", Some("k"))]);
    let base = write(&path, &header(), None, &first).unwrap();
    let second = changes(&[
        ("/a/1", Some("1")),
        ("/a/2", None),
        ("/a/3", None),
        ("/a/4", Some("new")),
        ("/z", None),
    ]);
    let base = write(&path, &header(), Some(&base), &second).unwrap();
    let wanted = vec![item("/a/1", "1"), item("/a/4", "new"), item("/k", "k")];
    assert_eq!(read(&path, at(1_000_000)), Ok(wanted.clone()));
    // The file is deleted: the next snapshot is complete nevertheless.
    fs::remove_file(&path).unwrap();
    write(&path, &header(), Some(&base), &BTreeMap::new()).unwrap();
    assert_eq!(read(&path, at(1_000_000)), Ok(wanted));
}

#[test]
fn old_or_incomplete_snapshot_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot");
    write(&path, &header(), None, &changes(&[("/a/1", Some("1"))])).unwrap();
    let refused = |written_s| read(&path, at(written_s)).unwrap_err();
    assert!(read(&path, at(1_086_400)).is_ok());
    assert!(refused(1_086_401).contains("86401 s ago"));
    assert!(read(&path, at(999_800)).is_ok(), "clocks differ a little");
    assert!(refused(999_000).contains("ahead"));
    let more = [KeyRange::prefix("/a/"), KeyRange::prefix("/b/")];
    let fault = load(&path, &more, at(1_000_000), DAY).unwrap_err();
    assert!(matches!(fault, Fault::Ranges));
    let fault = load(&path, &header().ranges, at(1_000_000), Duration::ZERO).unwrap_err();
    assert!(matches!(fault, Fault::Old { .. }), "never to be used");
    let fewer = load(&path, &[KeyRange::key("/k")], at(1_000_000), DAY).unwrap();
    assert_eq!(fewer.unwrap().items, [], "what is not mirrored is left out");
}

// Promise: as felix nothing_is_removed_on_the_strength_of_a_snapshot
#[test]
fn snapshot_with_any_cut_or_changed_octet_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot");
    let items = changes(&[("/a/1", Some("one")), ("/a/2", Some(""))]);
    write(&path, &header(), None, &items).unwrap();
    let whole = fs::read(&path).unwrap();
    assert_eq!(read(&path, at(1_000_000)).map(|items| items.len()), Ok(2));
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let error = read(&path, at(1_000_000)).unwrap_err();
        assert!(error.starts_with("octet "), "cut at {length}: {error}");
    }
    for changed in 0..whole.len() {
        let mut octets = whole.clone();
        octets[changed] ^= 0x10;
        fs::write(&path, &octets).unwrap();
        assert!(read(&path, at(1_000_000)).is_err(), "changed at {changed}");
    }
    fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
    assert!(read(&path, at(1_000_000)).is_err());
}

#[test]
fn a_write_that_fails_leaves_the_old_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot");
    let base = write(&path, &header(), None, &changes(&[("/a/1", Some("1"))])).unwrap();
    let broken = directory.path().join("broken");
    let whole = fs::read(&path).unwrap();
    fs::write(&broken, &whole[..whole.len() - 1]).unwrap();
    let broken = File::open(&broken).unwrap();
    write(&path, &header(), Some(&broken), &BTreeMap::new()).unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), whole);
    drop(base);
}
