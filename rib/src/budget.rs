//! Work in bounded steps: every pass over a table takes a budget and returns its progress.

/// The amount of work before the caller handles its sockets again, in prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget(pub u32);

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// No work remains for now.
    Done,
    /// More work remains.
    More,
    /// The reader was inactive for so long that withdrawals it has not read have been dropped
    /// ([`crate::limits::TOMBSTONES_MAX`]). Nothing was read and the cursor is at the start of a
    /// new full dump: the reader has to drop all its routes (a BGP session has to be reset) before
    /// it continues.
    Lost,
}
