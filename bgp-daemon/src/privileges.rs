//! Least privilege: the process that parses BGP confines itself, whatever has started it.
//!
//! A daemon is two processes, see [`crate::parent`]. The parser gives up all capabilities in its
//! first step ([`give_up`]), and [`Privileges::confine`] restricts its files and its system calls
//! once it has read the configuration, before another thread starts: new threads inherit all of it.
//! docs/design/privileges.md has the reasons.

mod call_table;
mod calls;
mod capabilities;
mod files;

use std::collections::BTreeSet;

use caps::{CapSet, Capability};
use daemon_common::events::{Event, Text, emit};
use daemon_common::report::{Fact, ParentFigures, PrivilegeFigures, Status};
use nix::sys::prctl;

pub use self::calls::{Role, refused};
use self::capabilities::Restrictions;
pub use self::files::Files;
use crate::Parent;
use crate::parent::command::ParentReport;

/// Capabilities of the parent: privileged ports, and the host guard and the kernel's routes.
const OF_PARENT: &[Capability] = &[Capability::CAP_NET_BIND_SERVICE, Capability::CAP_NET_ADMIN];

/// The privileges of this process.
#[derive(Debug)]
pub struct Privileges {
    /// Empty if the process is not confined.
    confined: Option<Confined>,
    parent: Option<Parent>,
}

/// The restrictions that the kernel has accepted.
#[derive(Debug)]
struct Confined {
    /// The ABI of landlock, or why it is missing.
    landlock: Result<u32, String>,
    seccomp: Result<(), String>,
    capabilities: Result<(), String>,
    /// Files and sockets that are reached beyond its own, each with the remedy.
    excess: Vec<String>,
}

/// Gives up all capabilities, before any other thread starts.
pub fn give_up() {
    // The status reads the result from the kernel.
    let _ = capabilities::reduce_to(&[]);
}

/// Gives up the capabilities that a parent does not need. It gets none by a program that it executes.
pub fn reduce_parent() {
    let _ = capabilities::reduce_to(OF_PARENT);
    let _ = prctl::set_no_new_privs();
}

/// The restrictions of a parent that the kernel has accepted.
#[derive(Clone, Debug)]
pub struct ParentRestrictions {
    /// The ABI of landlock, or why it is missing.
    pub landlock: Result<u32, String>,
    /// Whether system calls are restricted, or why not.
    pub seccomp: Result<(), String>,
}

impl ParentRestrictions {
    /// Returns reasons for what is not in effect.
    pub(crate) fn reasons(&self) -> String {
        let failed = [
            ("landlock", self.landlock.as_ref().err()),
            ("seccomp", self.seccomp.as_ref().err()),
        ];
        let failed = failed
            .iter()
            .filter_map(|(what, why)| Some(format!("{what} is not in effect: {}", (*why)?)));
        failed.collect::<Vec<_>>().join("; ")
    }
}

/// Confines a parent, and the parsers that it will start: its writes to these files, and it to a list of
/// system calls. Both lists have all that a parser needs before and after it confines itself.
#[must_use]
pub fn confine_parent(files: &Files) -> ParentRestrictions {
    let landlock = match files.confine_writes() {
        Ok(status) => files::abi(&status).map_err(str::to_owned),
        Err(error) => Err(error.to_string()),
    };
    let seccomp = calls::confine(Role::Parent).map_err(|error| error.to_string());
    ParentRestrictions { landlock, seccomp }
}

/// Returns the capabilities that this process holds, as the kernel's mask.
pub(crate) fn held_mask() -> u64 {
    let held = caps::read(None, CapSet::Permitted).unwrap_or_else(|_| caps::all());
    held.iter().fold(0, |mask, one| mask | one.bitmask())
}

impl Privileges {
    /// Keeps all privileges, as the operator has configured it.
    #[must_use]
    pub const fn kept() -> Self {
        Self {
            confined: None,
            parent: None,
        }
    }

    /// Confines the calling thread, and those that it will start: to these files, to a list of system
    /// calls, and to no capability. Must run before other threads. `parent` executes what needs one.
    #[must_use]
    pub fn confine(files: &Files, parent: Option<Parent>) -> Self {
        // In this order: a filter of system calls leaves none for the others.
        let capabilities = capabilities::reduce_to(&[]).map_err(|error| error.to_string());
        let landlock = match files.confine() {
            Ok(status) => files::abi(&status).map_err(str::to_owned),
            Err(error) => Err(error.to_string()),
        };
        let seccomp = calls::confine(Role::Parser).map_err(|error| error.to_string());
        let confined = Some(Confined {
            landlock,
            seccomp,
            capabilities,
            excess: files.excess(),
        });
        Self { confined, parent }
    }

    /// Returns the parent of this process, if it has one.
    pub(crate) const fn parent(&self) -> Option<&Parent> {
        self.parent.as_ref()
    }

    /// Returns whether this process is confined.
    pub(crate) const fn is_confined(&self) -> bool {
        self.confined.is_some()
    }

    /// Emits what is in effect.
    pub(crate) fn emit(&self) {
        let (figures, reasons) = self.figures();
        let status = Text::new(&figures);
        match self.confined {
            None => emit(Event::PrivilegesKept {}),
            Some(_) if reasons.is_empty() => emit(Event::PrivilegesDropped { status }),
            Some(_) => {
                let reason = Text::new(reasons.join("; "));
                emit(Event::PrivilegesIncomplete { status, reason });
            }
        }
        if let Some(parent) = figures.parent.filter(|parent| parent.restarts > 0) {
            emit(Event::ParserRestarted {
                restarts: parent.restarts.into(),
                reason: Text::new(parent.last),
            });
        }
    }

    /// Adds what is in effect, and notes on the rest.
    pub fn report(&self, status: &mut Status) {
        let (figures, reasons) = self.figures();
        status.facts.push(Fact {
            name: "privileges".to_owned(),
            value: figures.to_string(),
        });
        let notes = reasons.iter().map(|reason| format!("privileges: {reason}"));
        status.notes.extend(notes);
        if self
            .confined
            .as_ref()
            .is_some_and(|confined| confined.landlock.is_ok())
        {
            status.notes.extend(files::replaced().into_iter().map(|file| {
                format!(
                    "{file} was replaced since the start, and the daemon may not read the new file: \
                     restart the daemon"
                )
            }));
        }
        if let Some(parent) = &figures.parent {
            status.facts.push(Fact {
                name: "parent process".to_owned(),
                value: parent.to_string(),
            });
            status.notes.extend(parent.note());
        }
        status.privileges = Some(figures.into());
    }

    /// Returns what is in effect, by the kernel's own report, and reasons for what is not.
    fn figures(&self) -> (PrivilegeFigures, Vec<String>) {
        let restrictions = Restrictions::read();
        let mut reasons = Vec::new();
        if let Some(confined) = &self.confined {
            let failed = [
                ("landlock", confined.landlock.as_ref().err()),
                ("seccomp", confined.seccomp.as_ref().err()),
                ("capabilities", confined.capabilities.as_ref().err()),
            ];
            let failed = failed
                .iter()
                .filter_map(|(what, why)| Some((what, (*why)?)));
            reasons.extend(failed.map(|(what, why)| format!("{what} is not in effect: {why}")));
            reasons.extend(confined.excess.iter().cloned());
            if restrictions.is_none() {
                reasons.push("/proc cannot be read: capabilities are unknown".to_owned());
            }
        }
        let parent = self.parent.as_ref().and_then(Parent::report);
        if let Some(parent) = parent.as_ref().filter(|one| !one.incomplete.is_empty()) {
            reasons.push(format!("the parent process: {}", parent.incomplete));
        }
        let restrictions = restrictions.unwrap_or_default();
        let landlock = self.confined.as_ref();
        // The filters of the parent are in effect for this process, too, and are no more than that.
        let has_own_filter = landlock.is_none_or(|confined| confined.seccomp.is_ok());
        let figures = PrivilegeFigures {
            confined: self.is_confined(),
            capabilities: restrictions.capabilities.into_iter().collect(),
            no_new_privs: restrictions.no_new_privs,
            landlock_abi: landlock.and_then(|confined| confined.landlock.clone().ok()),
            seccomp: restrictions.seccomp && has_own_filter,
            parent: parent.map(figures_of),
        };
        (figures, reasons)
    }
}

/// Returns the reason why a confined daemon cannot read a file, to follow the report about a
/// configuration; empty if the report has another cause.
pub(crate) fn hint(report: &str) -> &'static str {
    let is_closed = ["ermission denied", "not readable for this user"];
    if !is_closed.iter().any(|why| report.contains(why)) {
        return "";
    }
    "\nrequires restart: the running daemon reads only files in directories that its configuration \
     named at the start (`privileges`)"
}

/// Returns a parent as it reports itself.
fn figures_of(report: ParentReport) -> ParentFigures {
    let capabilities: BTreeSet<String> = capabilities::names(report.capabilities).collect();
    ParentFigures {
        pid: report.pid,
        capabilities: capabilities.into_iter().collect(),
        restarts: report.restarts,
        last: report.last,
        landlock_abi: report.landlock_abi,
        seccomp: report.seccomp,
    }
}
