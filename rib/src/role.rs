//! What peers are to a speaker.

/// What a peer is to us, as far as passing on routes goes (RFC 4456 §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// This speaker's own routes; no peer has this role.
    Local,
    /// A peer in another AS.
    External,
    /// A peer in our AS that is not our client: in the full mesh, or a reflector of ours.
    Internal,
    /// A peer in our AS whose routes we reflect.
    Client,
}

impl Role {
    /// Whether routes from or to this role cross no AS border: iBGP.
    #[must_use]
    pub const fn is_internal(self) -> bool {
        matches!(self, Self::Internal | Self::Client)
    }
}
