//! The routes that every receiver holds, and those that it must hold.

use crate::routes::{NONE, Tag};

/// By receiver and prefix, the attribute set that the receiver has last received.
#[derive(Debug)]
pub struct Ledger {
    prefixes: usize,
    expected: Vec<Tag>,
    /// The session that originates the prefix, and must not receive it from others.
    owner: Vec<usize>,
    /// One row of prefixes per receiver.
    held: Vec<Tag>,
    /// Receivers with a row that counts.
    counted: Vec<bool>,
    /// Rows that do not count now and are cleared before they count again.
    stale: Vec<bool>,
    /// Entries of counted rows that are as expected.
    right: usize,
    target: usize,
}

/// No session originates the prefix.
pub const NO_SOURCE: usize = usize::MAX;

impl Ledger {
    /// Makes an empty ledger in which no route is expected. Rows are those of sessions; `receivers`
    /// states which of them receive.
    pub fn new(prefixes: usize, receivers: &[bool]) -> Self {
        let places = prefixes * receivers.iter().filter(|receives| **receives).count();
        Self {
            prefixes,
            expected: vec![NONE; prefixes],
            owner: vec![NO_SOURCE; prefixes],
            // Written once, so that no page fault occurs during a measurement.
            held: (0..prefixes * receivers.len()).map(|_| NONE).collect(),
            counted: receivers.to_vec(),
            stale: vec![false; receivers.len()],
            right: places,
            target: places,
        }
    }

    /// Returns whether every receiver holds exactly the expected routes.
    #[inline]
    pub const fn is_right(&self) -> bool {
        self.right == self.target
    }

    /// Returns the number of correct entries, and of all entries.
    pub const fn standing(&self) -> (usize, usize) {
        (self.right, self.target)
    }

    /// Enters a received route of a session.
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

    /// Returns whether a session originates this prefix.
    #[inline]
    pub fn is_own(&self, session: usize, prefix: usize) -> bool {
        self.owner[prefix] == session
    }

    /// Expects this path of a prefix at all receivers; `owner` sends it and does not receive it.
    pub fn expect(&mut self, prefix: usize, tag: Tag, owner: usize) {
        self.expect_all(&[(prefix, tag, owner)]);
    }

    /// Does the same for many prefixes, each at most once.
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

    /// Clears the row of a closed session. It holds its own routes again.
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

    /// Sets whether a session's row counts from now on.
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

    /// Returns some incorrect entries: session, prefix, the held and the expected tag.
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
        assert!(
            ledger.is_right(),
            "an echo of the own value is counted elsewhere"
        );
        ledger.note(2, 0, 9);
        assert!(ledger.is_right(), "a session that does not count");
        ledger.note(1, 0, NONE);
        assert!(!ledger.is_right());
    }

    #[test]
    fn removed_row_can_be_added_again() {
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
        assert_eq!(
            ledger.standing(),
            (3, 4),
            "the forgotten session is not counted"
        );
    }
}
