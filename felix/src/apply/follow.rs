//! Follows the transactions of all programs by the kernel's notifications.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use netlink::attributes::find;
use netlink::nftables::NETLINK_NETFILTER;
use netlink::{Notification, Notifications};

use crate::limits::FOLLOWED_PARTS_MAX;
use crate::render::TABLE;

/// `NFNLGRP_NFTABLES`.
const GROUP: u32 = 7;
/// `NFT_MSG_NEWGEN` of the subsystem nftables: ends the notifications of each transaction.
const NEW_GENERATION: u16 = 10 << 8 | 15;
/// `NFTA_GEN_ID`.
const GENERATION_ID: u16 = 1;
/// `NFPROTO_INET`, `NFPROTO_ARP`: the families of the own tables.
const INET: u8 = 1;
const ARP: u8 = 3;
/// The attribute of every object that names its table.
const OBJECT_TABLE: u16 = 1;
/// Octets of `nfgenmsg`.
const HEADER_OCTETS: usize = 4;

/// Reads the notifications of nftables. The kernel discards those of own transactions except their
/// ends, so that a large own transaction costs one message.
#[derive(Debug)]
pub(super) struct Follower {
    notifications: Notifications,
    /// The socket is a member of the group.
    listens: bool,
    seen: Seen,
}

/// The transactions known so far.
#[derive(Debug)]
struct Seen {
    /// The port ID of own transactions.
    own: u32,
    /// All transactions up to this generation are known, unless there is a gap.
    generation: u32,
    /// Another program's transaction, of which the end was not read yet, names the own table.
    names_own: bool,
    /// Another program has changed the own table.
    is_changed: bool,
    /// Some transactions are unknown.
    has_gap: bool,
    /// Notifications read.
    messages: u64,
}

impl Follower {
    /// Joins the group, in the network namespace of the calling thread. `own` is the port ID of own
    /// transactions, `octets` the size of the receive buffer.
    ///
    /// # Errors
    ///
    /// The kernel denies the group.
    pub(super) fn join(own: u32, octets: usize) -> io::Result<Self> {
        let notifications =
            Notifications::join(NETLINK_NETFILTER, GROUP, own, NEW_GENERATION, octets)?;
        let seen = Seen::new(own);
        Ok(Self {
            notifications,
            listens: true,
            seen,
        })
    }

    /// Reads all queued notifications.
    pub(super) fn read(&mut self) {
        if !self.listens {
            self.rejoin();
            self.seen.has_gap = true;
        }
        let Self {
            notifications,
            seen,
            ..
        } = self;
        for _ in 0..FOLLOWED_PARTS_MAX {
            match notifications.read(|notification| seen.take(notification)) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // ENOBUFS: the kernel has discarded messages. The others are read on.
                Err(_) => seen.has_gap = true,
            }
        }
        // Other programs write faster than this one reads.
        seen.has_gap = true;
    }

    /// Stops listening, so that the kernel does not build the notifications of a large own transaction.
    pub(super) fn leave(&mut self) {
        self.listens &= self.notifications.leave().is_err();
    }

    /// Listens again. Returns whether it does; otherwise the next reading tries it again.
    pub(super) fn rejoin(&mut self) -> bool {
        self.listens |= self.notifications.rejoin().is_ok();
        self.listens
    }

    /// Begins with the table as it is at a generation.
    pub(super) const fn start(&mut self, generation: u32) {
        self.seen.start(generation);
    }

    /// Records an own transaction that created this generation.
    pub(super) const fn advance(&mut self, generation: u32) {
        self.seen.generation = generation;
    }

    /// Returns the generation up to which all transactions are known, unless there is a gap.
    pub(super) const fn generation(&self) -> u32 {
        self.seen.generation
    }

    /// Returns whether another program has changed the own table.
    pub(super) const fn is_changed(&self) -> bool {
        self.seen.is_changed
    }

    /// Returns whether some transactions are unknown.
    pub(super) const fn has_gap(&self) -> bool {
        self.seen.has_gap
    }

    /// Returns the number of notifications read.
    pub(super) const fn messages(&self) -> u64 {
        self.seen.messages
    }

    /// Returns a descriptor that is readable when there are notifications.
    pub(super) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.notifications.as_fd().try_clone_to_owned()
    }
}

impl Seen {
    const fn new(own: u32) -> Self {
        Self {
            own,
            generation: 0,
            names_own: false,
            is_changed: false,
            has_gap: true,
            messages: 0,
        }
    }

    const fn start(&mut self, generation: u32) {
        self.generation = generation;
        (self.is_changed, self.has_gap) = (false, false);
    }

    fn take(&mut self, notification: Notification<'_>) {
        self.messages += 1;
        if notification.kind != NEW_GENERATION {
            self.names_own |= notification.port != self.own && names_own(notification.payload);
            return;
        }
        let names_own = std::mem::take(&mut self.names_own);
        let Some(generation) = generation_of(notification.payload) else {
            self.has_gap = true;
            return;
        };
        if is_later(generation, self.generation) {
            self.has_gap |= generation != after(self.generation);
            self.generation = generation;
            self.is_changed |= names_own;
        }
    }
}

/// Returns the generation that a transaction creates.
pub(super) fn after(generation: u32) -> u32 {
    generation.wrapping_add(1).max(1)
}

/// Returns whether a generation is later than another one; the numbers wrap around.
pub(super) const fn is_later(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

fn generation_of(payload: &[u8]) -> Option<u32> {
    let id = find(payload.get(HEADER_OCTETS..)?, GENERATION_ID)?;
    Some(u32::from_be_bytes(*id.first_chunk()?))
}

fn names_own(payload: &[u8]) -> bool {
    let table = payload
        .get(HEADER_OCTETS..)
        .and_then(|attributes| find(attributes, OBJECT_TABLE));
    let name = table.and_then(|table| table.strip_suffix(&[0]));
    let is_family = matches!(payload.first(), Some(&(INET | ARP)));
    is_family && name == Some(TABLE.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 7;
    const OTHER: u32 = 9;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        [&length.to_ne_bytes(), &kind.to_ne_bytes()[..], value].concat()
    }

    fn ends(generation: u32) -> Vec<u8> {
        let id = attribute(GENERATION_ID, &generation.to_be_bytes());
        [vec![0; 4], id].concat()
    }

    fn names(family: u8, table: &str) -> Vec<u8> {
        let table = attribute(OBJECT_TABLE, &[table.as_bytes(), &[0]].concat());
        [vec![family, 0, 0, 0], table].concat()
    }

    /// Takes notifications: kind, port, payload. Returns generation, change, gap.
    fn taken(from: u32, all: &[(u16, u32, Vec<u8>)]) -> (u32, bool, bool) {
        let mut seen = Seen::new(OWN);
        seen.start(from);
        for (kind, port, payload) in all {
            seen.take(Notification::new(*kind, *port, payload));
        }
        (seen.generation, seen.is_changed, seen.has_gap)
    }

    #[test]
    fn change_is_a_foreign_transaction_that_names_the_table() {
        const RULE: u16 = 10 << 8 | 6;
        let end = |port, generation| (NEW_GENERATION, port, ends(generation));
        let rule = |port, family, table: &str| (RULE, port, names(family, table));
        let foreign = |family, table: &str| [rule(OTHER, family, table), end(OTHER, 5)];
        assert_eq!(taken(4, &foreign(INET, TABLE)), (5, true, false));
        assert_eq!(taken(4, &foreign(ARP, TABLE)), (5, true, false));
        assert_eq!(taken(4, &foreign(2, TABLE)), (5, false, false));
        assert_eq!(taken(4, &foreign(INET, "other")), (5, false, false));
        let longer = format!("{TABLE}-record");
        assert_eq!(taken(4, &foreign(INET, &longer)), (5, false, false));
        let own = [rule(OWN, INET, TABLE), end(OWN, 5)];
        assert_eq!(taken(4, &own), (5, false, false));
        // One that the state already includes.
        assert_eq!(taken(5, &foreign(INET, TABLE)), (5, false, false));
        // One of which the end was not read.
        assert_eq!(taken(4, &foreign(INET, TABLE)[..1]), (4, false, false));
        // The name counts for its transaction only.
        let two = [rule(OTHER, INET, TABLE), end(OTHER, 4), end(OTHER, 5)];
        assert_eq!(taken(4, &two), (5, false, false));
    }

    #[test]
    fn missing_generation_is_a_gap() {
        let end = |generation| (NEW_GENERATION, OTHER, ends(generation));
        assert_eq!(taken(4, &[end(5), end(6)]), (6, false, false));
        assert_eq!(taken(4, &[end(6)]), (6, false, true));
        // The numbers wrap around, and 0 is left out.
        assert_eq!(taken(u32::MAX, &[end(1)]), (1, false, false));
        assert_eq!(taken(u32::MAX - 1, &[end(1)]), (1, false, true));
        assert_eq!(taken(1, &[end(u32::MAX)]), (1, false, false));
        let whole = ends(5);
        for length in 0..whole.len() {
            let cut = (NEW_GENERATION, OTHER, whole[..length].to_vec());
            assert_eq!(taken(4, &[cut]), (4, false, true), "{length}");
        }
    }
}
