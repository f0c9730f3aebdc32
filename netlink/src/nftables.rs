//! The common parts of nftables requests: families, transactions, generations.

use std::io;

use netlink_packet_core::{DefaultNla, NLM_F_ACK, NetlinkSerializable};
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

/// A message of a transaction, with its netlink flags.
pub type Step = (NfTablesMessage, u16);

/// Why this process cannot use nftables.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The socket cannot be opened.
    #[error("no netlink socket for nftables: {0}; the kernel needs CONFIG_NETFILTER_NETLINK")]
    Socket(#[source] io::Error),
    /// Privileges are missing.
    #[error("the kernel refuses nftables to this process: {0}; it needs CAP_NET_ADMIN")]
    NotPermitted(Refused),
    /// The kernel lacks nftables.
    #[error(
        "the kernel has no nftables: {0}; load the module nf_tables, or run a kernel with \
         CONFIG_NF_TABLES and CONFIG_NF_TABLES_INET"
    )]
    Absent(Refused),
}

/// Opens nftables in the network namespace of the calling thread.
///
/// # Errors
///
/// The kernel lacks nftables, or denies access to this process.
pub fn open() -> Result<Requests, OpenError> {
    let mut requests = Requests::open(NETLINK_NETFILTER).map_err(OpenError::Socket)?;
    match generation(&mut requests) {
        Ok(_) => Ok(requests),
        Err(cause) if matches!(cause.errno, libc::EPERM | libc::EACCES) => {
            Err(OpenError::NotPermitted(cause))
        }
        Err(cause) => Err(OpenError::Absent(cause)),
    }
}

/// Carries out steps of one or more messages each in one transaction, on this generation of the
/// ruleset.
///
/// # Errors
///
/// Nothing was changed: the index of the step that the kernel rejected, if it was one of them, and
/// its answer, [`ERESTART`] for another generation.
pub fn transact(
    requests: &mut Requests,
    generation: u32,
    steps: impl IntoIterator<Item = Vec<Step>>,
) -> Result<(), (Option<usize>, Refused)> {
    let message = |(message, flags)| (inet(message), flags);
    let steps = steps.into_iter();
    let steps = steps.map(|messages| messages.into_iter().map(message).collect());
    transact_families(requests, generation, steps)
}

/// Carries out steps of messages about tables of any family, as [`transact`] does.
///
/// # Errors
///
/// As of [`transact`].
pub fn transact_families(
    requests: &mut Requests,
    generation: u32,
    steps: impl IntoIterator<Item = Vec<(NetfilterMessage, u16)>>,
) -> Result<(), (Option<usize>, Refused)> {
    let mut batch = requests.batch();
    let begin = batch.push(batch_begin(generation), 0);
    let mut last = begin;
    // The sequence number of each step's last message.
    let mut sent = Vec::new();
    let mut steps = steps.into_iter().peekable();
    while let Some(messages) = steps.next() {
        let mut messages = messages.into_iter().peekable();
        while let Some((message, flags)) = messages.next() {
            // Errors are returned in any case; one acknowledgment confirms the end.
            let ends = messages.peek().is_none() && steps.peek().is_none();
            let flags = if ends { flags | NLM_F_ACK } else { flags };
            last = batch.push(message, flags);
        }
        sent.push(last);
    }
    batch.push(batch_end(), 0);
    batch.commit().map_err(|cause| {
        let rejected = cause.sequence.filter(|rejected| *rejected != begin);
        let step = rejected.map(|rejected| sent.partition_point(|last| *last < rejected));
        (step, cause)
    })
}

/// Returns a message about the tables of family `inet`.
pub fn inet(message: NfTablesMessage) -> NetfilterMessage {
    let header = NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0);
    NetfilterMessage::new(header, message)
}

/// Begins a transaction that the kernel rejects ([`ERESTART`]) if the ruleset has changed since
/// `generation`.
fn batch_begin(generation: u32) -> impl NetlinkSerializable {
    control(ControlMessage::Other {
        message_type: BATCH_BEGIN,
        attributes: vec![number(BATCH_GENERATION, generation)],
    })
}

/// Ends a transaction.
fn batch_end() -> impl NetlinkSerializable {
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
