//! Where a reader stands.

/// A reader's place in one family: in a walk of the whole table, then in the log of changes.
///
/// A cursor is a plain value that its owner keeps and names to [`crate::Rib::trim`], so that
/// withdrawn prefixes are kept for as long as its reader needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The next version of the log to read.
    pub(super) at: u64,
    /// The next slot of the table to walk; [`WALKED`] if the walk is over.
    pub(super) walk: u32,
    /// The reader has heard of all withdrawals below this version.
    pub(super) heard: u64,
    /// The reader had nothing when the walk began.
    pub(super) fresh: bool,
}

/// The walk is over.
pub(super) const WALKED: u32 = u32::MAX;
/// The feed has not begun: nothing has been read, nothing is missed.
pub(super) const UNSTARTED: u64 = u64::MAX;

impl Cursor {
    /// The place of a reader that has nothing yet: it is given the whole table, then what changes.
    #[must_use]
    pub const fn feed() -> Self {
        Self {
            at: UNSTARTED,
            walk: 0,
            heard: UNSTARTED,
            fresh: true,
        }
    }

    /// The place of a reader that stands here, holds what it has read so far, and wants
    /// everything again (RFC 2918 §4).
    #[must_use]
    pub const fn again(self) -> Self {
        if self.at == UNSTARTED {
            return self;
        }
        // Whoever has followed the log hears of withdrawals there: the walk need not tell them.
        let fresh = self.fresh || self.is_fed();
        Self {
            walk: 0,
            fresh,
            ..self
        }
    }

    /// The place of a reader that stands here, holds what it has read so far by other rules, and is
    /// given everything by new ones: also the withdrawals of what it may hold.
    #[must_use]
    pub const fn anew(self) -> Self {
        if self.at == UNSTARTED {
            return self;
        }
        Self {
            walk: 0,
            fresh: false,
            ..self
        }
    }

    /// Whether the walk of the table is over, so that the reader only follows changes.
    #[must_use]
    pub const fn is_fed(&self) -> bool {
        self.walk == WALKED
    }

    /// The place of a reader that knows everything below `version`.
    pub(crate) const fn following(version: u64) -> Self {
        Self {
            at: version,
            walk: WALKED,
            heard: version,
            fresh: false,
        }
    }

    /// Whether a slot of this index and version still lies ahead.
    pub(super) const fn is_ahead(&self, slot: u32, version: u64) -> bool {
        version >= self.at || (self.walk != WALKED && slot >= self.walk)
    }

    /// The oldest version of the log it needs.
    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    /// It needs withdrawals from this version on.
    pub(crate) const fn heard(&self) -> u64 {
        self.heard
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::feed()
    }
}
