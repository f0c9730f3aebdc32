//! The notification socket, and the known links and addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::task::{Context, Poll, ready};

use nix::sys::socket::{MsgFlags, recv};
use tokio::io::Interest;

use super::parse;
use super::raw::Raw;
use super::socket::Datagrams;
use crate::limits::READ_OCTETS;
use crate::nexthop::{self, NexthopEvent, RTM_DELNEXTHOP, RTM_NEWNEXTHOP};
use crate::port::Event;
use crate::route::{InterfaceAddress, Link};

/// Flag of a notification: the route replaced another one.
const REPLACED: u16 = libc::NLM_F_REPLACE as u16;

/// The result of one read of a netlink socket.
pub(super) enum Read {
    /// Messages are in the buffer, in so many octets.
    Some(usize),
    /// Messages were lost: the receive buffer was full, or one was larger than the read buffer.
    Lost,
}

/// Reads one datagram into `buffer`; pending when there is none.
///
/// The socket is read before its readiness is polled: the runtime may report a ready socket as
/// unready to let other tasks run, but pending must mean to the caller that no message is left.
pub(super) fn poll_read(
    socket: &Datagrams,
    cx: &mut Context<'_>,
    buffer: &mut Vec<u8>,
) -> Poll<io::Result<Read>> {
    loop {
        let read = match receive(socket, buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(socket.poll_recv_ready(cx))?;
                // Clears the readiness if nothing is there.
                socket.try_io(Interest::READABLE, || receive(socket, buffer))
            }
            read => read,
        };
        return Poll::Ready(match read {
            // It was longer than the buffer, or may have been.
            Ok(length) if length >= READ_OCTETS => Ok(Read::Lost),
            Ok(length) => Ok(Read::Some(length)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(Read::Lost),
            Err(error) => Err(error),
        });
    }
}

/// Reads one datagram without waiting, and returns its length; `buffer` keeps its own.
pub(super) fn receive(socket: &impl AsFd, buffer: &mut Vec<u8>) -> io::Result<usize> {
    buffer.resize(READ_OCTETS, 0);
    let flags = MsgFlags::MSG_TRUNC | MsgFlags::MSG_DONTWAIT;
    Ok(recv(socket.as_fd().as_raw_fd(), buffer, flags)?)
}

/// Links and addresses as last reported, so that a re-read can find the removed ones.
///
/// A row of a re-read may be older than a notification that was read before it, because the two come
/// from different sockets. So a row of something that was notified since the begin of the re-read is
/// ignored: the last notification has the state of now, or a later one follows.
#[derive(Debug, Default)]
pub(super) struct Known {
    links: BTreeMap<u32, Link>,
    addresses: BTreeSet<InterfaceAddress>,
    links_read: Reread<u32>,
    addresses_read: Reread<InterfaceAddress>,
}

/// The state of a re-read.
#[derive(Debug)]
struct Reread<K> {
    /// The keys with a row.
    seen: BTreeSet<K>,
    /// The keys notified since its begin; `None` if there is no re-read.
    notified: Option<BTreeSet<K>>,
    /// Whether its last row has been received.
    ended: bool,
}

impl<K> Default for Reread<K> {
    fn default() -> Self {
        Self {
            seen: BTreeSet::new(),
            notified: None,
            ended: false,
        }
    }
}

impl<K: Ord + Copy> Reread<K> {
    fn begin(&mut self) {
        *self = Self {
            notified: Some(BTreeSet::new()),
            ..Self::default()
        };
    }

    fn note(&mut self, key: K) {
        if let Some(notified) = &mut self.notified {
            notified.insert(key);
        }
    }

    fn is_newer(&self, key: &K) -> bool {
        self.notified
            .as_ref()
            .is_some_and(|notified| notified.contains(key))
    }

    /// Forgets a re-read after its last row was settled.
    fn settle(&mut self) {
        if self.ended {
            *self = Self::default();
        }
    }
}

impl Known {
    /// Returns the event for a notification of a route in one of these tables.
    pub(super) fn route_event(raw: &Raw<'_>, tables: &[u32]) -> Option<Event> {
        let is_new = match raw.kind {
            libc::RTM_NEWROUTE => true,
            libc::RTM_DELROUTE => false,
            _ => return None,
        };
        let (key, route) = parse::route(raw.payload)?;
        let replaced = raw.flags & REPLACED != 0;
        tables.contains(&key.table).then_some(match is_new {
            true => Event::Changed {
                key,
                route,
                replaced,
            },
            false => Event::Removed(key, route),
        })
    }

    /// Returns the event for a notification of a nexthop object.
    pub(super) fn nexthop_event(raw: &Raw<'_>) -> Option<Event> {
        let is_new = match raw.kind {
            RTM_NEWNEXTHOP => true,
            RTM_DELNEXTHOP => false,
            _ => return None,
        };
        let nexthop = nexthop::parse(raw.payload)?;
        Some(Event::Nexthop(match is_new {
            true => NexthopEvent::Changed(nexthop),
            false => NexthopEvent::Removed(nexthop.id),
        }))
    }

    /// Returns the event for a notification, if it reports something new.
    pub(super) fn event(&mut self, raw: &Raw<'_>, tables: &[u32]) -> Option<Event> {
        match raw.kind {
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE => Self::route_event(raw, tables),
            RTM_NEWNEXTHOP | RTM_DELNEXTHOP => Self::nexthop_event(raw),
            libc::RTM_NEWLINK => {
                let link = parse::link(raw.payload)?;
                self.links_read.note(link.index);
                self.link(link)
            }
            libc::RTM_DELLINK => {
                let index = parse::link(raw.payload)?.index;
                self.links_read.note(index);
                self.links.remove(&index).map(|_| Event::LinkRemoved(index))
            }
            libc::RTM_NEWADDR => {
                let address = parse::interface_address(raw.payload)?;
                self.addresses_read.note(address);
                self.address(address)
            }
            libc::RTM_DELADDR => {
                let address = parse::interface_address(raw.payload)?;
                self.addresses_read.note(address);
                self.addresses
                    .remove(&address)
                    .then_some(Event::AddressRemoved(address))
            }
            _ => None,
        }
    }

    fn link(&mut self, link: Link) -> Option<Event> {
        if self.links.get(&link.index) == Some(&link) {
            return None;
        }
        self.links.insert(link.index, link.clone());
        Some(Event::Link(link))
    }

    fn address(&mut self, address: InterfaceAddress) -> Option<Event> {
        self.addresses
            .insert(address)
            .then_some(Event::Address(address))
    }

    /// Returns the event for a row of a re-read, for [`settled`](Self::settled).
    pub(super) fn row(&mut self, raw: &Raw<'_>) -> Option<Event> {
        match raw.kind {
            libc::RTM_NEWLINK => {
                let link = parse::link(raw.payload)?;
                self.links_read.seen.insert(link.index);
                Some(Event::Link(link))
            }
            libc::RTM_NEWADDR => {
                let address = parse::interface_address(raw.payload)?;
                self.addresses_read.seen.insert(address);
                Some(Event::Address(address))
            }
            _ => None,
        }
    }

    /// Takes an event of a re-read when it is handed out, after the notifications that were read before.
    /// Returns it if it is news.
    pub(super) fn settled(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Link(link) if self.links_read.is_newer(&link.index) => None,
            Event::Link(link) => self.link(link),
            Event::LinkRemoved(index) if self.links_read.is_newer(&index) => None,
            Event::LinkRemoved(index) => {
                self.links.remove(&index).map(|_| Event::LinkRemoved(index))
            }
            Event::Address(address) if self.addresses_read.is_newer(&address) => None,
            Event::Address(address) => self.address(address),
            Event::AddressRemoved(address) if self.addresses_read.is_newer(&address) => None,
            Event::AddressRemoved(address) => self
                .addresses
                .remove(&address)
                .then_some(Event::AddressRemoved(address)),
            other => Some(other),
        }
    }

    /// All events of the re-reads so far have been settled.
    pub(super) fn all_settled(&mut self) {
        self.links_read.settle();
        self.addresses_read.settle();
    }

    /// Starts a re-read of links.
    pub(super) fn begin_links(&mut self) {
        self.links_read.begin();
    }

    /// Starts a re-read of addresses.
    pub(super) fn begin_addresses(&mut self) {
        self.addresses_read.begin();
    }

    /// Ends a re-read of links. Returns an event for each link without a row, for
    /// [`settled`](Self::settled).
    pub(super) fn end_links(&mut self) -> Vec<Event> {
        self.links_read.ended = true;
        let gone = self.links.keys().copied();
        let gone = gone.filter(|index| !self.links_read.seen.contains(index));
        gone.map(Event::LinkRemoved).collect()
    }

    /// Ends a re-read of addresses, in the same way.
    pub(super) fn end_addresses(&mut self) -> Vec<Event> {
        self.addresses_read.ended = true;
        let gone = self.addresses.difference(&self.addresses_read.seen);
        gone.copied().map(Event::AddressRemoved).collect()
    }

    /// Forgets a re-read that is not tried again.
    pub(super) fn give_up(&mut self) {
        self.links_read = Reread::default();
        self.addresses_read = Reread::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: u32 = 7;

    fn link(running: bool) -> Link {
        Link {
            index: INDEX,
            name: "cali1".into(),
            up: true,
            running,
            tunnel: None,
        }
    }

    fn address() -> InterfaceAddress {
        InterfaceAddress {
            interface: INDEX,
            address: "10.0.0.1/32".parse().unwrap(),
        }
    }

    /// The kernel's message about a link.
    fn message(kind: u16, running: bool) -> Vec<u8> {
        let flags = (libc::IFF_UP | if running { libc::IFF_RUNNING } else { 0 }).cast_unsigned();
        let mut payload = vec![0; 16];
        payload[4..8].copy_from_slice(&INDEX.to_ne_bytes());
        payload[8..12].copy_from_slice(&flags.to_ne_bytes());
        payload.extend([10_u16.to_ne_bytes(), libc::IFLA_IFNAME.to_ne_bytes()].concat());
        payload.extend(*b"cali1\0\0\0");
        let octets = u32::try_from(16 + payload.len()).unwrap();
        let mut message = octets.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(payload);
        message
    }

    fn notify(known: &mut Known, kind: u16, running: bool) -> Option<Event> {
        let octets = message(kind, running);
        let raw = super::super::raw::messages(&octets).next().unwrap();
        known.event(&raw, &[])
    }

    fn row(known: &mut Known, running: bool) -> Event {
        let octets = message(libc::RTM_NEWLINK, running);
        let raw = super::super::raw::messages(&octets).next().unwrap();
        known.row(&raw).unwrap()
    }

    #[test]
    fn row_older_than_notification_changes_nothing() {
        // The notification is read before the row, or between the row and its hand-out.
        for row_first in [false, true] {
            let mut known = Known::default();
            known.begin_links();
            let held = row_first.then(|| row(&mut known, false));
            let event = notify(&mut known, libc::RTM_NEWLINK, true);
            assert_eq!(event, Some(Event::Link(link(true))));
            let held = held.unwrap_or_else(|| row(&mut known, false));
            assert_eq!(known.settled(held), None);
            assert_eq!(known.end_links(), []);
        }
    }

    #[test]
    fn removed_link_does_not_return_by_an_older_row() {
        let mut known = Known::default();
        known.begin_links();
        let held = row(&mut known, true);
        notify(&mut known, libc::RTM_DELLINK, true);
        assert_eq!(known.settled(held), None);
        assert_eq!(known.links.len(), 0);
    }

    #[test]
    fn link_that_appears_at_the_end_of_a_read_stays() {
        let mut known = Known::default();
        known.begin_links();
        let gone = known.end_links();
        let event = notify(&mut known, libc::RTM_NEWLINK, true);
        assert_eq!(event, Some(Event::Link(link(true))));
        assert_eq!(gone, []);

        // It is removed and comes back while the removal waits for its hand-out.
        known.all_settled();
        known.begin_links();
        let gone = known.end_links();
        assert_eq!(gone, [Event::LinkRemoved(INDEX)]);
        notify(&mut known, libc::RTM_NEWLINK, false);
        assert_eq!(known.settled(gone[0].clone()), None);
        assert_eq!(known.links.get(&INDEX), Some(&link(false)));
    }

    #[test]
    fn read_finds_what_notifications_did_not_report() {
        let mut known = Known::default();
        notify(&mut known, libc::RTM_NEWLINK, false);
        known.address(address());
        known.begin_links();
        let held = row(&mut known, true);
        assert_eq!(known.settled(held), Some(Event::Link(link(true))));
        known.begin_addresses();
        let gone = known.end_addresses();
        assert_eq!(gone, [Event::AddressRemoved(address())]);
        assert_eq!(known.settled(gone[0].clone()), Some(gone[0].clone()));
    }

    #[test]
    fn notifications_are_recorded_during_a_read_only() {
        let mut known = Known::default();
        notify(&mut known, libc::RTM_NEWLINK, true);
        assert_eq!(known.links_read.notified, None);
        known.begin_links();
        known.all_settled();
        assert!(known.links_read.notified.is_some(), "its rows follow");
        known.end_links();
        known.all_settled();
        assert_eq!(known.links_read.notified, None);
    }
}
