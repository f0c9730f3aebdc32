//! The caller's end of the control socket.

use std::io;
use std::path::{Path, PathBuf};

use futures_util::{SinkExt, StreamExt};
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
    #[error("{}: permission denied; run as root, or as a member of the socket's group", .0.display())]
    Denied(PathBuf),
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
            io::ErrorKind::PermissionDenied => Self::Denied(path),
            _ => Self::Broken { path, cause },
        }
    }
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
