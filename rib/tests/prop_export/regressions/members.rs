//! Sequences with members and groups at different positions.

use super::*;

#[test]
fn a_member_that_joins_before_anything_is_there_misses_nothing() {
    plays(
        false,
        &[Event::Private { peer: 3, budget: 1 }, reach(1, 0, PLAIN)],
    );
}

#[test]
fn member_ahead_gets_what_its_group_leaves_out() {
    // Client 6 receives its dump while 5 is the best; before the group reaches the slot, it is 6
    // again.
    let better = Variant {
        local_pref: 2,
        ..PLAIN
    };
    plays(
        false,
        &[
            reach(6, 0, better),
            reach(5, 0, PLAIN),
            Event::Settle,
            Event::Lag { peer: 6 },
            unreach(6, 0),
            Event::Decide { budget: 1 },
            Event::Private { peer: 6, budget: 9 },
            reach(6, 0, better),
            Event::Decide { budget: 1 },
        ],
    );
}

#[test]
fn unknown_member_is_lost_with_its_identifier() {
    let other = Variant {
        local_pref: 2,
        ..PLAIN
    };
    plays(
        false,
        &[
            Event::Settle,
            reach(5, 0, PLAIN),
            reach(7, 0, PLAIN),
            Event::Settle,
            Event::Lag { peer: 6 },
            unreach(5, 0),
            Event::Decide { budget: 9 },
            Event::Export {
                group: 0,
                budget: 9,
            },
            Event::Export {
                group: 1,
                budget: 9,
            },
            Event::Export {
                group: 2,
                budget: 9,
            },
            Event::Trim { all: false },
            reach(7, 0, other),
            Event::Decide { budget: 9 },
        ],
    );
}

#[test]
fn lost_group_tracks_routes_of_a_member_ahead() {
    let brief = |net| [reach(5, net, PLAIN), unreach(5, net)];
    let mut events = vec![
        Event::Settle,
        reach(5, 0, PLAIN),
        reach(7, 0, PLAIN),
        Event::Settle,
        Event::Lag { peer: 6 },
    ];
    events.extend(brief(1));
    events.extend(brief(2));
    events.push(Event::Private { peer: 6, budget: 1 });
    // One tombstone too many: the group, which has read nothing, has missed the first one.
    events.extend(brief(3));
    events.push(Event::Export {
        group: 2,
        budget: 9,
    });
    events.push(unreach(5, 0));
    plays(true, &events);
}

#[test]
fn readers_of_one_version_get_the_same_routes() {
    // One member receives a path whose peer then disconnects, and the group reaches the slot after
    // that. The group must send the withdrawal: the member will not reach the slot again.
    for trim in [false, true] {
        let mut events = vec![
            Event::Settle,
            reach(5, 4, PLAIN),
            Event::Settle,
            Event::Lag { peer: 6 },
            reach(7, 4, PLAIN),
            reach(5, 1, PLAIN),
            reach(5, 2, PLAIN),
            Event::Private { peer: 6, budget: 1 },
            Event::Down {
                peer: 7,
                stale: false,
            },
            Event::Export {
                group: 2,
                budget: 9,
            },
            Event::Private { peer: 6, budget: 9 },
        ];
        if trim {
            let rest = [0, 1].map(|group| Event::Export { group, budget: 9 });
            events.extend(rest);
            events.push(Event::Trim { all: true });
        }
        plays(false, &events);
    }
}

#[test]
fn peer_with_a_new_id_is_advertised_again_to_members_ahead() {
    plays(
        false,
        &[
            Event::Settle,
            reach(5, 4, PLAIN),
            Event::Settle,
            Event::Lag { peer: 6 },
            reach(7, 4, PLAIN),
            reach(7, 1, PLAIN),
            reach(7, 2, PLAIN),
            Event::Private { peer: 6, budget: 1 },
            Event::Down {
                peer: 5,
                stale: true,
            },
            Event::Up {
                peer: 5,
                alias: true,
            },
            Event::Export {
                group: 2,
                budget: 9,
            },
            Event::Private { peer: 6, budget: 9 },
            reach(5, 4, PLAIN),
        ],
    );
}

#[test]
fn member_of_a_new_group_drops_paths_of_the_old_one() {
    let mut sends = [Some(SendPaths::Best(1)); 9];
    sends[6] = Some(SendPaths::Best(2));
    let setup = Setup {
        sends,
        family: Family::IPV4_UNICAST,
        track: false,
        multipath_max: 1,
        always_compare_med: false,
        link_bandwidth: None,
        tight: false,
        import: import(),
        export: export(),
    };
    let events = [
        reach(1, 5, PLAIN),
        reach(3, 5, PLAIN),
        Event::Settle,
        Event::Move {
            peer: 6,
            send: SendPaths::Best(1),
        },
        Event::Local {
            net: 5,
            variant: Some(PLAIN),
            interface: 0,
        },
    ];
    play(setup, &events);
}
