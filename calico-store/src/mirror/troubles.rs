//! Reasons why ranges of a store cannot be read, as text.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::watch;

use super::FeedId;
use crate::error::Error;
use crate::kv::KeyRange;

/// The last error of each range that is not watched.
#[derive(Debug)]
pub(super) struct Troubles {
    known: BTreeMap<FeedId, String>,
    /// Publishes the errors.
    published: watch::Sender<Vec<String>>,
}

impl Troubles {
    pub(super) const fn new(published: watch::Sender<Vec<String>>) -> Self {
        Self {
            known: BTreeMap::new(),
            published,
        }
    }

    /// Records a failed attempt. Returns the error as text if no other range has the same.
    pub(super) fn note(&mut self, feed: FeedId, range: &KeyRange, error: &Error) -> Option<String> {
        let trouble = match error {
            // Errors of the whole store affect the other ranges in the same way.
            Error::Unavailable(_) | Error::WatchLost(_) => error.to_string(),
            error => format!("cannot read {range} from the store: {error}"),
        };
        let is_new = !self.has(&trouble);
        self.known.insert(feed, trouble.clone());
        self.publish();
        is_new.then_some(trouble)
    }

    /// Clears the error of a range that is watched again. Returns its text if no other range has
    /// the same.
    pub(super) fn is_over(&mut self, feed: FeedId) -> Option<String> {
        let trouble = self.known.remove(&feed)?;
        self.publish();
        (!self.has(&trouble)).then_some(trouble)
    }

    fn has(&self, trouble: &str) -> bool {
        self.known.values().any(|known| known == trouble)
    }

    fn publish(&self) {
        let now: BTreeSet<&String> = self.known.values().collect();
        self.published.send_if_modified(|published| {
            let is_new = !published.iter().eq(now.iter().copied());
            if is_new {
                *published = now.into_iter().cloned().collect();
            }
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_of_all_is_noted_once_and_of_a_range_by_name() {
        let (published, now) = watch::channel(Vec::new());
        let mut troubles = Troubles::new(published);
        let [a, b] = ["/a/", "/b/"].map(KeyRange::prefix);
        let away = Error::Unavailable("connection refused".into());
        let away_text = "the store is unavailable: connection refused".to_owned();
        assert_eq!(troubles.note(FeedId(0), &a, &away), Some(away_text.clone()));
        assert_eq!(troubles.note(FeedId(1), &b, &away), None);
        assert_eq!(*now.borrow(), [away_text.as_str()]);

        let denied = Error::Denied("no".into());
        let of_b = "cannot read /b/ from the store: access denied: no".to_owned();
        assert_eq!(troubles.note(FeedId(1), &b, &denied), Some(of_b.clone()));
        assert_eq!(troubles.note(FeedId(1), &b, &denied), None);
        assert_eq!(*now.borrow(), [of_b.clone(), away_text.clone()]);
        assert_eq!(troubles.is_over(FeedId(0)), Some(away_text));
        assert_eq!(troubles.is_over(FeedId(0)), None);
        assert_eq!(*now.borrow(), [of_b.as_str()]);
        assert_eq!(troubles.is_over(FeedId(1)), Some(of_b));
        assert!(now.borrow().is_empty());
    }
}
