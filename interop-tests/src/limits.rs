//! Limits of the tests, in one place.

use std::time::Duration;

/// How long a lab waits for any condition. Only a condition that never holds takes that long, even
/// on a slow machine: programs wait idle after an error, OpenBGPD for 30 s and then for 60 s, also
/// after a connection collision that it lost.
pub const PATIENCE: Duration = Duration::from_secs(240);
