//! A scripted peer at a TCP stream.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use bgp_proto::{Frame, MessageKind, Open};
use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::expect::Expected;
use crate::limits::PATIENCE;
use crate::message::{Encode, Keepalive};
use crate::received::{Inbox, Received};

/// A connection to a speaker that the test plays, dialed or accepted.
#[derive(Debug)]
pub struct TcpPeer {
    writer: Writer,
    inbox: Inbox,
    keepalives: Option<Keepalives>,
}

/// The task that sends KEEPALIVEs; it ends with this.
#[derive(Debug)]
struct Keepalives(JoinHandle<()>);

impl Drop for Keepalives {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A stream to which one writes at a time.
#[derive(Clone, Debug)]
struct Writer {
    stream: Arc<TcpStream>,
    turn: Arc<Mutex<()>>,
}

impl Writer {
    async fn write_all(&self, mut octets: &[u8]) -> io::Result<()> {
        let _turn = self.turn.lock().await;
        while !octets.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(octets) {
                Ok(written) => octets = octets.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl TcpPeer {
    /// Returns the peer at this end of a stream.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        let writer = Writer {
            stream: Arc::new(stream),
            turn: Arc::default(),
        };
        Self {
            writer,
            inbox: Inbox::default(),
            keepalives: None,
        }
    }

    /// Returns the peer at this end of a stream that was made without a runtime.
    ///
    /// # Errors
    /// The stream cannot be registered with the runtime.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // A message is sent at once, also if the one before is not acknowledged yet.
        stream.set_nodelay(true)?;
        Ok(Self::new(TcpStream::from_std(stream)?))
    }

    /// Sends a message, or arbitrary octets. Octets of the speaker are read during the call,
    /// because the speaker may not read before it has written.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn send(&mut self, message: impl Encode) -> io::Result<()> {
        let octets = message.octets().freeze();
        self.inbox.sent(&octets);
        self.send_octets(octets).await
    }

    async fn send_octets(&mut self, octets: Bytes) -> io::Result<()> {
        let writer = self.writer.clone();
        let mut write = std::pin::pin!(writer.write_all(&octets));
        loop {
            tokio::select! {
                biased;
                written = &mut write => return written,
                () = self.read_some() => {
                    if self.inbox.is_closed() {
                        return Err(ErrorKind::ConnectionReset.into());
                    }
                }
            }
        }
    }

    /// Waits for the next message and returns it.
    ///
    /// # Panics
    /// If another message arrives, or none within [`PATIENCE`]; the text describes it.
    pub async fn expect(&mut self, expected: impl Into<Expected>) -> Received {
        let (expected, deadline) = (expected.into(), Instant::now() + PATIENCE);
        loop {
            match expected.check(&mut self.inbox) {
                Some(Ok(received)) => return received,
                Some(Err(text)) => panic!("{text}"),
                None => {}
            }
            if self.read(deadline).await.is_err() {
                panic!(
                    "{}",
                    expected.missing(&format!("{PATIENCE:?}"), &self.inbox)
                );
            }
        }
    }

    /// Waits for the next message and returns it as received; `None` at the end of the stream.
    /// Cancel-safe.
    ///
    /// # Errors
    /// `InvalidData` if the octets are not a message.
    pub async fn frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.try_frame()? {
                return Ok(Some(frame));
            }
            if self.inbox.is_closed() {
                return Ok(None);
            }
            self.read_some().await;
        }
    }

    /// Takes a message that has been read already.
    ///
    /// # Errors
    /// `InvalidData` if the octets are no message.
    pub fn try_frame(&mut self) -> io::Result<Option<Frame>> {
        let next = self.inbox.frame();
        next.map_err(|fault| io::Error::new(ErrorKind::InvalidData, fault.to_string()))
    }

    /// Establishes a session: both OPENs and the first KEEPALIVEs (RFC 4271 §8.2.2). Returns the
    /// speaker's OPEN.
    ///
    /// # Errors
    /// The connection is closed, or the speaker sends another message, which the text describes.
    pub async fn establish(&mut self, open: &Open) -> io::Result<Open> {
        self.send(open).await?;
        let deadline = Instant::now() + PATIENCE;
        let mut theirs = None;
        for kind in [MessageKind::Open, MessageKind::Keepalive] {
            match self.part(deadline).await? {
                Received::Open(open) if kind == MessageKind::Open => theirs = Some(open),
                Received::Keepalive if kind == MessageKind::Keepalive => {}
                other => return Err(io::Error::other(other.to_string())),
            }
            self.send(Keepalive).await?;
        }
        theirs.ok_or_else(|| ErrorKind::InvalidData.into())
    }

    async fn part(&mut self, deadline: Instant) -> io::Result<Received> {
        loop {
            if let Some((received, _)) = self.inbox.next() {
                return Ok(received);
            }
            self.read(deadline).await?;
        }
    }

    /// Sends a KEEPALIVE in every period from now on, never within another message.
    pub fn keep_alive(&mut self, every: Duration) {
        let (writer, keepalive) = (self.writer.clone(), Keepalive.octets().freeze());
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                if writer.write_all(&keepalive).await.is_err() {
                    return;
                }
            }
        });
        self.keepalives = Some(Keepalives(task));
    }

    /// Returns the stream, to set its options.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.writer.stream
    }

    /// Returns the stream; octets that were read and not requested are lost.
    ///
    /// # Panics
    /// If the peer sends KEEPALIVEs by itself.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        let stream = Arc::into_inner(self.writer.stream);
        stream.expect("a stream without a task that sends KEEPALIVEs")
    }

    async fn read(&mut self, deadline: Instant) -> io::Result<()> {
        let read = timeout_at(deadline, self.read_some()).await;
        read.map_err(|_| ErrorKind::TimedOut.into())
    }

    /// Reads available octets, or the end of the stream; a reset is an end, too.
    async fn read_some(&mut self) {
        let stream = &self.writer.stream;
        let read = match stream.readable().await {
            Ok(()) => stream.try_read_buf(self.inbox.buffer()),
            Err(error) => Err(error),
        };
        match read {
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(0) | Err(_) => self.inbox.close(),
        }
    }
}
