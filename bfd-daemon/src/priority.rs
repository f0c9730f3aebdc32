//! The precedence of this process over others, as far as the system permits it.

#![allow(unsafe_code)] // One system call with plain numbers.

use std::io;

use nix::sys::mman::{MlockAllFlags, mlockall};

/// The nice value: the process gets the processor before nearly all others, and yet cannot take all of it.
const NICE: libc::c_int = -15;

/// The result of [`raise`].
#[derive(Clone, Debug)]
pub(crate) struct Precedence {
    /// Whether the memory of the process is never written to a disk.
    pub(crate) memory: Result<(), String>,
    /// Whether the priority is raised.
    pub(crate) priority: Result<(), String>,
}

/// Locks the memory of this process. Must be called before threads start: the program and what it has
/// allocated are in memory at once, and later memory when it is first used. So stacks take what they use.
pub(crate) fn lock() -> nix::Result<()> {
    let on_fault = MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT);
    mlockall(MlockAllFlags::MCL_CURRENT)?;
    mlockall(MlockAllFlags::MCL_FUTURE | on_fault)
}

/// Raises the priority of this process, and returns it with the result of [`lock`].
pub(crate) fn raise(locked: nix::Result<()>) -> Precedence {
    // SAFETY: the call takes three numbers, and changes only the priority of this process.
    let raised = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    let priority = match raised {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().to_string()),
    };
    Precedence {
        memory: locked.map_err(|error| error.to_string()),
        priority,
    }
}

impl Precedence {
    /// Returns a note for the operator if something was not permitted.
    pub(crate) fn note(&self) -> Option<String> {
        let failed = [
            ("memory is not locked", self.memory.as_ref().err()),
            ("priority is not raised", self.priority.as_ref().err()),
        ];
        let failed: Vec<String> = failed
            .iter()
            .filter_map(|(what, why)| Some(format!("{what}: {}", (*why)?)))
            .collect();
        (!failed.is_empty()).then(|| {
            format!(
                "{}; under load, the neighbors may find this host dead: use the packaged unit, which has \
                 the capabilities for it",
                failed.join("; ")
            )
        })
    }
}
