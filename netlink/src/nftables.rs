//! The common parts of nftables requests: families, transactions, generations.

use netlink_packet_core::{DefaultNla, NetlinkSerializable};
use netlink_packet_netfilter::nftables::{GenMessage, NfTablesMessage};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};

use crate::attributes::{find, of_netfilter};
use crate::{Refused, Requests};

/// Netlink protocol of netfilter.
pub const NETLINK_NETFILTER: isize = 12;
/// The kernel's internal "restart": the ruleset has another generation than the one in the request.
pub const ERESTART: i32 = 85;
/// Subsystem number of nftables, in the header of a batch.
const SUBSYSTEM: u16 = 10;
/// `NFNL_MSG_BATCH_BEGIN` and its attribute for the required generation.
const BATCH_BEGIN: u8 = 16;
const BATCH_GENERATION: u16 = 1;
/// `NFTA_GEN_ID`.
const GENERATION_ID: u16 = 1;

/// Returns a message about the tables of family `inet`.
pub fn inet(message: NfTablesMessage) -> NetfilterMessage {
    let header = NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0);
    NetfilterMessage::new(header, message)
}

/// Begins a transaction that the kernel rejects ([`ERESTART`]) if the ruleset has changed since
/// `generation`.
pub fn batch_begin(generation: u32) -> impl NetlinkSerializable {
    control(ControlMessage::Other {
        message_type: BATCH_BEGIN,
        attributes: vec![number(BATCH_GENERATION, generation)],
    })
}

/// Ends a transaction.
pub fn batch_end() -> impl NetlinkSerializable {
    control(ControlMessage::BatchEnd)
}

/// Returns the generation of the whole ruleset.
///
/// # Errors
///
/// The kernel lacks nftables, or denies access to this process.
pub fn generation(requests: &mut Requests) -> Result<u32, Refused> {
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, 0);
    let message = NfTablesMessage::GetGen(GenMessage {
        attributes: Vec::new(),
    });
    let row = requests.fetch(NetfilterMessage::new(header, message))?;
    let id = row
        .as_ref()
        .and_then(|row| find(of_netfilter(row), GENERATION_ID));
    id.and_then(|octets| octets.first_chunk())
        .map(|octets| u32::from_be_bytes(*octets))
        .ok_or(Refused::of(libc::EOPNOTSUPP))
}

/// Returns a 32-bit attribute in network byte order.
pub fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().into())
}

fn control(message: ControlMessage) -> impl NetlinkSerializable {
    let header = NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, SUBSYSTEM);
    NetfilterMessage::new(header, message)
}
