//! Every limit of what BGP daemons share, in one place.

use std::time::Duration;

/// How long changes of the neighbours are gathered before they are noted for the next start: a
/// thousand that come up at once are not written down a thousand times.
pub const REMEMBER: Duration = Duration::from_secs(1);
