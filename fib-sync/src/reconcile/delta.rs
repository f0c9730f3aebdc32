//! The state of one key: the wanted route, the route believed to be in the kernel, and the step
//! from one to the other.

use super::nexthops::Nexthops;
use super::notice::DeleteCause;
use crate::error::OpError;
use crate::owner::Owner;
use crate::port::{Command, PutMode};
use crate::route::{Route, RouteKey};
use instant::Instant;

/// The own route believed to be at a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Found {
    /// Unknown; only a dump can resolve it.
    Unknown,
    /// No own route exists.
    #[default]
    Absent,
    /// The wanted route exists (not stored twice).
    AsWanted,
    /// An own route exists that differs from the wanted one, or none is wanted.
    Other(Route),
}

/// Why the last write failed.
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

/// A write in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) op: Op,
    /// The route sent, if it is no longer the one wanted.
    pub(super) sent: Option<Route>,
    /// Another program changed the key before or after the write: the outcome proves nothing.
    pub(super) disturbed: bool,
    /// Why it deletes, if it does.
    pub(super) cause: Option<DeleteCause>,
    /// The nexthop object that the sent route uses.
    pub(super) nexthop: Option<u32>,
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
    /// The nexthop object of a route that is found as wanted.
    pub(super) nexthop: Option<u32>,
    /// Owner of a foreign route at the same key.
    pub(super) foreign: Option<Owner>,
    /// The route was wanted earlier and is no longer: it is deleted without the grace period.
    pub(super) released: bool,
    pub(super) flight: Option<Box<Flight>>,
    pub(super) fault: Option<Box<Fault>>,
    /// Round of dumps that last saw the own route here.
    pub(super) round: u32,
    /// Round of dumps that last saw a foreign route here.
    pub(super) foreign_round: u32,
}

/// The metrics at which there have been routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Metrics {
    /// There has been no route.
    #[default]
    None,
    /// All routes have had this metric: no prefix has several routes.
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

/// Wanted routes at other metrics of a key's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nothing.
    Nothing,
    /// A route that is not yet written.
    Coming,
    /// A route that is in the kernel.
    There,
}

/// The next step for a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing to do until an event arrives or a time is reached.
    Rest,
    /// No route wanted and none in the kernel: forget the key.
    Forget,
    /// A foreign route holds the key: report it and wait.
    Conflict,
    /// Send this.
    Write(Op),
}

impl Entry {
    /// Records the route in the kernel, and clears the difference if there is none.
    pub(super) fn observe(&mut self, key: &RouteKey, route: Option<Route>) {
        self.nexthop = route.as_ref().and_then(|route| route.nexthop);
        self.found = match (route, &self.want) {
            (None, _) => Found::Absent,
            (Some(route), Some(want)) if want.satisfied_by(key, &route) => Found::AsWanted,
            (Some(route), _) => Found::Other(route),
        };
    }

    /// Sets the wanted route, or none; a route that was in the kernel as wanted is recorded as
    /// such, with the present next hops of its nexthop object.
    pub(super) fn wish(&mut self, key: &RouteKey, want: Option<Route>, nexthops: &Nexthops) {
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
            Found::AsWanted => {
                let before = before.map(|before| self.installed(before, nexthops));
                self.observe(key, before);
            }
            Found::Other(route) => self.observe(key, Some(route)),
            other => self.found = other,
        }
    }

    /// Returns the kernel's form of a route that was written over the entry's nexthop object.
    pub(super) fn installed(&self, route: Route, nexthops: &Nexthops) -> Route {
        let mut route = Route {
            nexthop: self.nexthop,
            ..route
        };
        nexthops.resolve(&mut route);
        route
    }

    /// Returns the own route believed to be in the kernel.
    pub(super) fn present(&self) -> Option<&Route> {
        match &self.found {
            Found::AsWanted => self.want.as_ref(),
            Found::Other(route) => Some(route),
            Found::Unknown | Found::Absent => None,
        }
    }

    /// Returns whether the wanted route is in the kernel and no deletion of it is in flight.
    pub(super) fn is_there(&self) -> bool {
        let flight = self.flight.as_deref();
        let goes = flight.is_some_and(|flight| flight.op == Op::Delete);
        self.want.is_some() && self.found == Found::AsWanted && !goes
    }

    /// Returns whether a route is wanted that was neither written nor refused.
    pub(super) fn is_coming(&self) -> bool {
        self.want.is_some() && !self.is_there() && self.fault.is_none()
    }

    /// Returns the next step. `due`: the retry time of a fault has come. `grace`: strays are still
    /// kept, unless their replacement is in the kernel.
    pub(super) fn step(&self, due: bool, grace: bool, beside: Beside) -> Step {
        if self.flight.is_some() || (self.fault.is_some() && !due) {
            return Step::Rest;
        }
        match (&self.want, &self.found) {
            (_, Found::Unknown) | (Some(_), Found::AsWanted) => Step::Rest,
            (None, Found::Absent) => Step::Forget,
            // Another metric is another route to the kernel: the new one is added before the old
            // one is removed.
            (None, _) if beside == Beside::Coming => Step::Rest,
            (None, _) if grace && !self.released && beside == Beside::Nothing => Step::Rest,
            (None, _) => Step::Write(Op::Delete),
            (Some(_), Found::Absent) if self.foreign.is_some() && !due => Step::Conflict,
            (Some(_), Found::Absent) => Step::Write(Op::Put(PutMode::Create)),
            // A replace would replace whichever of the two routes comes first.
            (Some(_), Found::Other(_)) if self.foreign.is_some() => Step::Write(Op::Delete),
            (Some(_), Found::Other(_)) => Step::Write(Op::Put(PutMode::Replace)),
        }
    }

    /// Returns why the route would be deleted now.
    pub(super) const fn delete_cause(&self) -> DeleteCause {
        match (&self.want, self.released) {
            (Some(_), _) => DeleteCause::Rewrite,
            (None, true) => DeleteCause::Withdrawn,
            (None, false) => DeleteCause::Stray,
        }
    }

    /// Returns the command that performs `op`.
    pub(super) fn command(
        &self,
        key: RouteKey,
        op: Op,
        owner: Owner,
        nexthop: Option<u32>,
    ) -> Option<Command> {
        match op {
            Op::Delete => Some(Command::Delete(key, owner)),
            Op::Put(mode) => {
                let route = self.want.clone()?;
                Some(Command::Put(key, Route { nexthop, ..route }, mode))
            }
        }
    }

    /// Returns whether nothing is left to do: the wanted route is in the kernel, an unwanted one is
    /// not.
    pub(super) fn is_settled(&self) -> bool {
        self.flight.is_none()
            && self.fault.is_none()
            && matches!(
                (&self.want, &self.found),
                (Some(_), Found::AsWanted) | (None, Found::Absent)
            )
    }
}
