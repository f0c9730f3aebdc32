//! Faults planted between the parts, to prove that the oracles find them: what passes is changed,
//! never the product.

use std::fmt;

use bgp_speaker::Speaker;
use fib_sync::Fib;
use fib_sync::memory::MemoryFib;

/// Sees every BGP message on its way.
pub trait WireTap {
    /// What becomes of a whole message (header and all) from one machine to another, by their
    /// names: it passes as it is left, or not at all.
    fn message(&mut self, from: &str, to: &str, message: &mut Vec<u8>) -> bool;
}

/// Stands between a daemon and its kernel; is told the machine's name and the daemon's.
pub type FibWrap = Box<dyn Fn(&str, &str, MemoryFib) -> Box<dyn Fib>>;

/// Is handed every speaker before it starts, with the name of its machine.
pub type SpeakerPlant = Box<dyn Fn(&str, &mut Speaker)>;

/// What is planted in a world. The default is nothing.
#[derive(Default)]
pub struct Plants {
    /// On every wire.
    pub wire: Option<Box<dyn WireTap>>,
    /// Before every kernel.
    pub fib: Option<FibWrap>,
    /// Beside every speaker.
    pub speaker: Option<SpeakerPlant>,
    /// Oracles that look away, so that the others can show what they find.
    pub blind: &'static [&'static str],
}

impl fmt::Debug for Plants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plants")
            .field("wire", &self.wire.is_some())
            .field("fib", &self.fib.is_some())
            .field("speaker", &self.speaker.is_some())
            .field("blind", &self.blind)
            .finish()
    }
}
