//! Counts elementary steps of an evaluation for tests, because times vary on a busy machine. It does
//! nothing in a program.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Counts a step of this thread.
#[cfg(test)]
pub(super) fn count() {
    STEPS.set(STEPS.get() + 1);
}

/// Does nothing.
#[cfg(not(test))]
pub(super) const fn count() {}

/// Returns the number of steps of this thread since the last call.
#[cfg(test)]
pub(super) fn take() -> usize {
    STEPS.take()
}
