//! The datastore as a driver: it configures the speaker by the mirrored resources, keeps sessions
//! until their successors have the routes, and registers a reflector.

use std::net::IpAddr;

use bgp_config::Intent;
use bgp_io::bgp_fsm::Instant;
use bgp_io::rib::Progress;
use bgp_io::{Event, Speaker};
use calico_bgp::Derived;
use calico_model::DrainReport;
use calico_store::Update;
use daemon_common::events::emit;
use daemon_common::report::Status;

use crate::source::Source;
use crate::transition::{Look, Transition};
use crate::{Driver, DriverError, Order, Round, Settings, startup};

/// The datastore, and the speaker's transition to its configuration.
#[derive(Debug)]
pub(crate) struct Store {
    source: Source,
    transition: Transition,
    /// The result of [`Driver::wait`].
    news: Option<Vec<Update>>,
}

impl Store {
    /// Creates the driver of a datastore that is watched, with the speaker's first configuration.
    pub(crate) const fn new(source: Source, transition: Transition) -> Self {
        Self {
            source,
            transition,
            news: None,
        }
    }

    /// Returns the datastore's configuration, if it has changed.
    fn derive(&mut self, now: Instant, speaker: &Speaker) -> Option<Derived> {
        let news = self.news.take();
        let derived = news.and_then(|updates| self.source.take(updates, &self.transition));
        derived.or_else(|| self.source.look(now, speaker, &self.transition))
    }

    /// Applies the datastore's configuration to the speaker, as far as possible at once.
    fn pursue(&mut self, round: &mut Round<'_>, derived: Derived) {
        let config = self.transition.want(round.now, &derived);
        let (Some(intent), Some(speaker)) = (derived.intent, config) else {
            return; // A deleted node is left unchanged.
        };
        let intent = Intent { speaker, ..intent };
        round.order(Order::Adopt(Box::new(intent), Box::new(derived.duties)));
    }

    /// Brings the speaker nearer to the datastore's configuration.
    fn advance(&mut self, round: &mut Round<'_>) {
        if self
            .transition
            .poll_timeout()
            .is_none_or(|at| round.now < at)
        {
            return;
        }
        let Look {
            config,
            farewell,
            news,
            progress,
        } = self.transition.look(round.now, round.io.speaker());
        if progress != Progress::Done {
            round.more();
        }
        news.into_iter().for_each(emit);
        if let Some(why) = &farewell {
            round.io.speaker_mut().stop_all(round.now, why);
        }
        if let Some(speaker) = config {
            round.order(Order::Reconfigure(Box::new(speaker)));
        }
    }

    /// Registers a reflector, or changes of it. Clients connect to a reflector as soon as it is
    /// registered, so it listens first.
    fn register(&mut self, round: &Round<'_>) {
        if let Some(wish) = self.transition.due_wish(round.now, round.io.speaker())
            && round.io.listening().next().is_some()
        {
            self.source.register(wish);
        }
    }
}

impl<S: Settings> Driver<S> for Store {
    async fn wait(&mut self) {
        if self.news.is_none() {
            self.news = Some(self.source.next().await);
        }
    }

    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        match self.derive(round.now, round.io.speaker()) {
            // The next round examines the speaker with its new configuration.
            Some(derived) => {
                self.pursue(round, derived);
                round.more();
            }
            None => {
                self.advance(round);
                self.register(round);
            }
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let timers = [
            self.transition.wish_timeout(),
            self.transition.poll_timeout(),
            self.source.poll_timeout(),
        ];
        timers.into_iter().flatten().min()
    }

    fn observe(&mut self, _: Instant, _: &Speaker, event: &Event) {
        if let Event::Speaker(event) = event {
            self.transition.observe(event);
        }
    }

    fn drained(&mut self, report: Option<&DrainReport>) {
        self.source.report_drain(report.cloned());
    }

    fn source(&self) -> Option<String> {
        Some(format!("the store ({})", self.source.figures()))
    }

    fn revision(&self) -> Option<u64> {
        self.source.revision()
    }

    fn origin(&self, address: Option<IpAddr>) -> Option<String> {
        Some(match address {
            Some(address) => self.source.origin(address),
            None => "the nodes of the store".to_owned(),
        })
    }

    fn notes(&self, now: Instant) -> Vec<String> {
        let mut notes: Vec<String> = self.source.notes().collect();
        notes.extend(self.transition.notes(now));
        notes
    }

    fn report(&self, status: &mut Status) {
        status.waiting_for.extend(self.source.waiting());
        status.facts.push(startup::fact(&self.source));
        status.store = Some(self.source.figures().into());
    }
}
