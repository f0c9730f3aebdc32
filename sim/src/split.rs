//! The two processes of a BGP client: each write of its routes passes as octets to the process that
//! writes them, and through its comparison.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll};

use fib_sync::memory::{Kernel, MemoryFib};
use fib_sync::nexthop::{NexthopCommand, NexthopEvent};
use fib_sync::writer::{Bounds, Gate, Writes};
use fib_sync::{Command, Event, Fib, Owner};
use kernel_events::marker;

/// The metric of workload routes, which a client never writes.
const ENDPOINT_METRIC: u32 = 256;

/// A connection to a simulated kernel by another process.
pub(crate) struct Split {
    fib: MemoryFib,
    kernel: Rc<RefCell<Kernel>>,
    gate: Gate,
    /// Writes without an answer.
    sent: VecDeque<Command>,
}

impl Split {
    pub(crate) fn new(
        fib: MemoryFib,
        kernel: &Rc<RefCell<Kernel>>,
        (owner, table): (Owner, u32),
    ) -> Self {
        let metrics = vec![0..=ENDPOINT_METRIC - 1, ENDPOINT_METRIC + 1..=u32::MAX];
        Self {
            fib,
            kernel: Rc::clone(kernel),
            gate: Gate::new(
                Bounds::new(owner, table, metrics).with_signs(marker::TABLE, marker::ANSWER_METRIC),
            ),
            sent: VecDeque::new(),
        }
    }

    /// Asserts that a write arrives as it was sent, and that it is one of the client's own routes.
    fn check(&mut self, write: &Command) {
        let mut writes = Writes::default();
        assert!(writes.push(write), "{write:?} fits into a message");
        let read = Writes::parse(&writes.into_octets());
        assert_eq!(read.as_deref(), Some(std::slice::from_ref(write)));
        if self.gate.needs_reading(write) {
            self.gate.reading();
            for (key, route) in self.kernel.borrow().routes() {
                self.gate.seen(key, route.owner());
            }
            for nexthop in self.kernel.borrow().nexthops() {
                self.gate.seen_nexthop(nexthop);
            }
        }
        // The route or the object may have changed before the client receives the event, and then the
        // kernel cancels the replace, or has no such object.
        let may_be_late = matches!(
            write,
            Command::Put(_, _, fib_sync::PutMode::Replace)
                | Command::Nexthop(NexthopCommand::Delete(_))
        );
        if let Err(error) = self.gate.admit(write) {
            assert!(may_be_late, "{write:?}: {error}");
        }
    }
}

impl Fib for Split {
    fn submit(&mut self, command: Command) {
        let reads_nexthops = command == Command::Nexthop(NexthopCommand::Dump);
        if !reads_nexthops && !matches!(command, Command::Dump { .. }) {
            self.check(&command);
            self.sent.push_back(command.clone());
        }
        self.fib.submit(command);
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        let event = self.fib.poll_event(cx);
        if let Poll::Ready(event) = &event {
            match event {
                Event::Applied(_, result) | Event::Nexthop(NexthopEvent::Applied(_, result)) => {
                    if let Some(write) = self.sent.pop_front() {
                        self.gate.applied(&write, result);
                    }
                }
                other => self.gate.observe(other),
            }
        }
        event
    }
}
