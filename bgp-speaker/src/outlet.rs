//! The way of a group's messages into the session of a member.

use alloc::vec::Vec;

use bgp_fsm::Session;
use bytes::Bytes;

use crate::limits::{FEED_STEP_OCTETS_MAX, SESSION_OCTETS_MAX, SESSION_PIECES_MAX};

/// A session that takes the messages of its group, with the place where a monitor notes them.
#[derive(Debug)]
pub(crate) struct Outlet<'s> {
    session: &'s mut Session,
    noted: Option<&'s mut Vec<Bytes>>,
}

impl<'s> Outlet<'s> {
    pub(crate) const fn new(session: &'s mut Session, noted: Option<&'s mut Vec<Bytes>>) -> Self {
        Self { session, noted }
    }

    /// Returns whether the session takes another step before its socket has accepted some octets.
    pub(crate) fn has_room(&self) -> bool {
        self.session.queued_octets() <= SESSION_OCTETS_MAX - FEED_STEP_OCTETS_MAX
            && self.session.queued_pieces() < SESSION_PIECES_MAX
    }

    /// Queues whole messages.
    pub(crate) fn queue(&mut self, messages: Bytes) {
        if let Some(noted) = &mut self.noted {
            noted.push(messages.clone());
        }
        self.session.queue(messages);
    }
}
