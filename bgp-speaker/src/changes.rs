//! What a change of a peer's configuration does to its session while that is up: one table, from
//! which the operator's page is made.
//!
//! The table decides nothing by itself. [`crate::reconfigure`] compares what matters at each place
//! (what the OPENs settle, the update group, the tables' view of the peer), so that no combination
//! of changes is forgotten; a test goes through the table and holds that the two say the same.

use bgp_fsm::SessionConfig;

use crate::config::PeerConfig;

/// What becomes of a session that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// In force at once; the peer hears nothing of it.
    Live,
    /// What the peer has sent is judged again, here and at once; nothing has to be sent again.
    Judged,
    /// If routes were refused before, the peer is asked to send its routes again (RFC 2918).
    Asked,
    /// The peer is told its routes by the new rules, and what to forget.
    Told,
    /// In force from the next session on.
    NextSession,
    /// The session starts over if its two OPENs would settle on something else by now; otherwise
    /// it is in force from the next session on.
    Settled,
    /// The session starts over.
    Reset,
}

impl Effect {
    /// Whether a session that stays up does not have it all.
    pub(crate) const fn waits(self) -> bool {
        matches!(self, Self::NextSession | Self::Settled)
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The field of [`PeerConfig`], or of its [`SessionConfig`].
    pub field: &'static str,
    /// What a change of it does.
    pub effect: Effect,
    /// Whether two configurations differ in it.
    pub differs: fn(&PeerConfig, &PeerConfig) -> bool,
}

/// Rows for each of the named fields; the configuration has no others.
macro_rules! rows {
    ($config:ident, ($peer:ident => $place:expr), $($field:ident: $effect:ident,)*) => {{
        #[allow(dead_code, reason = "fails to compile when a field has no row")]
        fn complete(config: &$config) {
            let $config { $($field: _,)* } = config;
        }
        &[$(Change {
            field: stringify!($field),
            effect: Effect::$effect,
            differs: |old, new| {
                let field = |$peer: &PeerConfig| $place.$field.clone();
                field(old) != field(new)
            },
        },)*]
    }};
}

/// The rows of [`PeerConfig`].
pub const PEER_CHANGES: &[Change] = rows! {
    PeerConfig, (peer => peer),
    name: Live,
    remote: Reset,
    port: NextSession,
    local: Reset,
    role: Told,
    session: Settled,
    next_hop: Told,
    import: Judged,
    own_as_max: Judged,
    allow_as_sets: Judged,
    multihop: Judged,
    export: Told,
    send_paths: Told,
    cluster_id: Told,
    prefix_limits: Asked,
    ttl_security_hops: Live,
    password: Live,
};

/// The rows of [`SessionConfig`].
pub const SESSION_CHANGES: &[Change] = rows! {
    SessionConfig, (peer => peer.session),
    local_asn: Settled,
    local_id: Settled,
    peer_asn: Settled,
    passive: NextSession,
    hold_time_s: NextSession,
    keepalive_s: Live,
    connect_retry_s: NextSession,
    handshake_s: NextSession,
    idle_hold_s: NextSession,
    open_delay_s: NextSession,
    send_hold_s: Live,
    families: Settled,
    add_path_receive: Settled,
    add_path_send: Settled,
    graceful_restart: NextSession,
    extended_messages: Settled,
    extended_next_hop: Settled,
    hostname: NextSession,
};

/// The fields in which two configurations differ, and what that does.
pub fn changes<'a>(
    old: &'a PeerConfig,
    new: &'a PeerConfig,
) -> impl Iterator<Item = &'static Change> + 'a {
    let of_peer = PEER_CHANGES.iter().filter(|row| row.field != "session");
    let rows = of_peer.chain(SESSION_CHANGES);
    rows.filter(|row| (row.differs)(old, new))
}
