//! The sockets of the flow log: a group of the kernel's packet log, and the ends of connections.

use std::fs;
use std::io;
use std::os::fd::AsFd;

use netlink::nftables::NETLINK_NETFILTER;
use netlink::{Notification, Notifications, Refused};
use netlink_packet_netfilter::nflog::{
    ConfigCmd, ConfigFlags, ConfigMode, ConfigNla, Timeout, ULogMessage,
};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use super::record::{Ended, Record, ended, record};
use crate::limits::{
    FLOW_BATCH_OCTETS, FLOW_BATCH_RECORDS, FLOW_BATCH_TIME, FLOW_BUFFER_OCTETS,
    FLOW_ENDS_BUFFER_OCTETS, FLOW_ENDS_PER_READ, FLOW_HEADERS_OCTETS, FLOW_PARTS_PER_READ,
};

/// Where the kernel lists the groups of its packet log that programs receive, in the network namespace of
/// the calling thread.
const GROUPS: &str = "/proc/thread-self/net/netfilter/nfnetlink_log";
/// `NFNLGRP_CONNTRACK_DESTROY`.
const CONNECTIONS_END: u32 = 3;
/// The unit of the time for which the kernel collects records.
const TICK_MS: u128 = 10;

/// Why the flow log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// Another program receives the records of the group.
    #[error(
        "group {0} of the kernel's packet log (NFLOG) is in use by another program; set \
         flow_log.group"
    )]
    Taken(u16),
    /// The kernel lacks the packet log, or denies it.
    #[error(
        "the kernel refuses group {0} of its packet log (NFLOG): {1}; it needs \
         CONFIG_NETFILTER_NETLINK_LOG and CAP_NET_ADMIN"
    )]
    Refused(u16, Refused),
    /// The kernel lacks events of connections, or denies them.
    #[error(
        "no events of connections: {0}; the kernel needs CONFIG_NF_CT_NETLINK and \
         CONFIG_NF_CONNTRACK_EVENTS"
    )]
    Ends(#[source] io::Error),
}

/// The open sockets.
#[derive(Debug)]
pub(super) struct Sockets {
    packets: Notifications,
    ends: Notifications,
    /// Readable when `packets` or `ends` is, in the daemon's runtime.
    readable: Option<[UnixDatagram; 2]>,
}

/// A message of the kernel.
#[derive(Clone, Debug)]
pub(super) enum Received {
    Packet(Record),
    Ended(Ended),
    /// The kernel has discarded records: the receive buffer was full.
    PacketsLost,
    /// The kernel has discarded ends of connections.
    EndsLost,
}

impl Sockets {
    /// Binds a group of the packet log, in the network namespace of the calling thread.
    pub(super) fn open(group: u16) -> Result<Self, OpenError> {
        // The kernel returns EPERM both for a group of another program and without CAP_NET_ADMIN.
        let is_taken = || {
            let listed = fs::read_to_string(GROUPS).unwrap_or_default();
            is_listed(&listed, group)
        };
        let refused = |cause: Refused| match cause.errno {
            libc::EBUSY => OpenError::Taken(group),
            libc::EPERM if is_taken() => OpenError::Taken(group),
            _ => OpenError::Refused(group, cause),
        };
        let opened = Notifications::open(NETLINK_NETFILTER, FLOW_BUFFER_OCTETS);
        let mut packets = opened.map_err(|error| refused(error.into()))?;
        packets.request(binding(group)).map_err(refused)?;
        // No request has this port, so no event is left out.
        let (port, kept) = (u32::MAX, 0);
        let ends = Notifications::join(
            NETLINK_NETFILTER,
            CONNECTIONS_END,
            port,
            kept,
            FLOW_ENDS_BUFFER_OCTETS,
        );
        Ok(Self {
            packets,
            ends: ends.map_err(OpenError::Ends)?,
            readable: None,
        })
    }

    /// Reads queued messages, a limited number of parts. Packets are read first: the end of a
    /// connection is later than its first packet. Returns whether more may be queued.
    pub(super) fn read(&mut self, mut each: impl FnMut(Received)) -> bool {
        let mut more = false;
        let mut all = |socket: &mut Notifications,
                       parts: usize,
                       decode: &dyn Fn(Notification<'_>) -> Option<Received>,
                       lost: Received| {
            for _ in 0..parts {
                let read = socket.read(|message| {
                    if let Some(found) = decode(message) {
                        each(found);
                    }
                });
                match read {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // ENOBUFS: the others are read on.
                    Err(_) => each(lost.clone()),
                }
            }
            more = true;
        };
        let packet = |message: Notification<'_>| record(message).map(Received::Packet);
        all(
            &mut self.packets,
            FLOW_PARTS_PER_READ,
            &packet,
            Received::PacketsLost,
        );
        let end = |message: Notification<'_>| ended(message).map(Received::Ended);
        all(&mut self.ends, FLOW_ENDS_PER_READ, &end, Received::EndsLost);
        more
    }

    /// Waits until messages are queued. Must be called inside a tokio runtime.
    pub(super) async fn readable(&mut self) {
        if self.readable.is_none() {
            self.readable = [driven(&self.packets), driven(&self.ends)]
                .into_iter()
                .collect::<io::Result<Vec<_>>>()
                .ok()
                .and_then(|both| both.try_into().ok());
        }
        let Some([packets, ends]) = &self.readable else {
            // They are read with the next event.
            return std::future::pending().await;
        };
        tokio::select! {
            () = queued(packets) => {}
            () = queued(ends) => {}
        }
    }
}

/// Returns whether the kernel's list has a group: the first column of a line.
fn is_listed(list: &str, group: u16) -> bool {
    let groups = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    groups.map(str::parse).any(|listed| listed == Ok(group))
}

/// Waits until a socket is readable; later messages are reported again.
async fn queued(socket: &UnixDatagram) {
    if socket.readable().await.is_ok() {
        let unread = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
        let _ = socket.try_io(Interest::READABLE, unread);
    }
}

/// Returns a socket for the runtime, by the type that it has for one with messages.
fn driven(socket: &Notifications) -> io::Result<UnixDatagram> {
    UnixDatagram::from_std(socket.as_fd().try_clone_to_owned()?.into())
}

/// Returns the request for the records of a group: the headers of each packet, with a sequence number,
/// several records in a message.
fn binding(group: u16) -> NetfilterMessage {
    let ticks = FLOW_BATCH_TIME.as_millis() / TICK_MS;
    let attributes = vec![
        ConfigNla::Cmd(ConfigCmd::Bind),
        ConfigNla::Mode(ConfigMode::new_packet(FLOW_HEADERS_OCTETS)),
        ConfigNla::NlBufSiz(FLOW_BATCH_OCTETS),
        ConfigNla::Timeout(Timeout::new(u32::try_from(ticks).unwrap_or(1))),
        ConfigNla::QThresh(FLOW_BATCH_RECORDS),
        ConfigNla::Flags(ConfigFlags::SEQ),
    ];
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, group);
    NetfilterMessage::new(header, ULogMessage::Config(attributes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_group_is_in_the_list_of_the_kernel() {
        let list = "    7 4194  0 2 65535  1  1\n   80 812345 0 2   128 10  1\n";
        for (group, listed) in [(7, true), (80, true), (8, false), (4194, false), (0, false)] {
            assert_eq!(is_listed(list, group), listed, "{group}");
        }
        assert!(!is_listed("", 80));
    }
}
