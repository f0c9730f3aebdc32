//! Scripted peers of a network: connections with the test at their other end.

use std::net::{IpAddr, SocketAddr};

use bgp_speaker::Refusal;
use bgp_speaker::bgp_fsm::Conn;
use bgp_speaker::bgp_proto::Frame;
use bgp_speaker::rib::PeerId;

use super::streams::Owner;
use super::{Network, Node};
use crate::expect::Expected;
use crate::limits::VIRTUAL_PATIENCE;
use crate::message::Encode;
use crate::received::{Inbox, Received};

/// A connection that a scripted peer has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scripted(pub(super) u64);

impl<N: Node> Network<N> {
    /// Opens a connection from a scripted peer at `from` to the speaker at `to`. The peer reads all
    /// that it is sent, at once.
    ///
    /// # Errors
    /// The speaker's reason to refuse the connection.
    ///
    /// # Panics
    /// If no speaker has the address `to`.
    pub fn dial(&mut self, from: IpAddr, to: IpAddr) -> Result<Scripted, Refusal> {
        let number = self.addresses.get(&to).copied();
        let number = number.unwrap_or_else(|| panic!("no speaker has the address {to}"));
        let [local, remote] = [SocketAddr::new(to, 179), SocketAddr::new(from, 40_000)];
        let now = self.now;
        let accepted = self.speaker_mut(number).accept(now, local, remote);
        // An older connection may have been closed to make room.
        self.settle();
        let (peer, conn) = accepted?;
        let end = (number, peer, conn);
        let sides = [(Owner::Scripted, remote), (Owner::Session(end), local)];
        let scripted = Scripted(self.streams.open(sides));
        self.inboxes.insert(scripted, Inbox::default());
        self.opened(end, local, remote);
        self.settle();
        Ok(scripted)
    }

    /// Sends a message, or arbitrary octets, and processes all events that take no time. Octets for
    /// a closed connection are lost.
    pub fn send(&mut self, scripted: Scripted, message: impl Encode) {
        self.send_only(scripted, message);
        self.settle();
    }

    /// Sends a message that the speaker only reads: routes are neither selected nor advertised
    /// before the network continues.
    pub fn send_only(&mut self, scripted: Scripted, message: impl Encode) {
        let octets = message.octets().freeze();
        self.inbox(scripted).sent(&octets);
        self.streams.write(self.now, (scripted.0, 0), octets);
        self.wake((scripted.0, 1));
        if let Some((number, ..)) = self.end_of(scripted) {
            self.read(number);
        }
    }

    /// Waits for the next message and returns it. Time passes until one arrives, at most
    /// [`VIRTUAL_PATIENCE`].
    ///
    /// # Panics
    /// If another message arrives, or none; the text describes it.
    #[track_caller]
    pub fn expect(&mut self, scripted: Scripted, expected: impl Into<Expected>) -> Received {
        let expected = expected.into();
        let end = self.now + VIRTUAL_PATIENCE;
        self.settle();
        loop {
            match expected.check(self.inbox(scripted)) {
                Some(Ok(received)) => return received,
                Some(Err(text)) => panic!("at {}: {text}", self.now),
                None => {}
            }
            if !self.step(end) {
                let within = format!("{VIRTUAL_PATIENCE:?} of virtual time");
                panic!("{}", expected.missing(&within, self.inbox(scripted)));
            }
        }
    }

    /// Processes all events that take no time, and returns the messages that the peer has received
    /// since the last call, without KEEPALIVEs.
    pub fn received(&mut self, scripted: Scripted) -> Vec<Received> {
        self.settle();
        self.received_so_far(scripted)
    }

    /// Returns the messages that the peer has received since the last call, without KEEPALIVEs, and
    /// processes no event.
    pub fn received_so_far(&mut self, scripted: Scripted) -> Vec<Received> {
        let inbox = self.inbox(scripted);
        let mut all = vec![];
        while let Some((received, _)) = inbox.next() {
            match received {
                Received::Closed => break,
                Received::Keepalive => {}
                Received::Malformed(_) => {
                    all.push(received);
                    break;
                }
                received => all.push(received),
            }
        }
        all
    }

    /// Lets everything happen that takes no time, and returns the messages that the peer has
    /// received since the last call, as they came.
    ///
    /// # Panics
    /// If it has received octets that are no message.
    pub fn frames(&mut self, scripted: Scripted) -> Vec<Frame> {
        self.settle();
        let inbox = self.inbox(scripted);
        let next = || inbox.frame().expect("messages");
        std::iter::from_fn(next).collect()
    }

    /// Returns whether the peer has received the beginning of a message and not its end.
    #[must_use]
    pub fn has_rest(&self, scripted: Scripted) -> bool {
        let inbox = self.inboxes.get(&scripted);
        inbox.is_some_and(Inbox::has_rest)
    }

    /// Closes the connection from the peer's side.
    pub fn close_scripted(&mut self, scripted: Scripted) {
        self.end((scripted.0, 0));
        self.settle();
    }

    /// Returns whether neither side has closed the connection.
    #[must_use]
    pub fn is_open(&self, scripted: Scripted) -> bool {
        let ends = [(scripted.0, 0), (scripted.0, 1)].map(|side| self.streams.owner(side));
        matches!(ends, [Some(Owner::Scripted), Some(Owner::Session(_))])
    }

    /// Lets the peer's socket accept at most so many octets, and processes no other event.
    pub fn take_some(&mut self, scripted: Scripted, octets_max: usize) {
        if let Some(end) = self.end_of(scripted) {
            self.write_some(end, octets_max);
        }
    }

    /// Returns the speaker's number, session and connection behind a scripted peer.
    #[must_use]
    pub fn end_of(&self, scripted: Scripted) -> Option<(usize, PeerId, Conn)> {
        match self.streams.owner((scripted.0, 1))? {
            Owner::Session(end) => Some(end),
            _ => None,
        }
    }

    fn inbox(&mut self, scripted: Scripted) -> &mut Inbox {
        let inbox = self.inboxes.get_mut(&scripted);
        inbox.expect("a scripted peer of this network")
    }

    /// Reads the octets that have arrived at a scripted peer.
    pub(super) fn receive(&mut self, scripted: Scripted) {
        let side = (scripted.0, 0);
        let octets = self.streams.drain(side);
        let has_ended = self.streams.has_ended(side);
        let inbox = self.inbox(scripted);
        inbox.push(&octets);
        if has_ended {
            inbox.close();
            self.streams.close(self.now, side);
        }
    }
}
