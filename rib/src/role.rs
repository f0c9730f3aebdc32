//! Roles of peers.

/// The role of a peer for advertisements (RFC 4456 §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Locally originated routes; no peer has this role.
    Local,
    /// A peer in another AS.
    External,
    /// A peer in the local AS that is not a client: in the full mesh, or a reflector of this
    /// speaker.
    Internal,
    /// A route reflector client.
    Client,
}

impl Role {
    /// Returns whether routes from or to this role stay inside the AS: iBGP.
    #[must_use]
    pub const fn is_internal(self) -> bool {
        matches!(self, Self::Internal | Self::Client)
    }
}
