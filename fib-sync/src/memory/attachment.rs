//! One program's connection to the kernel: its commands and its undelivered events.

use core::task::Waker;
use std::collections::VecDeque;

use crate::limits::MEMORY_EVENTS_MAX;
use crate::owner::Owner;
use crate::port::{Command, Event};
use crate::route::RouteKey;

/// Identifies a connection to a [`Kernel`](super::Kernel).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attachment(pub(super) u32);

/// A connection's two queues, like the two sockets of the real driver. Events are delivered in the
/// order of the kernel's time, except that a notification may precede an older answer.
#[derive(Debug, Default)]
pub(super) struct Queues {
    pub(super) commands: VecDeque<Pending>,
    pub(super) notifications: VecDeque<(u64, Event)>,
    pub(super) answers: VecDeque<(u64, Event)>,
    pub(super) dump: Option<Dump>,
    pub(super) waker: Option<Waker>,
}

/// A command not yet carried out.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) command: Command,
    /// Another program changed the key, before the caller submitted the command and before it was
    /// notified of the change.
    pub(super) overtaken: bool,
}

/// A dump in progress: it reads a few rows at a time while other programs change the table.
#[derive(Debug)]
pub(super) struct Dump {
    pub(super) table: u32,
    pub(super) owner: Option<Owner>,
    pub(super) after: Option<RouteKey>,
    pub(super) cut: bool,
}

impl Queues {
    /// Returns whether polling would yield something.
    pub(super) fn is_ready(&self) -> bool {
        !(self.commands.is_empty()
            && self.notifications.is_empty()
            && self.answers.is_empty()
            && self.dump.is_none())
    }

    /// Accepts a command. A replace of a key for which a notification is still queued is marked as
    /// overtaken.
    pub(super) fn submit(&mut self, command: Command) {
        let concerns_key = |event: &Event| match event.changed_key() {
            Some(key) => command.replaced_key() == Some(key),
            None => *event == Event::Overrun,
        };
        let overtaken = self
            .notifications
            .iter()
            .any(|(_, event)| concerns_key(event));
        self.commands.push_back(Pending { command, overtaken });
    }

    /// Marks queued replaces of this key as overtaken by another program; `None` marks those of all
    /// keys.
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

    /// Discards the undelivered notifications and queues an overrun.
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
