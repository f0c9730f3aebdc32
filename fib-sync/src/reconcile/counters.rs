//! Counters of a reconciler.

use super::delta::Op;

/// Monotonic counters.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) puts: u64,
    pub(super) deletes: u64,
    pub(super) refused: u64,
    pub(super) conflicts: u64,
    pub(super) drift: u64,
    pub(super) overruns: u64,
    pub(super) dumps: u64,
}

impl Counters {
    pub(super) fn count(&mut self, op: Op) {
        match op {
            Op::Put(_) => self.puts += 1,
            Op::Delete => self.deletes += 1,
        }
    }
}
