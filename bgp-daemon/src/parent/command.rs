//! The commands of a parser to its parent, and the answers, as octets.
//!
//! Both are closed enums. A command is compared with [`super::Bounds`] before it is executed.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use host_guard::{Cover, Holder, Loaded};

use super::octets::{Octets, put_address, put_set, put_sized, put_text};

/// A command of a parser.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bind a TCP socket to this address, which the parser may not.
    Bind(SocketAddr),
    /// Load the host guard for these ports and peers. The parent adds the users.
    LoadGuard {
        /// The ports.
        ports: BTreeSet<u16>,
        /// The peers at another port.
        peers: BTreeSet<SocketAddr>,
    },
    /// Remove this daemon's entries of the host guard.
    WithdrawGuard,
    /// Read the host guard.
    ReadGuard,
    /// Open the program's own way to its parent, see [`super::Duty::open`].
    Open,
    /// Report the parent's privileges.
    Report,
    /// Read the configuration file again, which bounds further commands.
    ReadFile,
}

/// The parent's answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is executed; the descriptors of the command are attached.
    Done,
    /// The descriptors of [`Command::Open`] are attached, with a note of the program.
    Opened(Vec<u8>),
    /// The host guard as read; `None` if the kernel has no such table.
    Guard(Option<Loaded>),
    /// The parent's privileges.
    Report(ParentReport),
    /// The command was refused, or failed.
    Refused(Refusal),
}

/// Why a command was not executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The error number of the kernel; 0 if the parent refused the command.
    pub errno: u16,
    /// Whether the parent lacks the permission.
    pub is_permission: bool,
    /// The reason.
    pub why: String,
}

/// The parent as it reports itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParentReport {
    /// Its process id.
    pub pid: u32,
    /// The capabilities that it holds, as the kernel's mask.
    pub capabilities: u64,
    /// How often it has started a parser again.
    pub restarts: u32,
    /// How the last parser ended.
    pub last: String,
    /// The version of landlock that restricts its writes; none if the kernel does not have it.
    pub landlock_abi: Option<u32>,
    /// It has a filter of system calls.
    pub seccomp: bool,
    /// Reasons for restrictions that are not in effect.
    pub incomplete: String,
}

impl Command {
    /// Returns the octets of this command.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Bind(address) => {
                to.push(1);
                put_address(&mut to, *address);
            }
            Self::LoadGuard { ports, peers } => {
                to.push(2);
                put_set(&mut to, ports, |to, port| to.extend(port.to_be_bytes()));
                put_set(&mut to, peers, put_address);
            }
            Self::WithdrawGuard => to.push(3),
            Self::ReadGuard => to.push(4),
            Self::Open => to.push(5),
            Self::Report => to.push(6),
            Self::ReadFile => to.push(7),
        }
        to
    }

    /// Parses octets; `None` if they are no command.
    #[must_use]
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let mut octets = Octets(octets);
        let command = match octets.octet()? {
            1 => Self::Bind(octets.address()?),
            2 => Self::LoadGuard {
                ports: octets.set(Octets::u16)?,
                peers: octets.set(Octets::address)?,
            },
            3 => Self::WithdrawGuard,
            4 => Self::ReadGuard,
            5 => Self::Open,
            6 => Self::Report,
            7 => Self::ReadFile,
            _ => return None,
        };
        octets.is_empty().then_some(command)
    }
}

impl Answer {
    /// Returns the octets of this answer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Self::Done => to.push(1),
            Self::Opened(note) => {
                to.push(2);
                put_sized(&mut to, note);
            }
            Self::Guard(None) => to.push(3),
            Self::Guard(Some(loaded)) => {
                to.push(4);
                put_loaded(&mut to, loaded);
            }
            Self::Report(report) => {
                to.push(5);
                to.extend(report.pid.to_be_bytes());
                to.extend(report.capabilities.to_be_bytes());
                to.extend(report.restarts.to_be_bytes());
                put_text(&mut to, &report.last);
                to.push(report.landlock_abi.is_some().into());
                to.extend(report.landlock_abi.unwrap_or_default().to_be_bytes());
                to.push(report.seccomp.into());
                put_text(&mut to, &report.incomplete);
            }
            Self::Refused(refusal) => {
                to.push(6);
                to.extend(refusal.errno.to_be_bytes());
                to.push(refusal.is_permission.into());
                put_text(&mut to, &refusal.why);
            }
        }
        to
    }

    /// Parses octets; `None` if they are no answer.
    #[must_use]
    pub fn decode(octets: &[u8]) -> Option<Self> {
        let mut octets = Octets(octets);
        let answer = match octets.octet()? {
            1 => Self::Done,
            2 => Self::Opened(octets.sized()?.to_vec()),
            3 => Self::Guard(None),
            4 => Self::Guard(Some(loaded(&mut octets)?)),
            5 => Self::Report(ParentReport {
                pid: octets.u32()?,
                capabilities: octets.u64()?,
                restarts: octets.u32()?,
                last: octets.text()?,
                landlock_abi: {
                    let (is_there, abi) = (octets.flag()?, octets.u32()?);
                    is_there.then_some(abi)
                },
                seccomp: octets.flag()?,
                incomplete: octets.text()?,
            }),
            6 => Self::Refused(Refusal {
                errno: octets.u16()?,
                is_permission: octets.flag()?,
                why: octets.text()?,
            }),
            _ => return None,
        };
        octets.is_empty().then_some(answer)
    }
}

fn put_loaded(to: &mut Vec<u8>, loaded: &Loaded) {
    to.extend(loaded.dropped.to_be_bytes());
    to.push(loaded.broken.is_some().into());
    put_text(to, loaded.broken.as_deref().unwrap_or_default());
    let nothing = Cover::default();
    for holder in Holder::ALL {
        let held = loaded.entries.get(&holder);
        to.push(held.is_some().into());
        let cover = held.unwrap_or(&nothing);
        put_set(to, &cover.ports, |to, port| to.extend(port.to_be_bytes()));
        put_set(to, &cover.peers, put_address);
        put_set(to, &cover.users, |to, user| to.extend(user.to_be_bytes()));
    }
}

fn loaded(octets: &mut Octets<'_>) -> Option<Loaded> {
    let dropped = octets.u64()?;
    let (is_broken, broken) = (octets.flag()?, octets.text()?);
    let mut loaded = Loaded {
        dropped,
        broken: is_broken.then_some(broken),
        ..Loaded::default()
    };
    for holder in Holder::ALL {
        let is_held = octets.flag()?;
        let cover = Cover {
            ports: octets.set(Octets::u16)?,
            peers: octets.set(Octets::address)?,
            users: octets.set(Octets::u32)?,
        };
        if is_held {
            loaded.entries.insert(holder, cover);
        }
    }
    Some(loaded)
}

#[cfg(test)]
mod tests;
