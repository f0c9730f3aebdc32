//! Limits of the tests, in one place.

use std::time::Duration;

/// How long a lab waits for anything. Only what never comes takes that long, however slow the machine
/// is: programs rest after an error, OpenBGPD for 30 s and then for 60 s, also after a lost
/// collision.
pub const PATIENCE: Duration = Duration::from_secs(240);
