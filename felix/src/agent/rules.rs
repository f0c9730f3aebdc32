//! The packet filter: transactions towards the wanted ruleset, one at a time.

use std::collections::BTreeSet;
use std::time::Duration;

use daemon_common::events::{Event, Text, emit};
use fib_sync::Instant;
use tracing::warn;

use super::host::{Checked, Failed, HostCommand, HostEvent, Orders};
use super::retry::Retry;
use super::trust::{Filter, InEffect};
use crate::limits::{
    FOREIGN_CHECK_GAP, INHERITED_CHECK, PREPARATIONS_OF_RANGES_MAX, PREPARATIONS_PER_WRITE_MAX,
    PREPARED_AT_ONCE, RULES_CHECK,
};
use crate::render::{
    Change, Frame, Key, RuleInputs, Ruleset, Touched, changes, creation, preparation, prepare,
    render, reshapes,
};

#[cfg(test)]
mod tests;

/// The end of time.
const NEVER: Instant = Instant(u64::MAX);

/// The packet filter of the host, and its missing parts.
#[derive(Debug)]
pub(super) struct RuleSync {
    in_effect: InEffect,
    /// The table after all commands are carried out; `None` if unknown, in which case the next
    /// transaction replaces the table.
    held: Option<Ruleset>,
    /// Wanted changes that are in no command yet.
    unwritten: Touched,
    /// The pending command.
    work: Option<(u64, Work)>,
    written: Retry,
    /// Preparing transactions since the last full write.
    preparations: u32,
    /// Maximum size of one of them.
    at_once: usize,
    /// Interval of comparisons of the table with the written one; `None`: only if another program has
    /// changed it.
    check_every: Option<Duration>,
    /// Time of the next comparison.
    check_at: Instant,
    /// Earliest time of a comparison that another program's change causes.
    hurry_not_before: Instant,
    /// Comparisons of the table.
    compared: Retry,
    foreign_edits: u64,
    /// Transactions after which packets meet other rules.
    commits: u64,
    /// Transactions that the kernel rejected.
    failures: u64,
    closings: Closings,
    inherited: Inherited,
    /// Interfaces with routes that wait for their rules.
    waiting: BTreeSet<String>,
    /// The tables of the boot are removed: the first complete filter is written.
    boot_is_over: bool,
}

/// Replacements of the filter of an earlier run by the one that drops all workload traffic.
#[derive(Debug, Default)]
pub(crate) struct Closings {
    /// Number of replacements that were carried out.
    pub(crate) done: u64,
    /// Why the last one was, or is to be, carried out.
    pub(crate) reason: &'static str,
    is_due: bool,
}

/// Which changes of the filter of an earlier run are detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inherited {
    /// None: it was not listed yet.
    Unlisted,
    /// Changes after it was listed: it has no record.
    Watched,
    /// All: it was listed, and its record is of the same listing.
    Unchanged,
}

#[derive(Debug)]
enum Work {
    /// Check for an earlier run's filter.
    Find,
    /// Compare an earlier run's filter with its record, or with its first listing by this run.
    CheckInherited,
    /// Write the filter that drops all workload traffic.
    Close,
    /// Write a part that no packet reaches before the rest is written.
    Prepare,
    /// Write the touched parts.
    Write(Touched),
    /// Replace the whole table by the wanted ruleset, which includes the touched parts.
    Replace(Touched),
    /// Compare the table with the written one.
    Check,
    /// Replace the table by the written one.
    Heal(Checked),
}

impl RuleSync {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            in_effect: InEffect::Unknown,
            held: None,
            unwritten: Touched::default(),
            work: None,
            written: Retry::default(),
            preparations: 0,
            at_once: PREPARED_AT_ONCE,
            check_every: Some(RULES_CHECK),
            check_at: now + RULES_CHECK,
            hurry_not_before: now,
            compared: Retry::default(),
            foreign_edits: 0,
            commits: 0,
            failures: 0,
            closings: Closings::default(),
            inherited: Inherited::Unlisted,
            waiting: BTreeSet::new(),
            boot_is_over: false,
        }
    }

    /// Records that parts of the wanted rules have changed.
    pub(super) fn touch(&mut self, touched: Touched) {
        self.unwritten.merge(touched);
    }

    /// Records that an interface has a route that waits for its rules.
    pub(super) fn wait(&mut self, interface: &str) {
        self.waiting.insert(interface.to_owned());
    }

    /// Records that the settings of the host have changed: if the filter that drops all workload
    /// traffic is in effect, it is written again.
    pub(super) fn reconfigure(&mut self) {
        let before = self.in_effect;
        self.take(Filter::Reconfigured);
        if before != self.in_effect {
            self.written = Retry::default();
        }
    }

    /// Requests a comparison of the table with the written one, or with the first listing of the
    /// table of an earlier run, if it is due.
    pub(super) fn check(&mut self, now: Instant, orders: &mut Orders) {
        if self.check_at <= now && self.work.is_none() {
            self.check_at = self.next_check(now);
            self.hurry_not_before = now + FOREIGN_CHECK_GAP;
            let work = match self.is_inherited() {
                true => Work::CheckInherited,
                false => Work::Check,
            };
            self.work = Some((orders.push(HostCommand::CheckRules), work));
        }
    }

    /// Sets the interval of comparisons.
    pub(super) fn check_every(&mut self, now: Instant, interval: Option<Duration>) {
        if self.check_every != interval {
            self.check_every = interval;
            self.check_at = match self.is_inherited() {
                true => self.check_at,
                false => self.next_check(now),
            };
        }
    }

    /// Returns when the next comparison is due.
    fn next_check(&self, now: Instant) -> Instant {
        self.check_every.map_or(NEVER, |interval| now + interval)
    }

    /// Makes a comparison due soon, because another program has changed the table.
    pub(super) fn hurry(&mut self, now: Instant) {
        let at = self.hurry_not_before.max(now);
        self.check_at = self.check_at.min(at);
    }

    /// Protects the workloads before any endpoint is known: if an earlier run left no rules, all
    /// workload traffic is dropped; if it did, they stay in effect. `closed` is called for the
    /// former.
    pub(super) fn guard(
        &mut self,
        now: Instant,
        closed: impl FnOnce() -> Ruleset,
        orders: &mut Orders,
    ) {
        // After a refused repair it is unknown whether the closed table still exists.
        let is_lost = self.in_effect == InEffect::Closed && self.held.is_none();
        let is_needed = is_lost || !self.in_effect.guards();
        if !is_needed || self.work.is_some() || !self.written.is_due(now) {
            return;
        }
        let command = match self.in_effect {
            InEffect::Unknown => {
                let command = orders.push(HostCommand::FindRules);
                self.work = Some((command, Work::Find));
                command
            }
            _ => {
                // Offloaded packets would pass beside the closed filter.
                orders.push(HostCommand::Offload(BTreeSet::new()));
                let closed = closed();
                let command = orders.push(HostCommand::WriteRules(creation(&closed)));
                self.held = Some(closed);
                self.work = Some((command, Work::Close));
                command
            }
        };
        self.written.order(command);
    }

    /// Issues the next transaction of the wanted rules. Elements of `withheld` may not be written
    /// yet.
    pub(super) fn write(
        &mut self,
        now: Instant,
        wanted: &Ruleset,
        withheld: Vec<(&'static str, Key)>,
        orders: &mut Orders,
    ) {
        if self.work.is_some() {
            return;
        }
        let later = self.unwritten.withhold(withheld);
        if self.unwritten.is_more_than(&later) {
            self.written.again();
        }
        if self.written.is_due(now) {
            let (mut steps, work) = self.next(wanted, &later);
            // In the same transaction: between the two, some filter closes the workloads.
            let is_complete = !matches!(work, Work::Prepare);
            steps.extend((is_complete && !self.boot_is_over).then_some(Change::RemoveBoot));
            if steps.is_empty() {
                self.done(now, work);
            } else {
                let command = orders.push(HostCommand::WriteRules(steps));
                self.written.order(command);
                self.work = Some((command, work));
            }
        }
        self.unwritten.merge(later);
    }

    /// Returns the steps of the next transaction, and assumes that they will be carried out.
    fn next(&mut self, wanted: &Ruleset, later: &Touched) -> (Vec<Change>, Work) {
        if let Some(steps) = self.next_prepared(wanted) {
            return (steps, Work::Prepare);
        }
        // A reshaped table is replaced as a whole, also without the withheld elements.
        let held = self.held.as_mut();
        let Some(held) = held.filter(|held| !reshapes(held, wanted, &self.unwritten)) else {
            let mut whole = wanted.clone();
            for (name, keys) in &later.sets {
                if let Some(set) = whole.sets.get_mut(name) {
                    set.elements.retain(|key, _| !keys.contains(key));
                }
            }
            let steps = creation(&whole);
            self.held = Some(whole);
            return (steps, Work::Replace(std::mem::take(&mut self.unwritten)));
        };
        let touched = std::mem::take(&mut self.unwritten);
        let steps = changes(held, wanted, &touched);
        held.follow(wanted, &touched, later);
        (steps, Work::Write(touched))
    }

    /// Returns the steps of the next preparing transaction, if there is one. A continuously changing
    /// datastore must not delay denying rules: after the maximum of such transactions, only new sets of
    /// ranges are prepared, all at once, because a rule must not be written with them. If there are still
    /// new ones after that, the whole table is replaced.
    fn next_prepared(&mut self, wanted: &Ruleset) -> Option<Vec<Change>> {
        let held = self.held.as_mut()?;
        let differences = &mut self.unwritten;
        let count = self.preparations;
        let limit = match count < PREPARATIONS_PER_WRITE_MAX {
            true => self.at_once,
            false => usize::MAX,
        };
        if count < PREPARATIONS_PER_WRITE_MAX + PREPARATIONS_OF_RANGES_MAX {
            return prepare(held, wanted, differences, limit);
        }
        if preparation(held, wanted, differences, limit).is_some() {
            self.held = None;
        }
        None
    }

    /// Handles an answer, if it is the awaited one. Returns interfaces that waited for their rules,
    /// whatever the outcome.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        command: u64,
        event: HostEvent,
        orders: &mut Orders,
    ) -> BTreeSet<String> {
        let Some((_, work)) = self.work.take_if(|(awaited, _)| *awaited == command) else {
            return BTreeSet::new();
        };
        let ends = matches!(work, Work::Write(_) | Work::Replace(_));
        let mistaken = || Failed("the answer is one to another command".into());
        match (work, event) {
            (Work::Find, HostEvent::RulesFound(found)) => self.found(now, found),
            (Work::CheckInherited, HostEvent::RulesChecked(checked)) => {
                self.inherited_checked(now, checked);
            }
            (Work::Check, HostEvent::RulesChecked(checked)) => self.checked(now, checked, orders),
            (work @ (Work::Find | Work::CheckInherited | Work::Check), _) => {
                self.failed(now, work, mistaken())
            }
            (work, HostEvent::RulesWritten(Ok(()))) => self.done(now, work),
            (work, HostEvent::RulesWritten(Err(reason))) => self.failed(now, work, reason),
            (work, _) => self.failed(now, work, mistaken()),
        }
        match ends {
            true => std::mem::take(&mut self.waiting),
            false => BTreeSet::new(),
        }
    }

    fn found(&mut self, now: Instant, found: Result<bool, Failed>) {
        match found {
            Ok(found) => {
                self.take(if found { Filter::Found } else { Filter::Absent });
                self.written.note::<Failed>(now, Ok(()));
                match found {
                    true => self.check_at = now + INHERITED_CHECK,
                    false => self.written.again(),
                }
            }
            Err(reason) => self.failed(now, Work::Find, reason),
        }
    }

    /// Handles whether another program has changed the filter of an earlier run, or removed it. Then
    /// a filter of this run is written at once.
    fn inherited_checked(&mut self, now: Instant, checked: Result<Checked, Failed>) {
        match checked {
            Ok(found @ (Checked::Intact | Checked::Unrecorded)) => {
                self.compared.note::<Failed>(now, Ok(()));
                if self.inherited == Inherited::Unlisted {
                    self.inherited = match found {
                        Checked::Intact => Inherited::Unchanged,
                        _ => Inherited::Watched,
                    };
                }
            }
            Ok(Checked::Doubtful) => {
                let reason = "another program changed nftables rules during the listing";
                self.failed(now, Work::CheckInherited, Failed(reason.into()));
            }
            Ok(Checked::Changed) if self.inherited == Inherited::Unlisted => {
                self.close(now, "the inherited table differs from its record");
            }
            Ok(Checked::Changed) => self.close(now, "another program changed the inherited table"),
            Ok(Checked::Nothing) => self.close(now, "another program removed the inherited table"),
            Err(reason) => self.failed(now, Work::CheckInherited, reason),
        }
    }

    /// Replaces the filter of an earlier run by the one that drops all workload traffic.
    fn close(&mut self, now: Instant, reason: &'static str) {
        self.compared.note::<Failed>(now, Ok(()));
        (self.closings.reason, self.closings.is_due) = (reason, true);
        self.take(Filter::Absent);
        self.held = None;
        self.written.doubt();
    }

    fn checked(&mut self, now: Instant, checked: Result<Checked, Failed>, orders: &mut Orders) {
        let found = match checked {
            Ok(found) => found,
            Err(reason) => return self.failed(now, Work::Check, reason),
        };
        self.compared.note::<Failed>(now, Ok(()));
        if let (Checked::Changed | Checked::Doubtful, Some(held)) = (found, &self.held) {
            let command = orders.push(HostCommand::WriteRules(creation(held)));
            self.work = Some((command, Work::Heal(found)));
        }
    }

    /// Records that a transaction was carried out.
    fn done(&mut self, now: Instant, work: Work) {
        match work {
            Work::Find | Work::CheckInherited | Work::Check => {}
            Work::Close => {
                self.take(Filter::ClosedWritten);
                self.written.note::<Failed>(now, Ok(()));
                self.closings.done += u64::from(std::mem::take(&mut self.closings.is_due));
            }
            Work::Prepare => {
                self.preparations += 1;
                self.written.doubt();
            }
            Work::Write(_) | Work::Replace(_) => {
                self.take(Filter::WantedWritten);
                self.commits += 1;
                self.boot_is_over = true;
                // The table that another program has changed was replaced before it was closed.
                self.foreign_edits += u64::from(std::mem::take(&mut self.closings.is_due));
                self.preparations = 0;
                self.check_at = self.next_check(now);
                self.written.note::<Failed>(now, Ok(()));
            }
            Work::Heal(Checked::Changed) => {
                self.foreign_edits += 1;
            }
            Work::Heal(_) => {
                emit(Event::RulesRewritten {});
            }
        }
    }

    /// Records that a transaction was rejected. Nothing of it was carried out.
    fn failed(&mut self, now: Instant, work: Work, reason: Failed) {
        if !matches!(work, Work::Find | Work::CheckInherited | Work::Check) {
            self.held = None;
            self.failures += 1;
        }
        match work {
            // The table differs from the assumed one: it is replaced at once.
            Work::Prepare => {
                self.foreign_edits += 1;
                self.written.doubt();
            }
            Work::Write(touched) => {
                self.foreign_edits += 1;
                self.unwritten.merge(touched);
                self.written.doubt();
            }
            Work::Replace(touched) => {
                self.preparations = 0;
                self.unwritten.merge(touched);
                self.written.note(now, Err(reason));
            }
            Work::CheckInherited | Work::Check => {
                if let Some(reason) = self.compared.note(now, Err(reason)) {
                    let reason = Text::new(reason);
                    emit(Event::RulesCheckFailed { reason });
                }
                let again = self.compared.timeout();
                self.check_at = again.map_or(self.check_at, |again| again.min(self.check_at));
            }
            Work::Find | Work::Close | Work::Heal(_) => {
                self.written.note(now, Err(reason));
            }
        }
    }

    fn take(&mut self, filter: Filter) {
        match self.in_effect.after(filter) {
            Some(next) => self.in_effect = next,
            None => warn!(state = ?self.in_effect, event = ?filter, "illegal transition refused"),
        }
    }

    /// Returns whether some filter protects the workloads.
    pub(super) const fn guards(&self) -> bool {
        self.in_effect.guards()
    }

    /// Returns whether the filter of an earlier run is in effect.
    pub(super) const fn is_inherited(&self) -> bool {
        matches!(self.in_effect, InEffect::Inherited)
    }

    /// Returns the filter in effect, for operators.
    pub(super) const fn in_effect(&self) -> &'static str {
        match self.in_effect {
            InEffect::Unknown => "unknown",
            InEffect::Nothing => "none",
            InEffect::Closed => "drops all workload traffic",
            InEffect::Inherited => match self.inherited {
                Inherited::Unlisted => "of an earlier run",
                Inherited::Watched => "of an earlier run, and watched",
                Inherited::Unchanged => "of an earlier run, unchanged, and watched",
            },
            InEffect::Own => "of this run",
        }
    }

    /// Returns whether an element of the wanted rules is in effect, or not wanted.
    pub(super) fn has(&self, set: &str, key: &Key) -> bool {
        let under_way = match &self.work {
            Some((_, Work::Write(touched) | Work::Replace(touched))) => Some(touched),
            _ => None,
        };
        let lacks = |touched: &Touched| touched.has_element(set, key);
        !lacks(&self.unwritten) && !under_way.is_some_and(lacks)
    }

    /// Returns whether the whole wanted filter is in effect.
    pub(super) fn in_sync(&self) -> bool {
        let writes = matches!(
            self.work,
            Some((_, Work::Prepare | Work::Write(_) | Work::Replace(_)))
        );
        self.unwritten.is_empty() && !writes && self.written.is_done()
    }

    /// Returns whether a part was prepared and more is to follow after the daemon's other work.
    pub(super) const fn is_preparing(&self) -> bool {
        self.preparations > 0
    }

    /// Returns why the filter in effect is not the wanted one.
    pub(super) fn problem(&self) -> Option<&str> {
        self.written.reason()
    }

    /// Returns whether the problem is permanent.
    pub(super) const fn is_refused(&self) -> bool {
        self.written.is_lasting()
    }

    /// Returns why the table cannot be compared with the written one.
    pub(super) fn comparison_problem(&self) -> Option<&str> {
        self.compared.reason()
    }

    /// Returns how often the filter of an earlier run was closed, and why.
    pub(super) const fn closings(&self) -> &Closings {
        &self.closings
    }

    /// Returns the filter as this run has written it, or is writing it.
    pub(super) const fn assumed(&self) -> Option<&Ruleset> {
        self.held.as_ref()
    }

    /// Returns the filter as the kernel has it; `None` if unknown, also while a command is pending.
    pub(super) fn held(&self) -> Option<&Ruleset> {
        self.held.as_ref().filter(|_| self.work.is_none())
    }

    /// Returns the number of transactions that the kernel rejected.
    pub(super) const fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns the number of transactions after which packets meet other rules.
    pub(super) const fn commits(&self) -> u64 {
        self.commits
    }

    /// Returns the number of reverted changes by other programs.
    pub(super) const fn foreign_edits(&self) -> u64 {
        self.foreign_edits
    }

    /// Returns when the next action is due without an event.
    pub(super) fn timeout(&self) -> Option<Instant> {
        let at = self.written.timeout().unwrap_or(self.check_at);
        let at = self.work.is_none().then(|| at.min(self.check_at));
        at.filter(|at| *at < NEVER)
    }
}

/// Returns the filter that drops all traffic of workloads. It does not filter tunnels to the host:
/// no node is known yet, and the path to the datastore may be a tunnel.
pub(super) fn closed(interface_prefixes: Vec<String>) -> Ruleset {
    render(&RuleInputs {
        frame: Frame {
            interface_prefixes,
            ..Frame::default()
        },
        ..RuleInputs::default()
    })
}
