//! Every limit and period of the test tools.

use std::time::Duration;

/// Timeout of a scripted peer for a message over TCP.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Timeout in virtual time of a scripted peer of a network for a message: longer than a hold time
/// of 90 seconds.
pub const VIRTUAL_PATIENCE: Duration = Duration::from_secs(300);

/// Octets that one direction of a stream between speakers holds while its reader does not read.
pub const STREAM_OCTETS: usize = 64 << 10;

/// Octets that a speaker writes in one call.
pub const FILL_OCTETS: usize = 16 << 10;

/// Prefixes that a speaker works on in one turn.
pub const TURN_PREFIXES: u32 = 4096;

/// Turns of speakers at one instant, after which a network is considered unable to come to rest.
pub const TURNS_MAX: usize = 1_000_000;

/// Steps at one instant, after which a timer is considered stuck.
pub const STEPS_MAX: usize = 100_000;

/// How long a segment that was lost, or that met a cut link, takes until it is sent again.
pub const RETRANSMIT: Duration = Duration::from_millis(200);

/// Messages that a failure text repeats from before the failure.
pub const HISTORY_MAX: usize = 8;

/// Octets of a message that a failure text shows.
pub const HEX_OCTETS_MAX: usize = 128;
