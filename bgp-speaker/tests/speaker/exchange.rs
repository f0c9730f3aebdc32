use std::time::Duration;

use bgp_fsm::GracefulRestartConfig;
use bgp_proto::Family;
use bgp_speaker::{Event, SpeakerConfig};
use rib::Role;
use testkit::Network;
use testkit::fixture::{address, clients, neighbor, prefix, speaker_config};

use super::network;

const V4: Family = Family::IPV4_UNICAST;
const SOON: Duration = Duration::from_secs(30);

/// Returns a network in which speaker 1 reflects between its clients 2, 3 and 4, which peer only
/// with it.
fn reflector_and_clients() -> Network {
    let mut reflector = speaker_config(1);
    reflector.ranges.push(clients(1, 3));
    let mut configs = vec![(1, reflector)];
    for client in 2..=4 {
        configs.push((client, client_of(client, &[1])));
    }
    let mut fabric = network(configs);
    fabric.advance(SOON);
    fabric
}

fn client_of(number: usize, reflectors: &[usize]) -> SpeakerConfig {
    let mut config = speaker_config(number);
    for &reflector in reflectors {
        config
            .peers
            .push(neighbor(number, reflector, Role::Internal));
    }
    config
}

#[test]
fn a_reflector_passes_its_clients_routes_on() {
    let mut fabric = reflector_and_clients();
    assert_eq!(fabric.established(1).len(), 3);
    fabric.announce(2, "10.65.2.0/32");
    fabric.announce(3, "10.65.3.0/32");
    fabric.advance(SOON);
    for client in 2..=4 {
        assert_eq!(
            fabric.loc_rib(client, V4),
            ["10.65.2.0/32", "10.65.3.0/32"],
            "client {client}"
        );
    }
    let view = fabric.speaker(4).rib().lookup(V4, prefix("10.65.2.0/32"));
    let next_hop = view.and_then(|view| view.best()?.received.next_hop_address());
    assert_eq!(next_hop, Some(address(2).into()), "the next hop stays");
    fabric.withdraw(2, "10.65.2.0/32");
    fabric.advance(SOON);
    assert_eq!(fabric.loc_rib(4, V4), ["10.65.3.0/32"]);
    assert_eq!(
        fabric.loc_rib(2, V4),
        ["10.65.3.0/32"],
        "no echo of its own"
    );
}

#[test]
fn the_client_too_many_is_refused_and_the_others_stay() {
    let mut fabric = network(vec![
        (1, {
            let mut config = speaker_config(1);
            config.ranges.push(clients(1, 1));
            config
        }),
        (2, client_of(2, &[1])),
        (3, client_of(3, &[1])),
    ]);
    fabric.advance(SOON);
    assert_eq!(fabric.established(1).len(), 1);
    fabric.remove(2);
    fabric.advance(Duration::from_secs(200));
    assert_eq!(
        fabric.established(3).len(),
        1,
        "the place that became free is taken"
    );
}

#[test]
fn two_reflectors_survive_the_loss_of_one() {
    let mut configs = vec![];
    for reflector in 1..=2 {
        let mut config = speaker_config(reflector);
        config.ranges.push(clients(reflector, 10));
        config
            .peers
            .push(neighbor(reflector, 3 - reflector, Role::Internal));
        configs.push((reflector, config));
    }
    for client in 3..=5 {
        configs.push((client, client_of(client, &[1, 2])));
    }
    let mut fabric = network(configs);
    fabric.announce(3, "10.65.3.0/32");
    fabric.announce(4, "10.65.4.0/32");
    fabric.advance(SOON);
    let all = ["10.65.3.0/32", "10.65.4.0/32"];
    assert_eq!(fabric.loc_rib(5, V4), all);
    fabric.remove(1);
    fabric.advance(SOON);
    assert_eq!(fabric.loc_rib(5, V4), all);
    fabric.withdraw(4, "10.65.4.0/32");
    fabric.advance(SOON);
    for client in 3..=5 {
        assert_eq!(fabric.loc_rib(client, V4), ["10.65.3.0/32"]);
    }
}

#[test]
fn late_client_gets_all_routes_and_end_of_rib() {
    let mut fabric = reflector_and_clients();
    for host in 0..250 {
        fabric.announce(2, &format!("10.66.0.{host}/32"));
    }
    fabric.advance(SOON);
    fabric.remove(4);
    fabric.advance(SOON);
    fabric.start(4, address(4).into(), client_of(4, &[1]));
    fabric.advance(SOON);
    assert_eq!(fabric.loc_rib(4, V4).len(), 250);
    let events = fabric.node(4).events.iter();
    let ends = events.filter(|event| matches!(event, Event::EndOfRib { .. }));
    assert_eq!(ends.count(), 2, "one a family");
}

#[test]
fn a_client_that_does_not_read_costs_the_others_nothing() {
    let mut fabric = reflector_and_clients();
    fabric.stall(4, true);
    for host in 0..20_000_u32 {
        fabric.announce(2, &format!("10.{}.{}.{}/32", 70, host >> 8, host & 255));
    }
    fabric.advance(Duration::from_secs(20));
    assert_eq!(fabric.loc_rib(3, V4).len(), 20_000);
    assert_eq!(
        fabric.speaker(1).ring_octets(),
        fabric.speaker(1).ring_octets().min(8 << 20)
    );
    for host in 0..19_999_u32 {
        fabric.withdraw(2, &format!("10.{}.{}.{}/32", 70, host >> 8, host & 255));
    }
    fabric.advance(Duration::from_secs(20));
    assert_eq!(fabric.loc_rib(3, V4).len(), 1);
    fabric.stall(4, false);
    fabric.advance(Duration::from_secs(20));
    assert_eq!(
        fabric.loc_rib(4, V4).len(),
        1,
        "it ends with what is, not with what was"
    );
}

#[test]
fn stale_paths_stay_for_the_restart_time_only() {
    let graceful = |config: &mut SpeakerConfig| {
        for peer in &mut config.peers {
            let families_forwarding = peer.session.families;
            peer.session.graceful_restart =
                Some(GracefulRestartConfig::new(60).with_forwarding(families_forwarding));
        }
    };
    let pair: Vec<(usize, SpeakerConfig)> = [(1, 2), (2, 1)]
        .map(|(us, them)| {
            let mut config = client_of(us, &[them]);
            graceful(&mut config);
            (us, config)
        })
        .into();
    let mut fabric = network(pair.clone());
    fabric.announce(1, "10.65.1.0/32");
    fabric.announce(1, "10.65.1.1/32");
    fabric.advance(SOON);
    fabric.remove(1);
    fabric.advance(Duration::from_secs(10));
    assert_eq!(
        fabric.loc_rib(2, V4),
        ["10.65.1.0/32", "10.65.1.1/32"],
        "kept as stale"
    );
    fabric.start(1, address(1).into(), pair[0].1.clone());
    fabric.announce(1, "10.65.1.0/32");
    fabric.advance(SOON);
    assert_eq!(
        fabric.loc_rib(2, V4),
        ["10.65.1.0/32"],
        "the End-of-RIB swept the other"
    );
    fabric.remove(1);
    fabric.advance(Duration::from_secs(90));
    assert!(fabric.loc_rib(2, V4).is_empty(), "the restart time is over");
}
