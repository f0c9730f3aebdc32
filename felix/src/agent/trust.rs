//! How far the datastore may be trusted, and which packet filter is in effect: two explicit state
//! machines. `docs/design/felix-agent.md` holds the tables; a test compares them with this code.

use calico_store::Unready;

/// The agent's knowledge of the datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// None: all workload traffic is dropped, or the filter of an earlier run stays in effect.
    Unread,
    /// A snapshot of an earlier run was read and is not applied yet.
    Restored,
    /// A snapshot is applied: endpoints are set up, nothing is removed.
    Provisional,
    /// The datastore was read in full, and its content is not applied yet.
    Read,
    /// The datastore's content is applied; each change is applied as it arrives.
    Current,
    /// The datastore is unreachable or is being read again: the applied state stays in effect.
    Interrupted,
}

/// An event of [`Knowledge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// A snapshot was read.
    Snapshot,
    /// The datastore was read in full.
    InSync,
    /// From now on changes may be partial.
    Partial,
    /// Everything read is applied.
    Applied,
}

impl Knowledge {
    /// Returns the next state; `None` if the transition is illegal.
    pub(super) const fn after(self, news: News) -> Option<Self> {
        use Knowledge::{Current, Interrupted, Provisional, Read, Restored, Unread};
        Some(match (self, news) {
            (Unread | Restored, News::Snapshot) => Restored,
            (_, News::InSync) => Read,
            (Unread | Restored | Provisional | Interrupted, News::Partial) => self,
            (Current, News::Partial) => Interrupted,
            (Restored, News::Applied) => Provisional,
            (Read | Current, News::Applied) => Current,
            // A snapshot is older than the data read or applied.
            (Provisional | Read | Current | Interrupted, News::Snapshot)
            // The full read is applied before a part of the next one arrives.
            | (Read, News::Partial)
            // There is no new full read.
            | (Unread | Provisional | Interrupted, News::Applied) => return None,
        })
    }
}

/// [`Knowledge`], and why the datastore may not be applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trust {
    knowledge: Knowledge,
    unready: Option<Unready>,
}

impl Trust {
    /// Returns the state before anything is read.
    pub(super) const fn new() -> Self {
        Self {
            knowledge: Knowledge::Unread,
            unready: None,
        }
    }

    /// Performs a transition. Returns false, and changes nothing, if the transition is illegal.
    pub(super) const fn take(&mut self, news: News) -> bool {
        let Some(next) = self.knowledge.after(news) else {
            return false;
        };
        self.knowledge = next;
        if matches!(news, News::InSync) {
            self.unready = None;
        }
        true
    }

    /// Records why the datastore may not be applied; a full read clears it.
    pub(super) const fn refuse(&mut self, why: Unready) {
        self.unready = Some(why);
    }

    /// Returns why the datastore may not be applied.
    pub(super) const fn unready(self) -> Option<Unready> {
        self.unready
    }

    /// Returns whether the datastore has been read in full at least once.
    pub(super) const fn is_in_sync(self) -> bool {
        use Knowledge::{Current, Interrupted, Read};
        matches!(self.knowledge, Read | Current | Interrupted)
    }

    /// Returns whether data was applied, so that the host is brought into that state.
    pub(super) const fn is_applied(self) -> bool {
        use Knowledge::{Current, Interrupted, Provisional};
        matches!(self.knowledge, Provisional | Current | Interrupted)
    }

    /// Returns whether only a snapshot is known: a missing key never causes a removal.
    pub(super) const fn is_provisional(self) -> bool {
        matches!(self.knowledge, Knowledge::Restored | Knowledge::Provisional)
    }

    /// Returns whether the data read may be applied, because it is complete.
    pub(super) const fn may_apply(self) -> bool {
        self.knowledge.after(News::Applied).is_some()
    }

    /// Returns whether a complete read must be applied before the next read.
    pub(super) const fn must_apply(self) -> bool {
        matches!(self.knowledge, Knowledge::Read)
    }
}

/// The packet filter in effect on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InEffect {
    /// It is unknown whether an earlier run left one.
    Unknown,
    /// None: an earlier run left none, or another program removed it.
    Nothing,
    /// A filter of this run that drops all workload traffic.
    Closed,
    /// The filter of an earlier run.
    Inherited,
    /// A filter of this run, from applied data.
    Own,
}

/// An event of [`InEffect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    /// The filter of an earlier run was found.
    Found,
    /// No filter of an earlier run was found, or it no longer exists.
    Absent,
    /// The filter that drops all workload traffic was written.
    ClosedWritten,
    /// The wanted filter was written.
    WantedWritten,
    /// The settings of this host have changed.
    Reconfigured,
}

impl InEffect {
    /// Returns the next state; `None` if the transition is illegal.
    pub(super) const fn after(self, filter: Filter) -> Option<Self> {
        use InEffect::{Closed, Inherited, Nothing, Own, Unknown};
        Some(match (self, filter) {
            (Unknown | Inherited, Filter::Found) => Inherited,
            (Unknown | Inherited, Filter::Absent) => Nothing,
            (Nothing | Closed, Filter::ClosedWritten) => Closed,
            (_, Filter::WantedWritten) => Own,
            // It is written again, perhaps for other interfaces.
            (Nothing | Closed, Filter::Reconfigured) => Nothing,
            (Unknown | Inherited | Own, Filter::Reconfigured) => self,
            // It is checked only before anything is written.
            (Nothing | Closed | Own, Filter::Found | Filter::Absent)
            // Only if no other filter protects the workloads.
            | (Unknown | Inherited | Own, Filter::ClosedWritten) => return None,
        })
    }

    /// Returns whether some filter protects the workloads.
    pub(super) const fn guards(self) -> bool {
        matches!(self, Self::Closed | Self::Inherited | Self::Own)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    const DESIGN: &str = include_str!("../../../docs/design/felix-agent.md");

    /// Returns the cells of the table below a heading: state, event, and next state or `-`.
    fn documented(heading: &str) -> Vec<(String, String, String)> {
        let (_, section) = DESIGN.split_once(heading).expect("the heading");
        let lines = section.lines().skip_while(|line| !line.starts_with('|'));
        let rows: Vec<Vec<String>> = lines
            .take_while(|line| line.starts_with('|'))
            .map(|line| {
                let cells = line.trim_matches('|').split('|');
                cells.map(|cell| cell.trim().replace('`', "")).collect()
            })
            .collect();
        let (head, body) = (&rows[0], &rows[2..]);
        let cell = |row: &[String], at: usize| (row[0].clone(), head[at].clone(), row[at].clone());
        body.iter()
            .flat_map(|row| (1..row.len()).map(|at| cell(row, at)).collect::<Vec<_>>())
            .collect()
    }

    fn name(of: impl Debug) -> String {
        format!("{of:?}")
    }

    // Promise (Felix): Felix applies only complete data: a snapshot removes nothing, and an
    // unreachable datastore changes nothing.
    #[test]
    fn knowledge_of_the_datastore_moves_as_documented() {
        use Knowledge::{Current, Interrupted, Provisional, Read, Restored, Unread};
        let states = [Unread, Restored, Provisional, Read, Current, Interrupted];
        let news = [News::Snapshot, News::InSync, News::Partial, News::Applied];
        let coded = states.iter().flat_map(|from| {
            let to = |news: &News| from.after(*news).map_or_else(|| "-".into(), name);
            news.iter()
                .map(move |news| (name(from), name(news), to(news)))
        });
        assert_eq!(
            documented("## Knowledge of the datastore"),
            coded.collect::<Vec<_>>()
        );
    }

    // Promise: as felix knowledge_of_the_datastore_moves_as_documented
    #[test]
    fn filter_in_effect_moves_as_documented() {
        use InEffect::{Closed, Inherited, Nothing, Own, Unknown};
        let states = [Unknown, Nothing, Closed, Inherited, Own];
        let events = [
            Filter::Found,
            Filter::Absent,
            Filter::ClosedWritten,
            Filter::WantedWritten,
            Filter::Reconfigured,
        ];
        let coded = states.iter().flat_map(|from| {
            let to = |event: &Filter| from.after(*event).map_or_else(|| "-".into(), name);
            events
                .iter()
                .map(move |event| (name(from), name(event), to(event)))
        });
        assert_eq!(
            documented("## The packet filter in effect"),
            coded.collect::<Vec<_>>()
        );
    }

    #[test]
    fn illegal_transition_is_refused_and_changes_nothing() {
        let mut trust = Trust::new();
        assert!(!trust.take(News::Applied), "nothing is known");
        assert!(!trust.is_applied());
        assert!(trust.take(News::InSync) && trust.must_apply());
        assert!(!trust.take(News::Snapshot) && !trust.take(News::Partial));
        assert!(trust.must_apply());
        assert!(trust.take(News::Applied) && trust.is_applied());
        assert!(!trust.take(News::Snapshot) && !trust.is_provisional());
        assert!(trust.take(News::Partial) && !trust.may_apply());
    }

    #[test]
    fn full_read_clears_why_the_datastore_was_not_ready() {
        let mut trust = Trust::new();
        trust.refuse(Unready::Silent);
        assert!(trust.take(News::Partial));
        assert_eq!(trust.unready(), Some(Unready::Silent));
        assert!(trust.take(News::InSync));
        assert_eq!(trust.unready(), None);
    }
}
