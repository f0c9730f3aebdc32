//! Reads keys.

use etcd_client::{GetOptions, SortOrder, SortTarget};

use super::kv;
use super::members::{Again, Members};
use crate::error::Error;
use crate::kv::{Listing, OrderBy, Query};
use crate::wire::{listing_in, range_out};

pub(super) async fn range(members: &Members, query: Query) -> Result<Listing, Error> {
    let (key, options) = options(query);
    let get = |client| {
        let (key, options) = (key.clone(), options.clone());
        async move { kv(&client).get(key, Some(options)).await }
    };
    let (_, response) = members.ask(Again::Any, get).await?;
    Ok(listing_in(response.0))
}

/// Returns the key and the options of a range request for the query.
pub(super) fn options(query: Query) -> (Vec<u8>, GetOptions) {
    let (key, end) = range_out(query.range);
    let mut options = GetOptions::new()
        .with_range(end)
        .with_limit(i64::try_from(query.limit).unwrap_or(0));
    if let Some(at) = query.at {
        options = options.with_revision(at.0);
    }
    if query.keys_only {
        options = options.with_keys_only();
    }
    if query.count_only {
        options = options.with_count_only();
    }
    if let Some(order) = query.order {
        let target = match order.by {
            OrderBy::Key => SortTarget::Key,
            OrderBy::Version => SortTarget::Version,
            OrderBy::CreateRevision => SortTarget::Create,
            OrderBy::ModRevision => SortTarget::Mod,
            OrderBy::Value => SortTarget::Value,
        };
        let direction = if order.descending {
            SortOrder::Descend
        } else {
            SortOrder::Ascend
        };
        options = options.with_sort(target, direction);
    }
    let bounds = query.bounds;
    if let Some(revision) = bounds.mod_min {
        options = options.with_min_mod_revision(revision.0);
    }
    if let Some(revision) = bounds.mod_max {
        options = options.with_max_mod_revision(revision.0);
    }
    if let Some(revision) = bounds.create_min {
        options = options.with_min_create_revision(revision.0);
    }
    if let Some(revision) = bounds.create_max {
        options = options.with_max_create_revision(revision.0);
    }
    (key, options)
}
