//! A peer by hand: it opens a session from a host of the lab, writes messages as they are, also
//! such as nobody should send, and keeps what it is told octet by octet.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use bgp_proto::{
    Asn, Capability, Family, Frame, MessageKind, Open, RouterId, UpdateWriter, next_frame,
};
use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
    sync::Mutex,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

use crate::{PATIENCE, Site, heard::Heard};

/// An established session.
#[derive(Debug)]
pub struct Sender {
    reader: OwnedReadHalf,
    writer: Arc<Mutex<OwnedWriteHalf>>,
    received: BytesMut,
    /// What the other side has said so far.
    pub heard: Heard,
    /// Says that it is there, if its hold time wants that.
    alive: Option<JoinHandle<()>>,
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Some(alive) = &self.alive {
            alive.abort();
        }
    }
}

/// Whom a [`Sender`] says it is.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// Its autonomous system.
    pub asn: u32,
    /// Its BGP identifier.
    pub id: Ipv4Addr,
    /// The hold time it proposes, in seconds. With any but 0 it sends KEEPALIVEs.
    pub hold_time: u16,
    /// The families it offers.
    pub families: &'a [Family],
}

impl Opening<'_> {
    /// IPv4 unicast from a host.
    pub const fn of(site: &Site, asn: u32) -> Self {
        Self {
            asn,
            id: Ipv4Addr::new(192, 0, 2, site.number),
            hold_time: 0,
            families: &[Family::IPV4_UNICAST],
        }
    }

    fn encode(&self) -> BytesMut {
        let families = self.families.iter().copied();
        let mut capabilities: Vec<_> = families.map(Capability::MultiProtocol).collect();
        capabilities.push(Capability::FourOctetAsn(Asn(self.asn)));
        let mut octets = BytesMut::new();
        let open = Open {
            asn: Asn(self.asn),
            hold_time: self.hold_time,
            id: RouterId(self.id),
            capabilities,
        };
        open.encode(&mut octets);
        octets
    }
}

/// How long one attempt of several may take: a program that is just starting may leave a connection
/// without an answer.
const ATTEMPT: Duration = Duration::from_secs(20);

/// How often it sends a KEEPALIVE: the least hold time that the others have of themselves is 90 s.
const ALIVE: Duration = Duration::from_secs(10);

impl Sender {
    /// Opens a session for IPv4 unicast with the speaker at `to`.
    ///
    /// # Errors
    /// If there is no connection, or the other side wants no session.
    pub async fn open(site: &Site, to: impl Into<IpAddr>, asn: u32) -> io::Result<Self> {
        Self::open_as(site, to, &Opening::of(site, asn)).await
    }

    /// Opens a session with the speaker at `to`, again and again until there is one.
    ///
    /// # Panics
    /// If there is none in time.
    pub async fn insist(site: &Site, to: impl Into<IpAddr>, opening: &Opening<'_>) -> Self {
        let to = to.into();
        let what = format!("a session of host {} with {to}", site.number);
        let opened = netns_lab::until(PATIENCE, &what, async || {
            let attempt = timeout(ATTEMPT, Self::open_as(site, to, opening)).await;
            let opened = attempt.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            Ok::<_, netns_lab::Error>(opened.map_err(|error| error.to_string()))
        });
        opened.await.unwrap_or_else(|error| panic!("{error}")).0
    }

    /// Opens a session with the speaker at `to`.
    ///
    /// # Errors
    /// If there is no connection, or the other side wants no session.
    pub async fn open_as(
        site: &Site,
        to: impl Into<IpAddr>,
        opening: &Opening<'_>,
    ) -> io::Result<Self> {
        let mut sender = Self::dial(site, to.into(), opening).await?;
        for wanted in [MessageKind::Open, MessageKind::Keepalive] {
            let frame = sender.next(Instant::now() + PATIENCE).await?;
            let frame = frame.ok_or(io::ErrorKind::TimedOut)?;
            if frame.kind != wanted {
                let said = format!("{:?} instead of {wanted:?}", frame.kind);
                sender.heard.take(&frame);
                let text = sender
                    .heard
                    .notification
                    .take()
                    .map_or(said, |n| n.to_string());
                return Err(io::Error::other(text));
            }
            sender.writer.lock().await.write_all(&keepalive()).await?;
        }
        if opening.hold_time > 0 {
            sender.alive = Some(tokio::spawn(stay_alive(sender.writer.clone())));
        }
        Ok(sender)
    }

    /// Connects and says who it is, and no more.
    ///
    /// # Errors
    /// If there is no connection.
    pub async fn dial(site: &Site, to: IpAddr, opening: &Opening<'_>) -> io::Result<Self> {
        let mut stream = connect(site, to).await?;
        stream.write_all(&opening.encode()).await?;
        let (reader, writer) = stream.into_split();
        Ok(Self {
            reader,
            writer: Arc::new(Mutex::new(writer)),
            received: BytesMut::new(),
            heard: Heard::default(),
            alive: None,
        })
    }

    /// Writes whole messages, and keeps what the other side says meanwhile: it would stop
    /// reading if nobody listened.
    ///
    /// # Errors
    /// If the connection is gone.
    pub async fn send(&mut self, messages: &[u8]) -> io::Result<()> {
        let Self {
            reader,
            writer,
            received,
            heard,
            ..
        } = self;
        let write = async { writer.lock().await.write_all(messages).await };
        let mut write = std::pin::pin!(write);
        loop {
            tokio::select! {
                written = &mut write => return written,
                read = reader.read_buf(received) => {
                    if read? == 0 {
                        return Err(io::ErrorKind::ConnectionReset.into());
                    }
                    while let Some(frame) = framed(received)? {
                        heard.take(&frame);
                    }
                }
            }
        }
    }

    /// Waits until what it has heard is as `is` says.
    ///
    /// # Panics
    /// If it is not in time, with what it has heard instead.
    pub async fn hears(&mut self, what: &str, is: impl Fn(&Heard) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is(&self.heard) {
            match self.next(deadline).await {
                Ok(Some(frame)) => self.heard.take(&frame),
                Ok(None) => panic!("not heard: {what}; but: {:#?}", self.heard),
                Err(_) if !self.heard.ended => self.heard.ended = true,
                Err(error) => panic!("not heard: {what}: {error}; but: {:#?}", self.heard),
            }
        }
    }

    /// The next message; none until the deadline.
    async fn next(&mut self, deadline: Instant) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = framed(&mut self.received)? {
                return Ok(Some(frame));
            }
            let read = timeout_at(deadline, self.reader.read_buf(&mut self.received)).await;
            match read {
                Ok(Ok(0)) => return Err(io::ErrorKind::ConnectionReset.into()),
                Ok(octets) => drop(octets?),
                Err(_) => return Ok(None),
            }
        }
    }
}

fn keepalive() -> BytesMut {
    let mut keepalive = BytesMut::new();
    UpdateWriter::keepalive(&mut keepalive);
    keepalive
}

/// Writes KEEPALIVEs, none of them into another message, until the connection is gone.
async fn stay_alive(writer: Arc<Mutex<OwnedWriteHalf>>) {
    let keepalive = keepalive();
    loop {
        tokio::time::sleep(ALIVE).await;
        if writer.lock().await.write_all(&keepalive).await.is_err() {
            return;
        }
    }
}

fn framed(received: &mut BytesMut) -> io::Result<Option<Frame>> {
    next_frame(received, 4096).map_err(|notification| io::Error::other(notification.to_string()))
}

/// Dials until somebody listens.
async fn connect(site: &Site, to: IpAddr) -> io::Result<tokio::net::TcpStream> {
    let dial = || TcpStream::connect_timeout(&SocketAddr::new(to, 179), Duration::from_secs(1));
    let connected = netns_lab::until(PATIENCE, "a listening speaker", async || {
        let stream = site.host.run(dial)?;
        Ok::<_, netns_lab::Error>(stream.map_err(|error| error.to_string()))
    });
    let (stream, _) = connected
        .await
        .map_err(|error| io::Error::other(error.to_string()))?;
    stream.set_nonblocking(true)?;
    tokio::net::TcpStream::from_std(stream)
}
