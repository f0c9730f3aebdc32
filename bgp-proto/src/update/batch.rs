//! The routes of one family in an UPDATE.

use crate::family::Family;
use crate::nlri::NlriIter;
use crate::update::block::AttrBlock;

/// The routes of one family in an UPDATE.
///
/// `unreach` is applied first: a destination that is in both lists is reachable (RFC 4271 §4.3).
/// Routes that RFC 7606 treats as withdrawn for a fault of the message as a whole are in `unreach`
/// already; for faults of [`AttrBlock::parse`] the receiver does the same with `reach`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RouteBatch<'a> {
    /// The family.
    pub family: Family,
    /// Path attributes of the routes in `reach`; `None` if and only if `reach` is empty.
    pub attrs: Option<AttrBlock<'a>>,
    /// Destinations announced.
    pub reach: NlriIter<'a>,
    /// Destinations withdrawn.
    pub unreach: NlriIter<'a>,
}

impl<'a> RouteBatch<'a> {
    /// Returns a batch of announced and withdrawn destinations.
    #[must_use]
    pub const fn new(
        family: Family,
        attrs: Option<AttrBlock<'a>>,
        reach: NlriIter<'a>,
        unreach: NlriIter<'a>,
    ) -> Self {
        Self {
            family,
            attrs,
            reach,
            unreach,
        }
    }

    /// The same batch with everything that it announces withdrawn instead (RFC 7606 §2).
    #[must_use]
    pub fn treated_as_withdraw(self) -> Self {
        let unreach = self.unreach.then(&self.reach);
        Self {
            family: self.family,
            attrs: None,
            reach: NlriIter::empty(),
            unreach,
        }
    }
}
