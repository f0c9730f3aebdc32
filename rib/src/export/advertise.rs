//! The output for the members of a group in one step: for the members at the shared cursor, or for
//! private members, which have just been established or could not keep pace.
//!
//! Members at the same cursor may use the same output, even at different times: the output from one
//! cursor to the next remains valid for any other member that is at the first and continues from
//! the second.
//!
//! Private members always receive the current state, which may be newer than the group's last
//! output. If it is, the group's entry is marked stale; when the group reaches the slot, all
//! members receive its whole state. So a member may continue at the shared cursor
//! whenever it has read the log to its end.

use core::ops::ControlFlow;

use super::group::{AdjRibOut, Held, Withdrawals};
use super::meter::{Meter, nlri_octets};
use super::paths::Choice;
use super::rules::{GroupRules, SendPaths};
use super::runs::Runs;
use super::sent::{Repeat, Word};
use super::visit::{View, Visit};
use crate::peer::PeerId;
use crate::table::Key;

/// One step of a reader.
#[derive(Debug)]
pub(super) struct Step<'b> {
    pub(super) rules: &'b GroupRules,
    pub(super) held: &'b mut AdjRibOut,
    /// Whether it is a step of private members.
    pub(super) by_themselves: bool,
    /// Whether a route is sent back to its source ([`GroupRules::echoes`]).
    pub(super) echoes: bool,
    pub(super) runs: &'b mut Runs,
    pub(super) withdrawals: &'b mut Withdrawals,
    pub(super) meter: Meter<'b>,
}

impl Step<'_> {
    /// Returns the number of announcements of a visit, and whether the step continues.
    pub(super) const fn count(&self, announcements: u32) -> ControlFlow<u32, u32> {
        match self.meter.is_full() {
            false => ControlFlow::Continue(announcements),
            true => ControlFlow::Break(announcements),
        }
    }

    /// Advertises the route of a slot, or withdraws the one that members may hold. Returns the
    /// number of announcements.
    pub(super) fn route<K: Key>(&mut self, view: &mut View<'_, K>, visit: Visit) -> u32 {
        let Visit { at, fresh, .. } = visit;
        if !self.may_read(visit) {
            return 0;
        }
        let slot = view.prefixes.slot(at);
        let held = match self.by_themselves {
            false => self.held.take_held(at),
            true => {
                let version = slot.version();
                if self.held.cursor().is_ahead(at, version) {
                    self.held.mark_stale(at);
                }
                match fresh || version == 0 {
                    true => Held::Nothing,
                    false => Held::Unknown,
                }
            }
        };
        let path = slot.best_path();
        let new = path.and_then(|path| {
            let place = (view.prefixes.net(at), view.prefixes.interface(at, path));
            let row = view.prefixes.row();
            let attributes = (self.runs).admit(view.shared, self.rules, row, path, place)?;
            Some((attributes, path.peer()))
        });
        let nlri = nlri_octets(view.prefixes.net(at));
        match (new, held) {
            (Some((attributes, source)), held) => {
                if self.runs.push(attributes, source, at) {
                    let run = (attributes, source);
                    self.meter.turn(&view.shared.interner, run);
                }
                self.meter.announce(nlri);
                let source = self.excluded::<K>(source);
                // The source held another peer's route until now, or may have.
                let holds = held != Held::Nothing && held != Held::From(source);
                if holds && view.shared.role(source) == self.rules.role {
                    self.withdrawals.push_only(source, at);
                    self.meter.withdraw(nlri);
                }
            }
            (None, Held::Unknown) => {
                self.withdrawals.push(None, at, 0);
                self.meter.withdraw(nlri);
            }
            (None, Held::From(source)) => {
                self.withdrawals.push(Some(source), at, 0);
                self.meter.withdraw(nlri);
            }
            (None, Held::Nothing) => return 0,
        }
        if !self.by_themselves {
            let source = new.map(|(_, source)| self.excluded::<K>(source));
            self.held.set_source(at, source);
        }
        1
    }

    /// Returns the member that is not sent the route of this source: the source, unless routes are
    /// sent back to it.
    fn excluded<K: Key>(&self, source: PeerId) -> PeerId {
        match K::IS_OPAQUE && self.echoes {
            true => PeerId::LOCAL,
            false => source,
        }
    }

    /// Updates the members to the selected paths of a slot at this version. Returns the number of
    /// announcements.
    pub(super) fn paths<K: Key>(
        &mut self,
        view: &mut View<'_, K>,
        visit: Visit,
        (send, version): (SendPaths, u64),
        choice: &mut Choice,
    ) -> u32 {
        let Visit { at, fresh, .. } = visit;
        if !self.may_read(visit) {
            return 0;
        }
        let place = (at, version);
        let chosen = choice.choose(view, (self.rules, send), self.held.sent(), place, self.runs);
        let before = self.runs.len();
        let Self {
            held,
            runs,
            withdrawals,
            meter,
            ..
        } = self;
        let nlri = nlri_octets(view.prefixes.net(at));
        let interner = &view.shared.interner;
        let mut each = |word: Word<'_>| match word {
            Word::Reach(path, id) => {
                if runs.push_path(path, at, id) {
                    meter.turn(interner, (path.stamp.id(), path.source));
                }
                meter.announce(nlri);
            }
            Word::Unreach(source, id) if !fresh => {
                withdrawals.push(Some(source), at, id);
                meter.withdraw(nlri);
            }
            Word::Unreach(..) => {}
        };
        if self.by_themselves {
            let sent = held.sent_mut();
            if sent.is_some_and(|sent| sent.update_member(place, chosen, &mut each)) {
                held.mark_stale(at);
            }
        } else {
            let repeat = Repeat {
                all: held.take_stale_at(at, version),
                reach: view.prefixes.keeps_wire(),
            };
            if let Some(sent) = held.sent_mut() {
                sent.update_group(place, chosen, repeat, &mut each);
            }
        }
        self.runs.len() - before
    }

    /// Returns whether a slot may be read. If not, the group reaches it again after the decision,
    /// and private members, too.
    fn may_read(&mut self, visit: Visit) -> bool {
        if !visit.is_readable && self.by_themselves {
            self.held.mark_stale(visit.at);
        }
        visit.is_readable
    }
}
