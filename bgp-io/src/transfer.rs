//! Reads and writes of the connections that are ready.

use std::net::SocketAddr;
use std::task::Poll;

use bgp_speaker::Input;
use bgp_speaker::bgp_fsm::{self, Conn};
use bgp_speaker::bgp_proto::next_frame;
use bgp_speaker::rib::PeerId;
use bytes::{Bytes, BytesMut};

use crate::io::Entry;
use crate::limits::{HELD_OCTETS_MAX, READ_OCTETS_MAX, TURN_OCTETS_MAX, WRITE_OCTETS_MAX};
use crate::link::{Dialed, Link, Stage};
use crate::transport::Transport;
use crate::{Event, Io};

/// How a read ended.
enum Read {
    /// Nothing is left to read.
    Drained,
    /// The budget is used up; other connections have their turn.
    Budget,
    /// The peer or the kernel has closed the connection.
    Lost,
    /// This side has closed it.
    Closed,
}

impl Io {
    /// Serves the entry of a token. A late wake for a removed entry finds another one or none,
    /// which has no effect.
    pub(crate) fn serve(&mut self, token: usize, octets_left: &mut usize) {
        match self.entries.get_mut(token) {
            Some(Entry::Link(link)) => {
                link.signal.clear();
                match link.poll_dial() {
                    Some(Poll::Pending) => {}
                    Some(Poll::Ready(done)) => self.dialed(token, done),
                    None => {
                        self.read_link(token, octets_left);
                        self.write_blocked(token, octets_left);
                    }
                }
            }
            Some(Entry::Lingering(lingering)) => {
                lingering.signal.clear();
                if lingering.poll(&mut self.scratch).is_ready() {
                    self.entries.remove(token);
                    self.lingering -= 1;
                }
            }
            None => {}
        }
    }

    pub(crate) fn link(&mut self, token: usize) -> Option<&mut Link> {
        match self.entries.get_mut(token) {
            Some(Entry::Link(link)) => Some(link),
            _ => None,
        }
    }

    fn dialed(&mut self, token: usize, done: Dialed) {
        let now = self.clock.now();
        let Some(link) = self.link(token) else { return };
        let (peer, conn) = (link.peer, link.conn);
        let ends = done.and_then(|(stream, second)| Ok((stream.ends()?, stream, second)));
        match ends {
            Ok(((local, remote), stream, has_second)) => {
                link.stage = Stage::Open(stream);
                link.opened_with(has_second, now);
                link.wake();
                let opened = bgp_fsm::Input::Opened {
                    conn,
                    local,
                    remote,
                };
                self.handle(Input::Session(peer, opened));
            }
            Err(error) => {
                self.remove(peer, conn);
                if let Some(config) = self.speaker.peer_config(peer) {
                    let remote = SocketAddr::new(config.remote, config.port);
                    self.events.push(Event::DialFailed {
                        peer,
                        remote,
                        error,
                    });
                }
                self.handle(Input::Session(peer, bgp_fsm::Input::Failed(conn)));
            }
        }
    }

    /// Reads a link within its budget and passes the messages on.
    fn read_link(&mut self, token: usize, octets_left: &mut usize) {
        let mut buffer = std::mem::take(&mut self.scratch);
        buffer.clear();
        if let Some(link) = self.link(token) {
            buffer.extend_from_slice(&std::mem::take(&mut link.partial));
        }
        let read = self.read_into(token, &mut buffer, octets_left);
        if let (Read::Drained | Read::Budget, Some(link)) = (&read, self.link(token)) {
            link.partial = BytesMut::from(&buffer[..]);
        }
        buffer.clear();
        self.scratch = buffer;
        match read {
            Read::Drained => self.report_unread(token, false),
            Read::Budget => self.report_unread(token, true),
            Read::Lost => self.lost(token),
            Read::Closed => {}
        }
    }

    fn read_into(&mut self, token: usize, buffer: &mut BytesMut, octets_left: &mut usize) -> Read {
        let mut budget = READ_OCTETS_MAX.min(*octets_left);
        let Some((peer, conn)) = self.link(token).map(|link| (link.peer, link.conn)) else {
            return Read::Closed;
        };
        // Octets that arrived while the connection was held.
        if !buffer.is_empty() && !self.cut(token, peer, conn, buffer) {
            return Read::Closed;
        }
        while budget > 0 {
            if conn == Conn::Held && buffer.len() >= HELD_OCTETS_MAX {
                return Read::Drained;
            }
            buffer.reserve(READ_OCTETS_MAX);
            let Some(link) = self.link(token) else {
                return Read::Closed;
            };
            let octets = match link.poll_read(buffer) {
                Poll::Pending if link.broken => return Read::Lost,
                Poll::Pending => return Read::Drained,
                Poll::Ready(Ok(0) | Err(_)) => return Read::Lost,
                Poll::Ready(Ok(octets)) => octets,
            };
            budget = budget.saturating_sub(octets);
            *octets_left = octets_left.saturating_sub(octets);
            if !self.cut(token, peer, conn, buffer) {
                return Read::Closed;
            }
        }
        Read::Budget
    }

    /// Splits the octets into messages and passes them on; returns false if that closes the link.
    fn cut(&mut self, token: usize, peer: PeerId, conn: Conn, buffer: &mut BytesMut) -> bool {
        while self.speaker.reads(peer, conn) {
            let input = match next_frame(buffer, self.speaker.octets_max(peer, conn)) {
                Ok(None) => return true,
                Ok(Some(frame)) => {
                    if self.trace.is_on() {
                        self.trace_received(peer, &frame);
                    }
                    bgp_fsm::Input::Received { conn, frame }
                }
                Err(notification) => {
                    buffer.clear();
                    bgp_fsm::Input::FrameError { conn, notification }
                }
            };
            self.handle(Input::Session(peer, input));
            if self.places.get(&(peer, conn)) != Some(&token) {
                return false;
            }
        }
        true
    }

    /// Notifies the session whether octets of its peer are unread, if that has changed.
    fn report_unread(&mut self, token: usize, unread: bool) {
        let Some(link) = self.link(token) else { return };
        if unread {
            link.wake();
        }
        // The session needs it of its established connection only.
        if link.unread != unread && link.conn != Conn::Held {
            link.unread = unread;
            let peer = link.peer;
            self.handle(Input::Session(peer, bgp_fsm::Input::ReadPaused { unread }));
        }
    }

    /// Handles the loss of a connection.
    fn lost(&mut self, token: usize) {
        let Some(link) = self.link(token) else { return };
        let (peer, conn) = (link.peer, link.conn);
        self.remove(peer, conn);
        self.handle(Input::Session(peer, bgp_fsm::Input::Closed(conn)));
    }

    /// Writes to the peers that the speaker lists, within the budget of the turn.
    pub(crate) fn write_listed(&mut self) -> bool {
        let (mut worked, mut octets_left) = (false, TURN_OCTETS_MAX);
        while octets_left > 0
            && !self.speaker.is_monitor_busy()
            && let Some(peer) = self.speaker.poll_writable()
        {
            worked = true;
            for conn in Conn::ALL {
                if let Some(token) = self.places.get(&(peer, conn)).copied()
                    && self.link(token).is_some_and(|link| !link.blocked)
                {
                    self.write(token, &mut octets_left);
                }
            }
        }
        worked
    }

    /// Continues a write that stopped at a full socket or at the end of a turn.
    fn write_blocked(&mut self, token: usize, octets_left: &mut usize) {
        if let Some(link) = self.link(token)
            && std::mem::take(&mut link.blocked)
        {
            self.write(token, octets_left);
        }
    }

    /// Writes to a link until nothing waits, the socket is full, or the budget is used up.
    fn write(&mut self, token: usize, octets_left: &mut usize) {
        let mut slices = std::mem::take(&mut self.slices);
        let mut budget = WRITE_OCTETS_MAX.min(*octets_left);
        while self.write_once(token, &mut slices, &mut budget, octets_left) {}
        slices.clear();
        self.slices = slices;
        self.drain();
    }

    fn write_once(
        &mut self,
        token: usize,
        slices: &mut Vec<Bytes>,
        budget: &mut usize,
        octets_left: &mut usize,
    ) -> bool {
        let Some(Entry::Link(link)) = self.entries.get_mut(token) else {
            return false;
        };
        if matches!(link.stage, Stage::Dialing(_)) {
            return false;
        }
        if *budget == 0 {
            link.blocked = true;
            link.wake();
            return false;
        }
        slices.clear();
        self.speaker.fill(link.peer, link.conn, slices, *budget);
        if slices.is_empty() {
            return false;
        }
        match link.poll_write(slices) {
            Poll::Ready(Ok(octets)) => {
                let (peer, conn) = (link.peer, link.conn);
                self.speaker.sent(peer, conn, octets);
                *budget = budget.saturating_sub(octets);
                *octets_left = octets_left.saturating_sub(octets);
                if self.trace.is_on() {
                    self.trace_sent(peer, conn, slices, octets);
                }
                true
            }
            Poll::Pending => {
                link.blocked = true;
                false
            }
            Poll::Ready(Err(_)) => {
                // The peer may have sent a NOTIFICATION before it closed: received octets are
                // processed first.
                link.broken = true;
                link.wake();
                false
            }
        }
    }
}
