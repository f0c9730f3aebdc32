use std::net::Ipv4Addr;
use std::time::Duration;

use bgp_io::bgp_proto::{Asn, FamilySet, RouterId};
use bgp_io::rib::NextHops;
use calico_bgp::{Host, Secrets, View, WEIGHT_LABEL, derive};

use super::*;

fn speaker() -> Speaker {
    let config = SpeakerConfig::new(Asn(64512), RouterId(Ipv4Addr::new(10, 0, 0, 1)));
    Speaker::new(config, 0)
}

#[test]
fn absences_are_looked_at_when_it_is_time_and_not_before() {
    let mut view = View::default();
    let key = |number: u8| format!("/cambric/v1/reflector/rr{number}");
    for number in 1..=3 {
        let value = format!(
            r#"{{"asNumber":64512,"ipv4Address":"10.0.0.{number}","clusterID":"0.0.0.{number}"}}"#
        );
        assert!(view.take(key(number).as_bytes(), Some(value.as_bytes())));
    }
    let speaker = speaker();
    let mut absences = Absences::new(Duration::from_secs(60));
    let mut look = |view: &mut View, millis: u64| {
        let now = Instant::ZERO + Duration::from_millis(millis);
        absences.look(now, view.fleet_mut(), &speaker)
    };
    assert!(!look(&mut view, 0), "all are there");
    view.take(key(1).as_bytes(), None);
    assert!(look(&mut view, 1), "there is no session with it");
    view.take(key(2).as_bytes(), None);
    assert!(!look(&mut view, 500));
    assert_eq!(view.fleet().absent().count(), 1);
    assert!(look(&mut view, 1001));
    assert_eq!(view.fleet().absent().count(), 0);
}

/// The datastore's configuration of a reflector to which an operator has assigned a cluster ID,
/// with this weight.
fn known(weight: u32) -> Derived {
    let node = format!(
        r#"{{"metadata":{{"name":"rr1","labels":{{"{WEIGHT_LABEL}":"{weight}"}}}},
            "spec":{{"bgp":{{"ipv4Address":"10.0.0.1/24","routeReflectorClusterID":"0.0.0.7"}}}}}}"#
    );
    let mut view = View::default();
    let key = format!("{}nodes/rr1", calico_model::RESOURCES_PREFIX);
    assert!(view.take(key.as_bytes(), Some(node.as_bytes())));
    let host = Host {
        name: "rr1".into(),
        families: FamilySet::UNICAST,
        multipath_max: 1,
        next_hops: NextHops::AssumeReachable,
        restart_wait: Duration::from_secs(90),
        reflects: true,
        reflectors: None,
        registration_ttl: Duration::from_secs(15),
        absence_wait: Duration::from_secs(10),
    };
    derive(&view, &host, &Secrets::new())
}

// Promise (Route reflectors): A reflector that restarts is registered again as soon as it runs.
/// A restarted reflector has all data by the first look at the datastore, and no further update may
/// arrive.
#[test]
fn reflector_known_at_the_start_registers_at_once() {
    let mut transition = Transition::default();
    let intent = transition.begin(known(100)).expect("the store says it all");
    let speaker = Speaker::new(intent.speaker, 0);
    let at = |millis| Instant::ZERO + Duration::from_millis(millis);
    let weight = |wish: Option<Wish>| wish.map(|wish| wish.registration.weight);
    assert_eq!(transition.wish_timeout(), Some(at(0)));
    assert_eq!(weight(transition.due_wish(at(0), &speaker)), Some(100));
    // Then at intervals; and at once when the datastore changes.
    assert_eq!(
        transition.wish_timeout(),
        Some(at(0) + REGISTRATION_LOOK_EVERY)
    );
    assert_eq!(weight(transition.due_wish(at(999), &speaker)), None);
    assert_eq!(weight(transition.due_wish(at(1000), &speaker)), Some(100));
    assert!(transition.want(at(1100), &known(50)).is_some());
    assert_eq!(weight(transition.due_wish(at(1100), &speaker)), Some(50));
    // A node without a resource has no registration.
    let nothing = Derived {
        intent: None,
        wish: None,
        ..known(50)
    };
    assert!(transition.want(at(1200), &nothing).is_none());
    assert_eq!(
        (
            transition.wish_timeout(),
            weight(transition.due_wish(at(9000), &speaker))
        ),
        (None, None)
    );
}
