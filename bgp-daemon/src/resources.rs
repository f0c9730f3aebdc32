//! The known content of the datastore, and the node's configuration that follows from it: pure. The
//! simulator, which does not run this crate's loop, uses it in the same way.

use bgp_io::Speaker;
use bgp_io::bgp_fsm::Instant;
use calico_bgp::{Derived, Fault, Host, Secrets, View, derive_after};
use calico_store::{Change, Status, Update};

use crate::transition::{Absences, Transition};

#[cfg(test)]
mod tests;

/// The known content of the datastore, and the last derived configuration.
#[derive(Debug)]
pub struct Resources {
    host: Host,
    view: View,
    status: Status,
    /// Whether the view was ever complete.
    has_whole: bool,
    /// Whether the view has only a part of the changes of a datastore: it is complete neither
    /// before nor after them.
    is_torn: bool,
    /// Whether anything has changed since the last derivation.
    changed: bool,
    /// The last derived configuration, without its faults.
    derived: Option<Derived>,
    faults: Vec<Fault>,
    absences: Absences,
}

impl Resources {
    /// Creates an empty view.
    pub fn new(host: Host) -> Self {
        Self {
            absences: Absences::new(host.absence_wait),
            view: View::of(&host.name),
            host,
            status: Status::Syncing,
            has_whole: false,
            is_torn: false,
            changed: true,
            derived: None,
            faults: Vec::new(),
        }
    }

    /// Processes an update; returns whether it changes the status.
    pub fn take(&mut self, update: Update) -> bool {
        let changed = match update {
            Update::Change(Change::Put(item)) => self.view.take(&item.key, Some(&item.value)),
            Update::Change(Change::Delete(key)) => self.view.take(&key, None),
            Update::Status(status) => return self.turn(status),
        };
        self.changed |= changed;
        let is_picture = matches!(self.status, Status::InSync | Status::Snapshot { .. });
        self.is_torn |= changed && !is_picture;
        false
    }

    fn turn(&mut self, status: Status) -> bool {
        if matches!(status, Status::InSync | Status::Snapshot { .. }) {
            self.has_whole = true;
            self.is_torn = false;
        }
        std::mem::replace(&mut self.status, status) != status
    }

    /// Marks a change outside the datastore, such as of a password that resources refer to.
    pub const fn touch(&mut self) {
        self.changed = true;
    }

    /// Checks whether reflectors without a registration still run. While the datastore is
    /// unreachable no reflector is checked.
    pub fn look(&mut self, now: Instant, speaker: &Speaker) {
        if self.status == Status::InSync {
            self.changed |= self.absences.look(now, self.view.fleet_mut(), speaker);
        }
    }

    /// Returns when to [`look`](Self::look) again.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.absences.poll_timeout()
    }

    /// Returns whether [`derive`](Self::derive) may have another result than before. An incomplete
    /// view changes nothing; an outdated complete one does, as far as it goes.
    pub const fn is_due(&self) -> bool {
        self.changed && self.has_whole && !self.is_torn
    }

    /// Returns the configuration to apply, if it has changed.
    pub fn derive(&mut self, passwords: &Secrets, transition: &Transition) -> Option<Derived> {
        if !self.is_due() {
            return None;
        }
        self.changed = false;
        let mut derived = derive_after(&self.view, &self.host, passwords, &transition.placed());
        self.faults = std::mem::take(&mut derived.faults);
        if self.derived.as_ref() == Some(&derived) {
            return None;
        }
        self.derived = Some(derived.clone());
        Some(derived)
    }

    /// Returns the last derived configuration, without its faults.
    pub const fn derived(&self) -> Option<&Derived> {
        self.derived.as_ref()
    }

    /// Returns the faults of the resources at the last derivation.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Returns how current the view is.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Returns whether the view was ever complete.
    pub const fn has_whole(&self) -> bool {
        self.has_whole
    }

    /// Returns whether the view has changes that were not derived from yet.
    pub const fn has_changed(&self) -> bool {
        self.changed
    }

    /// Returns the known content.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Returns the node whose configuration is derived.
    pub const fn host(&self) -> &Host {
        &self.host
    }
}
