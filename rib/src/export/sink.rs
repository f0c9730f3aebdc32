//! Where the routes of a bite go.

use bgp_proto::{Attributes, Net, Nlri};

use crate::peer::PeerId;

/// What the announcements of one run have in common. Runs come whole: all prefixes of one are
/// handed over before those of the next, so that a writer can fill messages with them.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Tells runs of one speaker apart; never used again.
    pub id: u64,
    /// The attributes, as the rules of the group have them.
    pub attributes: &'a Attributes,
    /// The peer the routes were learned from.
    pub source: PeerId,
}

/// What a walk hands over: the shared one of a group, or that of members which walk by themselves,
/// in which the group's other members take no part. "All" are those who take this walk.
///
/// Where members are sent one path a prefix, all path identifiers are 0. Where they are sent
/// several (RFC 7911), a withdrawal is about the path with its identifier alone.
pub trait ExportSink {
    /// A route is advertised to all members but `run.source`.
    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>);
    /// A route is withdrawn from all members but `except`, to which it was never advertised.
    fn unreach(&mut self, nlri: &Nlri<'_>, except: Option<PeerId>);
    /// A route is withdrawn from this member alone: from now on its own is the best. It may hold
    /// none, and need not be a member at all.
    fn unreach_only(&mut self, net: Net<'_>, to: PeerId);
}
