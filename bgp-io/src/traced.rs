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
            missed: std::mem::take(&mut self.trace.missed),
            ..Trace::default()
        };
        let peers: Vec<PeerId> = self.places.keys().map(|(peer, _)| *peer).collect();
        for peer in peers {
            self.traced(peer);
        }
    }

    /// Begins a turn, which may report messages again. Messages that the last turn did not report
    /// are counted first.
    pub(crate) fn trace_turn(&mut self) {
        self.trace.reported = 0;
        while let Some((address, count)) = self.trace.missed.pop_first() {
            self.events.push(Event::MessagesMissed { address, count });
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
            *self.trace.missed.entry(address).or_default() += 1;
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
        };
        self.events.push(Event::Message(Box::new(message)));
    }
}

#[cfg(test)]
mod tests {
    use bgp_speaker::bgp_proto::{Asn, MessageKind, RouterId};
    use bgp_speaker::{Speaker, SpeakerConfig};

    use super::*;
    use crate::IoConfig;

    #[tokio::test]
    async fn messages_beyond_the_limit_are_counted_for_each_peer() {
        let address = |last: u16| IpAddr::from([192, 0, 2, last as u8]);
        let config = SpeakerConfig::new(Asn(64512), RouterId([192, 0, 2, 9].into()));
        let mut io = Io::new(Speaker::new(config, 1), IoConfig::default()).expect("no sockets");
        let frame = Frame {
            kind: MessageKind::Keepalive,
            body: Bytes::new(),
        };
        for (peer, count) in [(1, TRACED_MESSAGES_MAX), (2, 3), (1, 2)] {
            for _ in 0..count {
                io.report(PeerId(peer), address(peer), false, &frame);
            }
        }
        assert_eq!(io.events.len(), TRACED_MESSAGES_MAX);
        io.trace_turn();
        let missed = io.events.iter().filter_map(|event| match event {
            Event::MessagesMissed { address, count } => Some((*address, *count)),
            _ => None,
        });
        assert!(missed.eq([(address(1), 2), (address(2), 3)]));
        io.report(PeerId(2), address(2), false, &frame);
        let last = io.events.last();
        assert!(
            matches!(last, Some(Event::Message(_))),
            "a new turn: {last:?}"
        );
    }
}
