//! Sessions that neighbors dial.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bgp_speaker::bgp_fsm::SessionConfig;
use bgp_speaker::bgp_proto::notification::cease;
use bgp_speaker::bgp_proto::{Notification, Prefix};
use bytes::BytesMut;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};

use crate::closing::Closing;
use crate::filter::{Source, sources_of};
use crate::gtsm;
use crate::keys::{Keyless, Keys};
use crate::limits::{ACCEPT_PAUSE, LINGER, LISTENER_REFUSED_MAX};
use crate::listen_socket::{Insecure, ListenSocket, Required};
use crate::sockets::Rules;
use crate::{Distance, IoError, PeerScope, Security, SessionStream};

/// A neighbor, or a range of neighbors, that may dial a [`Listener`].
#[derive(Clone, Debug)]
pub struct Neighbor {
    scope: PeerScope,
    config: SessionConfig,
    security: Security,
}

impl Neighbor {
    /// Returns the neighbor at an address, with the configuration of its sessions.
    #[must_use]
    pub const fn new(address: IpAddr, config: SessionConfig) -> Self {
        Self {
            scope: PeerScope::neighbor(address),
            config,
            security: Security::new(),
        }
    }

    /// Returns all neighbors in a prefix, with the configuration of their sessions.
    ///
    /// The kernel checks each connection from a range with a TCP-MD5 key, also of a neighbor in it that
    /// has no key of its own: such a neighbor signs with the key of the range, or its connection is
    /// dropped.
    #[must_use]
    pub const fn range(prefix: Prefix, config: SessionConfig) -> Self {
        Self {
            scope: PeerScope::range(prefix),
            config,
            security: Security::new(),
        }
    }

    /// Returns the same with TCP-MD5 or GTSM.
    #[must_use]
    pub fn with_security(self, security: Security) -> Self {
        Self { security, ..self }
    }

    fn source(&self) -> Source {
        Source::new(self.scope, self.security.ttl_security_hops)
    }

    fn required(&self) -> Required<'_> {
        Required {
            password: self.security.password.as_ref(),
            ttl_security_hops: self.security.ttl_security_hops,
            range: Some(self.scope),
        }
    }
}

/// Accepts connections of neighbors for sessions without a speaker.
///
/// ```no_run
/// use bgp_io::bgp_fsm::{PeerAs, SessionConfig};
/// use bgp_io::bgp_proto::{Asn, FamilySet, RouterId};
/// use bgp_io::{Listener, Neighbor, Security};
///
/// # async fn program() -> Result<(), Box<dyn std::error::Error>> {
/// let config = SessionConfig::new(Asn(64512), RouterId("192.0.2.1".parse()?)).with(|config| {
///     config.peer_asn = PeerAs::Internal;
///     config.families = FamilySet::UNICAST;
/// });
/// let clients = Neighbor::range("192.0.2.0/24".parse()?, config)
///     .with_security(Security::new().with_password("secret"));
/// let mut listener = Listener::bind("0.0.0.0:179".parse()?, [clients])?;
/// loop {
///     match listener.accept().await {
///         Ok(mut session) => {
///             tokio::spawn(async move {
///                 while let Some(event) = session.next().await {
///                     println!("{event:?}");
///                 }
///             });
///         }
///         Err(error) => eprintln!("{error}"),
///     }
/// }
/// # }
/// ```
pub struct Listener {
    socket: ListenSocket,
    /// The longest prefix first.
    neighbors: BTreeMap<(Reverse<u8>, PeerScope), Neighbor>,
    /// Connections that are refused and have not read the NOTIFICATION yet.
    refused: Vec<Refused>,
    /// Until when no connection is accepted.
    pause: Option<Pin<Box<Sleep>>>,
}

/// The close of a refused connection.
type Refused = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The reason why a connection is no session.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// No neighbor has this address. The NOTIFICATION Cease/Connection Rejected was sent.
    #[error("{remote} is not a neighbor")]
    Unknown {
        /// The remote address.
        remote: SocketAddr,
    },
    /// The connection may be unsigned, although the neighbor has a TCP-MD5 key.
    #[error("the connection of {remote} may be unsigned")]
    Unsigned {
        /// The remote address.
        remote: SocketAddr,
    },
    /// The connection fails GTSM.
    #[error("the connection of {remote} fails GTSM: {why}")]
    TooFar {
        /// The remote address.
        remote: SocketAddr,
        /// The problem with its distance.
        why: Distance,
    },
    /// TCP-MD5 or GTSM could not be set on the connection, or it is closed already.
    #[error("cannot set up the connection of {remote}: {error}")]
    Setup {
        /// The remote address.
        remote: SocketAddr,
        /// The error of the kernel.
        error: io::Error,
    },
    /// No connection can be accepted, mostly because the process has no file descriptor left. The next
    /// attempt waits for [`ACCEPT_PAUSE`].
    #[error("cannot accept connections at {local}: {error}")]
    Accept {
        /// The listening address.
        local: SocketAddr,
        /// The error of the kernel.
        error: io::Error,
    },
}

impl AcceptError {
    fn insecure(remote: SocketAddr, why: Insecure) -> Self {
        match why {
            Insecure::Unsigned => Self::Unsigned { remote },
            Insecure::Option(error) => Self::Setup { remote, error },
            Insecure::TooFar(why) => Self::TooFar { remote, why },
        }
    }
}

impl Listener {
    /// Listens at an address for these neighbors. An IPv6 address accepts IPv6 connections only; port 0
    /// is any free port. Of two neighbors with the same address the later one counts, and of two ranges
    /// the longer one. Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on, or the kernel rejects a TCP-MD5 key.
    pub fn bind(
        address: SocketAddr,
        neighbors: impl IntoIterator<Item = Neighbor>,
    ) -> Result<Self, IoError> {
        let place = |neighbor: &Neighbor| (Reverse(neighbor.scope.prefix_len), neighbor.scope);
        let neighbors = neighbors.into_iter().map(|one| (place(&one), one));
        let neighbors: BTreeMap<_, _> = neighbors.collect();
        let keys = neighbors.values().filter_map(|neighbor| {
            let password = neighbor.security.password.clone()?;
            Some((neighbor.scope, password))
        });
        let keys: Keys = keys.collect();
        let (hosts, ranges): (Vec<_>, Vec<_>) = neighbors
            .values()
            .partition(|neighbor| neighbor.scope.is_neighbor());
        let of = |some: Vec<&Neighbor>| some.into_iter().map(Neighbor::source).collect();
        let sources = sources_of(of(hosts), of(ranges));
        let rules = Rules {
            keys: &keys,
            sources: &sources,
            binder: None,
        };
        let mut keyless = Keyless::new();
        let socket = ListenSocket::open(address, rules, &mut keyless)?;
        if let Some(error) = keyless.into_values().find_map(Arc::into_inner) {
            return Err(error);
        }
        Ok(Self {
            socket,
            neighbors,
            refused: Vec::new(),
            pause: None,
        })
    }

    /// Returns the address that it listens at, with the port that was free if 0 was given.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.socket.address
    }

    /// Waits for the next connection and starts its session. The session makes no progress before
    /// [`SessionStream::next`] is called. How many sessions there are at once is limited by the caller.
    ///
    /// May be dropped at any time without loss, as `select!` does.
    ///
    /// # Errors
    ///
    /// The connection was closed for this reason; the listener can accept the next one.
    pub async fn accept(&mut self) -> Result<SessionStream<TcpStream>, AcceptError> {
        let (stream, remote) = poll_fn(|cx| self.poll_accept(cx)).await?;
        let neighbor = self
            .neighbors
            .values()
            .find(|one| one.scope.covers(remote.ip()));
        let Some(neighbor) = neighbor else {
            gtsm::release(&stream);
            self.refuse(stream);
            return Err(AcceptError::Unknown { remote });
        };
        if let Err(why) = self.socket.secure(&stream, remote, neighbor.required()) {
            why.reset_if_far(&stream);
            return Err(AcceptError::insecure(remote, why));
        }
        SessionStream::new(stream, neighbor.config.clone())
            .map_err(|error| AcceptError::Setup { remote, error })
    }

    fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(TcpStream, SocketAddr), AcceptError>> {
        self.refused
            .retain_mut(|refused| refused.as_mut().poll(cx).is_pending());
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        loop {
            match ready!(self.socket.socket.poll_accept(cx)) {
                Ok(accepted) => return Poll::Ready(Ok(accepted)),
                // The neighbor has closed it already.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    self.pause = Some(Box::pin(sleep(ACCEPT_PAUSE)));
                    let local = self.socket.address;
                    return Poll::Ready(Err(AcceptError::Accept { local, error }));
                }
            }
        }
    }

    /// Closes the connection of an unknown neighbor with a NOTIFICATION (RFC 4486 §4).
    fn refuse(&mut self, stream: TcpStream) {
        let mut last = BytesMut::new();
        Notification::cease(cease::CONNECTION_REJECTED).encode(&mut last);
        let mut closing = Closing::new(stream, [last.freeze()]);
        let mut refused: Refused = Box::pin(async move {
            let mut scratch = BytesMut::new();
            let closed = poll_fn(|cx| closing.poll(cx, &mut scratch));
            // Too late or in time: the connection is closed.
            let _ = timeout(LINGER, closed).await;
        });
        // The NOTIFICATION is written now; the next call of `accept` waits for the rest.
        let polled = refused
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        if polled.is_pending() && self.refused.len() < LISTENER_REFUSED_MAX {
            self.refused.push(refused);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("local", &self.local())
            .field("neighbors", &self.neighbors.len())
            .finish_non_exhaustive()
    }
}
