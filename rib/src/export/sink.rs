//! The receiver of a step's routes.

use bgp_proto::{Attributes, Net, Nlri};

use crate::peer::PeerId;

/// The common properties of one run's announcements. All prefixes of a run are passed before those
/// of the next one, so that a writer can fill messages.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Run<'a> {
    /// Unique for each run of a speaker.
    pub id: u64,
    /// The attributes, rewritten by the rules of the group.
    pub attributes: &'a Attributes,
    /// The peer the routes were received from, which is not sent them; [`PeerId::LOCAL`] for locally
    /// originated ones, and for those that are sent to their source, too (RFC 4684 §3.2).
    pub source: PeerId,
}

impl<'a> Run<'a> {
    /// Returns a run of routes of one source with these attributes.
    #[must_use]
    pub const fn new(id: u64, attributes: &'a Attributes, source: PeerId) -> Self {
        Self {
            id,
            attributes,
            source,
        }
    }
}

/// The octets that a sink takes in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Room {
    /// The octets of all messages, about: a step ends with the prefix that reaches them. With
    /// several paths per prefix (RFC 7911), all paths of a prefix are in one step.
    pub octets: usize,
    /// The octets of the longest message. Attributes that nearly fill it are repeated for each few
    /// routes.
    pub message_octets: usize,
}

impl Room {
    /// Room for any output: only the [`crate::Budget`] ends a step.
    pub const UNBOUNDED: Self = Self {
        octets: usize::MAX,
        message_octets: 4096,
    };

    /// Returns room for this many octets, in messages of `message_octets`.
    #[must_use]
    pub const fn new(octets: usize, message_octets: usize) -> Self {
        Self {
            octets,
            message_octets,
        }
    }
}

/// The receiver of the output of a step: for the members at a group's cursor, or for private members,
/// which does not concern the other members. "All" are the members for whom the step is.
///
/// With one path per prefix, all path identifiers are 0. With several (RFC 7911), a withdrawal
/// concerns only the path with its identifier.
pub trait ExportSink {
    /// Returns the octets that it takes in one step.
    fn room(&self) -> Room {
        Room::UNBOUNDED
    }
    /// Advertises a route to all members except `run.source`.
    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>);
    /// Withdraws a route from all members except `except`, which never received it.
    fn unreach(&mut self, nlri: &Nlri<'_>, except: Option<PeerId>);
    /// Withdraws a route from this member alone: its own route is the best from now on. It may hold
    /// none, and need not be a member at all.
    fn unreach_only(&mut self, net: Net<'_>, to: PeerId);
}
