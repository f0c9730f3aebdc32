//! The caller's end of the control socket.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use futures_util::{SinkExt, StreamExt};
use nix::unistd::{Gid, Group};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_util::codec::{Framed, LinesCodec};

use crate::limits::{REPLY, REPLY_OCTETS_MAX};
use crate::{Command, Reply};

/// Sends a daemon one command. A reply that is an error is returned as [`CallError::Daemon`].
///
/// # Errors
///
/// See [`CallError`]; each prints as one line with the remedy.
pub async fn call(path: impl AsRef<Path>, command: &Command) -> Result<Reply, CallError> {
    let path = path.as_ref();
    match timeout(REPLY, exchange(path, command)).await {
        Ok(Ok(Reply::Error { message })) => Err(CallError::Daemon {
            path: path.to_owned(),
            message,
        }),
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(cause)) => Err(CallError::new(path.to_owned(), cause)),
        Err(_) => Err(CallError::Silent(path.to_owned())),
    }
}

/// Why there is no answer of a daemon.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No socket there.
    #[error("{}: no such socket; is the daemon running? (name another one with --socket)", .0.display())]
    Absent(PathBuf),
    /// Nothing listens on the socket.
    #[error("{}: no answer; the daemon has stopped, start it again", .0.display())]
    Refused(PathBuf),
    /// Not allowed.
    #[error("{}: permission denied; run as root, or as a member of the group {group}", .path.display())]
    Denied {
        /// Which one.
        path: PathBuf,
        /// The group that may use it.
        group: String,
    },
    /// No answer in time.
    #[error("{}: no answer within {} s; the daemon is busy or stuck", .0.display(), REPLY.as_secs())]
    Silent(PathBuf),
    /// The daemon refused.
    #[error("{message}")]
    Daemon {
        /// Which one.
        path: PathBuf,
        /// The daemon's error.
        message: String,
    },
    /// Data in another protocol, or a broken connection.
    #[error("{}: {cause}", .path.display())]
    Broken {
        /// Which one.
        path: PathBuf,
        /// The cause.
        cause: io::Error,
    },
}

impl CallError {
    fn new(path: PathBuf, cause: io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::NotFound => Self::Absent(path),
            io::ErrorKind::ConnectionRefused => Self::Refused(path),
            io::ErrorKind::PermissionDenied => {
                let group = group_of(&path);
                Self::Denied { path, group }
            }
            _ => Self::Broken { path, cause },
        }
    }
}

/// Returns the name of the group of a socket, or of the directory that hides the socket.
fn group_of(path: &Path) -> String {
    let found = path.ancestors().find_map(|path| fs::metadata(path).ok());
    let Some(id) = found.map(|found| Gid::from_raw(found.gid())) else {
        return "of the socket".to_owned();
    };
    let group = Group::from_gid(id).ok().flatten();
    group.map_or_else(|| id.to_string(), |group| group.name)
}

async fn exchange(path: &Path, command: &Command) -> io::Result<Reply> {
    let stream = UnixStream::connect(path).await?;
    let mut lines = Framed::new(stream, LinesCodec::new_with_max_length(REPLY_OCTETS_MAX));
    lines
        .send(serde_json::to_string(command)?)
        .await
        .map_err(io::Error::other)?;
    let Some(line) = lines.next().await else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    Ok(serde_json::from_str(&line.map_err(io::Error::other)?)?)
}

#[cfg(test)]
mod tests {
    use nix::unistd::{Gid, chown, getegid, geteuid};

    use super::*;

    #[test]
    fn denied_call_names_the_group_to_join() {
        let directory = tempfile::tempdir().expect("a directory");
        let own = if geteuid().is_root() {
            // A group without a name.
            let number = Gid::from_raw(4711);
            chown(directory.path(), None, Some(number)).expect("changed");
            number.to_string()
        } else {
            let own = Group::from_gid(getegid()).expect("groups");
            own.map_or_else(|| getegid().to_string(), |group| group.name)
        };
        // The socket is hidden, as by a directory that the caller may not search.
        let hidden = directory.path().join("felix.sock");
        let error = CallError::new(hidden, io::ErrorKind::PermissionDenied.into()).to_string();
        let remedy = format!("run as root, or as a member of the group {own}");
        assert!(error.ends_with(&remedy), "{error}");
        let root = group_of(Path::new("/"));
        assert_eq!(root, "root");
    }
}
