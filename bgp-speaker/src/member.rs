//! The members of an update group, family by family.

use bgp_proto::{EncodeParams, Family, RefreshSubtype, RouteRefresh, UpdateWriter};
use bytes::{Bytes, BytesMut};
use rib::{Cursor, GroupId, PeerId};

use crate::{feed::FeedPlace, octets::Encoded, outlet::Outlet, segment::Audience};

/// The progress of one member in one family.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// It reads the tables from this cursor, or takes the parts of the dump of another member with the same
    /// cursors.
    Private(Cursor, FeedPlace),
    /// It has taken every segment before this number.
    Shared(u64),
}

/// One member in one family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemberState {
    pub(crate) mode: Mode,
    /// The message after the full table dump in progress.
    pub(crate) dump_end: DumpEnd,
    /// Whether another dump follows, and with which markers.
    pub(crate) again: Option<RefreshMarkers>,
}

impl MemberState {
    /// Returns a member that has read up to `from` and receives everything again.
    pub(crate) fn refreshed(
        from: Cursor,
        family: Family,
        markers: RefreshMarkers,
        session: &mut Outlet<'_>,
    ) -> Self {
        if let Some(begin) = markers.message(family, RefreshSubtype::Begin) {
            session.queue(begin);
        }
        Self {
            mode: Mode::Private(from.refreshed(), FeedPlace::ELSEWHERE),
            dump_end: DumpEnd::EndOfRefresh(markers),
            again: None,
        }
    }

    /// Returns the state of a member that has read everything up to `cursor`: its dump ends with its
    /// message. It continues in `mode`, or with another dump.
    pub(crate) fn dumped(
        self,
        cursor: Cursor,
        family: Family,
        mode: Mode,
        session: &mut Outlet<'_>,
    ) -> Self {
        let end = match self.dump_end {
            DumpEnd::Nothing => None,
            DumpEnd::EndOfRib => Some(message(|out| UpdateWriter::end_of_rib(out, family))),
            DumpEnd::EndOfRefresh(markers) => markers.message(family, RefreshSubtype::End),
        };
        if let Some(end) = end {
            session.queue(end);
        }
        match self.again {
            Some(markers) => Self::refreshed(cursor, family, markers, session),
            None => Self {
                mode,
                dump_end: DumpEnd::Nothing,
                again: None,
            },
        }
    }
}

/// The end of a full table dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DumpEnd {
    /// None; or there is no such dump.
    Nothing,
    /// The End-of-RIB marker after the first one (RFC 4724 §2).
    EndOfRib,
    /// EoRR after a refresh, if the peer supports it (RFC 7313 §4.1).
    EndOfRefresh(RefreshMarkers),
}

/// Whether BoRR and EoRR are sent around a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefreshMarkers {
    /// No (RFC 2918).
    Unmarked,
    /// Yes (RFC 7313).
    Marked,
}

impl RefreshMarkers {
    /// Returns BoRR or EoRR, if it is sent.
    fn message(self, family: Family, subtype: RefreshSubtype) -> Option<Bytes> {
        let marked = self == Self::Marked;
        marked.then(|| message(|out| RouteRefresh { family, subtype }.encode(out)))
    }
}

/// The changes that a peer missed are no longer available: its session must be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lost;

/// The parameters of one private dump.
pub(crate) struct Dump {
    pub(crate) group: GroupId,
    pub(crate) family: Family,
    pub(crate) peer: PeerId,
    pub(crate) params: EncodeParams,
    /// The account of what is encoded.
    pub(crate) encoded: Encoded,
}

/// Queues the pieces with this peer in their audience.
pub(crate) fn queue(session: &mut Outlet<'_>, peer: PeerId, pieces: &[(Audience, Bytes)]) {
    for (audience, octets) in pieces {
        if audience.includes(peer) {
            session.queue(octets.clone());
        }
    }
}

/// Returns one message in a buffer of its own.
fn message(encode: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.freeze()
}
