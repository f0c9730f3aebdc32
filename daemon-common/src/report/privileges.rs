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
    /// The process that opens ports and writes kernel routes for this one.
    pub parent: Option<ParentFigures>,
}

/// The parent process of a confined daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ParentFigures {
    /// Its process id.
    pub pid: u32,
    /// The capabilities that it holds.
    pub capabilities: Vec<String>,
    /// How often it has started the daemon again after a crash.
    pub restarts: u32,
    /// How the daemon ended before the last restart.
    pub last: String,
    /// The version of landlock that restricts its writes; none if the kernel does not have it.
    pub landlock_abi: Option<u32>,
    /// It has a filter of system calls.
    pub seccomp: bool,
}

impl ParentFigures {
    /// Returns the operator's note on crashes.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let Self { restarts, last, .. } = self;
        (*restarts > 0).then(|| format!("restarted after a crash, {restarts} times; last: {last}"))
    }
}

impl fmt::Display for ParentFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.pid)?;
        match self.capabilities.as_slice() {
            [] => f.write_str("no capabilities")?,
            held => f.write_str(&held.join(" "))?,
        }
        match self.landlock_abi {
            Some(abi) => write!(f, ", writes restricted (landlock {abi})")?,
            None => f.write_str(", writes not restricted")?,
        }
        f.write_str(calls_text(self.seccomp))
    }
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
        f.write_str(calls_text(self.seccomp))
    }
}

const fn calls_text(is_restricted: bool) -> &'static str {
    match is_restricted {
        true => ", system calls restricted (seccomp)",
        false => ", system calls not restricted",
    }
}

#[cfg(test)]
mod tests {
    use super::{ParentFigures, PrivilegeFigures};

    #[test]
    fn privileges_are_one_line() {
        let dropped = PrivilegeFigures {
            confined: true,
            capabilities: Vec::new(),
            no_new_privs: true,
            landlock_abi: Some(7),
            seccomp: true,
            parent: None,
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
    #[test]
    fn parent_is_one_line() {
        let parent = ParentFigures {
            pid: 17,
            capabilities: vec![
                "CAP_NET_ADMIN".to_owned(),
                "CAP_NET_BIND_SERVICE".to_owned(),
            ],
            landlock_abi: Some(6),
            ..ParentFigures::default()
        };
        let text = "17, CAP_NET_ADMIN CAP_NET_BIND_SERVICE, writes restricted (landlock 6), \
                    system calls not restricted";
        assert_eq!((parent.to_string().as_str(), parent.note()), (text, None));
        let again = ParentFigures {
            restarts: 2,
            last: "SIGKILL".to_owned(),
            ..parent
        };
        let note = "restarted after a crash, 2 times; last: SIGKILL";
        assert_eq!(again.note().as_deref(), Some(note));
    }
}
