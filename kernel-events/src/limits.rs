//! Limits of the crate.

/// Kinds of kernel errors with a separate count of repetitions in the log.
pub const LOG_KEYS_MAX: usize = 32;
