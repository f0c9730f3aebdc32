//! The loop between an agent and its host, with a fault at one request.

use std::time::Duration;

use cambric_felix::agent::{Agent, AgentConfig, Failed, HostCommand, HostEvent};
use cambric_felix::apply::LinuxHost;
use fib_sync::netlink::{NetlinkConfig, NetlinkFib};
use fib_sync::{Command, Event, Fib, Instant, OpError, TABLE_MAIN};
use tokio::runtime::Runtime;

use crate::readback::{Stored, common};
use crate::world::host::PATIENCE;

/// The protocol of routes and neighbors of Felix.
const PROTOCOL: u8 = 80;
/// The time in which further events of the kernel are read before virtual time passes. No result depends
/// on it.
const EVENTS: Duration = Duration::from_millis(1);
/// The longest step of virtual time.
const STEP_MAX: Duration = Duration::from_secs(5);
/// `ENOBUFS`, `EBUSY`, `EPERM`.
const ERRORS: [(i32, &str); 3] = [
    (105, "no buffer space available"),
    (16, "device or resource busy"),
    (1, "operation not permitted"),
];

/// A fault at one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The agent ends before it.
    Killed,
    /// It is answered with an error, and not carried out.
    Refused,
    /// It is answered with an error, but carried out.
    Unanswered,
}

impl Fault {
    pub(super) const ALL: [Self; 3] = [Self::Killed, Self::Refused, Self::Unanswered];
}

/// An agent with its host. Without it the kernel keeps its state, as after the end of a process.
pub(super) struct Run {
    agent: Agent,
    host: LinuxHost,
    fib: NetlinkFib,
    now: Instant,
    /// The requests since the fault was set.
    requests: usize,
    fault: Option<(Fault, usize)>,
    /// Commands about routes without an answer.
    awaited: usize,
    /// The command of which the answer is an error.
    spoiled: Option<Command>,
    is_killed: bool,
}

impl Run {
    /// Starts an agent with the content of a datastore.
    pub(super) fn new(runtime: &Runtime, store: &Stored, fault: Option<(Fault, usize)>) -> Self {
        let now = Instant(0);
        let fib = runtime
            .block_on(async { NetlinkFib::open(NetlinkConfig::new(vec![TABLE_MAIN])).unwrap() });
        let mut agent = Agent::new(now, AgentConfig::new(common::NODE));
        for (key, value) in store {
            agent.change(key, Some(value.to_string().as_bytes()));
        }
        agent.store_in_sync();
        Self {
            agent,
            host: LinuxHost::open(PROTOCOL).unwrap(),
            fib,
            now,
            requests: 0,
            fault,
            awaited: 0,
            spoiled: None,
            is_killed: false,
        }
    }

    /// Changes the datastore, and sets a fault.
    pub(super) fn change(&mut self, old: &Stored, new: &Stored, fault: Option<(Fault, usize)>) {
        (self.requests, self.fault) = (0, fault);
        for key in old.keys().filter(|key| !new.contains_key(*key)) {
            self.agent.change(key, None);
        }
        for (key, value) in new {
            if old.get(key) != Some(value) {
                let octets = value.to_string();
                self.agent.change(key, Some(octets.as_bytes()));
            }
        }
    }

    pub(super) const fn requests(&self) -> usize {
        self.requests
    }

    /// Runs until the agent waits for nothing.
    pub(super) fn until_quiet(&mut self, runtime: &Runtime) {
        self.until(runtime, "a start without a fault", || None);
    }

    /// Runs until the agent is killed, or waits for nothing. Returns whether it is killed.
    pub(super) fn until_killed(&mut self, runtime: &Runtime) -> bool {
        self.until(runtime, "until the end of the agent", || None);
        self.is_killed
    }

    /// Runs until the agent waits for nothing and no difference is returned, or it is killed.
    pub(super) fn until(
        &mut self,
        runtime: &Runtime,
        at: &str,
        mut difference: impl FnMut() -> Option<String>,
    ) {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let is_busy = self.turn(runtime);
            if self.is_killed {
                return;
            }
            let mut left = None;
            if !is_busy && self.awaited == 0 {
                if self.is_quiet() {
                    left = difference();
                    if left.is_none() {
                        return;
                    }
                }
                self.pass();
            }
            assert!(
                std::time::Instant::now() < deadline,
                "{at}: {:?}\n{:?}\n{}",
                self.agent.waiting_for(),
                self.agent
                    .endpoints()
                    .map(|view| (view.state, view.reason))
                    .collect::<Vec<_>>(),
                left.unwrap_or_default(),
            );
        }
    }

    fn is_quiet(&self) -> bool {
        let mut endpoints = self.agent.endpoints();
        self.agent.waiting_for().is_empty() && endpoints.all(|view| view.reason.is_none())
    }

    /// Advances the time to the next deadline.
    fn pass(&mut self) {
        let deadlines = [self.agent.poll_timeout(), self.host.poll_timeout()];
        let next = deadlines.into_iter().flatten().min();
        let least = self.now + Duration::from_millis(1);
        let next = next.unwrap_or(least).max(least);
        self.now = next.min(self.now + STEP_MAX);
    }

    /// Returns the fault of the next request.
    fn next(&mut self) -> Option<Fault> {
        self.requests += 1;
        let (fault, at) = self.fault?;
        (self.requests == at).then_some(fault)
    }

    fn error(&self) -> (i32, &'static str) {
        ERRORS[self.requests % ERRORS.len()]
    }

    /// Performs one turn as the daemon does. Returns whether anything happened.
    fn turn(&mut self, runtime: &Runtime) -> bool {
        if self.host.follow() {
            self.agent.rules_changed(self.now);
        }
        let mut is_busy = self.answers(None);
        self.agent.turn(self.now);
        while let Some((number, command)) = self.agent.poll_host_command() {
            is_busy = true;
            match self.next() {
                Some(Fault::Killed) => {
                    self.is_killed = true;
                    return true;
                }
                Some(fault) if !is_late(&command) => {
                    let refused = refused(&command, self.error().1);
                    if fault == Fault::Unanswered {
                        self.host.submit(number, command);
                        self.answers(Some((number, refused)));
                    } else {
                        self.agent.handle_host(self.now, number, refused);
                    }
                }
                _ => self.host.submit(number, command),
            }
            self.answers(None);
        }
        while let Some(command) = self.agent.poll_command(self.now) {
            is_busy = true;
            match self.next() {
                Some(Fault::Killed) => {
                    self.is_killed = true;
                    return true;
                }
                Some(Fault::Refused) => {
                    for event in failed(&command, self.error().0) {
                        self.agent.handle(self.now, &event);
                    }
                    continue;
                }
                Some(Fault::Unanswered) => self.spoiled = Some(command.clone()),
                None => {}
            }
            self.awaited += 1;
            self.fib.submit(command);
        }
        self.host.go_on(self.now);
        self.events(runtime) || is_busy
    }

    /// Handles the answers of the host; `instead` is one of them with another content.
    fn answers(&mut self, mut instead: Option<(u64, HostEvent)>) -> bool {
        let mut has_answers = false;
        while let Some((number, event)) = self.host.poll_event() {
            let other = instead.take_if(|(of, _)| *of == number);
            let event = other.map_or(event, |(_, event)| event);
            self.agent.handle_host(self.now, number, event);
            has_answers = true;
        }
        assert_eq!(instead, None, "the host has not answered");
        has_answers
    }

    /// Handles the events of the kernel: all answers, and the notifications before them.
    fn events(&mut self, runtime: &Runtime) -> bool {
        let mut has_events = false;
        loop {
            let limit = if self.awaited > 0 { PATIENCE } else { EVENTS };
            let fib = &mut self.fib;
            let event = runtime.block_on(async { tokio::time::timeout(limit, fib.event()).await });
            let Ok(event) = event else {
                assert_eq!(self.awaited, 0, "no answer about a route");
                return has_events;
            };
            has_events = true;
            let event = self.spoil(event);
            if matches!(event, Event::Applied(..) | Event::DumpDone { .. }) {
                self.awaited -= 1;
            }
            self.agent.handle(self.now, &event);
        }
    }

    /// Returns an error in place of the answer to the spoiled command.
    fn spoil(&mut self, event: Event) -> Event {
        match (&event, &self.spoiled) {
            (Event::Applied(of, _), Some(Command::Put(key, ..) | Command::Delete(key, _)))
                if of == key =>
            {
                self.spoiled = None;
                Event::Applied(*of, Err(OpError::new(self.error().0)))
            }
            (Event::DumpDone { table, owner, .. }, Some(Command::Dump { .. })) => {
                let (table, owner) = (*table, *owner);
                self.spoiled = None;
                let complete = false;
                Event::DumpDone {
                    table,
                    owner,
                    complete,
                }
            }
            _ => event,
        }
    }
}

/// Returns whether a command is answered later, without its number.
const fn is_late(command: &HostCommand) -> bool {
    matches!(
        command,
        HostCommand::Forget(_)
            | HostCommand::ListConnections { .. }
            | HostCommand::CutConnections { .. }
    )
}

/// Returns the answer that reports an error.
fn refused(command: &HostCommand, reason: &str) -> HostEvent {
    let failed = || Failed(reason.to_owned());
    match command.clone() {
        HostCommand::FindRules => HostEvent::RulesFound(Err(failed())),
        HostCommand::WriteRules(_) => HostEvent::RulesWritten(Err(failed())),
        HostCommand::CheckRules => HostEvent::RulesChecked(Err(failed())),
        HostCommand::ConfigureHost(_) => HostEvent::HostConfigured(Err(failed())),
        HostCommand::ConfigureInterface { link, .. } => {
            HostEvent::InterfaceConfigured(link.index, Err(failed()))
        }
        HostCommand::LimitBandwidth { interface, .. } => {
            HostEvent::BandwidthLimited(interface, Err(failed()))
        }
        HostCommand::ListNeighbors => HostEvent::NeighborsListed(Err(failed())),
        HostCommand::PutNeighbor(one) => HostEvent::NeighborPut(one, Err(failed())),
        HostCommand::DeleteNeighbor(one) => HostEvent::NeighborDeleted(one, Err(failed())),
        HostCommand::ConfigureTunnel(device) => {
            HostEvent::TunnelConfigured(device.name, Err(failed()))
        }
        HostCommand::RemoveTunnel { name, .. } => HostEvent::TunnelRemoved(name, Err(failed())),
        HostCommand::ListTunnelEntries(index) => {
            HostEvent::TunnelEntriesListed(index, Err(failed()))
        }
        HostCommand::PutTunnelEntry(entry) => HostEvent::TunnelEntryPut(entry, Err(failed())),
        HostCommand::DeleteTunnelEntry(entry) => {
            HostEvent::TunnelEntryDeleted(entry, Err(failed()))
        }
        HostCommand::Offload(_) => HostEvent::Offloaded(Err(failed()), false),
        HostCommand::ConfigureIpip(_) => HostEvent::IpipConfigured(Err(failed())),
        HostCommand::ReleaseIpip(_) => HostEvent::IpipReleased(Err(failed())),
        late @ (HostCommand::ListConnections { .. }
        | HostCommand::CutConnections { .. }
        | HostCommand::Forget(_)) => panic!("{late:?} is answered later"),
    }
}

/// Returns the events of a request about routes that fails.
fn failed(command: &Command, number: i32) -> Vec<Event> {
    match command {
        Command::Dump { table, owner } => {
            let (table, owner) = (*table, *owner);
            let complete = false;
            vec![
                Event::DumpStart { table, owner },
                Event::DumpDone {
                    table,
                    owner,
                    complete,
                },
            ]
        }
        Command::Put(key, ..) | Command::Delete(key, _) => {
            vec![Event::Applied(*key, Err(OpError::new(number)))]
        }
        Command::Nexthop(_) => panic!("Felix has no nexthop objects"),
    }
}
