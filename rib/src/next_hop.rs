//! Next hops of paths: tracking requests, and their results.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;

/// The source of next hop reachability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NextHops {
    /// Every next hop counts as reachable at cost 0: suitable for a reflector that does not
    /// forward.
    #[default]
    AssumeReachable,
    /// The driver of the tables is requested to track them ([`crate::Rib::poll_track`]).
    Track,
}

/// The reachability of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// There is no route to it.
    Unreachable,
    /// It is reachable at this interior cost (RFC 4271 §9.1.2.2 e).
    Cost(u32),
}

/// A request about a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// Report its reachability to [`crate::Rib::resolve`], now and whenever it changes.
    Watch(IpAddr),
    /// It is no longer needed.
    Unwatch(IpAddr),
}

/// The place of a set without a next hop to resolve: locally originated routes, and families with
/// an opaque next hop.
pub(crate) const NO_NEXT_HOP: u32 = u32::MAX;

#[derive(Debug)]
struct Entry {
    address: IpAddr,
    /// Attribute sets with this next hop.
    sets: u32,
    watched: bool,
    /// It waits in `dirty` for [`NextHopTable::poll_track`].
    queued: bool,
    reach: Reach,
    /// The host itself has failed: unreachable, whatever `reach` is.
    has_failed: bool,
    /// The table's clock when the reachability last changed.
    changed_at: u64,
}

/// All next hops of all families.
#[derive(Debug)]
pub(crate) struct NextHopTable {
    mode: NextHops,
    entries: Vec<Entry>,
    free: Vec<u32>,
    index: BTreeMap<IpAddr, u32>,
    dirty: VecDeque<u32>,
    /// The hosts that have failed, also those that are no next hop now.
    failed: BTreeSet<IpAddr>,
    /// Counts changes of reachability.
    clock: u64,
}

impl NextHopTable {
    pub(crate) fn new(mode: NextHops) -> Self {
        Self {
            mode,
            entries: Vec::new(),
            free: Vec::new(),
            index: BTreeMap::new(),
            dirty: VecDeque::new(),
            failed: BTreeSet::new(),
            clock: 0,
        }
    }

    /// Adds an attribute set with `address` as next hop.
    pub(crate) fn acquire(&mut self, address: Option<IpAddr>) -> u32 {
        let Some(address) = address else {
            return NO_NEXT_HOP;
        };
        let at = match self.index.get(&address) {
            Some(&at) => at,
            None => self.insert(address),
        };
        self.entries[at as usize].sets += 1;
        self.queue(at);
        at
    }

    /// Removes one attribute set with this next hop.
    pub(crate) fn release(&mut self, at: u32) {
        if at != NO_NEXT_HOP {
            self.entries[at as usize].sets -= 1;
            self.queue(at);
        }
    }

    fn insert(&mut self, address: IpAddr) -> u32 {
        let reach = match self.mode {
            NextHops::AssumeReachable => Reach::Cost(0),
            NextHops::Track => Reach::Unreachable,
        };
        let entry = Entry {
            address,
            sets: 0,
            watched: false,
            queued: false,
            reach,
            has_failed: self.failed.contains(&address),
            changed_at: 0,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.index.insert(address, at);
        at
    }

    /// Queues a possible difference between the wanted and the requested state: it is checked when
    /// polled, so that sets that are added and removed in between cause no request.
    fn queue(&mut self, at: u32) {
        let entry = &mut self.entries[at as usize];
        let wanted = entry.sets > 0;
        let settled = match self.mode {
            NextHops::AssumeReachable => wanted,
            NextHops::Track => wanted == entry.watched,
        };
        if !settled && !entry.queued {
            entry.queued = true;
            self.dirty.push_back(at);
        }
    }

    /// Returns the next request.
    pub(crate) fn poll_track(&mut self) -> Option<Track> {
        while let Some(at) = self.dirty.pop_front() {
            let entry = &mut self.entries[at as usize];
            entry.queued = false;
            let address = entry.address;
            let wanted = entry.sets > 0;
            let asks = self.mode == NextHops::Track && wanted != entry.watched;
            entry.watched = wanted;
            if !wanted {
                self.index.remove(&address);
                self.free.push(at);
            }
            if asks {
                return Some(if wanted {
                    Track::Watch(address)
                } else {
                    Track::Unwatch(address)
                });
            }
        }
        None
    }

    /// Sets the reachability of a next hop. Returns whether anything changed.
    pub(crate) fn resolve(&mut self, address: IpAddr, reach: Reach) -> bool {
        let Some(&at) = self.index.get(&address) else {
            return false;
        };
        let entry = &mut self.entries[at as usize];
        if self.mode == NextHops::AssumeReachable || entry.reach == reach {
            return false;
        }
        self.clock += 1;
        entry.reach = reach;
        entry.changed_at = self.clock;
        true
    }

    /// Records that the host with an address has failed, or no longer has. Returns whether the
    /// reachability of a next hop changed.
    pub(crate) fn fail(&mut self, address: IpAddr, has_failed: bool) -> bool {
        match has_failed {
            true => self.failed.insert(address),
            false => self.failed.remove(&address),
        };
        let Some(&at) = self.index.get(&address) else {
            return false;
        };
        let entry = &mut self.entries[at as usize];
        if entry.has_failed == has_failed {
            return false;
        }
        self.clock += 1;
        entry.has_failed = has_failed;
        entry.changed_at = self.clock;
        true
    }

    /// Returns the address of an entry.
    pub(crate) fn address(&self, at: u32) -> Option<IpAddr> {
        (at != NO_NEXT_HOP).then(|| self.entries[at as usize].address)
    }

    /// Returns the cost of a next hop, if it is reachable.
    pub(crate) fn cost(&self, at: u32) -> Option<u32> {
        if at == NO_NEXT_HOP {
            return Some(0);
        }
        match &self.entries[at as usize] {
            Entry {
                reach: Reach::Cost(cost),
                has_failed: false,
                ..
            } => Some(*cost),
            _ => None,
        }
    }

    /// Returns how many changes there have been.
    pub(crate) const fn clock(&self) -> u64 {
        self.clock
    }

    /// Returns whether the next hop has changed after the clock was at `since`.
    pub(crate) fn changed_since(&self, at: u32, since: u64) -> bool {
        at != NO_NEXT_HOP && self.entries[at as usize].changed_at > since
    }

    /// Returns the number of next hops of attribute sets.
    pub(crate) fn len(&self) -> usize {
        self.entries.iter().filter(|entry| entry.sets > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn next_hop_is_watched_once_and_unwatched_once() {
        let mut table = NextHopTable::new(NextHops::Track);
        let one = table.acquire(Some(ONE));
        assert_eq!(table.acquire(Some(ONE)), one);
        assert_eq!(table.poll_track(), Some(Track::Watch(ONE)));
        assert_eq!(table.poll_track(), None);
        table.release(one);
        assert_eq!(table.poll_track(), None);
        table.release(one);
        assert_eq!(table.poll_track(), Some(Track::Unwatch(ONE)));
        assert_eq!(table.poll_track(), None);
        assert_eq!(table.len(), 0);
        let two = table.acquire(Some(TWO));
        assert_eq!(two, one, "the place is used again");
        assert_eq!(
            table.cost(two),
            None,
            "what was known of the other is forgotten"
        );
    }

    #[test]
    fn next_hop_released_unseen_is_not_tracked() {
        let mut table = NextHopTable::new(NextHops::Track);
        let one = table.acquire(Some(ONE));
        table.release(one);
        let again = table.acquire(Some(ONE));
        assert_eq!(one, again);
        table.release(again);
        assert_eq!(table.poll_track(), None);
        assert!(!table.resolve(ONE, Reach::Cost(1)), "forgotten");
        assert_eq!(table.acquire(None), NO_NEXT_HOP);
    }

    #[test]
    fn failed_host_is_unreachable_until_it_is_restored() {
        for mode in [NextHops::Track, NextHops::AssumeReachable] {
            let mut table = NextHopTable::new(mode);
            let one = table.acquire(Some(ONE));
            table.resolve(ONE, Reach::Cost(0));
            assert!(table.fail(ONE, true) && !table.fail(ONE, true));
            assert_eq!(table.cost(one), None);
            assert!(!table.fail(TWO, true), "no path has it as next hop yet");
            let two = table.acquire(Some(TWO));
            table.resolve(TWO, Reach::Cost(0));
            assert_eq!(table.cost(two), None);
            assert!(table.fail(ONE, false) && table.fail(TWO, false));
            assert_eq!((table.cost(one), table.cost(two)), (Some(0), Some(0)));
        }
    }

    #[test]
    fn answers_count_only_if_they_are_new() {
        let mut table = NextHopTable::new(NextHops::Track);
        let one = table.acquire(Some(ONE));
        assert_eq!(table.cost(one), None);
        assert!(table.resolve(ONE, Reach::Cost(7)));
        assert!(!table.resolve(ONE, Reach::Cost(7)));
        assert_eq!(table.cost(one), Some(7));
        assert!(table.changed_since(one, 0) && !table.changed_since(one, table.clock()));
        let mut assumed = NextHopTable::new(NextHops::AssumeReachable);
        let one = assumed.acquire(Some(ONE));
        assert_eq!((assumed.cost(one), assumed.poll_track()), (Some(0), None));
        assumed.release(one);
        assert_eq!(assumed.poll_track(), None);
        assert_eq!(assumed.len(), 0);
    }
}
