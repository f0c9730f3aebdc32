//! Counts elementary steps of a calculation for tests, because times vary on a busy machine. It does
//! nothing in a program.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

/// Counts steps of this thread.
#[cfg(test)]
pub(crate) fn count(steps: usize) {
    STEPS.set(STEPS.get() + steps as u64);
}

/// Does nothing.
#[cfg(not(test))]
pub(crate) const fn count(_steps: usize) {}

/// Returns the number of steps of this thread since the last call.
#[cfg(test)]
pub(crate) fn take() -> u64 {
    STEPS.take()
}
