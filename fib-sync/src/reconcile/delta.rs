//! One key: what is wanted there, what is believed to be there, and the step from one to the other.

use crate::owner::Owner;
use crate::port::{Command, OpError, PutMode};
use crate::route::{Route, RouteKey};
use instant::Instant;

/// What is believed about our own route at a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing is known: only a dump can tell.
    Unknown,
    /// None is there.
    #[default]
    Absent,
    /// It is what is wanted (not stored twice).
    AsWanted,
    /// It is there, but not as wanted, or not wanted.
    Other(Route),
}

/// Why the last write did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) cause: Cause,
    pub(super) attempts: u32,
    pub(super) retry_at: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Refused(OpError),
    /// A foreign route holds the key.
    Conflict,
}

/// A write under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) op: Op,
    /// The route sent, if it is no longer the one wanted.
    pub(super) sent: Option<Route>,
    /// Somebody else changed the key meanwhile, before or after us: the outcome tells nothing.
    pub(super) disturbed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Put(PutMode),
    Delete,
}

/// Everything known about a key.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub(super) want: Option<Route>,
    pub(super) found: Found,
    /// Owner of a foreign route at this very key.
    pub(super) foreign: Option<Owner>,
    /// We wanted it once and then no more: it goes without grace.
    pub(super) released: bool,
    pub(super) flight: Option<Box<Flight>>,
    pub(super) fault: Option<Box<Fault>>,
    /// Round of dumps that last saw our route here.
    pub(super) round: u32,
    /// Round of dumps that last saw a foreign route here.
    pub(super) foreign_round: u32,
}

/// The metrics that there have been routes at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Metrics {
    /// There has been no route.
    #[default]
    None,
    /// All routes have had this one: no prefix has several routes.
    One(u32),
    /// There have been several.
    Several,
}

impl Metrics {
    pub(super) fn note(&mut self, metric: u32) {
        *self = match *self {
            Self::None => Self::One(metric),
            Self::One(only) if only == metric => Self::One(only),
            Self::One(_) | Self::Several => Self::Several,
        };
    }
}

/// What is wanted at other metrics of a key's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nothing.
    Nothing,
    /// A route that is still to be written.
    Coming,
    /// A route that is there.
    There,
}

/// The next step for a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing to do, now or by itself.
    Rest,
    /// Nothing wanted and nothing there: forget the key.
    Forget,
    /// A foreign route is known to be in the way: name it and wait.
    Conflict,
    /// Send this.
    Write(Op),
}

impl Entry {
    /// Notes what is there, and forgets the difference if there is none.
    pub(super) fn observe(&mut self, key: &RouteKey, route: Option<Route>) {
        self.found = match (route, &self.want) {
            (None, _) => Found::Absent,
            (Some(route), Some(want)) if want.satisfied_by(key, &route) => Found::AsWanted,
            (Some(route), _) => Found::Other(route),
        };
    }

    /// Wants another route, or none; what was there as wanted stays there.
    pub(super) fn wish(&mut self, key: &RouteKey, want: Option<Route>) {
        if self.want == want {
            return;
        }
        let before = core::mem::replace(&mut self.want, want);
        if let Some(flight) = self.flight.as_deref_mut()
            && flight.sent.is_none()
            && matches!(flight.op, Op::Put(_))
        {
            flight.sent.clone_from(&before);
        }
        match core::mem::take(&mut self.found) {
            Found::AsWanted => self.observe(key, before),
            Found::Other(route) => self.observe(key, Some(route)),
            other => self.found = other,
        }
    }

    /// The route of ours believed to be there.
    pub(super) fn present(&self) -> Option<&Route> {
        match &self.found {
            Found::AsWanted => self.want.as_ref(),
            Found::Other(route) => Some(route),
            Found::Unknown | Found::Absent => None,
        }
    }

    /// Whether what is wanted is there, and not about to go by a deletion of before.
    pub(super) fn is_there(&self) -> bool {
        let flight = self.flight.as_deref();
        let goes = flight.is_some_and(|flight| flight.op == Op::Delete);
        self.want.is_some() && self.found == Found::AsWanted && !goes
    }

    /// Whether a route is wanted that was not written yet, nor refused.
    pub(super) fn is_coming(&self) -> bool {
        self.want.is_some() && !self.is_there() && self.fault.is_none()
    }

    /// What to do next. `due`: the time of a fault is up. `grace`: strays are still kept, unless
    /// what takes their place is there.
    pub(super) fn step(&self, due: bool, grace: bool, beside: Beside) -> Step {
        if self.flight.is_some() || (self.fault.is_some() && !due) {
            return Step::Rest;
        }
        match (&self.want, &self.found) {
            (_, Found::Unknown) | (Some(_), Found::AsWanted) => Step::Rest,
            (None, Found::Absent) => Step::Forget,
            // Another metric is another route to the kernel: the new one is there before the old
            // one goes.
            (None, _) if beside == Beside::Coming => Step::Rest,
            (None, _) if grace && !self.released && beside == Beside::Nothing => Step::Rest,
            (None, _) => Step::Write(Op::Delete),
            (Some(_), Found::Absent) if self.foreign.is_some() && !due => Step::Conflict,
            (Some(_), Found::Absent) => Step::Write(Op::Put(PutMode::Create)),
            // A replace would take whichever of the two routes comes first.
            (Some(_), Found::Other(_)) if self.foreign.is_some() => Step::Write(Op::Delete),
            (Some(_), Found::Other(_)) => Step::Write(Op::Put(PutMode::Replace)),
        }
    }

    /// The command that does `op`.
    pub(super) fn command(&self, key: RouteKey, op: Op, owner: Owner) -> Option<Command> {
        match op {
            Op::Delete => Some(Command::Delete(key, owner)),
            Op::Put(mode) => Some(Command::Put(key, self.want.clone()?, mode)),
        }
    }

    /// Whether nothing is left to do: what is wanted is there, what is not is not.
    pub(super) fn is_settled(&self) -> bool {
        self.flight.is_none()
            && self.fault.is_none()
            && matches!(
                (&self.want, &self.found),
                (Some(_), Found::AsWanted) | (None, Found::Absent)
            )
    }
}
