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
#[derive(Debug, Default)]
pub(super) struct Known {
    links: BTreeMap<u32, Link>,
    addresses: BTreeSet<InterfaceAddress>,
    links_seen: BTreeSet<u32>,
    addresses_seen: BTreeSet<InterfaceAddress>,
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

    /// Returns the event for a notification or a row of a dump, if it reports something new.
    pub(super) fn event(&mut self, raw: &Raw<'_>, tables: &[u32]) -> Option<Event> {
        match raw.kind {
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE => Self::route_event(raw, tables),
            libc::RTM_NEWLINK => self.link(parse::link(raw.payload)?),
            libc::RTM_DELLINK => {
                let index = parse::link(raw.payload)?.index;
                self.links.remove(&index).map(|_| Event::LinkRemoved(index))
            }
            libc::RTM_NEWADDR => {
                let address = parse::interface_address(raw.payload)?;
                self.addresses_seen.insert(address);
                self.addresses
                    .insert(address)
                    .then_some(Event::Address(address))
            }
            libc::RTM_DELADDR => {
                let address = parse::interface_address(raw.payload)?;
                self.addresses
                    .remove(&address)
                    .then_some(Event::AddressRemoved(address))
            }
            _ => None,
        }
    }

    fn link(&mut self, link: Link) -> Option<Event> {
        self.links_seen.insert(link.index);
        if self.links.get(&link.index) == Some(&link) {
            return None;
        }
        self.links.insert(link.index, link.clone());
        Some(Event::Link(link))
    }

    /// Starts a re-read of links.
    pub(super) fn begin_links(&mut self) {
        self.links_seen.clear();
    }

    /// Starts a re-read of addresses.
    pub(super) fn begin_addresses(&mut self) {
        self.addresses_seen.clear();
    }

    /// Ends a re-read of links. Returns an event for each link that was not seen.
    pub(super) fn end_links(&mut self) -> Vec<Event> {
        let gone: Vec<u32> = self
            .links
            .keys()
            .filter(|index| !self.links_seen.contains(index))
            .copied()
            .collect();
        for index in &gone {
            self.links.remove(index);
        }
        gone.into_iter().map(Event::LinkRemoved).collect()
    }

    /// Ends a re-read of addresses. Returns an event for each address that was not seen.
    pub(super) fn end_addresses(&mut self) -> Vec<Event> {
        let gone: Vec<InterfaceAddress> = self
            .addresses
            .difference(&self.addresses_seen)
            .copied()
            .collect();
        for address in &gone {
            self.addresses.remove(address);
        }
        gone.into_iter().map(Event::AddressRemoved).collect()
    }
}
