//! A value of the datastore with its revision.

use calico_store::Revision;

/// A stored value, and its last revision.
#[derive(Debug)]
pub(crate) struct Stored<T> {
    pub(crate) value: T,
    pub(crate) revision: Revision,
}
