//! One program's connection to the kernel: its commands, and what it has yet to be told.

use core::task::Waker;
use std::collections::VecDeque;

use crate::limits::MEMORY_EVENTS_MAX;
use crate::owner::Owner;
use crate::port::{Command, Event};
use crate::route::RouteKey;

/// Names a connection to a [`Kernel`](super::Kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attachment(pub(super) u32);

/// A connection's queues. Two of them, like the two sockets of the real driver; what is older in
/// the kernel's time is never told after what is younger, except that a notification may come
/// before an older answer.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) commands: VecDeque<Pending>,
    pub(super) notifications: VecDeque<(u64, Event)>,
    pub(super) answers: VecDeque<(u64, Event)>,
    pub(super) dump: Option<Dump>,
    pub(super) waker: Option<Waker>,
}

/// A command not carried out yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) command: Command,
    /// Its key was changed by others, and the caller did not know when it submitted it.
    pub(super) overtaken: bool,
}

/// A dump under way: it reads a few rows at a time while others change the table.
#[derive(Debug)]
pub(super) struct Dump {
    pub(super) table: u32,
    pub(super) owner: Option<Owner>,
    pub(super) after: Option<RouteKey>,
    pub(super) cut: bool,
}

impl Queues {
    /// Whether polling would yield something.
    pub(super) fn is_ready(&self) -> bool {
        !(self.commands.is_empty()
            && self.notifications.is_empty()
            && self.answers.is_empty()
            && self.dump.is_none())
    }

    /// Takes a command. One that replaces what a waiting notification is about comes too late.
    pub(super) fn submit(&mut self, command: Command) {
        let tells = |event: &Event| match event.changed_key() {
            Some(key) => command.replaced_key() == Some(key),
            None => *event == Event::Overrun,
        };
        let overtaken = self.notifications.iter().any(|(_, event)| tells(event));
        self.commands.push_back(Pending { command, overtaken });
    }

    /// Somebody else changed the route of this key; none: nobody knows which.
    pub(super) fn overtake(&mut self, changed: Option<&RouteKey>) {
        for pending in &mut self.commands {
            pending.overtaken |= changed.is_none() || pending.command.replaced_key() == changed;
        }
    }

    pub(super) fn notify(&mut self, stamp: u64, event: Event) {
        if self.notifications.len() >= MEMORY_EVENTS_MAX {
            self.overrun(stamp);
        } else {
            self.notifications.push_back((stamp, event));
        }
        self.wake();
    }

    /// Loses what waits, and says so.
    pub(super) fn overrun(&mut self, stamp: u64) {
        self.notifications.clear();
        self.overtake(None);
        self.notifications.push_back((stamp, Event::Overrun));
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
