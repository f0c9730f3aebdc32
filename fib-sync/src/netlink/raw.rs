//! Framing of netlink messages, before their content is parsed.

use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NlasIterator};

use crate::error::OpError;

/// `NLM_F_CAPPED`: the answer echoes the header of the request only.
const CAPPED: u16 = 0x100;
/// `NLM_F_ACK_TLVS`: attributes follow the echoed request.
const TLVS: u16 = 0x200;
/// `NLM_F_DUMP_INTR`: the dumped objects changed during the dump.
const INTERRUPTED: u16 = 0x10;
/// `NLMSGERR_ATTR_MSG`: the kernel's error text.
const ATTR_TEXT: u16 = 1;
/// Octets of `struct nlmsghdr`.
const HEADER: usize = 16;

/// One message of a datagram.
pub(super) struct Raw<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) payload: &'a [u8],
}

/// Splits a datagram into messages; stops at the first malformed one.
pub(super) fn messages(mut octets: &[u8]) -> impl Iterator<Item = Raw<'_>> {
    core::iter::from_fn(move || {
        let buffer = NetlinkBuffer::new_checked(octets).ok()?;
        let length = buffer.length() as usize;
        let (kind, flags, sequence) = (
            buffer.message_type(),
            buffer.flags(),
            buffer.sequence_number(),
        );
        let payload = octets.get(HEADER..length)?;
        octets = octets.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Raw {
            kind,
            flags,
            sequence,
            payload,
        })
    })
}

/// The meaning of a message of the request socket.
pub(super) enum Reply {
    /// A row of a dump.
    Row,
    /// The end of a dump, or the answer to a request.
    End(Result<(), OpError>),
}

impl Raw<'_> {
    /// Returns whether the dump that this message belongs to was interrupted.
    pub(super) fn is_interrupted(&self) -> bool {
        self.flags & INTERRUPTED != 0
    }

    pub(super) fn reply(&self) -> Reply {
        match self.kind {
            NLMSG_ERROR | NLMSG_DONE => Reply::End(self.result()),
            _ => Reply::Row,
        }
    }

    /// Returns the code of an error or end message: a negative error number, or 0.
    fn result(&self) -> Result<(), OpError> {
        let code = self
            .payload
            .first_chunk::<4>()
            .map_or(0, |octets| i32::from_ne_bytes(*octets));
        if code >= 0 {
            return Ok(());
        }
        Err(OpError {
            errno: code.saturating_neg(),
            text: self.text(),
        })
    }

    fn text(&self) -> Option<Box<str>> {
        if self.flags & TLVS == 0 {
            return None;
        }
        let echoed = match self.kind {
            NLMSG_DONE => 0,
            _ if self.flags & CAPPED != 0 => HEADER,
            _ => {
                let length = self.payload.get(4..8)?.first_chunk::<4>()?;
                (u32::from_ne_bytes(*length) as usize).next_multiple_of(4)
            }
        };
        let attributes = NlasIterator::new(self.payload.get(4 + echoed..)?);
        let text = attributes.flatten().find(|nla| nla.kind() == ATTR_TEXT)?;
        let text = String::from_utf8_lossy(text.value());
        Some(text.trim_end_matches('\0').into())
    }
}
