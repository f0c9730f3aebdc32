//! The possible events, with small numbers so that they interact.

use proptest::prelude::*;
use rib::SendPaths;

use crate::doubts::Doubt;

/// Peers by number: 1 and 2 are external, 3 and 4 internal, 5 to 8 clients.
pub const PEERS: u16 = 8;
pub const NETS: u8 = 6;
pub const NEXT_HOPS: u8 = 4;

/// A choice of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    pub local_pref: u8,
    pub as_path: u8,
    pub med: u8,
    pub origin: u8,
    pub community: u8,
    pub next_hop: u8,
    pub reflected: u8,
    pub unknown: bool,
    pub label: u8,
    /// A received link bandwidth: 1 for the transitive form, 2 for the other one.
    pub bandwidth: u8,
}

#[derive(Clone, Debug)]
pub enum Event {
    Reach {
        peer: u16,
        nets: Vec<u8>,
        path_id: u32,
        variant: Variant,
    },
    Unreach {
        peer: u16,
        nets: Vec<u8>,
        path_id: u32,
    },
    Local {
        net: u8,
        variant: Option<Variant>,
        interface: u8,
    },
    Down {
        peer: u16,
        stale: bool,
    },
    /// A session is established, possibly with another BGP Identifier than before.
    Up {
        peer: u16,
        alias: bool,
    },
    /// Another import policy, by number.
    Import {
        peer: u16,
        policy: u8,
    },
    /// A prefix, or all inside one, is evaluated again without a change.
    Reevaluate {
        net: u8,
        inside: Option<u8>,
    },
    /// Other paths of a peer to a prefix are not confirmed; that prefix is evaluated again, or all.
    Doubt {
        net: u8,
        peer: u16,
        doubt: Option<Doubt>,
        inside: Option<u8>,
    },
    EndOfRib {
        peer: u16,
    },
    Expire {
        peer: u16,
    },
    BeginRefresh {
        peer: u16,
    },
    EndRefresh {
        peer: u16,
    },
    Resolve {
        next_hop: u8,
        cost: Option<u32>,
    },
    /// The origin of routes, identified as a peer, has failed or no longer has.
    FailOrigin {
        peer: u16,
        has_failed: bool,
    },
    /// The peer sends a message without routes.
    Message {
        peer: u16,
    },
    Decide {
        budget: u32,
    },
    Export {
        group: usize,
        budget: u32,
    },
    Private {
        peer: u16,
        budget: u32,
    },
    /// A member leaves the shared cursor and becomes private.
    Lag {
        peer: u16,
    },
    /// A member with several paths per prefix gets another selection of them.
    Move {
        peer: u16,
        send: SendPaths,
    },
    /// A member requests everything again.
    Again {
        peer: u16,
    },
    Read {
        budget: u32,
    },
    /// Without `all`, the readers' cursors are not passed to the tables.
    Trim {
        all: bool,
    },
    Settle,
}

prop_compose! {
    fn variant()(
        local_pref in 0..3u8, as_path in 0..7u8, med in 0..3u8, origin in 0..2u8,
        community in 0..8u8, next_hop in 0..NEXT_HOPS, reflected in 0..6u8,
        unknown in prop::bool::weighted(0.1), label in 0..3u8,
        bandwidth in 0..4u8,
    ) -> Variant {
        Variant {
            local_pref, as_path, med, origin, community, next_hop, reflected, unknown, label, bandwidth,
        }
    }
}

fn nets() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..NETS, 1..4)
}

fn path_id() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(0u32), 1 => 1..3u32]
}

pub fn send() -> impl Strategy<Value = SendPaths> {
    prop_oneof![
        1 => (1..4u8).prop_map(SendPaths::Best),
        1 => Just(SendPaths::EqualCost),
        2 => Just(SendPaths::All),
    ]
}

fn doubt() -> impl Strategy<Value = Doubt> {
    prop_oneof![
        Just(Doubt::All),
        Just(Doubt::WithoutOriginator),
        Just(Doubt::FirstNextHop),
    ]
}

pub fn event() -> impl Strategy<Value = Event> {
    let peer = || 1..=PEERS;
    let budget = || 1..4u32;
    prop_oneof![
        16 => (peer(), nets(), path_id(), variant()).prop_map(|(peer, nets, path_id, variant)| {
            Event::Reach { peer, nets, path_id, variant }
        }),
        8 => (peer(), nets(), path_id())
            .prop_map(|(peer, nets, path_id)| Event::Unreach { peer, nets, path_id }),
        2 => (0..NETS, prop::option::of(variant()), 0..3u8)
            .prop_map(|(net, variant, interface)| Event::Local { net, variant, interface }),
        2 => (peer(), any::<bool>()).prop_map(|(peer, stale)| Event::Down { peer, stale }),
        3 => (peer(), prop::bool::weighted(0.2)).prop_map(|(peer, alias)| Event::Up { peer, alias }),
        2 => (peer(), 0..4u8).prop_map(|(peer, policy)| Event::Import { peer, policy }),
        1 => (0..NETS, prop::option::of(0..24u8))
            .prop_map(|(net, inside)| Event::Reevaluate { net, inside }),
        3 => (0..NETS, peer(), prop::option::of(doubt()), prop::option::of(0..24u8))
            .prop_map(|(net, peer, doubt, inside)| Event::Doubt { net, peer, doubt, inside }),
        1 => peer().prop_map(|peer| Event::EndOfRib { peer }),
        1 => peer().prop_map(|peer| Event::Expire { peer }),
        1 => peer().prop_map(|peer| Event::BeginRefresh { peer }),
        1 => peer().prop_map(|peer| Event::EndRefresh { peer }),
        2 => (0..NEXT_HOPS, prop::option::of(1..3u32))
            .prop_map(|(next_hop, cost)| Event::Resolve { next_hop, cost }),
        2 => (peer(), any::<bool>())
            .prop_map(|(peer, has_failed)| Event::FailOrigin { peer, has_failed }),
        2 => peer().prop_map(|peer| Event::Message { peer }),
        6 => budget().prop_map(|budget| Event::Decide { budget }),
        8 => (0..6usize, budget()).prop_map(|(group, budget)| Event::Export { group, budget }),
        8 => (peer(), budget()).prop_map(|(peer, budget)| Event::Private { peer, budget }),
        3 => peer().prop_map(|peer| Event::Lag { peer }),
        1 => peer().prop_map(|peer| Event::Again { peer }),
        2 => (peer(), send()).prop_map(|(peer, send)| Event::Move { peer, send }),
        3 => budget().prop_map(|budget| Event::Read { budget }),
        2 => prop::bool::weighted(0.8).prop_map(|all| Event::Trim { all }),
        1 => Just(Event::Settle),
    ]
}

/// Generates paths that are equal except in the inputs that make the order of two depend on a
/// third: neighboring AS, MULTI_EXIT_DISC, and the inputs after it.
pub fn alike() -> impl Strategy<Value = Event> {
    let peer = || prop::sample::select(vec![3u16, 5, 7, 8]);
    let variant = (
        prop::sample::select(vec![1u8, 3]),
        0..3u8,
        prop::sample::select(vec![0u8, 5]),
    );
    let variant = variant.prop_map(|(as_path, med, reflected)| Variant {
        local_pref: 1,
        as_path,
        med,
        origin: 0,
        community: 7,
        next_hop: 0,
        reflected: if reflected == 0 { 2 } else { 5 },
        unknown: false,
        label: 0,
        bandwidth: 0,
    });
    prop_oneof![
        5 => (peer(), 0..3u32, variant).prop_map(|(peer, path_id, variant)| {
            Event::Reach { peer, nets: vec![0], path_id, variant }
        }),
        2 => (peer(), 0..3u32)
            .prop_map(|(peer, path_id)| Event::Unreach { peer, nets: vec![0], path_id }),
        1 => Just(Event::Decide { budget: 1 }),
    ]
}

/// Generates two sequences with the same final announcements, but in another order and in other
/// messages, one of them with many other events before.
pub fn two_ways() -> impl Strategy<Value = (Vec<Event>, Vec<Event>)> {
    let key = || (prop::sample::select(vec![1u16, 3, 5, 6, 7]), 0..NETS);
    let end = prop::collection::btree_map(key(), variant(), 1..12);
    let noise = prop::collection::vec(event(), 0..30);
    (end, noise).prop_flat_map(|(end, noise)| {
        let reach = |(&(peer, net), &variant): (&(u16, u8), &Variant)| {
            let nets = vec![net];
            Event::Reach {
                peer,
                nets,
                path_id: 0,
                variant,
            }
        };
        let straight: Vec<Event> = end.iter().map(reach).collect();
        let twice: Vec<Event> = straight.iter().chain(&straight).cloned().collect();
        (Just(straight), Just(noise), Just(twice).prop_shuffle())
            .prop_map(|(straight, noise, twice)| (squashed(straight), calmed(noise, twice)))
    })
}

/// Merges adjacent announcements of one peer with equal attributes into one message.
fn squashed(events: Vec<Event>) -> Vec<Event> {
    let mut squashed: Vec<Event> = Vec::new();
    for event in events {
        if let (
            Some(Event::Reach {
                peer,
                nets,
                variant,
                ..
            }),
            Event::Reach {
                peer: next,
                nets: more,
                variant: same,
                ..
            },
        ) = (squashed.last_mut(), &event)
            && (*peer, *variant) == (*next, *same)
        {
            nets.extend(more);
            continue;
        }
        squashed.push(event);
    }
    squashed
}

/// Returns the noise, then withdrawals of everything that it has announced, then the rest.
fn calmed(mut noise: Vec<Event>, rest: Vec<Event>) -> Vec<Event> {
    noise.retain(|event| !matches!(event, Event::Move { .. } | Event::Doubt { .. }));
    for peer in 1..=PEERS {
        let policy = u8::MAX;
        noise.push(Event::Import { peer, policy });
        noise.push(Event::Up { peer, alias: false });
        noise.push(Event::Down { peer, stale: false });
    }
    for net in 0..NETS {
        noise.push(Event::Local {
            net,
            variant: None,
            interface: 0,
        });
    }
    for next_hop in 0..NEXT_HOPS {
        noise.push(Event::Resolve {
            next_hop,
            cost: Some(1),
        });
    }
    for peer in [1, 3, 5, 6, 7] {
        noise.push(Event::Up { peer, alias: false });
    }
    noise.extend(rest);
    noise
}
