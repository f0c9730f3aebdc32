//! Events of a session.

use bgp_speaker::bgp_fsm::DownReason;
use bgp_speaker::bgp_proto::{Family, RouteRefresh, SessionParams};

use super::received::{Content, ReceivedUpdate};

/// One event of a session, in the order in which the peer sent its messages.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SessionEvent {
    /// The session is established with these parameters; UPDATEs can be sent.
    Established(Box<SessionParams>),
    /// An UPDATE.
    Update(ReceivedUpdate),
    /// The peer has sent all its routes of a negotiated family (RFC 4724 §2).
    EndOfRib(Family),
    /// A ROUTE-REFRESH: a request of the peer for all routes (RFC 2918), or its BoRR or EoRR (RFC 7313).
    Refresh(RouteRefresh),
    /// The transport has taken all octets that the owner sent.
    AllSent,
    /// The session is over, or was never established, for this reason.
    Down(DownReason),
}

impl SessionEvent {
    pub(super) fn of(content: Content) -> Self {
        match content {
            Content::Routes(update) => Self::Update(update),
            Content::EndOfRib(family) => Self::EndOfRib(family),
        }
    }
}
