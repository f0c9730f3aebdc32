//! Work in bites: whatever walks a table takes a budget and says whether it is through.

/// How much may be done before the caller wants to look after its sockets again, in prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget(pub u32);

/// How far a bite came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// Nothing is left to do for now.
    Done,
    /// Call again.
    More,
    /// The reader stayed away for so long that withdrawals it never heard of have been forgotten
    /// ([`crate::limits::TOMBSTONES_MAX`]). Nothing was read and the cursor is a new feed: the
    /// reader has to drop all it holds (a BGP session has to be reset) before it goes on.
    Lost,
}
