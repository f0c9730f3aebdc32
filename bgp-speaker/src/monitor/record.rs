//! The records of a monitor.

use alloc::{boxed::Box, string::String, sync::Arc};
use core::net::IpAddr;

use bgp_fsm::{DownReason, Instant};
use bgp_proto::{Asn, Family, FamilySet, RouterId, SessionParams};
use rib::{PeerId, Routes, Stage};

/// A peer as of the last time that its session was established.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Neighbor {
    /// Its id within the speaker.
    pub peer: PeerId,
    /// Its configured name.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// Its AS number.
    pub asn: Asn,
    /// Its BGP Identifier.
    pub router_id: RouterId,
}

/// One record of a monitor. The records of a peer are in the order in which it all happened.
///
/// A program that keeps the tables of a peer applies [`Routes`](Self::Routes), and drops the routes
/// of the families that [`Down`](Self::Down) does not retain: nothing else removes a route. After
/// [`Lost`](Self::Lost) it has to request the routes again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A session was established.
    Up {
        /// The time of the input that caused the record.
        at: Instant,
        /// The peer.
        neighbor: Arc<Neighbor>,
        /// The negotiated parameters.
        params: Box<SessionParams>,
    },
    /// An established session ended. The routes of the peer are removed, except those of retained
    /// families.
    Down {
        /// The time of the input that caused the record.
        at: Instant,
        /// The peer.
        neighbor: Arc<Neighbor>,
        /// The reason.
        reason: DownReason,
        /// The families whose received routes are retained as stale (RFC 4724 §4.2). If they are
        /// not received again in time, they are reported as withdrawn.
        retained: FamilySet,
    },
    /// Routes were announced or withdrawn.
    Routes {
        /// The time of the input that caused the record.
        at: Instant,
        /// The peer.
        neighbor: Arc<Neighbor>,
        /// The routes.
        routes: Routes,
    },
    /// An End-of-RIB marker was received or sent (RFC 4724 §2).
    EndOfRib {
        /// The time of the input that caused the record.
        at: Instant,
        /// The peer.
        neighbor: Arc<Neighbor>,
        /// The table.
        stage: Stage,
        /// The family.
        family: Family,
    },
    /// Records at this place were lost, because they were not taken in time.
    Lost {
        /// The number of routes and events.
        count: u64,
    },
}

impl Record {
    /// Returns the number of routes and events that are lost with the record.
    pub(super) fn lost(&self) -> u64 {
        match self {
            Self::Routes { routes, .. } => routes.len() as u64,
            Self::Lost { count } => *count,
            _ => 1,
        }
    }

    /// Returns the number of entries that the record counts for.
    pub(super) fn entries(&self) -> usize {
        match self {
            Self::Routes { routes, .. } => routes.len(),
            _ => 1,
        }
    }

    /// Returns about how many octets of memory the record takes.
    pub(super) fn octets(&self) -> usize {
        let more = match self {
            Self::Routes { routes, .. } => routes.octets(),
            Self::Up { .. } => size_of::<SessionParams>(),
            Self::Down { reason, .. } => match reason {
                DownReason::Sent(why) | DownReason::Received(why) => why.data.len(),
                _ => 0,
            },
            Self::EndOfRib { .. } | Self::Lost { .. } => 0,
        };
        size_of::<Self>() + more
    }
}
