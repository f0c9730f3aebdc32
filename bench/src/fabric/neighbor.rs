//! A passive neighbor of a daemon of the fabric, which records received routes.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use bgp_io::bgp_proto::{Family, MessageKind, Open};
use ipnet::Ipv4Net;
use netns_lab::Host;
use testkit::{Encode, EndOfRib, Octets, TcpPeer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::limits::FABRIC_WITHIN;
use crate::wire::{self, Attributes, Offer, Prefix, Received, Update};

/// A passive speaker of IPv4 routes on a host of the fabric. It ends when this is dropped.
#[derive(Debug)]
pub struct Neighbor {
    picture: watch::Receiver<Picture>,
    task: JoinHandle<()>,
}

/// The received state of a neighbor.
#[derive(Clone, Debug)]
pub struct Picture {
    /// When the last of it was read.
    pub at: Instant,
    /// Whether its session is established.
    pub is_up: bool,
    /// How often the session was established.
    pub sessions: u32,
    /// The COMMUNITIES of each current route.
    pub routes: BTreeMap<Ipv4Net, Vec<u32>>,
    /// The error of a session that has ended.
    pub fault: Option<String>,
}

impl Drop for Neighbor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Neighbor {
    /// Listens at an address of `host`, for a daemon that receives `route`, if one is given.
    pub fn listen(
        host: &Host,
        asn: u32,
        address: Ipv4Addr,
        route: Option<Ipv4Net>,
    ) -> Result<Self> {
        let local = SocketAddr::from((address, 179));
        let socket = host.run(|| std::net::TcpListener::bind(local))??;
        socket.set_nonblocking(true)?;
        let listener = TcpListener::from_std(socket)?;
        let (published, picture) = watch::channel(Picture {
            at: Instant::now(),
            is_up: false,
            sessions: 0,
            routes: BTreeMap::new(),
            fault: None,
        });
        let words = Words::of(asn, address, route);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let ended = keep(stream, &words, &published).await;
                published.send_modify(|picture| {
                    picture.at = Instant::now();
                    picture.is_up = false;
                    picture.routes.clear();
                    picture.fault = ended.err().map(|error| format!("{error:#}"));
                });
            }
        });
        Ok(Self { picture, task })
    }

    /// Waits until the received state satisfies the condition; returns when it did.
    pub async fn until(
        &mut self,
        what: &str,
        wanted: impl FnMut(&Picture) -> bool,
    ) -> Result<Instant> {
        let found = netns_lab::within(FABRIC_WITHIN, what, self.picture.wait_for(wanted)).await;
        let at = found.map(|found| found.map(|picture| picture.at));
        Ok(at.with_context(|| format!("{:?}", *self.picture.borrow()))??)
    }

    /// Returns how often its session was established.
    pub fn sessions(&self) -> u32 {
        self.picture.borrow().sessions
    }
}

/// The messages that it sends.
struct Words {
    open: Open,
    routes: Vec<u8>,
}

impl Words {
    fn of(asn: u32, address: Ipv4Addr, route: Option<Ipv4Net>) -> Self {
        let offer = Offer {
            asn,
            id: address,
            // The hold timer is disabled: a measurement takes only seconds.
            hold_time_s: 0,
            ipv6: false,
            add_path: false,
        };
        let attributes = Attributes {
            path: vec![asn],
            next_hop: address.octets(),
            ..Attributes::default()
        };
        let prefix = |route: Ipv4Net| Prefix::V4(route.network().to_bits(), route.prefix_len());
        let prefixes: Vec<_> = route.map(prefix).into_iter().collect();
        let mut routes = wire::announce(&attributes, &prefixes, None);
        routes.extend(EndOfRib(Family::IPV4_UNICAST).octets());
        let open = offer.open();
        Self { open, routes }
    }
}

/// Keeps a session until the daemon closes it or sends a NOTIFICATION.
async fn keep(stream: TcpStream, words: &Words, published: &watch::Sender<Picture>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut peer = TcpPeer::new(stream);
    peer.establish(&words.open).await?;
    published.send_modify(|picture| {
        picture.at = Instant::now();
        picture.is_up = true;
        picture.sessions += 1;
    });
    peer.send(Octets(&words.routes)).await?;
    while let Some(frame) = peer.frame().await? {
        let at = Instant::now();
        match frame.kind {
            MessageKind::Notification => break,
            MessageKind::Keepalive => {}
            MessageKind::Update => {
                let changes = changes(&frame.body)?;
                published.send_modify(|picture| {
                    picture.at = at;
                    for (net, communities) in changes {
                        match communities {
                            Some(communities) => picture.routes.insert(net, communities),
                            None => picture.routes.remove(&net),
                        };
                    }
                });
            }
            other => bail!("a message of the type {other}"),
        }
    }
    Ok(())
}

/// Returns the prefixes of an UPDATE, with the COMMUNITIES of announced ones.
fn changes(body: &[u8]) -> Result<Vec<(Ipv4Net, Option<Vec<u32>>)>> {
    let update = Update::parse(body)?;
    let communities = Received::parse(update.attributes)?.communities;
    let (communities, rest) = communities.unwrap_or_default().as_chunks();
    ensure!(rest.is_empty(), "COMMUNITIES of a length that none have");
    let communities: Vec<_> = communities
        .iter()
        .map(|four| u32::from_be_bytes(*four))
        .collect();
    let mut changes = vec![];
    for (prefixes, communities) in [
        (update.withdrawn, None),
        (update.announced, Some(communities)),
    ] {
        wire::prefixes_v4(prefixes, false, |address, length| {
            let net = Ipv4Net::new(Ipv4Addr::from_bits(address), length)?;
            changes.push((net, communities.clone()));
            Ok(())
        })?;
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use bgp_io::bgp_proto::HEADER_OCTETS;

    use super::*;

    #[test]
    fn update_yields_changed_prefixes_with_communities() {
        let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
        let prefix = |net: Ipv4Net| Prefix::V4(net.network().to_bits(), net.prefix_len());
        let [one, other] = [net("10.65.1.0/26"), net("10.65.9.9/32")];
        let attributes = Attributes {
            path: vec![64512],
            communities: vec![0xffff_0000, 1],
            ..Attributes::default()
        };
        let announced = wire::announce(&attributes, &[prefix(one), prefix(other)], None);
        let withdrawn = wire::withdraw(&[prefix(one)], None);
        let body = |message: &[u8]| changes(&message[HEADER_OCTETS..]).unwrap();
        let communities = Some(vec![0xffff_0000, 1]);
        assert_eq!(
            body(&announced),
            [(one, communities.clone()), (other, communities)]
        );
        assert_eq!(body(&withdrawn), [(one, None)]);
        assert!(body(&EndOfRib(Family::IPV4_UNICAST).octets()).is_empty());
    }
}
