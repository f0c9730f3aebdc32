//! Route notifications of a node's kernel, with their times.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netns_lab::Host;
use nix::sys::socket::SockProtocol;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::timeout;

use crate::bare::{Listener, RTMGRP_IPV4_ROUTE};
use crate::limits::NEWS_MAX;

/// One host route that was added to a kernel.
#[derive(Clone, Copy, Debug)]
pub struct News {
    /// Its destination.
    pub address: Ipv4Addr,
    /// The instant when the notification was read.
    pub at: Instant,
}

/// A thread that only reads the notifications of one node's kernel.
#[derive(Debug)]
pub struct Notifications {
    news: Receiver<News>,
    _listener: Listener,
}

impl Notifications {
    /// Starts to listen: every later notification is read.
    pub fn listen(host: &Host) -> Result<Self> {
        let (sender, news) = channel(NEWS_MAX);
        let listener = host.run(|| {
            Listener::start(
                SockProtocol::NetlinkRoute,
                RTMGRP_IPV4_ROUTE,
                move |octets, at| {
                    let routes = host_routes(octets);
                    for (_, address) in routes.into_iter().filter(|(is_new, _)| *is_new) {
                        // The receiver is dropped only when no more notifications are wanted.
                        let _ = sender.blocking_send(News { address, at });
                    }
                },
            )
        })??;
        Ok(Self {
            news,
            _listener: listener,
        })
    }

    /// Returns the next notification.
    pub async fn next(&mut self, limit: Duration) -> Result<News> {
        let news = timeout(limit, self.news.recv()).await;
        news.with_context(|| format!("no route came within {limit:?}"))?
            .context("the listener has ended")
    }

    /// Waits for the route to an address.
    pub async fn until(&mut self, address: Ipv4Addr, limit: Duration) -> Result<News> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let news = self.next(left).await;
            let news = news.with_context(|| format!("waiting for the route to {address}"))?;
            if news.address == address {
                return Ok(news);
            }
        }
    }

    /// Waits for the routes to all these addresses, each within `limit` of the one before.
    pub async fn all(&mut self, mut addresses: BTreeSet<Ipv4Addr>, limit: Duration) -> Result<()> {
        while !addresses.is_empty() {
            let news = self.next(limit).await;
            let news = news.with_context(|| format!("{} routes have not come", addresses.len()))?;
            addresses.remove(&news.address);
        }
        Ok(())
    }
}

// linux/rtnetlink.h
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTA_DST: u16 = 1;
/// Octets of `struct nlmsghdr` and of `struct rtmsg`.
const HEADER: usize = 16;
const ROUTE: usize = 12;

/// Returns the IPv4 host routes of the main table in a datagram: whether each is new, or deleted, and its
/// destination.
pub(super) fn host_routes(mut octets: &[u8]) -> Vec<(bool, Ipv4Addr)> {
    let mut found = vec![];
    while let Some(length) = number32(octets, 0).map(|length| length as usize)
        && let Some(message) = octets.get(..length)
        && length >= HEADER
    {
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
        // family, dst_len, src_len, tos, table
        let is_host_route = matches!(message.get(HEADER..), Some([2, 32, _, _, 254, ..]));
        let is_new = match number16(message, 4) {
            Some(RTM_NEWROUTE) => true,
            Some(RTM_DELROUTE) => false,
            _ => continue,
        };
        if is_host_route {
            let to = destination(message.get(HEADER + ROUTE..).unwrap_or_default());
            found.extend(to.map(|to| (is_new, to)));
        }
    }
    found
}

fn destination(mut attributes: &[u8]) -> Option<Ipv4Addr> {
    while let Some(length) = number16(attributes, 0).map(usize::from) {
        let value = attributes.get(4..length)?;
        if number16(attributes, 2) == Some(RTA_DST) {
            return Some(Ipv4Addr::from(*value.first_chunk::<4>()?));
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
    None
}

fn number16(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*octets.get(at..)?.first_chunk()?))
}

fn number32(octets: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*octets.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, length: u8, table: u8, address: [u8; 4]) -> Vec<u8> {
        let mut octets = 44_u32.to_ne_bytes().to_vec();
        octets.extend(kind.to_ne_bytes());
        octets.extend([0; 10]);
        octets.extend([2, length, 0, 0, table, 80, 0, 1, 0, 0, 0, 0]);
        // RTA_PRIORITY before RTA_DST.
        for (kind, value) in [(6_u16, [0, 1, 0, 0]), (RTA_DST, address)] {
            octets.extend(8_u16.to_ne_bytes());
            octets.extend(kind.to_ne_bytes());
            octets.extend(value);
        }
        octets
    }

    #[test]
    fn only_host_routes_of_the_main_table_are_found() {
        let datagram = [
            message(RTM_NEWROUTE, 32, 254, [10, 65, 0, 1]),
            message(RTM_NEWROUTE + 1, 32, 254, [10, 65, 0, 2]),
            message(RTM_NEWROUTE, 32, 255, [10, 65, 0, 3]),
            message(RTM_NEWROUTE, 24, 254, [10, 65, 4, 0]),
            message(RTM_NEWROUTE, 32, 254, [10, 65, 0, 5]),
        ];
        let found = host_routes(&datagram.concat());
        let wanted = [(true, 1), (false, 2), (true, 5)];
        assert_eq!(
            found,
            wanted.map(|(is_new, host)| (is_new, Ipv4Addr::new(10, 65, 0, host)))
        );
        assert!(host_routes(&[1, 0, 0, 0]).is_empty());
    }
}
