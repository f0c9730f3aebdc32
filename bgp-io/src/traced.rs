//! The messages of debugged peers, each as one line. For messages of other peers the cost is one
//! lookup in an empty set.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bgp_speaker::bgp_fsm::Conn;
use bgp_speaker::bgp_proto::{Frame, HEADER_OCTETS, MESSAGE_OCTETS_MAX_EXTENDED, next_frame};
use bgp_speaker::rib::PeerId;
use bytes::{Bytes, BytesMut};

use crate::event::TracedMessage;
use crate::limits::TRACED_MESSAGES_MAX;
use crate::trace::{Trace, resynchronize, text};
use crate::{Event, Io};

impl Io {
    /// Reports the messages of the peers with these addresses as [`Event::Message`], and of no
    /// others.
    pub fn trace(&mut self, addresses: BTreeSet<IpAddr>) {
        self.trace = Trace {
            addresses,
            ..Trace::default()
        };
        let peers: Vec<PeerId> = self.places.keys().map(|(peer, _)| *peer).collect();
        for peer in peers {
            self.traced(peer);
        }
    }

    /// Returns the address of a traced peer.
    fn traced(&mut self, peer: PeerId) -> Option<IpAddr> {
        let Some(config) = self.speaker.peer_config(peer) else {
            return self.trace.peers.get(&peer).copied();
        };
        let address = config.remote;
        let is_traced = self.trace.addresses.contains(&address);
        is_traced.then(|| {
            self.trace.peers.insert(peer, address);
            address
        })
    }

    /// Reports a message that a peer sent.
    pub(crate) fn trace_received(&mut self, peer: PeerId, frame: &Frame) {
        if let Some(address) = self.traced(peer) {
            self.report(peer, address, false, frame);
        }
    }

    /// Reports the messages that end within the first `octets` written to a peer.
    pub(crate) fn trace_sent(
        &mut self,
        peer: PeerId,
        conn: Conn,
        slices: &[Bytes],
        mut octets: usize,
    ) {
        let Some(address) = self.traced(peer) else {
            return;
        };
        let mut buffer = self.trace.sent.remove(&(peer, conn)).unwrap_or_default();
        for slice in slices {
            let written = slice.get(..octets).unwrap_or(slice);
            buffer.extend_from_slice(written);
            octets -= written.len();
        }
        loop {
            match next_frame(&mut buffer, MESSAGE_OCTETS_MAX_EXTENDED) {
                Ok(Some(frame)) => self.report(peer, address, true, &frame),
                Ok(None) => break,
                Err(_) => resynchronize(&mut buffer),
            }
        }
        if !buffer.is_empty() {
            let rest = BytesMut::from(&buffer[..]);
            self.trace.sent.insert((peer, conn), rest);
        }
    }

    fn report(&mut self, peer: PeerId, address: IpAddr, sent: bool, frame: &Frame) {
        if self.trace.reported >= TRACED_MESSAGES_MAX {
            self.trace.lost += 1;
            return;
        }
        self.trace.reported += 1;
        let params = self
            .speaker
            .peer(peer)
            .and_then(|peer| peer.params.cloned());
        let message = TracedMessage {
            peer,
            address,
            sent,
            kind: frame.kind,
            octets: HEADER_OCTETS + frame.body.len(),
            text: text(frame, params.as_ref(), sent),
            lost: std::mem::take(&mut self.trace.lost),
        };
        self.events.push(Event::Message(Box::new(message)));
    }
}
