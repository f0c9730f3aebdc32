//! The position of a reader.

/// A reader's position in one family: in a dump of the whole table, then in the log of changes.
///
/// A cursor is a plain value that its owner keeps and passes to [`crate::Rib::trim`], so that
/// withdrawn prefixes are kept for as long as its reader needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The next version of the log to read.
    pub(super) at: u64,
    /// The next slot of the dump; [`DUMPED`] if the dump is complete.
    pub(super) dump_at: u32,
    /// The reader has read all withdrawals below this version.
    pub(super) read_below: u64,
    /// The reader had no routes when the dump began.
    pub(super) fresh: bool,
}

/// The dump is complete.
pub(super) const DUMPED: u32 = u32::MAX;
/// The dump has not begun: nothing has been read, nothing is missed.
pub(super) const UNSTARTED: u64 = u64::MAX;

impl Cursor {
    /// Returns the position of a reader without routes: it receives the whole table, then changes.
    #[must_use]
    pub const fn initial() -> Self {
        Self {
            at: UNSTARTED,
            dump_at: 0,
            read_below: UNSTARTED,
            fresh: true,
        }
    }

    /// Returns the position of a reader at this position that keeps its routes and requests all of
    /// them again (RFC 2918 §4).
    #[must_use]
    pub const fn refreshed(self) -> Self {
        if self.at == UNSTARTED {
            return self;
        }
        // A reader that follows the log receives withdrawals there: the dump need not repeat them.
        let fresh = self.fresh || self.has_full_table();
        Self {
            dump_at: 0,
            fresh,
            ..self
        }
    }

    /// Returns the position of a reader at this position that keeps its routes from other rules,
    /// and receives everything by new ones: including withdrawals of routes that it may hold.
    #[must_use]
    pub const fn with_new_rules(self) -> Self {
        if self.at == UNSTARTED {
            return self;
        }
        Self {
            dump_at: 0,
            fresh: false,
            ..self
        }
    }

    /// Returns whether the dump is complete, so that the reader only follows changes.
    #[must_use]
    pub const fn has_full_table(&self) -> bool {
        self.dump_at == DUMPED
    }

    /// Returns the position of a reader that has read everything below `version`.
    pub(crate) const fn following(version: u64) -> Self {
        Self {
            at: version,
            dump_at: DUMPED,
            read_below: version,
            fresh: false,
        }
    }

    /// Returns whether a slot of this index and version has not been read yet.
    pub(super) const fn is_ahead(&self, slot: u32, version: u64) -> bool {
        version >= self.at || (self.dump_at != DUMPED && slot >= self.dump_at)
    }

    /// Returns the oldest version of the log that it needs.
    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    /// Returns the version from which on it needs withdrawals.
    pub(crate) const fn read_below(&self) -> u64 {
        self.read_below
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::initial()
    }
}
