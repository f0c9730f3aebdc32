//! The capabilities of this process, and its other restrictions, as the kernel reports them.

use std::collections::BTreeSet;
use std::fs;

use caps::errors::CapsError;
use caps::{CapSet, Capability};

/// Reduces the capabilities of this thread, and of those that it will start, to some of those that
/// it has.
///
/// # Errors
///
/// The kernel refuses it.
pub(super) fn reduce_to(kept: &[Capability]) -> Result<(), CapsError> {
    // An old kernel may have no ambient set; then there is nothing to clear.
    let _ = caps::clear(None, CapSet::Ambient);
    // Only CAP_SETPCAP may change the bounding set, which counts at `execve` only. The status reports
    // what is left.
    let _ = caps::clear(None, CapSet::Bounding);
    caps::clear(None, CapSet::Inheritable)?;
    // In this order: the effective set is a part of the permitted one.
    for set in [CapSet::Effective, CapSet::Permitted] {
        let mut held = caps::read(None, set)?;
        held.retain(|capability| kept.contains(capability));
        caps::set(None, set, &held)?;
    }
    Ok(())
}

/// The restrictions of all threads of this process: the weakest one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Restrictions {
    /// Capabilities that at least one thread can use.
    pub(super) capabilities: BTreeSet<String>,
    /// Every thread has `no_new_privs`.
    pub(super) no_new_privs: bool,
    /// Every thread has a filter of system calls.
    pub(super) seccomp: bool,
}

impl Restrictions {
    /// Reads them from `/proc`. `None` if it is not mounted.
    pub(super) fn read() -> Option<Self> {
        let mut all = Self {
            capabilities: BTreeSet::new(),
            no_new_privs: true,
            seccomp: true,
        };
        let mut threads = 0;
        for thread in fs::read_dir("/proc/self/task").ok()? {
            // A thread that has ended since holds nothing.
            let Ok(status) = fs::read_to_string(thread.ok()?.path().join("status")) else {
                continue;
            };
            all.add(&status);
            threads += 1;
        }
        (threads > 0).then_some(all)
    }

    /// Adds a thread by its `status` file.
    fn add(&mut self, status: &str) {
        let field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
        };
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            let mask = field(set).and_then(|mask| u64::from_str_radix(mask, 16).ok());
            self.capabilities.extend(names(mask.unwrap_or(u64::MAX)));
        }
        self.no_new_privs &= field("NoNewPrivs") == Some("1");
        // 2 is a filter.
        self.seccomp &= field("Seccomp") == Some("2");
    }
}

/// The names of the capabilities of a mask.
pub(super) fn names(mask: u64) -> impl Iterator<Item = String> {
    let held = caps::all().into_iter();
    let held = held.filter(move |capability| mask & capability.bitmask() != 0);
    held.map(|capability| capability.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nCapInh:\t0000000000000000\nCapPrm:\t0000000000000400\n\
                          CapEff:\t0000000000000400\nCapBnd:\t000001ffffffffff\n\
                          CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";

    #[test]
    fn weakest_thread_counts() {
        let mut all = Restrictions {
            no_new_privs: true,
            seccomp: true,
            ..Restrictions::default()
        };
        all.add(STATUS);
        assert_eq!(all.capabilities, ["CAP_NET_BIND_SERVICE".to_owned()].into());
        assert!(all.no_new_privs && all.seccomp);
        all.add(&STATUS.replace("Seccomp:\t2", "Seccomp:\t0"));
        all.add(&STATUS.replace("CapPrm:\t0000000000000400", "CapPrm:\t0000000000001000"));
        let both = ["CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE"].map(str::to_owned);
        assert_eq!(all.capabilities, both.into());
        assert!(all.no_new_privs && !all.seccomp);
    }

    #[test]
    fn unreadable_set_counts_as_full() {
        let mut all = Restrictions::default();
        all.add("CapPrm:\tx\n");
        assert!(all.capabilities.len() > 40, "{all:?}");
        assert!(!all.no_new_privs && !all.seccomp);
    }
}
