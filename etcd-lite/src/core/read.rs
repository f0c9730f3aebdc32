//! Reads keys.

use std::ops::Bound;

use bytes::Bytes;

use super::Core;
use super::history::History;
use calico_store::Error;
use calico_store::{KeyRange, KeyValue, Listing, Order, OrderBy, Query, RangeEnd, Revision};

impl Core {
    /// Reads keys.
    pub fn range(&self, query: &Query) -> Result<Listing, Error> {
        self.answering()?;
        self.check_query(query)?;
        Ok(self.read(query, query.at.unwrap_or_else(|| self.visible())))
    }

    /// Checks whether the requested revision can be read.
    pub(super) fn check_query(&self, query: &Query) -> Result<(), Error> {
        match query.at {
            Some(at) if at > self.visible() => Err(Error::FutureRevision),
            Some(at) if at < self.compacted => Err(Error::Compacted { at: self.compacted }),
            _ => Ok(()),
        }
    }

    /// Reads at a revision that is known to be available.
    pub(super) fn read(&self, query: &Query, at: Revision) -> Listing {
        let found = self
            .histories(&query.range)
            .filter_map(|(key, history)| history.at(key, at));
        let mut listing = Listing {
            header: self.header(),
            ..Listing::default()
        };
        if query.count_only {
            listing.count = found.count() as u64;
            return listing;
        }
        let whole = query.order.is_some() || query.bounds.is_any();
        for item in found {
            listing.count += 1;
            let full = query.limit > 0 && listing.items.len() >= query.limit;
            if full && !whole {
                listing.more = true;
            } else if query.bounds.admit(&item) {
                listing.items.push(item);
            }
        }
        if let Some(order) = query.order {
            sort(&mut listing.items, order);
        }
        if query.limit > 0 && listing.items.len() > query.limit {
            listing.items.truncate(query.limit);
            listing.more = true;
        }
        if query.keys_only {
            for item in &mut listing.items {
                item.value = Bytes::new();
            }
        }
        listing
    }

    /// Returns the keys of a range that have a history.
    pub(super) fn histories(&self, range: &KeyRange) -> impl Iterator<Item = (&Bytes, &History)> {
        let end = match &range.end {
            RangeEnd::Single => Bound::Included(range.start.clone()),
            RangeEnd::Before(end) if *end < range.start => Bound::Excluded(range.start.clone()),
            RangeEnd::Before(end) => Bound::Excluded(end.clone()),
            RangeEnd::Open => Bound::Unbounded,
        };
        // A range that ends where it starts is empty, and `BTreeMap` panics for (start, start) only
        // if both ends are excluded.
        self.keys.range((Bound::Included(range.start.clone()), end))
    }
}

fn sort(items: &mut [KeyValue], order: Order) {
    match order.by {
        OrderBy::Key => items.sort_by(|a, b| a.key.cmp(&b.key)),
        OrderBy::Version => items.sort_by_key(|item| item.version),
        OrderBy::CreateRevision => items.sort_by_key(|item| item.create_revision),
        OrderBy::ModRevision => items.sort_by_key(|item| item.mod_revision),
        OrderBy::Value => items.sort_by(|a, b| a.value.cmp(&b.value)),
    }
    if order.descending {
        items.reverse();
    }
}
