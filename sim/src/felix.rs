//! Felix of one node: its agent between a simulated datastore, kernel and host.

use std::time::Duration;

use calico_store::{Change, Status, Update};
use cambric_felix::agent::{Agent, Waiting};
use fib_sync::memory::Attachment;
use fib_sync::{Fib, Instant};

use crate::agenda::Event;
use crate::host::SimHost;
use crate::limits::{TURN_ROUNDS, UPDATES_MAX};
use crate::machine::poll_kernel;
use crate::plants::UpdatePlant;
use crate::store::Follower;
use crate::views::Received;
use crate::world::Cx;

/// The running agent.
pub(crate) struct Felix {
    pub(crate) agent: Agent,
    pub(crate) follower: Follower,
    pub(crate) fib: Box<dyn Fib>,
    pub(crate) attachment: Attachment,
    /// The content of the datastore that the agent has received; `None` without policies.
    pub(crate) received: Option<Received>,
    /// A filter of the changes, with the name of the machine.
    pub(crate) update_plant: Option<(String, UpdatePlant)>,
}

impl Felix {
    /// Performs the pending work, as the daemon does after each wakeup.
    pub(crate) fn turn(&mut self, cx: &mut Cx<'_>, host: &mut SimHost) {
        let now = Instant(cx.now);
        for event in poll_kernel(&mut *self.fib, cx.chance) {
            cx.saw_kernel(&event);
            self.agent.handle(now, &event);
        }
        host.filter.settle(cx.now);
        if host.filter.take_notice() {
            self.agent.rules_changed(now);
        }
        for (command, event) in host.poll(cx.now) {
            self.agent.handle_host(now, command, event);
        }
        for _ in 0..TURN_ROUNDS {
            let busy = self.follow(cx, host);
            self.agent.turn(now);
            while let Some((number, command)) = self.agent.poll_host_command() {
                host.submit(number, command);
            }
            while let Some(command) = self.agent.poll_command(now) {
                self.fib.submit(command);
            }
            if !busy {
                break;
            }
        }
        if let Some(received) = &self.received {
            let waits = |what: &Waiting| {
                use Waiting::{Rules, Store, Withdrawal};
                matches!(what, Rules(_) | Store | Withdrawal(_))
            };
            if !self.agent.waiting_for().iter().any(waits) {
                received.written(&mut host.views);
            }
        }
    }

    /// Returns when the next turn is due without an event.
    pub(crate) fn timeout(&self, now: u64, host: &SimHost) -> Option<u64> {
        let mirror = self.follower.mirror.poll_timeout(Duration::from_nanos(now));
        let mirror = mirror.map(crate::time::nanos);
        let agent = self.agent.poll_timeout().map(|at| at.0);
        let host = self.received.as_ref().and_then(|_| host.filter.timeout());
        mirror.into_iter().chain(agent).chain(host).min()
    }

    /// Returns the notes of the agent, for a report.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let down = self.agent.endpoints().filter_map(|view| {
            let reason = view.reason.as_deref()?;
            Some(format!("endpoint {}: {reason}", view.id))
        });
        let waiting = self
            .agent
            .waiting_for()
            .into_iter()
            .map(|what| format!("waits: {what:?}"));
        waiting.chain(down).collect()
    }

    fn follow(&mut self, cx: &mut Cx<'_>, host: &mut SimHost) -> bool {
        let now = Duration::from_nanos(cx.now);
        let mirror = &mut self.follower.mirror;
        if mirror.poll_timeout(now).is_some_and(|at| at <= now) {
            mirror.handle_timeout(now);
        }
        for question in self.follower.questions() {
            let at = cx.now + cx.net.delay(cx.chance);
            cx.agenda.push(at, Event::Ask(question));
        }
        let updates = self.follower.mirror.take(now, UPDATES_MAX);
        let busy = !updates.is_empty();
        for update in updates {
            match update {
                Update::Change(Change::Put(item)) => {
                    let key = String::from_utf8_lossy(&item.key);
                    self.change(&key, Some(&item.value));
                }
                Update::Change(Change::Delete(key)) => {
                    self.change(&String::from_utf8_lossy(&key), None);
                }
                Update::Status(status) => self.status(status, host),
            }
        }
        if let Some(received) = &mut self.received {
            received.offer(&mut host.views);
        }
        busy
    }

    fn change(&mut self, key: &str, value: Option<&[u8]>) {
        if let Some(received) = &mut self.received {
            received.change(key, value);
        }
        let plant = self.update_plant.as_ref();
        if plant.is_none_or(|(name, passes)| passes(name, key, value)) {
            self.agent.change(key, value);
        }
    }

    fn status(&mut self, status: Status, host: &mut SimHost) {
        if let Some(received) = &mut self.received {
            received.status(status, &mut host.views);
        }
        match status {
            Status::InSync => self.agent.store_in_sync(),
            Status::Snapshot { .. } => self.agent.store_restored(),
            Status::Syncing | Status::Lost => self.agent.store_unread(),
            Status::Unready(why) => self.agent.store_unready(why),
        }
    }
}
