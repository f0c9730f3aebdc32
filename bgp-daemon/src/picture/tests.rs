use std::net::IpAddr;
use std::time::Duration;

use bgp_io::bgp_proto::FamilySet;
use bgp_io::bgp_speaker::Password;
use bgp_io::rib::NextHops;
use calico_model::RESOURCES_PREFIX;
use calico_store::{KeyValue, Unready};

use super::*;

const MESH: &str = r#"{"metadata":{"name":"default"},"spec":{
    "nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"mesh"}}}}"#;

fn host() -> Host {
    Host {
        name: "n1".into(),
        families: FamilySet::UNICAST,
        multipath_max: 1,
        next_hops: NextHops::AssumeReachable,
        restart_wait: Duration::from_secs(90),
        reflects: false,
        reflectors: None,
        registration_ttl: Duration::from_secs(15),
        absence_wait: Duration::from_secs(60),
    }
}

fn put(key: &str, value: &str) -> Update {
    let key = format!("{RESOURCES_PREFIX}{key}");
    Update::Change(Change::Put(KeyValue {
        key: key.into(),
        value: value.to_owned().into(),
        ..KeyValue::default()
    }))
}

fn node(number: u8) -> Update {
    let text = format!(r#"{{"spec":{{"bgp":{{"ipv4Address":"10.0.0.{number}/24"}}}}}}"#);
    put(&format!("nodes/n{number}"), &text)
}

fn word(word: &str) -> Secrets {
    Secrets::from([(("bgp".into(), "mesh".into()), word.into())])
}

/// Whom there are to be sessions with, and by which password, if that is something else than before.
fn peers(picture: &mut Picture, word: &Secrets) -> Option<Vec<(IpAddr, Option<Password>)>> {
    let derived = picture.derive(word, &Fabric::default())?;
    let peers = derived.intent.expect("a speaker").speaker.peers.into_iter();
    Some(peers.map(|peer| (peer.remote, peer.password)).collect())
}

fn of(number: u8, word: &str) -> (IpAddr, Option<Password>) {
    (IpAddr::from([10, 0, 0, number]), Some(word.into()))
}

/// One that has read a mesh of two nodes.
fn whole() -> Picture {
    let mut picture = Picture::new(host());
    for update in [put("bgpconfigurations/default", MESH), node(1), node(2)] {
        assert!(!picture.take(update));
    }
    assert_eq!(peers(&mut picture, &word("old")), None, "there may be more");
    assert!(picture.take(Update::Status(Status::InSync)));
    assert_eq!(peers(&mut picture, &word("old")), Some(vec![of(2, "old")]));
    assert_eq!(peers(&mut picture, &word("old")), None, "nothing new");
    picture
}

/// Who swaps the passwords of a fabric does not wait for its store.
#[test]
fn a_password_counts_while_the_store_is_away() {
    let unready = Status::Unready(Unready::Locked);
    for status in [Status::Lost, unready, Status::InSync] {
        let mut picture = whole();
        picture.take(Update::Status(status));
        assert_eq!(
            peers(&mut picture, &word("new")),
            None,
            "nobody has said so"
        );
        picture.touch();
        assert_eq!(peers(&mut picture, &word("new")), Some(vec![of(2, "new")]));
    }
}

/// News of a store that is coming back are not all there is to know.
#[test]
fn what_is_known_in_part_changes_nothing() {
    for then in [None, Some(Status::Unready(Unready::Locked))] {
        let mut picture = whole();
        assert!(picture.take(Update::Status(Status::Lost)));
        assert!(!picture.take(Update::Status(Status::Lost)), "the same");
        picture.take(node(3));
        then.map(|then| picture.take(Update::Status(then)));
        picture.touch();
        assert!(!picture.is_due());
        assert_eq!(peers(&mut picture, &word("new")), None);
        picture.take(node(4));
        picture.take(Update::Status(Status::InSync));
        let all = [2, 3, 4].map(|number| of(number, "new"));
        assert_eq!(peers(&mut picture, &word("new")), Some(all.to_vec()));
    }
}

/// A snapshot is a whole picture, which the store's own takes the place of.
#[test]
fn a_snapshot_is_acted_upon() {
    let mut picture = Picture::new(host());
    for update in [put("bgpconfigurations/default", MESH), node(1), node(2)] {
        picture.take(update);
    }
    picture.take(Update::Status(Status::Snapshot { age_s: 7 }));
    assert_eq!(peers(&mut picture, &word("old")), Some(vec![of(2, "old")]));
    picture.take(node(3));
    let both = vec![of(2, "old"), of(3, "old")];
    assert_eq!(peers(&mut picture, &word("old")), Some(both));
}
