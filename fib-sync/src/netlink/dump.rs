//! Reads whole tables, links and addresses.

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage};
use netlink_packet_route::address::AddressMessage;
use netlink_packet_route::link::LinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::apply::table_octet;
use crate::error::OpError;
use crate::nexthop;
use crate::owner::Owner;

/// The object of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Links,
    Addresses,
    Nexthops,
    Routes {
        table: u32,
        owner: Option<Owner>,
        ipv6: bool,
    },
}

/// One dump request and its progress.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) what: What,
    pub(super) sequence: u32,
    pub(super) octets: Vec<u8>,
    /// Nothing has been lost so far.
    pub(super) complete: bool,
    /// The kernel has such objects.
    pub(super) supported: bool,
}

impl Reading {
    pub(super) fn new(what: What, sequence: u32) -> Self {
        Self {
            what,
            sequence,
            octets: request_octets(what, sequence),
            complete: true,
            supported: true,
        }
    }

    /// Records how the dump ended.
    pub(super) fn end(&mut self, result: &Result<(), OpError>) {
        if let (Err(error), What::Nexthops) = (result, self.what) {
            // A kernel without nexthop objects, or one that was built without them.
            self.supported = !matches!(error.errno, libc::EOPNOTSUPP | libc::EINVAL);
        }
        self.complete &= match (result, self.what) {
            (Ok(()), _) => true,
            (Err(error), What::Routes { .. }) => is_empty_table(error.errno),
            (Err(_), What::Nexthops) => !self.supported,
            (Err(_), _) => false,
        };
    }
}

fn request_octets(what: What, sequence: u32) -> Vec<u8> {
    let message = match what {
        What::Nexthops => {
            return nexthop::request(nexthop::Request::Dump, sequence).unwrap_or_default();
        }
        What::Links => RouteNetlinkMessage::GetLink(LinkMessage::default()),
        What::Addresses => RouteNetlinkMessage::GetAddress(AddressMessage::default()),
        What::Routes { table, owner, ipv6 } => {
            RouteNetlinkMessage::GetRoute(routes(table, owner, ipv6))
        }
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, message.into());
    message.finalize();
    let mut octets = vec![0; message.buffer_len()];
    message.serialize(&mut octets);
    octets
}

/// Returns whether the error means that there is nothing to read: the table does not exist, or the
/// family is disabled.
fn is_empty_table(errno: i32) -> bool {
    matches!(errno, libc::ENOENT | libc::EOPNOTSUPP | libc::EAFNOSUPPORT)
}

/// Builds the request for a dump of routes. With strict checking the kernel filters by the fields
/// set here; unused fields must be zero.
fn routes(table: u32, owner: Option<Owner>, ipv6: bool) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: if ipv6 {
            AddressFamily::Inet6
        } else {
            AddressFamily::Inet
        },
        table: table_octet(table),
        protocol: RouteProtocol::from(owner.map_or(0, |owner| owner.0)),
        ..RouteHeader::default()
    };
    if message.header.table == RouteHeader::RT_TABLE_UNSPEC {
        message.attributes.push(RouteAttribute::Table(table));
    }
    message
}
