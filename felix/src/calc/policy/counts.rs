//! Numbers of members, for metrics: a scrape does not look at each member.

/// Part of the keys of workload endpoints.
pub(super) const WORKLOADS: &str = "/workloadendpoints/";

/// Part of the keys of host endpoints.
const HOSTS: &str = "/hostendpoints/";

/// Numbers of members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Workload endpoints of all hosts.
    pub(crate) workloads: usize,
    /// Host endpoints of all hosts.
    pub(crate) hosts: usize,
}

impl Counts {
    /// Returns the count of a key's kind.
    pub(super) fn of(&mut self, key: &str) -> Option<&mut usize> {
        if key.contains(WORKLOADS) {
            return Some(&mut self.workloads);
        }
        key.contains(HOSTS).then_some(&mut self.hosts)
    }
}
