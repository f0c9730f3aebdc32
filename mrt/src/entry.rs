//! The content of a record, by its type and subtype (RFC 6396 §4, RFC 8050 §3).

use bgp_proto::MessageKind;
use thiserror::Error;

use crate::bgp::{self, BgpStateChange};
use crate::bgp4mp::{self, Bgp4mpMessage, Session, StateChange, TableEntry};
use crate::cursor::Cursor;
use crate::reader::Record;
use crate::record_type::{BGP, BGP4MP, BGP4MP_ET, TABLE_DUMP, TABLE_DUMP_V2};
use crate::table::TableDump;
use crate::table_v2::{PeerIndex, Rib, RibForm};

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Entry {
    /// A BGP message and its session.
    Message(Bgp4mpMessage),
    /// A state transition of a session.
    StateChange(StateChange),
    /// A state transition of a session in the retired format of BGP_STATE_CHANGE.
    BgpStateChange(BgpStateChange),
    /// The peers that RIB records refer to (RFC 6396 §4.3.1).
    PeerIndex(PeerIndex),
    /// The paths of a prefix, of all peers (RFC 6396 §4.3.2, §4.3.3).
    Rib(Rib),
    /// A path of a prefix in the first table format (RFC 6396 §4.2).
    TableDump(TableDump),
    /// A path of a prefix in the retired format of BGP4MP_ENTRY.
    TableEntry(TableEntry),
    /// The file with a table, in the retired format of BGP4MP_SNAPSHOT.
    Snapshot {
        /// Number of the view.
        view: u16,
        /// The file's name.
        file: String,
    },
    /// An unsupported type or subtype.
    Unknown,
}

/// A record's fields run past its end, or name an address family without addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "record of type {kind} subtype {subtype} at octet {at}: bad field at octet {field_at} of its body"
)]
#[non_exhaustive]
pub struct EntryError {
    /// Octet offset of the record's header, after decompression.
    pub at: u64,
    /// Type of the record.
    pub kind: u16,
    /// Subtype of the record.
    pub subtype: u16,
    /// Octet offset in the body where parsing stopped.
    pub field_at: usize,
}

impl Record {
    /// Parses the record's body.
    ///
    /// # Errors
    ///
    /// If the body is invalid for its type. Later records can still be read.
    pub fn entry(&self) -> Result<Entry, EntryError> {
        let mut body = Cursor::new(self.body.clone());
        let entry = match self.kind {
            BGP => self.bgp(&mut body),
            TABLE_DUMP => TableDump::read(&mut body, self.subtype).map(Entry::TableDump),
            TABLE_DUMP_V2 => self.table_dump_v2(&mut body),
            BGP4MP | BGP4MP_ET => self.bgp4mp(&mut body),
            _ => Some(Entry::Unknown),
        };
        entry.ok_or_else(|| EntryError {
            at: self.at,
            kind: self.kind,
            subtype: self.subtype,
            field_at: body.at(),
        })
    }

    fn table_dump_v2(&self, body: &mut Cursor) -> Option<Entry> {
        if self.subtype == 1 {
            return PeerIndex::read(body).map(Entry::PeerIndex);
        }
        match RibForm::of(self.subtype) {
            Some(form) => Rib::read(body, form).map(Entry::Rib),
            None => Some(Entry::Unknown),
        }
    }

    /// Parses the subtypes of RFC 6396 appendix B.2.1. The format of BGP_NULL and BGP_PREF_UPDATE is
    /// not defined, and BGP_SYNC should be ignored.
    fn bgp(&self, body: &mut Cursor) -> Option<Entry> {
        let kind = match self.subtype {
            1 => MessageKind::Update,
            3 => return bgp::state_change(body).map(Entry::BgpStateChange),
            5 => MessageKind::Open,
            6 => MessageKind::Notification,
            7 => MessageKind::Keepalive,
            _ => return Some(Entry::Unknown),
        };
        bgp::message(body, kind).map(Entry::Message)
    }

    /// Parses the subtypes of RFC 6396 §4.4 and RFC 8050 §3; 2 and 3 are those of its appendix B.
    fn bgp4mp(&self, body: &mut Cursor) -> Option<Entry> {
        let as4 = matches!(self.subtype, 4 | 5 | 7 | 9 | 11);
        match self.subtype {
            0 | 5 => bgp4mp::state_change(body, as4).map(Entry::StateChange),
            1 | 4 | 6..=11 => {
                let session = Session::read(body, as4)?;
                Some(Entry::Message(Bgp4mpMessage {
                    session,
                    as4,
                    add_path: self.subtype >= 8,
                    sent: matches!(self.subtype, 6 | 7 | 10 | 11),
                    octets: body.rest(),
                }))
            }
            2 => TableEntry::read(body).map(Entry::TableEntry),
            3 => bgp4mp::snapshot(body).map(|(view, file)| Entry::Snapshot { view, file }),
            _ => Some(Entry::Unknown),
        }
    }
}
