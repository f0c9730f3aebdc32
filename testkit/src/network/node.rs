//! The programs of a network.

use bgp_speaker::bgp_fsm::Instant;
use bgp_speaker::{Event, Input, Output, Speaker, SpeakerConfig};

/// A program around a speaker, which a network drives.
///
/// [`Host`] is only a speaker. A daemon's core implements this trait itself, so that the network
/// runs it as its driver would.
pub trait Node {
    /// Returns the speaker; `None` if the program has none at the moment.
    fn speaker(&self) -> Option<&Speaker>;

    /// Returns the speaker to change it; `None` if the program has none at the moment.
    fn speaker_mut(&mut self) -> Option<&mut Speaker>;

    /// Takes an output that is not about a connection: an event, or a request to track a next hop.
    fn output(&mut self, _output: Output) {}

    /// Returns when the program next needs the clock: the time of its speaker, unless it has timers
    /// of its own.
    fn poll_timeout(&self) -> Option<Instant> {
        self.speaker()?.poll_timeout()
    }

    /// Processes what is due.
    fn handle_timeout(&mut self, now: Instant) {
        if let Some(speaker) = self.speaker_mut()
            && speaker.poll_timeout().is_some_and(|at| at <= now)
        {
            speaker.handle(now, Input::Timeout);
        }
    }
}

/// A speaker, and the events that it has reported.
#[derive(Debug)]
#[non_exhaustive]
pub struct Host {
    /// The speaker.
    pub speaker: Speaker,
    /// Its events, oldest first.
    pub events: Vec<Event>,
}

impl Host {
    /// Returns a speaker that has not been started. [`Network::start`](super::Network::start) does
    /// both.
    #[must_use]
    pub fn new(config: SpeakerConfig, seed: u64) -> Self {
        Self {
            speaker: Speaker::new(config, seed),
            events: Vec::new(),
        }
    }
}

impl Node for Host {
    fn speaker(&self) -> Option<&Speaker> {
        Some(&self.speaker)
    }

    fn speaker_mut(&mut self) -> Option<&mut Speaker> {
        Some(&mut self.speaker)
    }

    fn output(&mut self, output: Output) {
        if let Output::Event(event) = output {
            self.events.push(event);
        }
    }
}
