//! Every limit of manifests.

use std::time::Duration;

/// Time without changes before a manifest directory is read again.
pub const MANIFEST_DEBOUNCE: Duration = Duration::from_millis(200);

/// Maximum delay before a continuously changing manifest directory is read.
pub const MANIFEST_DEBOUNCE_MAX: Duration = Duration::from_secs(2);

/// Octets of one manifest file.
pub const MANIFEST_OCTETS_MAX: u64 = 16 * 1024 * 1024;

/// Files in a manifest directory.
pub const MANIFEST_FILES_MAX: usize = 10_000;

/// Fields of an object that a report about an unknown one lists.
pub const FIELDS_LISTED_MAX: usize = 24;

/// Documents of one manifest file.
pub const MANIFEST_DOCUMENTS_MAX: usize = 1024;

/// Values of one document, with those that references repeat.
pub const MANIFEST_VALUES_MAX: usize = 250_000;

/// Levels of lists and objects in a document. The parser calls itself for each, on a stack of 2 MiB.
pub const MANIFEST_LEVELS_MAX: usize = 32;
