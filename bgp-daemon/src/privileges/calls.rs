//! The system calls of a confined process, as a filter of seccomp.
//!
//! Two filters: the first allows [`ALLOWED`] and a few calls with certain arguments, and answers all
//! others with ENOSYS, as an older kernel would: a newer C library then uses an older call. The
//! second one answers [`REFUSED`] with EPERM, and is installed last, because the kernel takes the
//! error of the last filter.
//!
//! A parent has a longer list, since its parser inherits its filters and adds its own.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use libc::{c_int, c_long};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

use super::call_table::{
    ALLOWED, ALLOWED_OF_ARCH, FCNTLS, IOCTLS, OF_PARENT, OF_PARENT_OF_ARCH, REFUSED,
    REFUSED_OF_ARCH,
};

/// The rules of a filter: the calls, each with alternatives of conditions on its arguments.
type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// A condition: the index of the argument, and the comparison of its low 32 bits with the value.
type Condition = (u8, SeccompCmpOp, c_int);

/// A process of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It parses BGP.
    Parser,
    /// It starts the parser, and executes its commands.
    Parent,
}

/// Returns the calls that are refused with EPERM to a process of this role, with their names.
pub fn refused(role: Role) -> impl Iterator<Item = (&'static str, c_long)> {
    let all = REFUSED.iter().chain(REFUSED_OF_ARCH).copied();
    all.filter(move |call| role == Role::Parser || !of_parent().any(|allowed| allowed == *call))
}

/// Returns the calls of a parent beside those of its parser.
fn of_parent() -> impl Iterator<Item = (&'static str, c_long)> {
    OF_PARENT.iter().chain(OF_PARENT_OF_ARCH).copied()
}

/// Installs the filters for all threads. They stay for the life of the process.
///
/// # Errors
///
/// The kernel has no seccomp, or the architecture is unknown to the compiler of filters.
pub(super) fn confine(role: Role) -> Result<(), seccompiler::Error> {
    let allow = filter(
        allowed(role)?,
        SeccompAction::Errno(errno(libc::ENOSYS)),
        SeccompAction::Allow,
    )?;
    let plain = refused(role).map(|(_, call)| (call, Vec::new()));
    let refuse = filter(
        plain.collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno(libc::EPERM)),
    )?;
    apply_filter_all_threads(&allow)?;
    apply_filter_all_threads(&refuse)
}

fn filter(
    rules: Rules,
    otherwise: SeccompAction,
    matched: SeccompAction,
) -> Result<BpfProgram, seccompiler::Error> {
    let arch: TargetArch = ARCH.try_into()?;
    Ok(SeccompFilter::new(rules, otherwise, matched, arch)?.try_into()?)
}

/// Returns the allowed calls of a role. All that a parser may do, its parent may do.
fn allowed(role: Role) -> Result<Rules, seccompiler::Error> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let all = ALLOWED.iter().chain(ALLOWED_OF_ARCH);
    let mut rules: Rules = all.map(|(_, call)| (*call, Vec::new())).collect();
    let is_parent = role == Role::Parent;
    let mut allow = |call, alternatives: &[&[Condition]]| -> Result<(), seccompiler::Error> {
        let alternatives = alternatives.iter().map(|conditions| rule(conditions));
        rules.insert(call, alternatives.collect::<Result<_, _>>()?);
        Ok(())
    };
    // A thread of this process, not a process; and no namespace with it.
    let namespaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    let thread = MaskedEq(bits(libc::CLONE_THREAD | namespaces));
    let process = MaskedEq(bits(namespaces));
    let clones: [&[Condition]; 2] = [&[(0, thread, libc::CLONE_THREAD)], &[(0, process, 0)]];
    allow(libc::SYS_clone, &clones[..1 + usize::from(is_parent)])?;
    // A thread with a file mode mask of its own makes the control sockets, whose mode stays as it is.
    allow(libc::SYS_unshare, &[&[(0, Eq, libc::CLONE_FS)]])?;
    // No memory becomes code, neither written memory nor a written file: all libraries are loaded.
    let without = |flag| MaskedEq(bits(flag));
    let no_code: [Condition; 1] = [(2, without(libc::PROT_EXEC), 0)];
    allow(libc::SYS_mmap, &[&no_code])?;
    allow(libc::SYS_mprotect, &[&no_code])?;
    let routes = [(0, Eq, libc::AF_NETLINK), (2, Eq, libc::NETLINK_ROUTE)];
    let guard = [(0, Eq, libc::AF_NETLINK), (2, Eq, libc::NETLINK_NETFILTER)];
    let families: [&[Condition]; 5] = [
        &[(0, Eq, libc::AF_UNIX)],
        &[(0, Eq, libc::AF_INET)],
        &[(0, Eq, libc::AF_INET6)],
        &routes,
        &guard,
    ];
    allow(libc::SYS_socket, &families[..4 + usize::from(is_parent)])?;
    let command = |command: &c_int| vec![(1, Eq, *command)];
    let no_signal = vec![(1, Eq, libc::F_SETFL), (2, without(libc::O_ASYNC), 0)];
    let fcntls: Vec<_> = FCNTLS.iter().map(command).chain([no_signal]).collect();
    allow(libc::SYS_fcntl, &slices(&fcntls))?;
    let ioctls: Vec<_> = IOCTLS.iter().map(command).collect();
    allow(libc::SYS_ioctl, &slices(&ioctls))?;
    // Limits of the own process: a lower one kills another process of the same user.
    allow(libc::SYS_prlimit64, &[&[(0, Eq, 0)]])?;
    // `abort` sends itself a signal.
    let own = c_int::try_from(std::process::id()).unwrap_or_default();
    allow(libc::SYS_tgkill, &[&[(0, Eq, own)]])?;
    if is_parent {
        rules.extend(of_parent().map(|(_, call)| (call, Vec::new())));
    }
    Ok(rules)
}

fn slices(alternatives: &[Vec<Condition>]) -> Vec<&[Condition]> {
    alternatives.iter().map(Vec::as_slice).collect()
}

fn rule(conditions: &[Condition]) -> Result<SeccompRule, seccompiler::Error> {
    let of = |(argument, comparison, value): &Condition| {
        let length = SeccompCmpArgLen::Dword;
        SeccompCondition::new(*argument, length, comparison.clone(), bits(*value))
    };
    let conditions: Result<Vec<_>, _> = conditions.iter().map(of).collect();
    Ok(SeccompRule::new(conditions?)?)
}

/// The bits of a C integer.
fn bits(value: c_int) -> u64 {
    u64::from(value.cast_unsigned())
}

fn errno(error: c_int) -> u32 {
    error.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without conditions, a call is allowed with any arguments.
    #[test]
    fn parent_may_do_all_that_its_parser_may() {
        let (parent, parser) = (allowed(Role::Parent), allowed(Role::Parser));
        let (parent, parser) = (parent.expect("rules"), parser.expect("rules"));
        for (call, conditions) in parser {
            let wider = &parent[&call];
            let has = |condition| wider.is_empty() || wider.contains(condition);
            assert!(!conditions.is_empty() || wider.is_empty(), "{call}");
            assert!(conditions.iter().all(has), "{call}");
        }
        assert!(refused(Role::Parent).all(|(_, call)| !parent.contains_key(&call)));
    }
}
