//! A value of the store with its revision.

use calico_store::Revision;

/// Something stored, and when it was last written.
#[derive(Debug)]
pub(crate) struct Stored<T> {
    pub(crate) value: T,
    pub(crate) revision: Revision,
}
