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

/// The wanted peers with their passwords, if they have changed.
fn peers(resources: &mut Resources, word: &Secrets) -> Option<Vec<(IpAddr, Option<Password>)>> {
    let derived = resources.derive(word, &Transition::default())?;
    let peers = derived.intent.expect("a speaker").speaker.peers.into_iter();
    Some(peers.map(|peer| (peer.remote, peer.password)).collect())
}

fn of(number: u8, word: &str) -> (IpAddr, Option<Password>) {
    (IpAddr::from([10, 0, 0, number]), Some(word.into()))
}

/// A view of a mesh of two nodes that was read completely.
fn whole() -> Resources {
    let mut resources = Resources::new(host());
    for update in [put("bgpconfigurations/default", MESH), node(1), node(2)] {
        assert!(!resources.take(update));
    }
    assert_eq!(
        peers(&mut resources, &word("old")),
        None,
        "there may be more"
    );
    assert!(resources.take(Update::Status(Status::InSync)));
    assert_eq!(
        peers(&mut resources, &word("old")),
        Some(vec![of(2, "old")])
    );
    assert_eq!(peers(&mut resources, &word("old")), None, "nothing new");
    resources
}

/// A change of a fabric's passwords does not wait for its datastore.
#[test]
fn a_password_counts_while_the_store_is_away() {
    let unready = Status::Unready(Unready::Locked);
    for status in [Status::Lost, unready, Status::InSync] {
        let mut resources = whole();
        resources.take(Update::Status(status));
        assert_eq!(peers(&mut resources, &word("new")), None, "without a touch");
        resources.touch();
        assert_eq!(
            peers(&mut resources, &word("new")),
            Some(vec![of(2, "new")])
        );
    }
}

/// Updates of a datastore that comes back are incomplete at first.
#[test]
fn partial_state_changes_nothing() {
    for then in [None, Some(Status::Unready(Unready::Locked))] {
        let mut resources = whole();
        assert!(resources.take(Update::Status(Status::Lost)));
        assert!(!resources.take(Update::Status(Status::Lost)), "the same");
        resources.take(node(3));
        then.map(|then| resources.take(Update::Status(then)));
        resources.touch();
        assert!(!resources.is_due());
        assert_eq!(peers(&mut resources, &word("new")), None);
        resources.take(node(4));
        resources.take(Update::Status(Status::InSync));
        let all = [2, 3, 4].map(|number| of(number, "new"));
        assert_eq!(peers(&mut resources, &word("new")), Some(all.to_vec()));
    }
}

/// A snapshot is complete, and is replaced by the datastore's own content.
#[test]
fn a_snapshot_is_acted_upon() {
    let mut resources = Resources::new(host());
    for update in [put("bgpconfigurations/default", MESH), node(1), node(2)] {
        resources.take(update);
    }
    resources.take(Update::Status(Status::Snapshot { age_s: 7 }));
    assert_eq!(
        peers(&mut resources, &word("old")),
        Some(vec![of(2, "old")])
    );
    resources.take(node(3));
    let both = vec![of(2, "old"), of(3, "old")];
    assert_eq!(peers(&mut resources, &word("old")), Some(both));
}
