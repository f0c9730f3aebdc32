//! Faults that tests plant between the components, to prove that the oracles find them: messages
//! and kernel requests are changed, never the code under test.

use std::fmt;

use bgp_speaker::{Event as SpeakerEvent, Speaker};
use daemon_common::events::Event;
use fib_sync::Fib;
use fib_sync::memory::MemoryFib;

/// Receives every BGP message in flight.
pub trait WireTap {
    /// Handles a whole message (with its header) from one machine to another, by their names:
    /// returns whether it is delivered, possibly changed.
    fn message(&mut self, from: &str, to: &str, message: &mut Vec<u8>) -> bool;
}

/// Wraps the kernel of a daemon; its inputs are the names of the machine and the daemon.
pub type FibWrap = Box<dyn Fn(&str, &str, MemoryFib) -> Box<dyn Fib>>;

/// Receives every speaker before it starts, with the name of its machine.
pub type SpeakerPlant = Box<dyn Fn(&str, &mut Speaker)>;

/// Receives every event of a speaker: returns whether the daemon reports it.
pub type EventPlant = fn(&SpeakerEvent) -> bool;

/// Receives every event of a kernel route: returns whether the daemon reports it.
pub type RouteEventPlant = fn(&Event) -> bool;

/// The planted faults of a world. The default has none.
#[derive(Default)]
pub struct Plants {
    /// A tap on every wire.
    pub wire: Option<Box<dyn WireTap>>,
    /// A wrapper of every kernel.
    pub fib: Option<FibWrap>,
    /// A change of every speaker.
    pub speaker: Option<SpeakerPlant>,
    /// A filter of the events of every speaker.
    pub event: Option<EventPlant>,
    /// A filter of the events of kernel routes.
    pub route_event: Option<RouteEventPlant>,
    /// Disabled oracles, so that the others can find the fault.
    pub blind: &'static [&'static str],
}

impl fmt::Debug for Plants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plants")
            .field("wire", &self.wire.is_some())
            .field("fib", &self.fib.is_some())
            .field("speaker", &self.speaker.is_some())
            .field("event", &self.event.is_some())
            .field("route_event", &self.route_event.is_some())
            .field("blind", &self.blind)
            .finish()
    }
}
