//! Errors of a lab.

use std::io;
use std::time::Duration;

/// An operation on a lab that failed. Each prints as one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system forbids this user to create the namespaces of a lab.
    #[error("this system does not allow {namespace} namespaces to this user ({source})")]
    Forbidden {
        /// The kind of namespace.
        namespace: &'static str,
        /// The kernel's error.
        source: nix::Error,
    },
    /// A system call for namespaces, mounts or sockets failed.
    #[error("{doing} of {name}: {source}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The host, mount point or process.
        name: String,
        /// The kernel's error.
        source: nix::Error,
    },
    /// An operation on a file or a thread failed.
    #[error("{doing} {name}: {source}")]
    Io {
        /// The operation.
        doing: &'static str,
        /// Its object.
        name: String,
        /// The error.
        source: io::Error,
    },
    /// A request over rtnetlink failed.
    #[error("{doing} {name}: {source}")]
    Link {
        /// The operation.
        doing: &'static str,
        /// The link, address or route.
        name: String,
        /// The kernel's error.
        source: rtnetlink::Error,
    },
    /// There is no link of this name.
    #[error("no link {0}")]
    NoLink(String),
    /// A process ended that should be running.
    #[error("{name} ended ({status}); the end of its log:\n{tail}")]
    Ended {
        /// Its name.
        name: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// The last lines of its output.
        tail: String,
    },
    /// A condition was not met in time.
    #[error("not within {limit:?}: {what}")]
    Late {
        /// The condition.
        what: String,
        /// The time limit.
        limit: Duration,
    },
    /// A host, workload or daemon that the lab does not have.
    #[error("no {kind} called {name} in this lab")]
    Unknown {
        /// host, workload or daemon.
        kind: &'static str,
        /// The requested name.
        name: String,
    },
}

impl Error {
    pub(crate) fn io(doing: &'static str, name: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            doing,
            name: name.into(),
            source,
        }
    }

    pub(crate) fn system(doing: &'static str, name: impl Into<String>, source: nix::Error) -> Self {
        Self::System {
            doing,
            name: name.into(),
            source,
        }
    }

    pub(crate) fn link(
        doing: &'static str,
        name: impl Into<String>,
        source: rtnetlink::Error,
    ) -> Self {
        Self::Link {
            doing,
            name: name.into(),
            source,
        }
    }
}
