//! The function that each new thread of this process calls first.

use std::sync::OnceLock;

static BEGINS_WITH: OnceLock<fn()> = OnceLock::new();

/// Sets the function that every later thread of the log and of the runtime calls first. Only the
/// first call counts.
pub(crate) fn begin_with(function: fn()) {
    let _ = BEGINS_WITH.set(function);
}

/// Calls the function in a thread that has just started.
pub(crate) fn began() {
    if let Some(function) = BEGINS_WITH.get() {
        function();
    }
}
