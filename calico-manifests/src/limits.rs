//! Every limit of manifests (invariant I7 of ARCHITECTURE.md).

use std::time::Duration;

/// How long a manifest directory must be quiet before it is read again.
pub const MANIFEST_DEBOUNCE: Duration = Duration::from_millis(200);

/// How long a manifest directory that is never quiet is left unread.
pub const MANIFEST_DEBOUNCE_MAX: Duration = Duration::from_secs(2);

/// Octets of one manifest file.
pub const MANIFEST_OCTETS_MAX: u64 = 16 * 1024 * 1024;

/// Files in a manifest directory.
pub const MANIFEST_FILES_MAX: usize = 10_000;
