//! The flow log of the daemon: its sockets, its table, and its answers.

use std::fs;
use std::future::pending;

use daemon_common::command::FlowQuery;
use daemon_common::events::{Event, Text, emit};
use daemon_common::report::{FlowFigures, Flows};
use fib_sync::Instant;

use super::answer;
use super::entry::Waiting;
use super::socket::{Received, Sockets};
use super::table::Table;
use super::unsent::Unsent;
use crate::calc::Calculator;
use crate::clock::Clock;
use crate::limits::{
    FLOW_LOG_RETRY, FLOW_NAMES_GAP, FLOW_READ_GAP, FLOW_TIME_PER_ANSWER, FLOW_TIME_PER_TURN,
};
use crate::render::PacketLog;

/// Settings of the kernel that counts of allowed flows need, each with the problem without it.
const COUNTING: [(&str, &str); 2] = [
    (
        "nf_conntrack_acct",
        "the kernel does not count packets of connections (net.netfilter.nf_conntrack_acct)",
    ),
    (
        "nf_conntrack_events",
        "the kernel does not report the ends of connections (net.netfilter.nf_conntrack_events)",
    ),
];

/// The flow log.
#[derive(Debug)]
pub(crate) struct FlowLog {
    /// The wanted packet log, while the flow log is on.
    wanted: Option<PacketLog>,
    sockets: Option<Sockets>,
    /// Why it is not open.
    problem: Option<String>,
    /// When it is tried to open it.
    open_at: Option<Instant>,
    /// The earliest time of the next read.
    read_at: Instant,
    /// When waiting messages are entered.
    enter_at: Option<Instant>,
    waiting: Waiting,
    table: Table,
    /// The expected number of the next record.
    next: Option<u32>,
    counts: Counts,
    /// The packets without a record.
    unsent: Unsent,
    /// When it was opened, in milliseconds of Unix time.
    since_ms: u64,
}

/// Counts since the start of the daemon.
#[derive(Debug, Default)]
struct Counts {
    records: u64,
    lost: u64,
    overruns: u64,
    ends_overruns: u64,
    foreign: u64,
}

impl FlowLog {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            wanted: None,
            sockets: None,
            problem: None,
            open_at: None,
            read_at: now,
            enter_at: None,
            waiting: Waiting::default(),
            table: Table::default(),
            next: None,
            counts: Counts::default(),
            unsent: Unsent::default(),
            since_ms: 0,
        }
    }

    /// Opens the packet log that the settings require, or closes it. Returns it if it is open: only
    /// then rules may report to it, because a kernel without the packet log rejects such rules.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        now_ms: u64,
        wanted: Option<PacketLog>,
    ) -> Option<PacketLog> {
        let group = |log: Option<PacketLog>| log.map(|log| log.group);
        let is_other = group(wanted) != group(self.wanted);
        self.wanted = wanted;
        if is_other {
            (self.sockets, self.problem, self.next) = (None, None, None);
            self.open_at = wanted.map(|_| now);
            if wanted.is_none() {
                self.unsent.close();
                (self.waiting, self.table) = (Waiting::default(), Table::default());
                self.enter_at = None;
            }
        }
        let is_due = self.open_at.is_some_and(|at| at <= now);
        if let Some(PacketLog { group, .. }) = wanted.filter(|_| is_due) {
            match Sockets::open(group) {
                Ok(sockets) => {
                    self.unsent.open(now);
                    self.sockets = Some(sockets);
                    (self.problem, self.open_at) = (None, None);
                    self.since_ms = now_ms;
                    let group = group.into();
                    emit(Event::FlowLogOpened { group });
                }
                Err(error) => {
                    let problem = error.to_string();
                    if self.problem.as_ref() != Some(&problem) {
                        let reason = Text::new(&problem);
                        let group = group.into();
                        emit(Event::FlowLogFailed { group, reason });
                    }
                    self.problem = Some(problem);
                    self.open_at = Some(now + FLOW_LOG_RETRY);
                }
            }
        }
        wanted.filter(|_| self.sockets.is_some())
    }

    /// Enters waiting messages and reads the kernel's, if they are due, for a limited time.
    pub(crate) fn turn(
        &mut self,
        now: impl Fn() -> Instant + Copy,
        now_ms: u64,
        calculator: &Calculator,
    ) {
        let began = now();
        let until = began + FLOW_TIME_PER_TURN;
        if self.enter_at.is_some_and(|at| at <= began) {
            self.enter(now, until, calculator);
        }
        if self.read_at <= began {
            self.read(now, until, now_ms);
        }
        self.unsent.look(began);
    }

    /// Reads queued messages until a time, while they have room.
    fn read(&mut self, now: impl Fn() -> Instant, until: Instant, now_ms: u64) {
        let Some(mut sockets) = self.sockets.take() else {
            return;
        };
        let mut found = false;
        while !self.waiting.is_full() && now() < until {
            let more = sockets.read(|message| {
                found = true;
                self.take(now_ms, message);
            });
            if !more {
                break;
            }
        }
        self.sockets = Some(sockets);
        let end = now();
        let is_full = self.waiting.is_full();
        if found || is_full || end >= until {
            self.read_at = end + FLOW_READ_GAP;
        }
        if is_full {
            let soon = end + FLOW_READ_GAP;
            self.enter_at = Some(self.enter_at.map_or(soon, |at| at.min(soon)));
        } else if !self.waiting.is_empty() && self.enter_at.is_none() {
            self.enter_at = Some(end + FLOW_NAMES_GAP);
        }
    }

    fn take(&mut self, now_ms: u64, message: Received) {
        match message {
            Received::Packet(record) => {
                if let Some(sequence) = record.sequence {
                    let expected = self.next.unwrap_or(sequence);
                    self.counts.lost += u64::from(sequence.wrapping_sub(expected));
                    self.next = Some(sequence.wrapping_add(1));
                }
                self.counts.records += 1;
                self.waiting.packet(now_ms, record);
            }
            Received::Ended(ended) => self.waiting.ended(now_ms, ended),
            Received::PacketsLost => self.counts.overruns += 1,
            Received::EndsLost => self.counts.ends_overruns += 1,
        }
    }

    /// Enters waiting messages until a time. Others are entered after a gap.
    fn enter(&mut self, now: impl Fn() -> Instant + Copy, until: Instant, calculator: &Calculator) {
        let entered = self.waiting.enter(calculator, &mut self.table, now, until);
        self.counts.foreign += entered;
        let is_left = !self.waiting.is_empty();
        self.enter_at = is_left.then(|| now() + FLOW_READ_GAP);
    }

    /// Reads and enters the messages until now, for a limited time.
    fn catch_up(&mut self, now: impl Fn() -> Instant + Copy, now_ms: u64, calculator: &Calculator) {
        let until = now() + FLOW_TIME_PER_ANSWER;
        loop {
            self.read(now, until, now_ms);
            let is_full = self.waiting.is_full();
            self.enter(now, until, calculator);
            if !is_full || now() >= until {
                return;
            }
        }
    }

    /// Returns the requested rows.
    pub(crate) fn answer(
        &mut self,
        now: impl Fn() -> Instant + Copy,
        now_ms: u64,
        calculator: &Calculator,
        query: &FlowQuery,
    ) -> Flows {
        self.catch_up(now, now_ms, calculator);
        self.unsent.read(now());
        Flows {
            enabled: self.sockets.is_some(),
            problem: self.problem(),
            since_ms: self.since_ms,
            figures: self.figures(),
            ..answer::page(&self.table, query)
        }
    }

    /// Returns the table, with the messages until now.
    pub(crate) fn table(
        &mut self,
        now: impl Fn() -> Instant + Copy,
        now_ms: u64,
        calculator: &Calculator,
    ) -> &Table {
        self.catch_up(now, now_ms, calculator);
        &self.table
    }

    /// Returns whether the settings enable it.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.wanted.is_some()
    }

    /// Returns the counts.
    pub(crate) fn figures(&self) -> FlowFigures {
        FlowFigures {
            enabled: self.sockets.is_some(),
            records: self.counts.records,
            lost: self.counts.lost,
            overruns: self.counts.overruns,
            ends_overruns: self.counts.ends_overruns,
            unsent: self.unsent.packets(),
            foreign: self.counts.foreign,
            rows: self.table.rows() as u64,
            rows_removed: self.table.removed(),
        }
    }

    /// Returns why the flow log is not complete.
    pub(crate) fn problem(&self) -> Option<String> {
        match &self.problem {
            Some(problem) => Some(format!("no flow log: {problem}")),
            None if self.wanted.is_none() => None,
            None => {
                uncounted(|name| fs::read_to_string(format!("/proc/sys/net/netfilter/{name}")).ok())
            }
        }
    }

    /// Returns the time of the next action without an event.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let unsent = self.unsent.poll_timeout();
        let all = [self.open_at, self.enter_at, unsent];
        all.into_iter().flatten().min()
    }

    /// Waits until messages are queued and may be read. Must be called inside a tokio runtime.
    pub(crate) async fn has_work(&mut self, clock: Clock) {
        match &mut self.sockets {
            Some(sockets) => {
                clock.reach(Some(self.read_at)).await;
                sockets.readable().await;
            }
            None => pending().await,
        }
    }
}

/// Returns why packets of allowed flows are not counted. `read` returns the value of a setting of the
/// kernel.
fn uncounted(read: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_off = |name: &str| read(name).is_none_or(|value| value.trim() == "0");
    let off = COUNTING.iter().find(|(name, _)| is_off(name))?;
    Some(format!(
        "{}: packets and bytes of allowed flows are unknown",
        off.1
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_counts_are_reported_with_the_setting_to_change() {
        let with = |accounts: Option<&str>, events: Option<&str>| {
            let (accounts, events) = (accounts.map(str::to_owned), events.map(str::to_owned));
            uncounted(|name| match name {
                "nf_conntrack_acct" => accounts.clone(),
                _ => events.clone(),
            })
        };
        assert_eq!(with(Some("1\n"), Some("1\n")), None);
        assert_eq!(with(Some("1\n"), Some("2\n")), None);
        for (accounts, events, setting) in [
            (Some("0\n"), Some("2\n"), "nf_conntrack_acct"),
            (Some("1\n"), Some("0\n"), "nf_conntrack_events"),
            (Some("1\n"), None, "nf_conntrack_events"),
        ] {
            let problem = with(accounts, events).unwrap();
            assert!(problem.contains(setting), "{problem}");
        }
    }
}
