//! Faults that tests plant between the components, to prove that the oracles find them: messages
//! and kernel requests are changed, never the code under test.

use std::fmt;
use std::rc::Rc;

use bfd_client::SessionState;
use bgp_speaker::{Event as SpeakerEvent, Speaker, SpeakerConfig};
use cambric_felix::render::Change;
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

/// Receives every configuration of a speaker, with the name of its machine.
pub type ConfigPlant = fn(&str, &mut SpeakerConfig);

/// Receives every state of a session of BFD, and whether it is the first one of the neighbor since the start
/// of the BGP daemon: returns whether the daemon receives it, possibly changed.
pub type PathPlant = fn(bool, &mut SessionState) -> bool;

/// Receives every event of a speaker: returns whether the daemon reports it.
pub type EventPlant = fn(&SpeakerEvent) -> bool;

/// Receives every event of a kernel route: returns whether the daemon reports it.
pub type RouteEventPlant = fn(&Event) -> bool;

/// Receives the steps of every transaction of a packet filter, with the name of its machine, and may
/// change them.
pub type RulesPlant = Rc<dyn Fn(&str, &mut Vec<Change>)>;

/// Receives every change of the datastore for a Felix, with the name of its machine, the key and the
/// value: returns whether it is delivered.
pub type UpdatePlant = Rc<dyn Fn(&str, &str, Option<&[u8]>) -> bool>;

/// How hosts compare their packet filter with the one that was written or recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Comparison {
    /// Exactly.
    #[default]
    Exact,
    /// Not at all: the table of an earlier run is as recorded.
    Trusting,
    /// Not at all: every table has been changed.
    Doubting,
}

/// The planted faults of a world. The default has none.
#[derive(Default)]
pub struct Plants {
    /// A tap on every wire.
    pub wire: Option<Box<dyn WireTap>>,
    /// A wrapper of every kernel.
    pub fib: Option<FibWrap>,
    /// A change of every speaker.
    pub speaker: Option<SpeakerPlant>,
    /// A change of the configuration of every speaker.
    pub config: Option<ConfigPlant>,
    /// A change of the states of the sessions of BFD.
    pub path: Option<PathPlant>,
    /// Whether a killed process of BFD leaves no state.
    pub bfd_forgets: bool,
    /// Whether the sessions of BFD end with the BGP daemon.
    pub bfd_ends_with_client: bool,
    /// A filter of the events of every speaker.
    pub event: Option<EventPlant>,
    /// A filter of the events of kernel routes.
    pub route_event: Option<RouteEventPlant>,
    /// A change of every transaction of a packet filter.
    pub rules: Option<RulesPlant>,
    /// A filter of the changes that Felix receives.
    pub update: Option<UpdatePlant>,
    /// The comparison of packet filters.
    pub comparison: Comparison,
    /// Disabled oracles, so that the others can find the fault.
    pub blind: &'static [&'static str],
}

impl fmt::Debug for Plants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plants")
            .field("wire", &self.wire.is_some())
            .field("fib", &self.fib.is_some())
            .field("speaker", &self.speaker.is_some())
            .field("config", &self.config.is_some())
            .field("path", &self.path.is_some())
            .field("bfd_forgets", &self.bfd_forgets)
            .field("bfd_ends_with_client", &self.bfd_ends_with_client)
            .field("event", &self.event.is_some())
            .field("route_event", &self.route_event.is_some())
            .field("rules", &self.rules.is_some())
            .field("update", &self.update.is_some())
            .field("comparison", &self.comparison)
            .field("blind", &self.blind)
            .finish()
    }
}
