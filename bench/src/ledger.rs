//! What every receiver holds, beside what it must hold.

use crate::routes::{NONE, Tag};

/// By receiver and prefix, the attribute set that the receiver was last told.
#[derive(Debug)]
pub struct Ledger {
    prefixes: usize,
    expected: Vec<Tag>,
    /// The session that has the prefix as its own, and must not get it from others.
    owner: Vec<usize>,
    /// One row of prefixes a receiver.
    held: Vec<Tag>,
    /// Receivers whose row counts.
    counted: Vec<bool>,
    /// Rows that do not count and are to be forgotten before they do.
    stale: Vec<bool>,
    /// Places of counted rows that are as expected.
    right: usize,
    target: usize,
}

/// Nobody's own.
pub const NOBODY: usize = usize::MAX;

impl Ledger {
    /// Nobody holds anything, and nobody has to. Rows are those of sessions; `receivers` tells
    /// which of them receive.
    pub fn new(prefixes: usize, receivers: &[bool]) -> Self {
        let places = prefixes * receivers.iter().filter(|receives| **receives).count();
        Self {
            prefixes,
            expected: vec![NONE; prefixes],
            owner: vec![NOBODY; prefixes],
            // Written once, so that no page fault falls into a measurement.
            held: (0..prefixes * receivers.len()).map(|_| NONE).collect(),
            counted: receivers.to_vec(),
            stale: vec![false; receivers.len()],
            right: places,
            target: places,
        }
    }

    /// Whether every receiver holds exactly what it must.
    #[inline]
    pub const fn is_right(&self) -> bool {
        self.right == self.target
    }

    /// How many places of how many are right.
    pub const fn standing(&self) -> (usize, usize) {
        (self.right, self.target)
    }

    /// A session was told of a prefix.
    #[inline]
    pub fn note(&mut self, session: usize, prefix: usize, tag: Tag) {
        let expected = self.expected[prefix];
        let held = &mut self.held[session * self.prefixes + prefix];
        if self.counted[session] {
            self.right -= usize::from(*held == expected);
            self.right += usize::from(tag == expected);
        }
        *held = tag;
    }

    /// Whether a session has this prefix as its own.
    #[inline]
    pub fn is_own(&self, session: usize, prefix: usize) -> bool {
        self.owner[prefix] == session
    }

    /// From now on all must hold this path of a prefix; `owner` sends it and needs to hear
    /// nothing of it.
    pub fn expect(&mut self, prefix: usize, tag: Tag, owner: usize) {
        self.expect_all(&[(prefix, tag, owner)]);
    }

    /// The same of many prefixes, none of them twice.
    pub fn expect_all(&mut self, news: &[(usize, Tag, usize)]) {
        for session in (0..self.counted.len()).filter(|&session| self.counted[session]) {
            let row = &mut self.held[session * self.prefixes..][..self.prefixes];
            for &(prefix, tag, owner) in news {
                self.right -= usize::from(row[prefix] == self.expected[prefix]);
                if session == owner {
                    row[prefix] = tag;
                }
                self.right += usize::from(row[prefix] == tag);
            }
        }
        for &(prefix, tag, owner) in news {
            self.expected[prefix] = tag;
            self.owner[prefix] = owner;
        }
    }

    /// A session is gone, and with it all it held. What it has of its own it holds again.
    pub fn forget(&mut self, session: usize) {
        if !self.counted[session] {
            self.stale[session] = true;
            return;
        }
        for prefix in 0..self.prefixes {
            let own = self.is_own(session, prefix);
            let tag = if own { self.expected[prefix] } else { NONE };
            self.note(session, prefix, tag);
        }
    }

    /// Whether a session's row counts from now on.
    pub fn count(&mut self, session: usize, counts: bool) {
        if self.counted[session] == counts {
            return;
        }
        self.counted[session] = counts;
        let row = &self.held[session * self.prefixes..][..self.prefixes];
        let right = row.iter().zip(&self.expected);
        let right = right.filter(|(held, expected)| held == expected).count();
        if counts {
            self.right += right;
            self.target += self.prefixes;
        } else {
            self.right -= right;
            self.target -= self.prefixes;
        }
        if counts && std::mem::take(&mut self.stale[session]) {
            self.forget(session);
        }
    }

    /// Some places that are not right: session, prefix, what it holds and what it must.
    pub fn wrong(&self, most: usize) -> Vec<(usize, usize, Tag, Tag)> {
        let sessions = (0..self.counted.len()).filter(|&session| self.counted[session]);
        let places = sessions.flat_map(|session| (0..self.prefixes).map(move |p| (session, p)));
        places
            .map(|(session, prefix)| {
                let held = self.held[session * self.prefixes + prefix];
                (session, prefix, held, self.expected[prefix])
            })
            .filter(|(_, _, held, expected)| held != expected)
            .take(most)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_state_is_right() {
        let mut ledger = Ledger::new(2, &[true, true, false]);
        assert!(ledger.is_right());
        ledger.expect(0, 7, 2);
        ledger.expect(1, 8, 0);
        assert_eq!(ledger.standing(), (1, 4), "the owner has its own");
        ledger.note(0, 0, 7);
        ledger.note(1, 0, 7);
        ledger.note(1, 1, 9);
        assert_eq!(ledger.wrong(9), [(1, 1, 9, 8)]);
        ledger.note(1, 1, 8);
        assert!(ledger.is_right());
        ledger.note(0, 1, 8);
        assert!(ledger.is_right(), "an echo that is told apart elsewhere");
        ledger.note(2, 0, 9);
        assert!(ledger.is_right(), "a session that does not count");
        ledger.note(1, 0, NONE);
        assert!(!ledger.is_right());
    }

    #[test]
    fn a_row_can_go_and_come_back() {
        let mut ledger = Ledger::new(2, &[true, true]);
        ledger.expect(0, 5, 0);
        ledger.note(1, 0, 5);
        assert!(ledger.is_right());
        ledger.forget(1);
        assert_eq!(ledger.standing(), (3, 4));
        ledger.count(1, false);
        assert!(ledger.is_right());
        ledger.forget(0);
        assert!(ledger.is_right(), "it still has its own");
        ledger.count(1, true);
        assert_eq!(ledger.wrong(9), [(1, 0, NONE, 5)]);
        ledger.note(1, 0, 5);
        ledger.count(1, false);
        ledger.count(1, true);
        assert!(ledger.is_right(), "a row that was only looked away from");
        ledger.count(1, false);
        ledger.forget(1);
        ledger.count(1, true);
        assert_eq!(ledger.standing(), (3, 4), "what was forgotten meanwhile");
    }
}
