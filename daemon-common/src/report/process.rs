//! The counts of a process with the names of Prometheus' client libraries.

use serde::{Deserialize, Serialize};

/// The values of Prometheus' metrics of a process. A value that `/proc` does not have is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessFigures {
    /// CPU time of the process and the kernel for it, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Open file descriptors.
    pub open_fds: Option<u64>,
    /// Their limit.
    pub max_fds: Option<u64>,
    /// Virtual memory, in bytes.
    pub virtual_memory_bytes: Option<u64>,
    /// Its limit; `u64::MAX` without one.
    pub virtual_memory_max_bytes: Option<u64>,
    /// Resident memory, in bytes.
    pub resident_memory_bytes: Option<u64>,
    /// The start, in milliseconds of Unix time.
    pub start_ms: Option<u64>,
}
