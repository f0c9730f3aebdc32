//! One transaction of the packet filter.

use std::time::Instant;

use netlink::Refused;
use netlink::nftables::{self, ERESTART, inet};

use super::{Rules, RulesError};
use crate::apply::encode::{Encoding, Message, messages};
use crate::apply::follow::{after, is_later};
use crate::apply::record;
use crate::limits::{FOLLOW_ALL_FOR, FOLLOWED_ELEMENTS_MAX, TRANSACTION_ATTEMPTS};
use crate::render::{Change, TABLE, rule_text};

/// A transaction that was carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    /// The generation that it created.
    pub(super) generation: u32,
    /// Another transaction came directly after it, and is unknown.
    pub(super) is_doubtful: bool,
}

impl Rules {
    /// Carries steps out in one transaction, on the generation that `on` returns. Returns `None` if `on`
    /// returns none.
    pub(super) fn transact(
        &mut self,
        steps: &[Change],
        on: impl Fn(&mut Self) -> Result<Option<u32>, Refused>,
    ) -> Result<Option<Made>, RulesError> {
        let mut attempts = TRANSACTION_ATTEMPTS;
        let elements = steps.iter().map(Change::elements);
        let is_large = elements.sum::<usize>() > FOLLOWED_ELEMENTS_MAX;
        let is_busy = self.follow_all_until.is_some_and(|at| Instant::now() < at);
        loop {
            let Some(generation) = on(self)? else {
                return Ok(None);
            };
            attempts -= 1;
            let is_first = attempts + 1 == TRANSACTION_ATTEMPTS;
            let (sent, is_doubtful) = match is_large && !is_busy && is_first {
                true => self.send_unfollowed(steps, generation),
                false => (self.send(steps, generation), false),
            };
            if is_doubtful {
                self.follow_all_until = Some(Instant::now() + FOLLOW_ALL_FOR);
            }
            match sent {
                Ok(()) => {
                    self.transactions += 1;
                    (self.has_record, self.needs_record) = (false, true);
                    (self.listing, self.unexplained) = (None, None);
                    self.abort();
                    return Ok(Some(Made {
                        generation: after(generation),
                        is_doubtful,
                    }));
                }
                // Another program's transaction came in between.
                Err(RulesError::Step { cause, .. }) if cause.errno == ERESTART && attempts > 0 => {
                    self.pass(generation);
                }
                Err(error) => {
                    self.is_doubtful |= is_doubtful;
                    return Err(error);
                }
            }
        }
    }

    /// Carries steps out in one transaction while the follower does not listen: the kernel needs longer
    /// to build the notification of an element than to add it. Returns also whether another
    /// transaction came directly before or after it, which is unknown then.
    fn send_unfollowed(
        &mut self,
        steps: &[Change],
        generation: u32,
    ) -> (Result<(), RulesError>, bool) {
        self.follower.leave();
        let sent = self.send(steps, generation);
        let listens = self.follower.rejoin();
        let known = match &sent {
            Ok(()) => after(generation),
            Err(_) => generation,
        };
        // A transaction after this request is followed.
        let now = self.generation();
        (sent, !listens || now != Ok(known))
    }

    /// Reads the notifications, after a transaction on this generation was rejected because there is a
    /// later one. Its notifications are in the queue; without them there is a gap.
    pub(super) fn pass(&mut self, generation: u32) {
        self.look();
        if !is_later(self.follower.generation(), generation) {
            self.is_doubtful = true;
        }
    }

    fn send(&mut self, steps: &[Change], generation: u32) -> Result<(), RulesError> {
        let mut encoding = Encoding::new(self.is_owner);
        let parts = steps.iter().map(|step| messages(step, &mut encoding));
        let removal = || record::removal().into_iter();
        let removal = || removal().map(|(message, flags)| (inet(message), flags));
        let removal = self.has_record.then(|| removal().collect::<Vec<Message>>());
        let parts = parts.chain(removal);
        let sent = nftables::transact_families(&mut self.requests, generation, parts);
        sent.map_err(|(at, cause)| {
            let step = at.and_then(|at| steps.get(at));
            let step = step.map_or_else(|| "commit".into(), describe);
            RulesError::Step { step, cause }
        })
    }
}

fn describe(step: &Change) -> String {
    match step {
        Change::AddTable => format!("make table inet {TABLE}"),
        Change::DeleteTable => format!("replace table inet {TABLE}"),
        Change::AddChain(name, _) => format!("make chain {name}"),
        Change::AddSet(name, kind) => format!("make set {name} of {kind}"),
        Change::FlushChain(name) => format!("empty chain {name}"),
        Change::AddRule(chain, rule) => {
            format!("add to chain {chain} the rule '{}'", rule_text(rule))
        }
        Change::AddElements(set, ..) => format!("add elements to {set}"),
        Change::DeleteElements(set, ..) => format!("remove elements from {set}"),
        Change::DeleteChain(name) => format!("remove chain {name}"),
        Change::DeleteSet(name) => format!("remove set {name}"),
        Change::RemoveBoot => "remove the tables of the boot".into(),
    }
}
