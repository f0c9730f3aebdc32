//! One transport of a session as a socket.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bgp_speaker::bgp_fsm::Conn;
use bgp_speaker::rib::PeerId;
use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;

use crate::dial_keys::DialKeys;
use crate::liveness::Baseline;
use crate::ready::Signal;
use crate::transport::Transport;

/// A pending connect: it returns whether the connection has the second key.
pub(crate) type Dial = Pin<Box<dyn Future<Output = Dialed> + Send>>;

/// The result of a connect.
pub(crate) type Dialed = io::Result<(TcpStream, bool)>;

/// The state of the transport.
pub(crate) enum Stage {
    /// The kernel is connecting.
    Dialing(Dial),
    /// The connection is open.
    Open(TcpStream),
}

/// One transport.
pub(crate) struct Link {
    pub(crate) peer: PeerId,
    pub(crate) conn: Conn,
    pub(crate) stage: Stage,
    pub(crate) signal: Arc<Signal>,
    /// [`Link::signal`] as a waker of the runtime.
    waker: Waker,
    /// The beginning of an incomplete message; for a held connection all octets behind its OPEN.
    pub(crate) partial: BytesMut,
    /// Whether the session was notified that octets are unread.
    pub(crate) unread: bool,
    /// Whether octets wait for the socket.
    pub(crate) blocked: bool,
    /// Whether a write has failed: octets that the peer sent before are read, then the link is
    /// lost.
    pub(crate) broken: bool,
    /// The kernel's figures when a probe of it began.
    pub(crate) baseline: Option<Baseline>,
    /// The TCP-MD5 keys of a connection that this side dialed.
    pub(crate) dial_keys: Option<Box<DialKeys>>,
}

impl Link {
    pub(crate) fn new(peer: PeerId, conn: Conn, stage: Stage, signal: Arc<Signal>) -> Self {
        let waker = Waker::from(signal.clone());
        let partial = BytesMut::new();
        Self {
            peer,
            conn,
            stage,
            signal,
            waker,
            partial,
            unread: false,
            blocked: false,
            broken: false,
            baseline: None,
            dial_keys: None,
        }
    }

    /// Adds the link to the list of links to serve.
    pub(crate) fn wake(&self) {
        self.signal.wake_by_ref();
    }

    /// Returns whether a connect has completed; `None` for a link that is open already.
    pub(crate) fn poll_dial(&mut self) -> Option<Poll<Dialed>> {
        match &mut self.stage {
            Stage::Dialing(dial) => Some(dial.as_mut().poll(&mut Context::from_waker(&self.waker))),
            Stage::Open(_) => None,
        }
    }

    /// Reads available octets into `buffer`: 0 octets are the end. The link is woken if it is
    /// pending.
    pub(crate) fn poll_read(&mut self, buffer: &mut BytesMut) -> Poll<io::Result<usize>> {
        let Stage::Open(stream) = &mut self.stage else {
            return Poll::Pending;
        };
        stream.poll_read(&mut Context::from_waker(&self.waker), buffer)
    }

    /// Writes some of the slices in one call. The link is woken if it is pending.
    pub(crate) fn poll_write(&mut self, slices: &[Bytes]) -> Poll<io::Result<usize>> {
        let Stage::Open(stream) = &mut self.stage else {
            return Poll::Pending;
        };
        stream.poll_write(&mut Context::from_waker(&self.waker), slices)
    }
}
