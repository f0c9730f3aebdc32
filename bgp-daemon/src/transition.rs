//! Computes the configuration of a speaker while the fabric around it changes: pure.
//!
//! The datastore holds the wanted configuration. The applied configuration differs from it for a while:
//! peers that are no longer wanted stay until others carry their routes ([`crate::make_before_break`]), a
//! drained reflector has no peers ([`crate::drain`]), and a reflector whose registration is missing
//! counts while its session is Established, for a bounded time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use bgp_config::Intent;
use bgp_io::Speaker;
use bgp_io::bgp_fsm::{Instant, State};
use bgp_io::bgp_proto::Notification;
use bgp_io::bgp_speaker::{Event, SpeakerConfig};
use bgp_io::rib::Progress;
use calico_bgp::{Chosen, Derived, Fleet, Placed, Wish};
use calico_model::ReflectorState;
use daemon_common::events::Event as Emitted;

use crate::drain::{Drain, FAREWELL};
use crate::limits::{ABSENCE_LOOK_EVERY, REGISTRATION_LOOK_EVERY};
use crate::make_before_break::MakeBeforeBreak;

#[cfg(test)]
mod tests;

/// The wanted configuration, and the speaker's transition to it.
#[derive(Debug, Default)]
pub struct Transition {
    wanted: Option<SpeakerConfig>,
    wish: Option<Wish>,
    /// When a reflector's registration is checked again.
    wish_at: Option<Instant>,
    make_before_break: MakeBeforeBreak,
    /// The BGPPeers by which peers were selected.
    peerings: BTreeMap<IpAddr, String>,
    drain: Drain,
}

/// The result of a look at the speaker.
#[derive(Debug)]
pub struct Look {
    /// The speaker's new configuration, if it changes.
    pub config: Option<SpeakerConfig>,
    /// The notification that ends every session before the change.
    pub farewell: Option<Notification>,
    /// Events for the log.
    pub news: Vec<Emitted>,
    /// Whether there is more to look at soon.
    pub progress: Progress,
}

impl Transition {
    /// Sets the datastore's configuration; returns the speaker's current configuration, unless the
    /// datastore has none.
    pub fn want(&mut self, now: Instant, derived: &Derived) -> Option<SpeakerConfig> {
        self.wish.clone_from(&derived.wish);
        // Also the initial registration, as for a reflector that was restarted.
        self.wish_at = self.wish.is_some().then_some(now);
        if let Some(wish) = &self.wish {
            let draining = wish.registration.state == ReflectorState::Draining;
            self.drain.want(now, draining, &derived.reflectors);
        }
        let wanted = &derived.intent.as_ref()?.speaker;
        self.make_before_break.want(now, wanted, &derived.chosen);
        self.note_peerings(&derived.chosen);
        self.wanted = Some(wanted.clone());
        self.effective()
    }

    /// Records by which BGPPeers peers were selected, also after these are deleted.
    fn note_peerings(&mut self, chosen: &Chosen) {
        let before = std::mem::take(&mut self.peerings);
        let leaving = self.make_before_break.leaving();
        let leaving = leaving.filter_map(|at| Some((at, before.get(&at)?.clone())));
        self.peerings = leaving.chain(chosen.peerings.clone()).collect();
    }

    /// Returns the speaker's first configuration.
    pub(crate) fn begin(&mut self, derived: Derived) -> Option<Intent> {
        let speaker = self.want(Instant::ZERO, &derived)?;
        let intent = derived.intent?;
        Some(Intent { speaker, ..intent })
    }

    /// Records the state changes of sessions.
    pub fn observe(&mut self, event: &Event) {
        self.make_before_break.observe(event);
    }

    /// Checks whether the speaker can come nearer to the wanted configuration.
    pub fn look(&mut self, now: Instant, speaker: &Speaker) -> Look {
        let (gone, progress) = self.make_before_break.look(now, speaker);
        let (drained, of_drain) = self.drain.look(now, speaker);
        if drained {
            self.wish_at = Some(now);
        }
        let ended = gone.iter().copied();
        let ended = ended.map(|address| Emitted::SessionHandedOver { address });
        let drain = drained.then_some(Emitted::ReflectorDrained {});
        let news = ended.chain(drain).collect();
        Look {
            config: (drained || !gone.is_empty())
                .then(|| self.effective())
                .flatten(),
            farewell: drained.then(|| Notification::administrative_shutdown(FAREWELL)),
            news,
            progress: match of_drain {
                Progress::Done => progress,
                more => more,
            },
        }
    }

    /// When to [`look`](Self::look) again.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timers = [
            self.make_before_break.poll_timeout(),
            self.drain.poll_timeout(),
        ];
        timers.into_iter().flatten().min()
    }

    /// Returns a reflector's registration, if it is due: at once when it may have changed, and at
    /// intervals, for values that depend on the speaker.
    pub fn due_wish(&mut self, now: Instant, speaker: &Speaker) -> Option<Wish> {
        self.wish_at.filter(|at| *at <= now)?;
        let wish = self.wish(speaker);
        self.wish_at = wish.is_some().then(|| now + REGISTRATION_LOOK_EVERY);
        wish
    }

    /// When to [`due_wish`](Self::due_wish) again.
    pub const fn wish_timeout(&self) -> Option<Instant> {
        self.wish_at
    }

    /// Returns a reflector's current registration.
    pub fn wish(&self, speaker: &Speaker) -> Option<Wish> {
        let mut wish = self.wish.clone()?;
        wish.registration.state = self.drain.state();
        let clients = self.drain.clients(speaker).count();
        wish.registration.clients = u32::try_from(clients).unwrap_or(u32::MAX);
        Some(wish)
    }

    /// Returns the peers that come from the fabric, with the leaving ones.
    pub fn placed(&self) -> Placed {
        let placed = self.make_before_break.placed();
        placed
            .map(|at| (at, self.peerings.get(&at).cloned()))
            .collect()
    }

    /// Returns the operator's notes.
    pub fn notes(&self, now: Instant) -> Vec<String> {
        let kept = |(address, since)| {
            let age_s = now.saturating_duration_since(since).as_secs();
            format!(
                "session with {address} is kept until others carry its routes, for {age_s} s now"
            )
        };
        let mut notes: Vec<String> = self.make_before_break.leaving_since().map(kept).collect();
        notes.extend(self.drain.note().map(str::to_owned));
        notes
    }

    fn effective(&self) -> Option<SpeakerConfig> {
        let wanted = self.wanted.clone()?;
        Some(
            self.drain
                .effective(self.make_before_break.effective(wanted)),
        )
    }
}

/// Bounds the time for which a reflector counts after its registration has disappeared.
#[derive(Debug)]
pub struct Absences {
    /// Time for which an absent reflector counts if its session is up.
    wait: Duration,
    since: BTreeMap<String, Instant>,
    look_at: Option<Instant>,
}

impl Absences {
    /// Creates an empty set; an absent reflector counts for `wait` if its session is up.
    pub const fn new(wait: Duration) -> Self {
        Self {
            wait,
            since: BTreeMap::new(),
            look_at: None,
        }
    }

    /// Checks the sessions with absent reflectors; returns whether a reflector was removed. While no
    /// reflector is registered at all, none is removed and the time does not count, because then the
    /// cause is the datastore and not the reflectors.
    pub fn look(&mut self, now: Instant, fleet: &mut Fleet, speaker: &Speaker) -> bool {
        if self.look_at.is_some_and(|at| now < at) {
            return false;
        }
        self.since
            .retain(|name, _| fleet.absent().any(|(absent, _)| absent == name));
        for (name, _) in fleet.absent() {
            self.since.entry(name.to_owned()).or_insert(now);
        }
        self.look_at = (!self.since.is_empty()).then_some(now + ABSENCE_LOOK_EVERY);
        if !fleet.is_registered() {
            self.since.values_mut().for_each(|since| *since = now);
            return false;
        }
        let lives = |name: &str, since: Instant| {
            let of = fleet.absent().filter(|(absent, _)| *absent == name);
            let mut addresses = of.flat_map(|(_, registration)| registration.addresses());
            let up = addresses.any(|address| {
                let mut peers = speaker.peers();
                let peer = peers.find(|peer| peer.config.remote == address);
                peer.is_some_and(|peer| peer.session.state() == State::Established)
            });
            up && now < since + self.wait
        };
        let since = self.since.iter();
        let gone = since.filter(|(name, since)| !lives(name, **since));
        let gone: Vec<String> = gone.map(|(name, _)| name.clone()).collect();
        let forgotten = gone.iter().filter(|name| fleet.forget(name)).count();
        forgotten > 0
    }

    /// When to [`look`](Self::look) again.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.look_at
    }
}
