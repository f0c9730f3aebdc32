//! A scripted peer: it opens a session from a host of the lab, writes messages unchanged, also
//! invalid ones, and records received messages octet by octet.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    time::Duration,
};

use bgp_proto::{Asn, Capability, Family, Open, RouterId};
use testkit::{Encode, TcpPeer};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{PATIENCE, Site, received::Received};

/// An established session.
#[derive(Debug)]
pub struct Sender {
    peer: TcpPeer,
    /// The messages received so far.
    pub received: Received,
}

/// The identity that a [`Sender`] sends in its OPEN.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// Its autonomous system.
    pub asn: u32,
    /// Its BGP identifier.
    pub id: Ipv4Addr,
    /// The proposed hold time, in seconds. With any value but 0 it sends KEEPALIVEs.
    pub hold_time: u16,
    /// The families it offers.
    pub families: &'a [Family],
}

impl Opening<'_> {
    /// Returns an opening for IPv4 unicast from a host.
    pub const fn of(site: &Site, asn: u32) -> Self {
        Self {
            asn,
            id: Ipv4Addr::new(192, 0, 2, site.number),
            hold_time: 0,
            families: &[Family::IPV4_UNICAST],
        }
    }

    /// Returns its OPEN.
    pub fn open(&self) -> Open {
        let families = self.families.iter().copied();
        let mut capabilities: Vec<_> = families.map(Capability::MultiProtocol).collect();
        capabilities.push(Capability::FourOctetAsn(Asn(self.asn)));
        Open {
            asn: Asn(self.asn),
            hold_time: self.hold_time,
            id: RouterId(self.id),
            capabilities,
        }
    }
}

/// How long one of several attempts may take: a program that is starting may accept a connection
/// and not answer on it.
const ATTEMPT: Duration = Duration::from_secs(20);

/// How often it sends a KEEPALIVE: the shortest default hold time of the other programs is 90 s.
const ALIVE: Duration = Duration::from_secs(10);

impl Sender {
    /// Opens a session for IPv4 unicast with the speaker at `to`.
    ///
    /// # Errors
    /// If there is no connection, or the other side rejects the session.
    pub async fn open(site: &Site, to: impl Into<IpAddr>, asn: u32) -> io::Result<Self> {
        Self::open_as(site, to, &Opening::of(site, asn)).await
    }

    /// Opens a session with the speaker at `to`, and retries until there is one.
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
    /// If there is no connection, or the other side rejects the session.
    pub async fn open_as(
        site: &Site,
        to: impl Into<IpAddr>,
        opening: &Opening<'_>,
    ) -> io::Result<Self> {
        let mut peer = connect(site, to.into()).await?;
        peer.establish(&opening.open()).await?;
        if opening.hold_time > 0 {
            peer.keep_alive(ALIVE);
        }
        let received = Received::default();
        Ok(Self { peer, received })
    }

    /// Connects and sends an OPEN, and nothing else.
    ///
    /// # Errors
    /// If there is no connection.
    pub async fn dial(site: &Site, to: IpAddr, opening: &Opening<'_>) -> io::Result<Self> {
        let mut peer = connect(site, to).await?;
        peer.send(opening.open()).await?;
        let received = Received::default();
        Ok(Self { peer, received })
    }

    /// Sends a message and reads received messages at the same time: the other side would stop
    /// reading if its own messages were not read.
    ///
    /// # Errors
    /// If the connection is closed.
    pub async fn send(&mut self, message: impl Encode) -> io::Result<()> {
        let sent = self.peer.send(message).await;
        while let Some(frame) = self.peer.try_frame()? {
            self.received.take(&frame);
        }
        sent
    }

    /// Waits until the received messages satisfy `is`.
    ///
    /// # Panics
    /// If they do not in time; the panic message shows the received messages.
    pub async fn receives(&mut self, what: &str, is: impl Fn(&Received) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is(&self.received) {
            let frame = timeout_at(deadline, self.peer.frame()).await;
            match frame.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(Some(frame)) => self.received.take(&frame),
                Ok(None) if !self.received.ended => self.received.ended = true,
                Ok(None) => panic!("not heard: {what}; it has ended; but: {:#?}", self.received),
                Err(error) => panic!("not heard: {what}: {error}; but: {:#?}", self.received),
            }
        }
    }
}

/// Retries to connect until the port is open.
async fn connect(site: &Site, to: IpAddr) -> io::Result<TcpPeer> {
    let dial = || TcpStream::connect_timeout(&SocketAddr::new(to, 179), Duration::from_secs(1));
    let connected = netns_lab::until(PATIENCE, "a listening speaker", async || {
        let stream = site.host.run(dial)?;
        Ok::<_, netns_lab::Error>(stream.map_err(|error| error.to_string()))
    });
    let (stream, _) = connected
        .await
        .map_err(|error| io::Error::other(error.to_string()))?;
    TcpPeer::from_std(stream)
}
