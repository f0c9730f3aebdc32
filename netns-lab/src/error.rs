//! What can go wrong when a lab is built.

use std::io;
use std::time::Duration;

/// An operation on a lab that failed. Each prints as one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system does not let this user make the namespaces of a lab.
    #[error("this system does not allow {namespace} namespaces to this user ({source})")]
    Forbidden {
        /// Which kind.
        namespace: &'static str,
        /// What the kernel answered.
        source: nix::Error,
    },
    /// A system call about namespaces, mounts or sockets.
    #[error("{doing} of {name}: {source}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// To which host, mount point or process.
        name: String,
        /// What the kernel answered.
        source: nix::Error,
    },
    /// A file or a thread.
    #[error("{doing} {name}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        name: String,
        /// What came back.
        source: io::Error,
    },
    /// A request over rtnetlink.
    #[error("{doing} {name}: {source}")]
    Link {
        /// What was being done.
        doing: &'static str,
        /// To which link, address or route.
        name: String,
        /// What the kernel answered.
        source: rtnetlink::Error,
    },
    /// There is no link of this name.
    #[error("no link {0}")]
    NoLink(String),
    /// A process ended that should be running.
    #[error("{name} ended ({status}); the end of its log:\n{tail}")]
    Ended {
        /// Which one.
        name: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// The last lines it wrote.
        tail: String,
    },
    /// Something did not come about in time.
    #[error("not within {limit:?}: {what}")]
    Late {
        /// What was waited for.
        what: String,
        /// For how long.
        limit: Duration,
    },
    /// A host, workload or daemon that the lab does not have.
    #[error("no {kind} called {name} in this lab")]
    Unknown {
        /// host, workload or daemon.
        kind: &'static str,
        /// The name asked for.
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
