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
