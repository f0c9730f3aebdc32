//! Future events by instant; the seed breaks ties.

use std::collections::BTreeMap;

use bgp_speaker::rib::PeerId;

use crate::bfd::Packet;
use crate::chance::Chance;
use crate::scenario::Act;
use crate::store::{Answer, Question};

/// One of the daemons of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Daemon {
    /// The BGP client of a node, or the reflector.
    Bgp,
    /// The agent of a node.
    Felix,
    /// The process of BFD.
    Bfd,
}

/// A machine by its index: nodes first, then reflectors.
pub(crate) type At = usize;

/// One event.
#[derive(Debug)]
pub(crate) enum Event {
    /// A daemon performs its pending work.
    Turn(At, Daemon),
    /// A connection request arrives at the dialed machine.
    Dial {
        from: At,
        to: At,
        peer: PeerId,
        token: u64,
    },
    /// The result arrives at the dialing machine: the stream, or a rejection.
    Dialed {
        from: At,
        peer: PeerId,
        token: u64,
        stream: Option<u32>,
    },
    /// The next item in flight to this side of a stream arrives.
    Arrive { stream: u32, side: usize },
    /// A request of a node's Felix arrives at the datastore.
    Ask(Question),
    /// The datastore's response arrives at the node.
    Answer(Answer),
    /// A watch may have new events.
    Watch { at: At, feed: usize, token: u64 },
    /// A packet of BFD arrives.
    Packet(Packet),
    /// The scenario acts.
    Act(Act),
}

/// The future events.
#[derive(Debug)]
pub(crate) struct Agenda {
    events: BTreeMap<(u64, u64, u64), Event>,
    serial: u64,
    ties: Chance,
}

impl Agenda {
    pub(crate) fn new(ties: Chance) -> Self {
        Self {
            events: BTreeMap::new(),
            serial: 0,
            ties,
        }
    }

    /// Adds an event at an instant, in nanoseconds.
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.serial += 1;
        let tie = self.ties.next();
        self.events.insert((at, tie, self.serial), event);
    }

    /// Returns the next event that is due by `end`.
    pub(crate) fn pop(&mut self, end: u64) -> Option<(u64, Event)> {
        let first = self.events.first_entry()?;
        let at = first.key().0;
        (at <= end).then(|| (at, first.remove()))
    }
}
