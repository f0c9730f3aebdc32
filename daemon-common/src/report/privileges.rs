//! The report on the privileges of a daemon.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The restrictions of a process that are in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrivilegeFigures {
    /// Whether the daemon confines itself; false with `privileges = "keep"`.
    pub confined: bool,
    /// The capabilities that at least one thread holds.
    pub capabilities: Vec<String>,
    /// No thread can get privileges by a program that it executes.
    pub no_new_privs: bool,
    /// The version of landlock that restricts files; none if the kernel does not have it.
    pub landlock_abi: Option<u32>,
    /// Every thread has a filter of system calls.
    pub seccomp: bool,
}

impl fmt::Display for PrivilegeFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.confined {
            f.write_str("kept, by the configuration; ")?;
        }
        match self.capabilities.as_slice() {
            [] => f.write_str("no capabilities")?,
            [one] => f.write_str(one)?,
            [first, ..] => write!(f, "{first} and {} more", self.capabilities.len() - 1)?,
        }
        match self.landlock_abi {
            Some(abi) => write!(f, ", files restricted (landlock {abi})")?,
            None => f.write_str(", files not restricted")?,
        }
        f.write_str(match self.seccomp {
            true => ", system calls restricted (seccomp)",
            false => ", system calls not restricted",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::PrivilegeFigures;

    #[test]
    fn privileges_are_one_line() {
        let dropped = PrivilegeFigures {
            confined: true,
            capabilities: Vec::new(),
            no_new_privs: true,
            landlock_abi: Some(7),
            seccomp: true,
        };
        let text =
            "no capabilities, files restricted (landlock 7), system calls restricted (seccomp)";
        assert_eq!(dropped.to_string(), text);
        let kept = PrivilegeFigures {
            capabilities: vec!["CAP_CHOWN".to_owned(), "CAP_KILL".to_owned()],
            ..PrivilegeFigures::default()
        };
        let text = "kept, by the configuration; CAP_CHOWN and 1 more, files not restricted, \
                    system calls not restricted";
        assert_eq!(kept.to_string(), text);
    }
}
