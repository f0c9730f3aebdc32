//! The daemon's end of the control socket.
//!
//! A daemon has one loop that owns all its state. [`Control::next`] gives that loop one request at
//! a time; everything else (accepting, framing, timeouts) runs beside it in small tasks, each
//! bounded by a constant of [`limits`](crate::limits).
//!
//! ```no_run
//! # async fn run() -> Result<(), daemon_common::control::BindError> {
//! # fn answer(_: &daemon_common::Command) -> daemon_common::Reply { daemon_common::Reply::error("") }
//! let mut control = daemon_common::control::Control::bind(daemon_common::paths::control("felix"))?;
//! loop {
//!     tokio::select! {
//!         request = control.next() => {
//!             let reply = answer(&request.command);
//!             request.reply(reply);
//!         }
//!         // … the daemon's own events …
//!     }
//! }
//! # }
//! ```

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener as BlockingListener, UnixStream as BlockingStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, umask};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::codec::{Framed, LinesCodec, LinesCodecError};

use crate::bird::{self, View};
use crate::events::{Event, Text, emit};
use crate::health::{self, HealthServer, Liveness, Pulse};
use crate::limits::{CONNECTIONS_MAX, IDLE, REQUEST_OCTETS_MAX, REQUESTS_QUEUED_MAX, WRITE};
pub use crate::request::Request;
use crate::request::ask;
use crate::scrape_tls::{Acceptor, ScrapeTls};
use crate::{Reply, metrics};

/// The bound socket. Dropping it closes the socket and removes its file.
#[derive(Debug)]
pub struct Control {
    requests: mpsc::Receiver<Request>,
    sender: mpsc::Sender<Request>,
    doors: Vec<Door>,
}

/// A socket for scrapers, which is closed when this is dropped.
#[derive(Debug)]
pub struct Scrapes {
    _door: Door,
}

/// One socket, and the task that takes its clients.
#[derive(Debug)]
struct Door {
    acceptor: JoinHandle<()>,
    /// Its file, if it has one.
    path: Option<PathBuf>,
}

/// A socket, by how its clients speak.
#[derive(Debug)]
enum Listener {
    /// Lines of JSON.
    Ours(UnixListener),
    /// BIRD's language.
    Bird(UnixListener, View),
    /// HTTP of scrapers.
    Metrics(TcpListener, Option<Arc<Acceptor>>),
    /// HTTP of probes.
    Health(TcpListener, Liveness),
}

/// One client of a socket.
#[derive(Debug)]
enum Client {
    Ours(UnixStream),
    Bird(UnixStream, View),
    Metrics(TcpStream, Option<Arc<Acceptor>>),
    Health(TcpStream, Liveness),
}

impl Listener {
    async fn accept(&self) -> io::Result<Client> {
        Ok(match self {
            Self::Ours(listener) => Client::Ours(listener.accept().await?.0),
            Self::Bird(listener, view) => Client::Bird(listener.accept().await?.0, *view),
            Self::Metrics(listener, tls) => {
                Client::Metrics(listener.accept().await?.0, tls.clone())
            }
            Self::Health(listener, liveness) => {
                Client::Health(listener.accept().await?.0, liveness.clone())
            }
        })
    }
}

impl Client {
    async fn serve(self, requests: mpsc::Sender<Request>) {
        match self {
            Self::Ours(stream) => serve(stream, requests).await,
            Self::Bird(stream, view) => bird::serve(stream, requests, view).await,
            Self::Metrics(stream, tls) => metrics::serve(stream, tls, requests).await,
            Self::Health(stream, liveness) => health::serve(stream, requests, liveness).await,
        }
    }
}

impl Control {
    /// Binds the socket with mode 0660. Creates its directory if needed, and replaces a socket on
    /// which no daemon answers. Must be called inside a tokio runtime.
    ///
    /// # Errors
    ///
    /// See [`BindError`]; each prints as one line with the remedy.
    pub fn bind(path: impl Into<PathBuf>) -> Result<Self, BindError> {
        let (sender, requests) = mpsc::channel(REQUESTS_QUEUED_MAX);
        let mut control = Self {
            requests,
            sender,
            doors: Vec::new(),
        };
        control.open(path.into(), Listener::Ours)?;
        Ok(control)
    }

    /// Binds a further socket in the same way, for BIRD's tools; see [`bird`]. [`next`](Self::next)
    /// returns its queries, too.
    ///
    /// # Errors
    ///
    /// As [`bind`](Self::bind).
    pub fn bind_bird(&mut self, path: impl Into<PathBuf>, view: View) -> Result<(), BindError> {
        self.open(path.into(), |listener| Listener::Bird(listener, view))
    }

    /// Listens for metrics scrapers on a TCP address; see [`metrics`]. Returns the address, with
    /// the port that the kernel has assigned if it was 0.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on.
    pub fn bind_metrics(&mut self, address: SocketAddr) -> Result<SocketAddr, BindError> {
        let (scrapes, bound) = self.scrapes(address, None)?;
        self.doors.push(scrapes._door);
        Ok(bound)
    }

    /// Listens in the same way, until the result is dropped, optionally over TLS.
    ///
    /// # Errors
    ///
    /// As [`bind_metrics`](Self::bind_metrics); or a file cannot be used.
    pub fn scrapes(
        &self,
        address: SocketAddr,
        tls: Option<ScrapeTls>,
    ) -> Result<(Scrapes, SocketAddr), BindError> {
        let tls = tls.map(Acceptor::open).transpose();
        let tls = tls.map_err(BindError::ScrapeTls)?;
        let bind = || {
            let (listener, bound) = bind_tcp(address)?;
            Ok((TcpListener::from_std(listener)?, bound))
        };
        let (listener, bound) = bind().map_err(|cause| BindError::Metrics(address, cause))?;
        emit(Event::ListenerMetrics { local: bound });
        let door = self.door(Listener::Metrics(listener, tls.map(Arc::new)), None);
        Ok((Scrapes { _door: door }, bound))
    }

    /// Listens for probes on a TCP address, on a thread of its own; see [`health`]. The loop is alive
    /// while its turns are not further apart than `within`; `None`: any time. Returns also the address,
    /// with the port that the kernel has assigned if it was 0.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on.
    pub fn health(
        &self,
        address: SocketAddr,
        pulse: Pulse,
        within: Option<Duration>,
    ) -> Result<(HealthServer, SocketAddr), BindError> {
        let requests = self.sender.clone();
        let start = || {
            let (listener, bound) = bind_tcp(address)?;
            let server = HealthServer::start(listener, pulse, within, |listener, liveness| {
                accept(Listener::Health(listener, liveness), requests)
            })?;
            Ok((server, bound))
        };
        let (server, bound) = start().map_err(|cause| BindError::Health(address, cause))?;
        emit(Event::ListenerHealth { local: bound });
        Ok((server, bound))
    }

    fn open(
        &mut self,
        path: PathBuf,
        listener: impl FnOnce(UnixListener) -> Listener,
    ) -> Result<(), BindError> {
        match bind_listener(&path) {
            Ok(bound) => {
                let door = self.door(listener(bound), Some(path));
                self.doors.push(door);
            }
            Err(cause) => return Err(BindError::new(path, cause)),
        }
        Ok(())
    }

    fn door(&self, listener: Listener, path: Option<PathBuf>) -> Door {
        let acceptor = tokio::spawn(accept(listener, self.sender.clone()));
        Door { acceptor, path }
    }

    /// Waits for the next request. Cancel-safe: no request is lost when the future is dropped.
    pub async fn next(&mut self) -> Request {
        match self.requests.recv().await {
            Some(request) => request,
            // `self` has a sender.
            None => std::future::pending().await,
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.acceptor.abort();
        if let Some(path) = &self.path {
            // The file may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Why a socket for operators cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another daemon answers there.
    #[error(
        "control socket {0}: a running daemon answers there; stop it, or set another `control`"
    )]
    InUse(PathBuf),
    /// The path holds something else.
    #[error("control socket {0}: the path exists and is not a socket; set another `control`")]
    NotASocket(PathBuf),
    /// No permission.
    #[error(
        "control socket {0}: permission denied; run as a user with write permission there, or set another `control`"
    )]
    Denied(PathBuf),
    /// Anything else.
    #[error("control socket {0}: {1}")]
    Io(PathBuf, io::Error),
    /// The address for scrapers cannot be had.
    #[error(
        "metrics: cannot listen on {0}: {1}; set another `metrics.listen`, or `prometheusMetricsPort`"
    )]
    Metrics(SocketAddr, io::Error),
    /// A file for scrapers over TLS cannot be used.
    #[error("metrics: no TLS: {0}; correct the file, or `prometheusMetricsCertFile`")]
    ScrapeTls(String),
    /// The address for probes cannot be had.
    #[error("health: cannot listen on {0}: {1}; set another `healthPort` or `healthHost`")]
    Health(SocketAddr, io::Error),
}

impl BindError {
    fn new(path: PathBuf, cause: io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(path),
            io::ErrorKind::AlreadyExists => Self::NotASocket(path),
            io::ErrorKind::PermissionDenied => Self::Denied(path),
            _ => Self::Io(path, cause),
        }
    }
}

fn bind_tcp(address: SocketAddr) -> io::Result<(std::net::TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

fn bind_listener(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        std::fs::create_dir_all(directory)?;
    }
    remove_stale(path)?;
    let listener = bind_with_mode(path)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Mode of the sockets for operators.
const MODE: u32 = 0o660;

/// Binds a socket with [`MODE`]. A confined daemon cannot change the mode of a file, so the socket
/// has it from the start.
fn bind_with_mode(path: &Path) -> io::Result<BlockingListener> {
    let bind = || {
        // The mask is this thread's own from here on: other threads may make files meanwhile. In a
        // container that forbids it, the mask is the daemon's for this moment.
        let _ = unshare(CloneFlags::CLONE_FS);
        let former = umask(Mode::from_bits_truncate(0o777 & !MODE));
        let bound = BlockingListener::bind(path);
        umask(former);
        bound
    };
    let bound = thread::scope(|scope| scope.spawn(bind).join());
    let listener = bound.map_err(|_| io::Error::other("the thread that binds it panicked"))??;
    // Where the directory has a default access control list, the mask has no effect.
    if std::fs::symlink_metadata(path)?.permissions().mode() & 0o777 != MODE {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))?;
    }
    Ok(listener)
}

/// Removes the socket of a dead daemon; keeps a socket on which a daemon answers, and any other
/// file.
fn remove_stale(path: &Path) -> io::Result<()> {
    let kind = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !kind.is_socket() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    match BlockingStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}

async fn accept(listener: Listener, requests: mpsc::Sender<Request>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut serving = tokio::task::JoinSet::new();
    loop {
        while serving.try_join_next().is_some() {}
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok(client) => {
                let requests = requests.clone();
                serving.spawn(async move {
                    client.serve(requests).await;
                    drop(slot);
                });
            }
            Err(error) => {
                // Out of descriptors, for example: wait until a connection closes.
                let reason = Text::new(error);
                emit(Event::ListenerControlFailed { reason });
                if serving.join_next().await.is_none() {
                    tokio::time::sleep(WRITE).await;
                }
            }
        }
    }
}

async fn serve(stream: UnixStream, requests: mpsc::Sender<Request>) {
    let codec = LinesCodec::new_with_max_length(REQUEST_OCTETS_MAX);
    let mut lines = Framed::new(stream, codec);
    while let Ok(Some(line)) = timeout(IDLE, lines.next()).await {
        let (reply, last) = match line {
            Ok(line) => (answer(&line, &requests).await, false),
            Err(LinesCodecError::MaxLineLengthExceeded) => (
                Reply::error(format!("a request has at most {REQUEST_OCTETS_MAX} octets")),
                true,
            ),
            Err(LinesCodecError::Io(_)) => return,
        };
        let text = serde_json::to_string(&reply)
            .unwrap_or_else(|error| format!(r#"{{"error":{{"message":"unprintable: {error}"}}}}"#));
        let sent = timeout(WRITE, lines.send(text)).await;
        if last || !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

async fn answer(line: &str, requests: &mpsc::Sender<Request>) -> Reply {
    let command = match serde_json::from_str(line) {
        Ok(command) => command,
        Err(error) => return Reply::error(format!("unknown command: {error}")),
    };
    ask(requests, command).await
}

#[cfg(test)]
mod tests;
