//! Packets of a neighbor that has the other mode. Single-hop and multihop have a port each, so that no session
//! accepts them. The session that waits for packets of this neighbor names the reason and the remedy.

use bfd::limits::TTL_SINGLE_HOP;
use bfd::{Arrival, Discard, Hops, Instant, Random, State};

use super::Engine;
use super::client::OtherPort;
use super::events::emit_problem;
use crate::limits::OTHER_PORT_FOR;

const SINGLE_HERE: &str = "packets arrive on UDP port 4784, that of multihop, and this session has a single hop: set \
                           `mode = \"multihop\"` here, or single-hop at the neighbor; between nodes of the datastore, \
                           correct the masks of both Nodes";

const MULTI_HERE: &str = "packets arrive on UDP port 3784, that of a single hop, and this session is multihop: set \
                          `mode = \"single-hop\"` here, or multihop at the neighbor; between nodes of the datastore, \
                          correct the masks of both Nodes";

impl<R: Random> Engine<R> {
    /// Notes a discarded packet at the sessions with its source that are down and have the other number of
    /// hops. A forged packet changes no other session, and no state of any session.
    pub(super) fn note_other_port(&mut self, now: Instant, arrival: &Arrival, discard: Discard) {
        // A session of one hop rejects packets of another link (RFC 5881 §5): such a remedy would not help.
        let is_of_a_link = arrival.hops == Hops::Multi || arrival.ttl == TTL_SINGLE_HOP;
        if !is_of_a_link || !matches!(discard, Discard::NoSession | Discard::Path) {
            return;
        }
        let remote = arrival.source.to_canonical();
        for (identity, client) in &mut self.clients {
            let Some(entry) = client.entries.get_mut(&remote) else {
                continue;
            };
            let Some(id) = entry.id else {
                continue;
            };
            let session = self.sessions.get(id);
            let way = self.ways.get(&id);
            let is_down = session.is_some_and(|session| session.state() == State::Down);
            let Some(way) = way.filter(|way| is_down && way.path.hops() != arrival.hops) else {
                continue;
            };
            let text = match way.path.hops() {
                Hops::Single => SINGLE_HERE,
                Hops::Multi => MULTI_HERE,
            };
            let former = entry.other_port.replace(OtherPort { last: now, text });
            if former.is_none() {
                emit_problem(&identity.name, remote, true, text);
                client.report(remote);
            }
        }
    }

    /// Forgets such packets where none has arrived for [`OTHER_PORT_FOR`].
    pub(super) fn forget_other_ports(&mut self, now: Instant) {
        for client in self.clients.values_mut() {
            let entries = client.entries.iter_mut().filter_map(|(remote, entry)| {
                let other_port = &mut entry.other_port;
                other_port.take_if(|other| now >= other.last + OTHER_PORT_FOR)?;
                Some(*remote)
            });
            let remotes: Vec<_> = entries.collect();
            for remote in remotes {
                client.report(remote);
            }
        }
    }
}
