//! The peers: configured ones, and dynamic ones from a range.

use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
    vec::Vec,
};
use core::net::IpAddr;

use bgp_proto::Prefix;
use rib::PeerId;

use crate::{
    config::SpeakerConfig,
    event::Refusal,
    keys::PeerConfig,
    limits::{IDS_RESTING, PEERS_MAX},
    peer::Peer,
    usage::{AllRangeMarks, Level, RangeMarks},
};

/// The peers by id and by address.
#[derive(Debug)]
pub(crate) struct Roster {
    peers: Vec<Option<Box<Peer>>>,
    by_address: BTreeMap<IpAddr, PeerId>,
    /// Released IDs, the oldest first: an ID is not assigned again while the tables still sweep the
    /// paths of its last owner.
    freed: VecDeque<usize>,
    /// How many peers were ever made: each gets another seed.
    made: u64,
    /// How many connections have come in, to order them by age.
    knocks: u64,
    seed: u64,
    /// The number of peers, and its highest value.
    level: Level,
    /// Whether a peer has ever found no place.
    was_full: bool,
    marks: AllRangeMarks,
}

impl Roster {
    /// Makes a roster of the configured peers.
    pub(crate) fn new(config: &SpeakerConfig, seed: u64) -> Self {
        let mut roster = Self {
            peers: Vec::new(),
            by_address: BTreeMap::new(),
            freed: VecDeque::new(),
            made: 0,
            knocks: 0,
            seed,
            level: Level::default(),
            was_full: false,
            marks: AllRangeMarks::new(),
        };
        for peer in &config.peers {
            roster.insert(peer.clone(), None);
        }
        roster
    }

    pub(crate) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(index(id)?)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.peers.get_mut(index(id)?)?.as_deref_mut()
    }

    /// Returns the peer at an address.
    pub(crate) fn at(&self, remote: IpAddr) -> Option<PeerId> {
        self.by_address.get(&remote).copied()
    }

    /// Returns every ID in use.
    pub(crate) fn ids(&self) -> Vec<PeerId> {
        self.iter().map(|(id, _)| id).collect()
    }

    /// Returns every peer.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PeerId, &Peer)> {
        self.peers
            .iter()
            .enumerate()
            .filter_map(|(at, peer)| Some((id(at)?, peer.as_deref()?)))
    }

    /// Adds a peer. Returns `None` when [`PEERS_MAX`] is reached.
    pub(crate) fn insert(&mut self, config: PeerConfig, range: Option<usize>) -> Option<PeerId> {
        let Some(at) = self.free() else {
            self.was_full = true;
            return None;
        };
        let id = id(at)?;
        self.by_address.insert(config.remote, id);
        self.made += 1;
        let seed = self.seed ^ self.made.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        *self.peers.get_mut(at)? = Some(Box::new(Peer::new(config, range, seed)));
        self.level.set(self.level.now + 1);
        Some(id)
    }

    /// Returns whether [`insert`](Self::insert) has ever failed.
    pub(crate) const fn was_full(&self) -> bool {
        self.was_full
    }

    /// Releases a peer's address; the peer itself stays until its remaining octets are written.
    pub(crate) fn doom(&mut self, id: PeerId) {
        let Some(peer) = self.get_mut(id) else { return };
        peer.doomed = true;
        let remote = peer.config.remote;
        self.vacate(remote, id);
    }

    /// Removes this peer from an address, if it is the one there.
    fn vacate(&mut self, remote: IpAddr, id: PeerId) {
        if self.by_address.get(&remote) == Some(&id) {
            self.by_address.remove(&remote);
        }
    }

    /// Removes a peer; its ID stays in use until [`release`](Self::release).
    pub(crate) fn remove(&mut self, id: PeerId) {
        let Some(peer) = index(id).and_then(|at| self.peers.get_mut(at)?.take()) else {
            return;
        };
        self.level.set(self.level.now.saturating_sub(1));
        self.vacate(peer.config.remote, id);
    }

    /// Releases the ID of a removed peer.
    pub(crate) fn release(&mut self, id: PeerId) {
        self.freed.extend(index(id));
    }

    /// Returns the peer of an incoming connection, and whether it must be started: a peer of a range at its
    /// first connection.
    pub(crate) fn accept(
        &mut self,
        config: &SpeakerConfig,
        local: IpAddr,
        remote: IpAddr,
    ) -> Result<(PeerId, bool), Refusal> {
        self.knocks += 1;
        let knock = self.knocks;
        if let Some(id) = self.at(remote)
            && let Some(peer) = self.get_mut(id)
        {
            return match peer.config.local {
                Some(wanted) if wanted != local => Err(Refusal::WrongLocal),
                _ => {
                    let before = core::mem::replace(&mut peer.knock, knock);
                    Ok((id, peer.range.is_some() && before == 0))
                }
            };
        }
        let id = self.take_place(config, remote)?;
        if let Some(peer) = self.get_mut(id) {
            peer.knock = knock;
        }
        Ok((id, true))
    }

    /// Makes a peer of the range that covers an address without a peer.
    pub(crate) fn take_place(
        &mut self,
        config: &SpeakerConfig,
        remote: IpAddr,
    ) -> Result<PeerId, Refusal> {
        let (at, range) = config.range_of(remote).ok_or(Refusal::Unknown)?;
        let taken = self.out_of(at);
        if taken >= usize::from(range.limit) {
            return Err(Refusal::RangeFull {
                range: range.prefix,
                limit: range.limit,
            });
        }
        let id = self
            .insert(range.peer(remote), Some(at))
            .ok_or(Refusal::TooManyPeers)?;
        let marks = self.marks.entry(range.prefix).or_default();
        marks.peak = marks.peak.max(taken + 1);
        Ok(id)
    }

    /// Returns the number of peers of one range.
    pub(crate) fn out_of(&self, range: usize) -> usize {
        let of_range = |peer: &Peer| peer.range == Some(range) && !peer.doomed;
        self.iter().filter(|(_, peer)| of_range(peer)).count()
    }

    /// Returns the peer of a range that is evicted for a new one: of the peers that are not
    /// Established and have no state to lose, the one with the oldest incoming connection of the
    /// source that has most of them.
    pub(crate) fn to_evict(&self, range: usize, newcomer: IpAddr) -> Option<PeerId> {
        let unopened = self.iter().filter(|(_, peer)| {
            peer.range == Some(range) && !peer.doomed && !peer.is_there() && !peer.is_in_back_off()
        });
        let mut sources: BTreeMap<IpAddr, (usize, u64, PeerId)> = BTreeMap::new();
        for (id, peer) in unopened {
            let entry = sources.entry(source(peer.config.remote));
            let (count, oldest, oldest_id) = entry.or_insert((0, u64::MAX, id));
            *count += 1;
            if peer.knock < *oldest {
                (*oldest, *oldest_id) = (peer.knock, id);
            }
        }
        if let Some((count, ..)) = sources.get_mut(&source(newcomer)) {
            *count += 1;
        }
        let most = sources.into_values();
        most.max_by_key(|&(count, oldest, _)| (count, core::cmp::Reverse(oldest)))
            .map(|(_, _, id)| id)
    }

    /// Returns the number of peers, and its highest value.
    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// Returns the stored counters of a range.
    pub(crate) fn marks(&self, range: Prefix) -> RangeMarks {
        self.marks.get(&range).copied().unwrap_or_default()
    }

    /// Returns an ID for a new peer.
    fn free(&mut self) -> Option<usize> {
        if self.freed.len() > IDS_RESTING || self.peers.len() >= PEERS_MAX {
            return self.freed.pop_front();
        }
        self.peers.push(None);
        Some(self.peers.len() - 1)
    }
}

/// Returns the block of addresses that an attacker obtains as easily as one address: that address,
/// or an IPv6 network.
fn source(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
    }
}

/// ID 0 is the speaker itself.
fn index(id: PeerId) -> Option<usize> {
    usize::from(id.0).checked_sub(1)
}

fn id(index: usize) -> Option<PeerId> {
    u16::try_from(index + 1).ok().map(PeerId)
}
