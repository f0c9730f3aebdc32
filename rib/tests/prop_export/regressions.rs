//! Short sequences: each has found a fault, or fails as soon as one line is missing.

mod members;

use bgp_proto::{Asn, Community, Family};
use rib::{Edit, Match, Outcome, Policy, Rules, SendPaths, Term, Then};

use crate::events::{Event, Variant};
use crate::world::{Setup, World};

const PLAIN: Variant = Variant {
    local_pref: 1,
    as_path: 1,
    med: 0,
    origin: 0,
    community: 7,
    next_hop: 0,
    reflected: 5,
    unknown: false,
    label: 0,
    bandwidth: 0,
};

/// No speaker accepts this one: it has the local CLUSTER_ID.
const LOOPED: Variant = Variant {
    reflected: 1,
    ..PLAIN
};

/// Returns rules of terms, each a condition with an edit or, without one, a rejection.
fn rules(terms: [(Match, Option<Edit>); 2]) -> Policy {
    let term = |(when, edit): (Match, Option<Edit>)| {
        let then = if edit.is_some() {
            Then::Accept
        } else {
            Then::Reject
        };
        Term::new("", vec![when], edit.into_iter().collect(), then)
    };
    Policy::from(Rules::new("story", terms.map(term).into(), Outcome::Accept))
}

fn import() -> Policy {
    let community = Match::Community(Community::new(64_512, 7));
    let path = Match::AsPathPrefix([Asn(64_602), Asn(65_001)].into());
    rules([(community, Some(Edit::SetLocalPref(100))), (path, None)])
}

fn export() -> Policy {
    let degree = |degree| Match::LocalPref {
        min: degree,
        max: degree,
    };
    let community = Edit::AddCommunity(Community::new(64_512, 99));
    rules([(degree(200), None), (degree(50), Some(community))])
}

fn reach(peer: u16, net: u8, variant: Variant) -> Event {
    Event::Reach {
        peer,
        nets: vec![net],
        path_id: 0,
        variant,
    }
}

fn unreach(peer: u16, net: u8) -> Event {
    Event::Unreach {
        peer,
        nets: vec![net],
        path_id: 0,
    }
}

fn plays(tight: bool, events: &[Event]) {
    plays_with(1, tight, events);
}

fn plays_with(multipath_max: u16, tight: bool, events: &[Event]) {
    for send in [None, Some(SendPaths::All), Some(SendPaths::Best(2))] {
        let setup = Setup {
            sends: [send; 9],
            family: Family::IPV4_UNICAST,
            track: false,
            multipath_max,
            always_compare_med: false,
            link_bandwidth: None,
            tight,
            import: import(),
            export: export(),
        };
        play(setup, events);
    }
}

fn play(setup: Setup, events: &[Event]) {
    let mut world = World::new(setup, 1);
    for event in events {
        world.apply(event);
    }
    world.quiesce();
    world.check();
    world.tear_down();
}

#[test]
fn moved_best_path_is_withdrawn_from_its_new_source() {
    let better = Variant {
        local_pref: 2,
        ..PLAIN
    };
    plays(
        false,
        &[
            reach(5, 0, PLAIN),
            Event::Settle,
            reach(6, 0, better),
            Event::Settle,
        ],
    );
    plays(
        false,
        &[
            reach(5, 0, PLAIN),
            Event::Settle,
            reach(6, 0, better),
            unreach(6, 0),
        ],
    );
}

#[test]
fn undecided_slot_is_skipped_and_published_later() {
    plays(
        false,
        &[
            reach(7, 5, PLAIN),
            reach(3, 5, LOOPED),
            Event::Settle,
            Event::Lag { peer: 6 },
            unreach(7, 5),
            Event::Decide { budget: 1 },
            Event::Export {
                group: 2,
                budget: 1,
            },
            reach(5, 5, LOOPED),
            Event::Private { peer: 6, budget: 1 },
        ],
    );
}

#[test]
fn removed_loser_by_med_may_change_the_best_path() {
    let first = Variant {
        as_path: 1,
        med: 0,
        reflected: 2,
        ..PLAIN
    };
    let second = Variant {
        as_path: 1,
        med: 1,
        reflected: 5,
        ..PLAIN
    };
    let other = Variant {
        as_path: 3,
        med: 0,
        reflected: 2,
        ..PLAIN
    };
    plays(
        false,
        &[
            Event::Reach {
                peer: 7,
                nets: vec![0],
                path_id: 2,
                variant: first,
            },
            reach(7, 0, second),
            reach(3, 0, other),
            Event::Decide { budget: 1 },
            Event::Unreach {
                peer: 7,
                nets: vec![0],
                path_id: 2,
            },
        ],
    );
}

#[test]
fn path_announced_before_the_sweep_is_decided_again() {
    let better = Variant {
        local_pref: 2,
        ..PLAIN
    };
    plays(
        false,
        &[
            reach(5, 0, better),
            reach(6, 0, PLAIN),
            Event::Settle,
            Event::Down {
                peer: 5,
                stale: false,
            },
            // Compared while the peer of the best one is disconnected.
            reach(7, 0, PLAIN),
            Event::Decide { budget: 1 },
            Event::Up {
                peer: 5,
                alias: true,
            },
            reach(5, 0, better),
        ],
    );
    // The peer comes back with another identifier and the same routes: its clients hold the old
    // identifier.
    plays(
        false,
        &[
            reach(5, 0, PLAIN),
            Event::Settle,
            Event::Down {
                peer: 5,
                stale: true,
            },
            Event::Up {
                peer: 5,
                alias: true,
            },
            reach(5, 0, PLAIN),
        ],
    );
}

#[test]
fn a_second_restart_drops_what_is_still_stale() {
    plays(
        false,
        &[
            reach(5, 0, PLAIN),
            reach(5, 1, PLAIN),
            Event::Down {
                peer: 5,
                stale: true,
            },
            Event::Up {
                peer: 5,
                alias: false,
            },
            reach(5, 1, PLAIN),
            Event::Settle,
            Event::Down {
                peer: 5,
                stale: true,
            },
            Event::Settle,
            Event::Up {
                peer: 5,
                alias: false,
            },
            Event::EndOfRib { peer: 5 },
        ],
    );
}

#[test]
fn lost_reader_still_gets_withdrawals() {
    let mut events = vec![reach(5, 0, PLAIN), reach(5, 1, PLAIN), Event::Settle];
    events.extend([Event::Lag { peer: 6 }, unreach(5, 0)]);
    for round in 0..8 {
        let local_pref = round % 3;
        events.push(reach(
            5,
            1,
            Variant {
                local_pref,
                ..PLAIN
            },
        ));
        events.push(reach(
            5,
            2,
            Variant {
                local_pref,
                ..PLAIN
            },
        ));
        events.push(Event::Export {
            group: 2,
            budget: 9,
        });
    }
    events.extend([
        Event::Trim { all: true },
        Event::Private { peer: 6, budget: 1 },
    ]);
    plays(true, &events);
}

#[test]
fn removed_multipath_member_is_withdrawn() {
    let beside = Variant {
        next_hop: 1,
        ..PLAIN
    };
    let routes = [reach(8, 0, PLAIN), reach(7, 0, beside), Event::Settle];
    for peer in [7, 8] {
        let mut events = routes.to_vec();
        events.insert(
            0,
            Event::Up {
                peer: 8,
                alias: false,
            },
        );
        events.push(unreach(peer, 0));
        plays_with(2, false, &events);
    }
}

#[test]
fn returning_peer_with_worse_path_is_not_the_best() {
    let (better, worse) = (
        Variant {
            local_pref: 2,
            ..PLAIN
        },
        Variant {
            local_pref: 0,
            ..PLAIN
        },
    );
    plays(
        false,
        &[
            reach(5, 0, better),
            reach(6, 0, PLAIN),
            Event::Settle,
            Event::Down {
                peer: 5,
                stale: false,
            },
            Event::Up {
                peer: 5,
                alias: false,
            },
            reach(5, 0, worse),
        ],
    );
}

#[test]
fn returning_peer_with_a_new_id_is_advertised_again() {
    // With the very same attributes, except another ORIGINATOR_ID.
    plays(
        false,
        &[
            Event::Settle,
            reach(5, 0, PLAIN),
            Event::Settle,
            Event::Down {
                peer: 5,
                stale: true,
            },
            Event::Up {
                peer: 5,
                alias: true,
            },
            reach(5, 0, PLAIN),
        ],
    );
}

#[test]
fn attribute_set_with_a_reused_number_is_advertised() {
    // Every set is removed and its number is reused; the group has not read that in between.
    plays(
        false,
        &[
            Event::Settle,
            reach(5, 0, PLAIN),
            Event::Settle,
            unreach(5, 0),
            reach(
                5,
                0,
                Variant {
                    local_pref: 2,
                    ..PLAIN
                },
            ),
        ],
    );
}

#[test]
fn path_with_another_label_is_advertised_again() {
    let labeled = |label| reach(5, 0, Variant { label, ..PLAIN });
    let setup = Setup {
        sends: [Some(SendPaths::All); 9],
        family: Family::IPV4_LABELED_UNICAST,
        track: false,
        multipath_max: 1,
        always_compare_med: false,
        link_bandwidth: None,
        tight: false,
        import: import(),
        export: export(),
    };
    let events = [
        Event::Settle,
        labeled(0),
        reach(7, 0, PLAIN),
        Event::Settle,
        labeled(1),
    ];
    play(setup, &events);
}

#[test]
fn local_route_on_another_interface_is_reevaluated() {
    let cali = Match::Interface(["cali*".into()].into());
    let never = Match::LocalPref { min: 1, max: 0 };
    for send in [None, Some(SendPaths::All)] {
        let setup = Setup {
            sends: [send; 9],
            family: Family::IPV4_UNICAST,
            track: false,
            multipath_max: 1,
            always_compare_med: false,
            link_bandwidth: None,
            tight: false,
            import: import(),
            export: rules([(cali.clone().negated(), None), (never.clone(), None)]),
        };
        let local = |interface| Event::Local {
            net: 0,
            variant: Some(PLAIN),
            interface,
        };
        let moves = [0, 1, 0, 2].map(|interface| [local(interface), Event::Settle]);
        play(setup, moves.as_flattened());
    }
}
