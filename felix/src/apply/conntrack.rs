//! Deletes tracked connections of addresses that left this host, so that the next holder of an
//! address does not inherit them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink::attributes::{address, find, iterate, of_netfilter};
use netlink::nftables::NETLINK_NETFILTER;
use netlink::{Refused, Requests, Row};
use netlink_packet_core::{DefaultNla, NLA_F_NESTED};
use netlink_packet_netfilter::conntrack::ConntrackMessage;
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};

use crate::limits::CONNTRACK_ENTRIES_MAX;

/// `IPCTNL_MSG_CT_DELETE`.
const DELETE: u8 = 2;
/// `CTA_TUPLE_ORIG`, `CTA_TUPLE_REPLY`, `CTA_TUPLE_IP`, `CTA_ZONE`.
pub(super) const ORIGINAL: u16 = 1;
pub(super) const REPLY: u16 = 2;
pub(super) const ADDRESSES: u16 = 1;
pub(super) const ZONE: u16 = 18;

/// Removes every tracked connection from or to one of the addresses; returns their number. At best
/// effort: a connection that the kernel does not delete times out by itself.
///
/// # Errors
///
/// The kernel has no connection tracking, or not for this process.
pub fn flush(addresses: &BTreeSet<IpAddr>) -> Result<usize, Refused> {
    let mut requests = Requests::open(NETLINK_NETFILTER)?;
    let families = [
        (
            NetfilterProtoFamily::IPv4,
            addresses.iter().any(IpAddr::is_ipv4),
        ),
        (
            NetfilterProtoFamily::IPv6,
            addresses.iter().any(IpAddr::is_ipv6),
        ),
    ];
    let mut removed = 0;
    for (family, _) in families.into_iter().filter(|(_, wanted)| *wanted) {
        let listing = message(family, ConntrackMessage::Get(Vec::new()));
        let rows = requests.dump(listing)?;
        let entries = rows.iter().filter(|row| concerns(row, addresses));
        for row in entries.take(CONNTRACK_ENTRIES_MAX) {
            removed += usize::from(requests.execute(deletion(family, row), 0).is_ok());
        }
    }
    Ok(removed)
}

/// Returns a message about connections of a family.
pub(super) fn message(family: NetfilterProtoFamily, message: ConntrackMessage) -> NetfilterMessage {
    NetfilterMessage::new(NetfilterHeader::new(family, 0, 0), message)
}

/// Builds the deletion of a connection, identified by its original tuple and zone as the kernel
/// reported them.
fn deletion(family: NetfilterProtoFamily, row: &Row) -> NetfilterMessage {
    let named = iterate(of_netfilter(row)).filter(|(kind, _)| matches!(*kind, ORIGINAL | ZONE));
    let attributes = named.map(|(kind, value)| {
        let nested = if kind == ORIGINAL { NLA_F_NESTED } else { 0 };
        DefaultNla::new(kind | nested, value.into())
    });
    let deletion = ConntrackMessage::Other {
        message_type: DELETE,
        attributes: attributes.collect(),
    };
    message(family, deletion)
}

fn concerns(row: &Row, addresses: &BTreeSet<IpAddr>) -> bool {
    iterate(of_netfilter(row))
        .filter(|(kind, _)| matches!(*kind, ORIGINAL | REPLY))
        .filter_map(|(_, tuple)| find(tuple, ADDRESSES))
        .flat_map(iterate)
        .filter_map(|(_, octets)| address(octets))
        .any(|address| addresses.contains(&address))
}
