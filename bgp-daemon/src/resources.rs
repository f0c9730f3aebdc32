//! What is known of the store, and what follows from it for a node: pure. Whoever follows a store without
//! this crate's loop, as the simulator does, does so in the same way.

use bgp_io::Speaker;
use bgp_io::bgp_fsm::Instant;
use calico_bgp::{Derived, Fault, Host, Secrets, View, derive_after};
use calico_store::{Change, Status, Update};

use crate::transition::{Absences, Transition};

#[cfg(test)]
mod tests;

/// What is known of the store, and what was last derived from it.
#[derive(Debug)]
pub struct Resources {
    host: Host,
    view: View,
    status: Status,
    /// Whether the view was ever a whole picture.
    has_whole: bool,
    /// Whether the view has news of a store of which not all news are known: it is a whole picture
    /// neither of then nor of now.
    is_torn: bool,
    /// Whether something is another than when it was last derived.
    changed: bool,
    /// What was last derived, but for its faults.
    derived: Option<Derived>,
    faults: Vec<Fault>,
    absences: Absences,
}

impl Resources {
    /// Nothing is known yet.
    pub fn new(host: Host) -> Self {
        Self {
            absences: Absences::new(host.absence_wait),
            host,
            view: View::default(),
            status: Status::Syncing,
            has_whole: false,
            is_torn: false,
            changed: true,
            derived: None,
            faults: Vec::new(),
        }
    }

    /// Takes note of news; returns whether they are of the status, and it is another one.
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

    /// Something beside the store is another than before, such as a password that it points to.
    pub const fn touch(&mut self) {
        self.changed = true;
    }

    /// Looks whether reflectors whose registration is gone live on. While the store is away nobody is
    /// judged.
    pub fn look(&mut self, now: Instant, speaker: &Speaker) {
        if self.status == Status::InSync {
            self.changed |= self.absences.look(now, self.view.fleet_mut(), speaker);
        }
    }

    /// When to [`look`](Self::look) again.
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.absences.poll_timeout()
    }

    /// Whether to [`derive`](Self::derive) may bring something else than before. What is not known to
    /// be a whole picture changes nothing; one that is old does, as far as it goes.
    pub const fn is_due(&self) -> bool {
        self.changed && self.has_whole && !self.is_torn
    }

    /// What is to be done, if that is something else than before.
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

    /// What was last derived, but for its faults.
    pub const fn derived(&self) -> Option<&Derived> {
        self.derived.as_ref()
    }

    /// What in the store is not done, as of when it was last derived.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// How current it is.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Whether it was ever whole.
    pub const fn has_whole(&self) -> bool {
        self.has_whole
    }

    /// Whether something is known that was not derived from yet.
    pub const fn has_changed(&self) -> bool {
        self.changed
    }

    /// What is known.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Whose it is.
    pub const fn host(&self) -> &Host {
        &self.host
    }
}
