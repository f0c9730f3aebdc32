//! A peer by hand: it opens a session from a host of the lab, writes messages as they are, also
//! such as nobody should send, and keeps what it is told octet by octet.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use bgp_proto::{
    Asn, Capability, Family, Frame, MessageKind, Open, RouterId, UpdateWriter, next_frame,
};
use bytes::BytesMut;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout_at},
};

use crate::{Site, heard::Heard};

/// An established session.
#[derive(Debug)]
pub struct Sender {
    stream: tokio::net::TcpStream,
    received: BytesMut,
    /// What the other side has said so far.
    pub heard: Heard,
}

/// Whom a [`Sender`] says it is.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// Its autonomous system.
    pub asn: u32,
    /// Its BGP identifier.
    pub id: Ipv4Addr,
    /// The hold time it proposes: 0, or more than its test takes, since it sends no KEEPALIVE
    /// but the first.
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

/// How long the other side may take for its part of the opening, or for what it is to say.
const PATIENCE: Duration = Duration::from_secs(30);

impl Sender {
    /// Opens a session for IPv4 unicast with the speaker at `to`.
    ///
    /// # Errors
    /// If there is no connection, or the other side wants no session.
    pub async fn open(site: &Site, to: impl Into<IpAddr>, asn: u32) -> io::Result<Self> {
        Self::open_as(site, to, &Opening::of(site, asn)).await
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
                let text = sender.heard.notification.map_or(said, |n| n.to_string());
                return Err(io::Error::other(text));
            }
            let mut keepalive = BytesMut::new();
            UpdateWriter::keepalive(&mut keepalive);
            sender.stream.write_all(&keepalive).await?;
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
        Ok(Self {
            stream,
            received: BytesMut::new(),
            heard: Heard::default(),
        })
    }

    /// Writes whole messages, and keeps what the other side says meanwhile: it would stop
    /// reading if nobody listened.
    ///
    /// # Errors
    /// If the connection is gone.
    pub async fn send(&mut self, messages: &[u8]) -> io::Result<()> {
        {
            let Self {
                stream,
                received,
                heard,
            } = self;
            let (mut reader, mut writer) = stream.split();
            let mut write = std::pin::pin!(writer.write_all(messages));
            loop {
                tokio::select! {
                    written = &mut write => break written?,
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
        Ok(())
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
            let read = timeout_at(deadline, self.stream.read_buf(&mut self.received)).await;
            match read {
                Ok(Ok(0)) => return Err(io::ErrorKind::ConnectionReset.into()),
                Ok(octets) => drop(octets?),
                Err(_) => return Ok(None),
            }
        }
    }
}

fn framed(received: &mut BytesMut) -> io::Result<Option<Frame>> {
    next_frame(received, 4096).map_err(|notification| io::Error::other(notification.to_string()))
}

/// Dials until somebody listens.
async fn connect(site: &Site, to: IpAddr) -> io::Result<tokio::net::TcpStream> {
    let dial = || TcpStream::connect_timeout(&SocketAddr::new(to, 179), Duration::from_secs(1));
    let connected = lab::until(PATIENCE, "a listening speaker", async || {
        let stream = site.host.run(dial)?;
        Ok::<_, lab::Error>(stream.map_err(|error| error.to_string()))
    });
    let (stream, _) = connected
        .await
        .map_err(|error| io::Error::other(error.to_string()))?;
    stream.set_nonblocking(true)?;
    tokio::net::TcpStream::from_std(stream)
}
