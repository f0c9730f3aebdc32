//! A peer that only sends: it opens a session from a host of the lab and writes messages as they
//! are, such as those of a recorded one.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use bgp_proto::{Asn, Capability, Family, MessageKind, Open, RouterId, UpdateWriter, next_frame};
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Site;

/// An established session.
#[derive(Debug)]
pub struct Sender {
    stream: tokio::net::TcpStream,
    received: BytesMut,
}

/// How long the other side may take for its part of the opening.
const OPENED: Duration = Duration::from_secs(30);

impl Sender {
    /// Opens a session for IPv4 unicast with the speaker at `to`.
    ///
    /// # Errors
    /// If there is no connection, or the other side wants no session.
    pub async fn open(site: &Site, to: IpAddr, asn: u32) -> io::Result<Self> {
        let stream = connect(site, to).await?;
        let mut sender = Self {
            stream,
            received: BytesMut::new(),
        };
        let mut opening = BytesMut::new();
        Open {
            asn: Asn(asn),
            hold_time: 0,
            id: RouterId(Ipv4Addr::new(192, 0, 2, site.number)),
            capabilities: vec![
                Capability::MultiProtocol(Family::IPV4_UNICAST),
                Capability::FourOctetAsn(Asn(asn)),
            ],
        }
        .encode(&mut opening);
        sender.stream.write_all(&opening).await?;
        for wanted in [MessageKind::Open, MessageKind::Keepalive] {
            tokio::time::timeout(OPENED, sender.expect(wanted)).await??;
            let mut keepalive = BytesMut::new();
            UpdateWriter::keepalive(&mut keepalive);
            sender.stream.write_all(&keepalive).await?;
        }
        Ok(sender)
    }

    /// Writes whole messages.
    ///
    /// # Errors
    /// If the connection is gone.
    pub async fn send(&mut self, messages: &[u8]) -> io::Result<()> {
        let Self { stream, received } = self;
        let (mut reader, mut writer) = stream.split();
        // What the other side says is read and forgotten, or it would stop reading.
        let mut write = std::pin::pin!(writer.write_all(messages));
        loop {
            received.clear();
            tokio::select! {
                written = &mut write => return written,
                read = reader.read_buf(received) => {
                    if read? == 0 {
                        return Err(io::ErrorKind::ConnectionReset.into());
                    }
                }
            }
        }
    }

    async fn expect(&mut self, wanted: MessageKind) -> io::Result<()> {
        loop {
            match next_frame(&mut self.received, 4096) {
                Ok(Some(frame)) if frame.kind == wanted => return Ok(()),
                Ok(Some(frame)) => {
                    return Err(io::Error::other(format!(
                        "{:?} instead of {wanted:?}",
                        frame.kind
                    )));
                }
                Ok(None) => {}
                Err(notification) => return Err(io::Error::other(notification.to_string())),
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
    }
}

/// Dials until somebody listens.
async fn connect(site: &Site, to: IpAddr) -> io::Result<tokio::net::TcpStream> {
    let dial = || TcpStream::connect_timeout(&SocketAddr::new(to, 179), Duration::from_secs(1));
    let connected = lab::until(OPENED, "a listening speaker", async || {
        let stream = site.host.run(dial)?;
        Ok::<_, lab::Error>(stream.map_err(|error| error.to_string()))
    });
    let (stream, _) = connected
        .await
        .map_err(|error| io::Error::other(error.to_string()))?;
    stream.set_nonblocking(true)?;
    tokio::net::TcpStream::from_std(stream)
}
