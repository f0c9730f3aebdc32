//! Kernel settings of the calling thread's network namespace.

use std::io::{ErrorKind, Write as _};

use crate::failure::{Code, Failure};

/// Writes a setting below `/proc/sys/net`. A write is skipped if the kernel lacks the setting;
/// without IPv6 none of its settings exists.
pub(super) fn set(path: &str, value: &str) -> Result<(), Failure> {
    let file = format!("/proc/sys/net/{path}");
    let written = std::fs::OpenOptions::new()
        .write(true)
        .open(file)
        .and_then(|mut file| file.write_all(value.as_bytes()));
    match written {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => {
            let path = path.replace('/', ".");
            let message = format!("sysctl net.{path} = {value}: {error}");
            Err(Failure::new(Code::Kernel, message))
        }
    }
}
