use std::net::Ipv4Addr;
use std::time::Duration;

use bgp_io::bgp_proto::{Asn, RouterId};
use intent::store::View;

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
