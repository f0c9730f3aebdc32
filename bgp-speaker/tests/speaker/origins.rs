//! Validation of the origin of received paths, and route selection after a restart that waits for
//! its data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bgp_proto::Ipv4Prefix;
use bgp_speaker::{Input, Restart};
use rib::{OriginCheck, PeerId, PrefixRange, ReceivedPath};
use testkit::{Received, Update};

use super::restarter::{V4, V6, WAIT, client, config, whole};
use super::wire::Wire;

/// Confirms nothing before its data is there.
#[derive(Debug, Default)]
struct Data(AtomicBool);

impl OriginCheck for Data {
    fn confirms(&self, _: &ReceivedPath<'_>) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns a restarted reflector and its client, which has sent a route and its End-of-RIB markers.
fn restarted(data: &Arc<Data>) -> (Wire, PeerId, PeerId) {
    let mut wire = Wire::prepared(config(), |speaker| {
        speaker.restarted(Restart::new(Duration::from_secs(WAIT)));
        speaker.check_origins(data.clone());
    });
    let two = wire.connect(2, &client(2));
    let three = wire.connect(3, &client(3));
    wire.send(two, Update::reach(["10.65.0.2/32"]));
    whole(&mut wire, two);
    whole(&mut wire, three);
    (wire, two, three)
}

// Promise (BGP): After a restart, route selection is deferred until the records for origin validation
// are read, at most for `restart_wait`.
#[test]
fn routes_are_withheld_until_the_origins_are_known() {
    let data = Arc::new(Data::default());
    let (mut wire, _, three) = restarted(&data);
    assert!(wire.speaker().awaits_origins());
    assert!(
        wire.speaker().awaited().is_empty(),
        "no neighbor is awaited"
    );
    assert!(wire.received(three).is_empty());
    data.0.store(true, Ordering::Relaxed);
    let now = wire.now();
    let range = PrefixRange::inside(Ipv4Prefix::DEFAULT.into());
    let all = Input::Reevaluate { family: V4, range };
    wire.speaker_mut().handle(now, all);
    wire.speaker_mut().origins_complete();
    // All paths are evaluated before the family opens: the markers follow the route.
    assert_eq!(
        wire.received(three),
        [
            Received::Reach(vec!["10.65.0.2/32".into()]),
            Received::EndOfRib(V4),
            Received::EndOfRib(V6)
        ]
    );
    assert!(!wire.speaker().awaits_origins());
}

#[test]
fn unconfirmed_routes_are_withheld_after_the_wait() {
    let data = Arc::new(Data::default());
    let (mut wire, two, three) = restarted(&data);
    wire.pass(WAIT - 10, &[two, three]);
    assert!(wire.speaker().awaits_origins());
    assert!(wire.received(three).is_empty());
    wire.pass(11, &[two, three]);
    assert!(!wire.speaker().awaits_origins());
    let markers = [Received::EndOfRib(V4), Received::EndOfRib(V6)];
    assert_eq!(wire.received(three), markers, "no route");
}
