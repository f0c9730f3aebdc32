//! The table in the kernel: writes it in transactions, checks it, reads its counters.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use netlink::nftables::{self, ERESTART, OpenError, generation};
use netlink::{Refused, Requests, Row, listing};
use netlink_packet_netfilter::nftables::{NfTablesMessage, RuleAttribute, RuleMessage};

use super::encode::arp;
use super::follow::{Follower, after, is_later};
use super::listing::{Listing, table, table_of};
use super::record::{self, Digest, Record};
use crate::agent::Checked;
use crate::limits::{NOTIFICATION_BUFFER_OCTETS, TRANSACTION_ATTEMPTS};
use crate::render::{Change, IN_ARP, TABLE};

mod tables;
mod transaction;

/// Why the rules are not in effect.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// This process cannot use nftables.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// One step of a transaction was rejected, and with it the whole transaction.
    #[error("the kernel refused to {step}: {cause}")]
    Step {
        /// The rejected step.
        step: String,
        /// The kernel's answer.
        cause: Refused,
    },
    /// Another program has changed the table.
    #[error("another program has changed table inet cambric-felix")]
    Changed,
    /// A thread writes a large transaction.
    #[error("a large transaction is in progress; repeat the request")]
    Busy,
    /// Any other request failed.
    #[error("nftables: {0}")]
    Refused(#[from] Refused),
}

/// Writes and checks the table.
#[derive(Debug)]
pub struct Rules {
    requests: Requests,
    follower: Follower,
    known: Known,
    /// The digest of the kernel's listing after the last own transaction.
    listing: Option<Digest>,
    /// Some transactions are unknown, and no listing has shown yet that they did not change the table.
    is_doubtful: bool,
    /// The listing in progress, begun after the last own transaction.
    in_progress: Option<Listing>,
    /// The generation up to which transactions were known at the last check, if there were later ones.
    unexplained: Option<u32>,
    /// Transactions carried out.
    transactions: u64,
    /// Rows of all listings.
    rows: u64,
    /// There may be a record of the table, of this run or of an earlier one.
    has_record: bool,
    /// The last transaction is to be recorded.
    needs_record: bool,
    /// The tables belong to the socket: only this run changes them.
    is_owner: bool,
    /// Until then, transactions of any size are followed.
    follow_all_until: Option<Instant>,
}

/// The known state of the table. The ruleset's generation increases with every transaction of any
/// program on any table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Nothing was written yet, and no table of an earlier run was listed.
    Unwritten,
    /// As own transactions have left it, or as it was listed, unless the follower has found a gap.
    Followed,
    /// Another program changed the own table.
    Changed,
}

/// Messages that were read to know the state of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Notifications read.
    pub notifications: u64,
    /// Rows of listings read.
    pub rows: u64,
}

impl Rules {
    /// Opens nftables in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel lacks nftables, or denies access to this process.
    pub fn open() -> Result<Self, RulesError> {
        Self::open_with(NOTIFICATION_BUFFER_OCTETS)
    }

    /// Opens nftables with this size of the receive buffer of notifications.
    ///
    /// # Errors
    ///
    /// The kernel lacks nftables, or denies access to this process.
    pub fn open_with(octets: usize) -> Result<Self, RulesError> {
        let requests = nftables::open()?;
        let follower = Follower::join(requests.port(), octets).map_err(OpenError::Socket)?;
        Ok(Self {
            requests,
            follower,
            known: Known::Unwritten,
            listing: None,
            is_doubtful: false,
            in_progress: None,
            unexplained: None,
            transactions: 0,
            rows: 0,
            has_record: true,
            needs_record: false,
            is_owner: false,
            follow_all_until: None,
        })
    }

    /// Returns whether the kernel has Felix's table, from an earlier run.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub fn present(&mut self) -> Result<bool, RulesError> {
        Ok(table(&mut self.requests)?.is_some())
    }

    /// Carries out steps in one transaction. Steps that begin with [`Change::AddTable`] replace any
    /// present table.
    ///
    /// # Errors
    ///
    /// Nothing was changed: the kernel rejected the transaction, or the steps do not replace the
    /// table and another program has changed it.
    pub fn write(&mut self, steps: &[Change]) -> Result<(), RulesError> {
        match steps.first() {
            Some(Change::AddTable) => self.create(steps),
            _ => self.change(steps),
        }
    }

    /// Returns whether the table is as it was written, by the transactions of other programs, or, before
    /// that, compares the table of an earlier run with its record. Costs one small request, unless
    /// notifications were lost.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub fn check(&mut self) -> Result<Checked, RulesError> {
        if self.known == Known::Unwritten {
            return self.adopt();
        }
        let now = self.generation()?;
        self.look();
        self.explain(now);
        if self.needs_comparison() {
            self.list()?;
        }
        Ok(match self.known {
            Known::Unwritten => Checked::Nothing,
            Known::Changed => Checked::Changed,
            Known::Followed if self.is_doubtful => Checked::Doubtful,
            Known::Followed => Checked::Intact,
        })
    }

    /// Reads the notifications, without waiting. Returns whether the table is known or suspected to be
    /// changed by another program.
    pub fn follow(&mut self) -> bool {
        self.look();
        match self.known {
            Known::Unwritten => false,
            Known::Followed => self.is_doubtful && self.listing.is_none(),
            Known::Changed => true,
        }
    }

    /// Returns a descriptor that is readable when there are notifications.
    ///
    /// # Errors
    ///
    /// The descriptor cannot be duplicated.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.follower.descriptor()
    }

    /// Returns how many messages were read so far to know the state of the table.
    pub fn effort(&self) -> Effort {
        let in_progress = self.in_progress.as_ref().map_or(0, Listing::rows);
        Effort {
            notifications: self.follower.messages(),
            rows: self.rows + in_progress,
        }
    }

    /// Returns the packets counted by each rule, chain by chain; `None` for a rule without a
    /// counter.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub fn packets(&mut self) -> Result<BTreeMap<String, Vec<Option<u64>>>, RulesError> {
        let mut packets: BTreeMap<String, Vec<Option<u64>>> = BTreeMap::new();
        let rows = [("", self.rule_rows()?), (IN_ARP, self.arp_rows()?)];
        for (begin, rows) in rows {
            for row in rows {
                let chain = listing::chain_of(&row).unwrap_or_default();
                let counted = listing::packets(&row);
                let chain = packets.entry(format!("{begin}{chain}"));
                chain.or_default().push(counted);
            }
        }
        Ok(packets)
    }

    /// Returns the number of transactions carried out.
    pub const fn transactions(&self) -> u64 {
        self.transactions
    }

    /// Replaces the table, whatever its present content. A table that an earlier run has written with
    /// the same messages stays, so that packets meet the same sets all the time.
    fn create(&mut self, steps: &[Change]) -> Result<(), RulesError> {
        // Without an answer it is replaced.
        if self.transactions == 0
            && self.is_in_effect(steps).unwrap_or(false)
            && self.claim().is_ok()
        {
            return match steps.contains(&Change::RemoveBoot) {
                true => self.remove_boot(),
                false => Ok(()),
            };
        }
        let made = self.transact(steps, |rules| {
            rules.look();
            Ok(Some(rules.generation()?))
        })?;
        if let Some(made) = made {
            self.follower.start(made.generation);
            (self.known, self.is_doubtful) = (Known::Followed, made.is_doubtful);
        }
        Ok(())
    }

    /// Returns whether an earlier run has written the table with the same messages, and nothing has
    /// changed it since.
    fn is_in_effect(&mut self, steps: &[Change]) -> Result<bool, Refused> {
        let record = Record::read(&mut self.requests)?;
        if !record.is_written_by(self.digest(steps)) {
            return Ok(false);
        }
        // Later changes are detected by the next check.
        let generation = self.generation()?;
        let listing = Listing::whole()?;
        if record.is_of(listing) != Some(true) {
            return Ok(false);
        }
        self.begin(generation, listing);
        Ok(true)
    }

    /// Begins to follow a table that was listed, and not written by this run.
    fn begin(&mut self, generation: u32, listing: Digest) {
        self.follower.start(generation);
        (self.known, self.is_doubtful) = (Known::Followed, false);
        self.listing = Some(listing);
    }

    /// Changes the table; fails if another program has changed it. A doubtful state stays doubtful.
    fn change(&mut self, steps: &[Change]) -> Result<(), RulesError> {
        let made = self.transact(steps, |rules| {
            rules.look();
            Ok(match rules.known {
                Known::Changed => None,
                _ if rules.is_doubtful => Some(rules.generation()?),
                _ => Some(rules.follower.generation()),
            })
        })?;
        let made = made.ok_or(RulesError::Changed)?;
        self.follower.advance(made.generation);
        self.is_doubtful |= made.is_doubtful;
        Ok(())
    }

    /// Reads the notifications.
    fn look(&mut self) {
        self.follower.read();
        self.is_doubtful |= self.follower.has_gap();
        if self.known == Known::Followed && self.follower.is_changed() {
            self.known = Known::Changed;
        }
    }

    /// Compares the known transactions with the ruleset's generation. The kernel changes it before it
    /// sends the notifications, so there is a gap only if they are still missing at the next check.
    fn explain(&mut self, now: u32) {
        let known = self.follower.generation();
        if !is_later(now, known) {
            self.unexplained = None;
        } else if self.unexplained.replace(known) == Some(known) {
            self.is_doubtful = true;
        }
    }

    /// Returns whether there is a gap, and a listing shows whether the table has changed in it.
    fn needs_comparison(&self) -> bool {
        self.known == Known::Followed && self.is_doubtful && self.listing.is_some()
    }

    /// Returns whether the table is to be listed: after the last transaction, for its record, or because
    /// notifications were lost.
    pub fn is_unlisted(&self) -> bool {
        let is_known = self.known == Known::Followed;
        is_known && self.listing.is_some() == self.is_doubtful
    }

    /// Returns whether the listing is urgent, because notifications were lost.
    pub fn is_in_doubt(&self) -> bool {
        self.needs_comparison()
    }

    /// Lists the table, if it is to be listed.
    ///
    /// # Errors
    ///
    /// The kernel did not answer, or other programs write all the time.
    pub fn list(&mut self) -> Result<(), RulesError> {
        while !self.list_for(Duration::MAX)? {}
        Ok(())
    }

    /// Lists the table, if it is to be listed, for about this time. Returns whether it is done.
    ///
    /// # Errors
    ///
    /// The kernel did not answer, or other programs write all the time. The next call begins again.
    pub fn list_for(&mut self, time: Duration) -> Result<bool, RulesError> {
        if !self.is_unlisted() {
            self.abort();
            return Ok(true);
        }
        if self.in_progress.is_none() && self.is_doubtful {
            // Later transactions are known, or another gap.
            self.look();
            let now = self.generation()?;
            self.follower.start(now);
        }
        let listing = match &mut self.in_progress {
            Some(listing) => listing,
            none => none.insert(Listing::begin()?),
        };
        match listing.step(time) {
            Ok(None) => Ok(false),
            Ok(Some(digest)) => {
                self.abort();
                self.listed(digest)?;
                Ok(true)
            }
            Err(error) => {
                self.abort();
                Err(error.into())
            }
        }
    }

    /// Ends the listing in progress.
    fn abort(&mut self) {
        if let Some(listing) = self.in_progress.take() {
            self.rows += listing.rows();
        }
    }

    /// Takes a complete listing. It is valid only if all transactions up to its end are known, or if it
    /// equals the earlier one.
    fn listed(&mut self, found: Digest) -> Result<(), RulesError> {
        let now = self.generation()?;
        self.look();
        if self.known == Known::Changed {
            return Ok(());
        }
        let is_known = self.follower.generation() == now && !self.follower.has_gap();
        match self.listing {
            Some(listing) if listing != found => self.known = Known::Changed,
            _ if !is_known => return Err(Refused::of(libc::EINTR).into()),
            Some(_) => self.is_doubtful = false,
            None if !self.is_doubtful => self.listing = Some(found),
            None => {}
        }
        Ok(())
    }

    /// Returns whether the table was listed since the last transaction, and is to be recorded.
    pub fn is_unrecorded(&self) -> bool {
        self.needs_record && self.known_listing().is_some()
    }

    /// Returns the digest of the table as it is.
    fn known_listing(&self) -> Option<Digest> {
        let is_known = self.known == Known::Followed && !self.is_doubtful;
        self.listing.filter(|_| is_known)
    }

    /// Records the listed table for the next run, in a transaction of its own. A change by another
    /// program is not recorded.
    ///
    /// # Errors
    ///
    /// The kernel rejected the record, or did not answer.
    pub fn record(&mut self) -> Result<(), RulesError> {
        self.record_with(None)
    }

    /// Records the listed table because this run ends. The next run keeps the table if it wants to
    /// write it with these steps.
    ///
    /// # Errors
    ///
    /// The kernel rejected the record, or did not answer.
    pub fn record_last(&mut self, steps: &[Change]) -> Result<(), RulesError> {
        let messages = self.digest(steps);
        let record = Record::read(&mut self.requests)?;
        // A kept table has the record of an earlier run, unless another program has deleted it.
        self.needs_record = match self.known_listing() {
            Some(listing) => record.is_of(listing) != Some(true) || !record.is_written_by(messages),
            None => true,
        };
        self.record_with(Some(messages))
    }

    fn record_with(&mut self, messages: Option<Digest>) -> Result<(), RulesError> {
        let mut attempts = TRANSACTION_ATTEMPTS;
        while self.is_unrecorded() {
            self.look();
            let Some(listing) = self.known_listing() else {
                break;
            };
            let generation = self.follower.generation();
            attempts -= 1;
            // Also if the answer is lost.
            self.has_record = true;
            let steps = [record::creation(listing, messages)];
            match nftables::transact(&mut self.requests, generation, steps) {
                Ok(()) => {
                    self.needs_record = false;
                    self.follower.advance(after(generation));
                }
                // Another program's transaction came in between.
                Err((_, cause)) if cause.errno == ERESTART && attempts > 0 => {
                    self.pass(generation);
                }
                Err((_, cause)) => return Err(cause.into()),
            }
        }
        Ok(())
    }

    /// Reads the table of an earlier run, to detect later changes, and earlier ones by its record.
    fn adopt(&mut self) -> Result<Checked, RulesError> {
        let generation = self.generation()?;
        if !self.present()? {
            return Ok(Checked::Nothing);
        }
        let listing = Listing::whole()?;
        let is_recorded = Record::read(&mut self.requests)?.is_of(listing);
        // Another listing is valid only if no other program wrote in between.
        if is_recorded != Some(true) && self.generation()? != generation {
            return Ok(Checked::Doubtful);
        }
        if is_recorded == Some(false) {
            return Ok(Checked::Changed);
        }
        self.begin(generation, listing);
        Ok(match is_recorded {
            Some(_) => Checked::Intact,
            None => Checked::Unrecorded,
        })
    }

    fn generation(&mut self) -> Result<u32, Refused> {
        generation(&mut self.requests)
    }

    fn rule_rows(&mut self) -> Result<Vec<Row>, Refused> {
        let attributes = vec![RuleAttribute::Table(TABLE.into())];
        let message = NfTablesMessage::GetRule(RuleMessage { attributes });
        listing::objects(&mut self.requests, TABLE, message)
    }

    /// Reads the rules of the table of the family `arp`.
    fn arp_rows(&mut self) -> Result<Vec<Row>, Refused> {
        let attributes = vec![RuleAttribute::Table(TABLE.into())];
        let message = NfTablesMessage::GetRule(RuleMessage { attributes });
        let mut rows = match self.requests.dump(arp(message)) {
            Err(cause) if cause.errno == libc::ENOENT => return Ok(Vec::new()),
            rows => rows?,
        };
        rows.retain(|row| table_of(row).as_deref() == Some(TABLE));
        Ok(rows)
    }
}
