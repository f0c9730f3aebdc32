//! Least privilege: the process that parses BGP confines itself, whatever has started it.
//!
//! [`Privileges::confine`] runs in the only thread of the process, before any other one starts: new
//! threads inherit its files, its filter of system calls and its capabilities. Other threads give up
//! their capabilities when they start ([`thread_began`]). The first thread keeps the few that open
//! the listening sockets, and [`Privileges::drop_capabilities`] gives them up before the first octet
//! of a neighbor is read. docs/design/privileges.md has the reasons.

mod call_table;
mod calls;
mod capabilities;
mod files;

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use caps::Capability;
use daemon_common::events::{Event, Text, emit};
use daemon_common::report::{Fact, PrivilegeFigures, Status};

pub use self::calls::refused;
use self::capabilities::Restrictions;
pub use self::files::Files;

/// Capabilities that open the listening sockets, and load the host guard.
const TO_LISTEN: &[Capability] = &[Capability::CAP_NET_BIND_SERVICE, Capability::CAP_NET_ADMIN];

/// The privileges of this process.
#[derive(Debug)]
pub struct Privileges {
    /// Empty if the process is not confined.
    confined: Option<Confined>,
    stage: Stage,
    /// The first port that every process can listen on.
    unprivileged_ports: u16,
}

/// The capabilities that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The capabilities that open the listening sockets.
    Opening,
    /// That for an address of a privileged port which the machine does not have yet.
    Waiting,
    /// None.
    Dropped,
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

/// Gives up the capabilities of the calling thread, which is not the first one.
pub fn thread_began() {
    if CONFINED.load(Ordering::Relaxed) {
        capabilities::drop_all();
    }
}

/// Whether this process is confined.
static CONFINED: AtomicBool = AtomicBool::new(false);

impl Privileges {
    /// Keeps all privileges, as the operator has configured it.
    #[must_use]
    pub fn kept() -> Self {
        Self {
            confined: None,
            stage: Stage::Opening,
            unprivileged_ports: unprivileged_ports(),
        }
    }

    /// Confines the calling thread, and those that it will start: to these files, to a list of system
    /// calls, and to the capabilities that open listening sockets. Must run before other threads.
    #[must_use]
    pub fn confine(files: &Files) -> Self {
        CONFINED.store(true, Ordering::Relaxed);
        // In this order: a filter of system calls leaves none for the others.
        let capabilities = capabilities::reduce_to(TO_LISTEN).map_err(|error| error.to_string());
        let landlock = match files.confine() {
            Ok(status) => files::abi(&status).map_err(str::to_owned),
            Err(error) => Err(error.to_string()),
        };
        let seccomp = calls::confine().map_err(|error| error.to_string());
        Self {
            confined: Some(Confined {
                landlock,
                seccomp,
                capabilities,
                excess: files.excess(),
            }),
            ..Self::kept()
        }
    }

    /// Gives up the capabilities that are left, once all sockets listen that need one. `unbound` are
    /// the addresses that the machine does not have yet.
    pub fn drop_capabilities(&mut self, unbound: impl IntoIterator<Item = SocketAddr>) {
        let Some(confined) = &mut self.confined else {
            return;
        };
        let is_privileged = |address: SocketAddr| {
            let port = address.port();
            port != 0 && port < self.unprivileged_ports
        };
        let stage = match self.stage {
            Stage::Dropped => return,
            _ if unbound.into_iter().any(is_privileged) => Stage::Waiting,
            _ => Stage::Dropped,
        };
        if std::mem::replace(&mut self.stage, stage) == stage {
            return;
        }
        let kept: &[Capability] = match stage {
            Stage::Waiting => &[Capability::CAP_NET_BIND_SERVICE],
            _ => &[],
        };
        let reduced = capabilities::reduce_to(kept).map_err(|error| error.to_string());
        confined.capabilities = std::mem::replace(&mut confined.capabilities, Ok(())).and(reduced);
        if stage == Stage::Dropped {
            self.emit();
        }
    }

    /// Returns whether this process is confined.
    pub(crate) const fn is_confined(&self) -> bool {
        self.confined.is_some()
    }

    /// Returns whether this process can no longer listen on an address.
    pub(crate) fn is_closed(&self, address: SocketAddr) -> bool {
        let port = address.port();
        self.stage == Stage::Dropped && port != 0 && port < self.unprivileged_ports
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
        let restrictions = restrictions.unwrap_or_default();
        let landlock = self.confined.as_ref();
        let figures = PrivilegeFigures {
            confined: self.is_confined(),
            capabilities: restrictions.capabilities.into_iter().collect(),
            no_new_privs: restrictions.no_new_privs,
            landlock_abi: landlock.and_then(|confined| confined.landlock.clone().ok()),
            seccomp: restrictions.seccomp,
        };
        (figures, reasons)
    }
}

/// Why a privileged port cannot be opened any more.
pub(crate) const REQUIRES_RESTART: &str =
    "requires restart: the daemon has given up the capability for this port";

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

/// Returns the first port that a process without CAP_NET_BIND_SERVICE can listen on.
fn unprivileged_ports() -> u16 {
    const DEFAULT: u16 = 1024;
    let start = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let start = start.ok().and_then(|start| start.trim().parse().ok());
    start.unwrap_or(DEFAULT)
}
