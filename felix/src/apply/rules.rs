//! The table in the kernel: writes it in transactions, checks it, reads its counters.

use std::collections::BTreeMap;

use netlink::attributes::{find, iterate, of_netfilter, text};
use netlink::listing::{self, RULE_EXPRESSIONS, expressions};
use netlink::nftables::{self, ERESTART, OpenError, generation};
use netlink::{Refused, Requests, Row, message};
use netlink_packet_netfilter::nftables::{
    ChainMessage, NfTablesMessage, RuleAttribute, RuleMessage, SetAttribute, SetMessage,
    TableAttribute, TableMessage,
};

use super::encode::messages;
use super::record::{self, Digest, Digester, Record};
use crate::agent::Checked;
use crate::limits::TRANSACTION_ATTEMPTS;
use crate::render::{Change, TABLE, rule_text};

/// `NFTA_TABLE_FLAGS`: a dormant table filters nothing.
const TABLE_FLAGS: u16 = 2;
/// `NFTA_TABLE_HANDLE`.
const TABLE_HANDLE: u16 = 4;
/// `NFTA_SET_NAME`.
const SET_NAME: u16 = 2;

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
    /// Any other request failed.
    #[error("nftables: {0}")]
    Refused(#[from] Refused),
}

/// Writes and checks the table.
#[derive(Debug)]
pub struct Rules {
    requests: Requests,
    known: Known,
    /// Transactions carried out.
    transactions: u64,
    /// There may be a record of the table, of this run or of an earlier one.
    has_record: bool,
    /// The last transaction is to be recorded.
    needs_record: bool,
}

/// The known state of the table. The ruleset's generation increases with every transaction of any
/// program on any table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Nothing was written yet, and no table of an earlier run was listed.
    Unwritten,
    /// Unchanged since the own transaction that created this generation; the kernel's listing has
    /// not been read yet.
    Unlisted(u32),
    /// Unchanged since the last own transaction, or since the table of an earlier run was listed, at
    /// least until this generation.
    Listed {
        generation: u32,
        /// The digest of the kernel's listing, with handles, without counters.
        listing: Digest,
    },
    /// Another program wrote to some table before the own table was listed.
    Doubtful,
    /// Another program changed the own table.
    Changed,
}

impl Rules {
    /// Opens nftables in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel lacks nftables, or denies access to this process.
    pub fn open() -> Result<Self, RulesError> {
        Ok(Self {
            requests: nftables::open()?,
            known: Known::Unwritten,
            transactions: 0,
            has_record: true,
            needs_record: false,
        })
    }

    /// Returns whether the kernel has Felix's table, from an earlier run.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub fn present(&mut self) -> Result<bool, RulesError> {
        Ok(self.table()?.is_some())
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

    /// Compares the table with the one that was written, or, before that, the table of an earlier run
    /// with its record and with its first listing. Costs one small request as long as no program
    /// changes any nftables rules.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub fn check(&mut self) -> Result<Checked, RulesError> {
        if self.known == Known::Unwritten {
            return self.adopt();
        }
        self.list()?;
        self.look()?;
        Ok(match self.known {
            Known::Unwritten => Checked::Nothing,
            Known::Listed { .. } | Known::Unlisted(_) => Checked::Intact,
            Known::Doubtful => Checked::Doubtful,
            Known::Changed => Checked::Changed,
        })
    }

    /// Returns the packets counted by each rule, chain by chain; `None` for a rule without a
    /// counter.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub fn packets(&mut self) -> Result<BTreeMap<String, Vec<Option<u64>>>, RulesError> {
        let mut packets: BTreeMap<String, Vec<Option<u64>>> = BTreeMap::new();
        for row in self.rule_rows()? {
            let chain = listing::chain_of(&row).unwrap_or_default();
            let counted = listing::packets(&row);
            packets.entry(chain).or_default().push(counted);
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
        if self.transactions == 0 && self.is_in_effect(steps).unwrap_or(false) {
            return Ok(());
        }
        let made = self.transact(steps, |rules| Ok(Some(rules.generation()?)))?;
        if let Some(made) = made {
            self.known = Known::Unlisted(made);
        }
        Ok(())
    }

    /// Returns whether an earlier run has written the table with the same messages, and nothing has
    /// changed it since.
    fn is_in_effect(&mut self, steps: &[Change]) -> Result<bool, Refused> {
        let record = Record::read(&mut self.requests)?;
        if !record.is_written_by(digest(steps)) {
            return Ok(false);
        }
        // Later changes are detected by the next check.
        let generation = self.generation()?;
        let listing = self.listing()?;
        if record.is_of(listing) != Some(true) {
            return Ok(false);
        }
        self.known = Known::Listed {
            generation,
            listing,
        };
        Ok(true)
    }

    /// Changes the table; fails if another program has changed it. A doubtful state stays doubtful.
    fn change(&mut self, steps: &[Change]) -> Result<(), RulesError> {
        let made = self.transact(steps, |rules| {
            let generation = rules.look()?;
            Ok((rules.known != Known::Changed).then_some(generation))
        })?;
        let made = made.ok_or(RulesError::Changed)?;
        if self.known != Known::Doubtful {
            self.known = Known::Unlisted(made);
        }
        Ok(())
    }

    /// Carries steps out in one transaction, on the generation that `on` returns. Returns the
    /// generation that it creates, or `None` if `on` returns none.
    fn transact(
        &mut self,
        steps: &[Change],
        on: impl Fn(&mut Self) -> Result<Option<u32>, Refused>,
    ) -> Result<Option<u32>, RulesError> {
        let mut attempts = TRANSACTION_ATTEMPTS;
        loop {
            let Some(generation) = on(self)? else {
                return Ok(None);
            };
            attempts -= 1;
            match self.send(steps, generation) {
                Ok(()) => {
                    self.transactions += 1;
                    (self.has_record, self.needs_record) = (false, true);
                    return Ok(Some(after(generation)));
                }
                // Another program's transaction came in between.
                Err(RulesError::Step { cause, .. }) if cause.errno == ERESTART && attempts > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Checks whether another program wrote since the last own transaction, and, if that can be
    /// determined, whether it changed the own table. Returns the generation up to which the result
    /// is valid.
    fn look(&mut self) -> Result<u32, Refused> {
        let now = self.generation()?;
        self.known = match self.known {
            Known::Unlisted(ours) if ours != now => Known::Doubtful,
            Known::Listed { generation, .. } if generation != now => match self.listing()? {
                listing if self.known.lists(listing) => Known::Listed {
                    generation: now,
                    listing,
                },
                _ => Known::Changed,
            },
            known => known,
        };
        Ok(now)
    }

    /// Returns whether the last transaction is still to be [listed](Self::list).
    pub const fn is_unlisted(&self) -> bool {
        matches!(self.known, Known::Unlisted(_))
    }

    /// Reads the table after the last transaction, to detect later changes. The time grows with the
    /// size of the table, so this is not a part of the transaction. Until the listing is read, a
    /// change of any table by another program may be a change of the own one.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub fn list(&mut self) -> Result<(), RulesError> {
        let Known::Unlisted(ours) = self.known else {
            return Ok(());
        };
        self.known = Known::Doubtful;
        let listing = self.listing()?;
        // The listing is valid only if no other program wrote in between.
        if self.generation()? == ours {
            self.known = Known::Listed {
                generation: ours,
                listing,
            };
        }
        Ok(())
    }

    /// Returns whether the table was listed since the last transaction, and is to be recorded.
    pub const fn is_unrecorded(&self) -> bool {
        self.needs_record && matches!(self.known, Known::Listed { .. })
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
        let messages = digest(steps);
        let record = Record::read(&mut self.requests)?;
        // A kept table has the record of an earlier run, unless another program has deleted it.
        self.needs_record = match self.known {
            Known::Listed { listing, .. } => {
                record.is_of(listing) != Some(true) || !record.is_written_by(messages)
            }
            _ => true,
        };
        self.record_with(Some(messages))
    }

    fn record_with(&mut self, messages: Option<Digest>) -> Result<(), RulesError> {
        let mut attempts = TRANSACTION_ATTEMPTS;
        while self.is_unrecorded() {
            let generation = self.look()?;
            let Known::Listed { listing, .. } = self.known else {
                break;
            };
            attempts -= 1;
            // Also if the answer is lost.
            self.has_record = true;
            let steps = [record::creation(listing, messages)];
            match nftables::transact(&mut self.requests, generation, steps) {
                Ok(()) => {
                    self.needs_record = false;
                    self.known = Known::Listed {
                        generation: after(generation),
                        listing,
                    };
                }
                // Another program's transaction came in between.
                Err((_, cause)) if cause.errno == ERESTART && attempts > 0 => {}
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
        let listing = self.listing()?;
        let is_recorded = Record::read(&mut self.requests)?.is_of(listing);
        // Another listing is valid only if no other program wrote in between.
        if is_recorded != Some(true) && self.generation()? != generation {
            return Ok(Checked::Doubtful);
        }
        if is_recorded == Some(false) {
            return Ok(Checked::Changed);
        }
        self.known = Known::Listed {
            generation,
            listing,
        };
        Ok(match is_recorded {
            Some(_) => Checked::Intact,
            None => Checked::Unrecorded,
        })
    }

    fn send(&mut self, steps: &[Change], generation: u32) -> Result<(), RulesError> {
        let mut set_id = 0;
        let parts = steps.iter().map(|step| messages(step, &mut set_id));
        let parts = parts.chain(self.has_record.then(record::removal));
        let sent = nftables::transact(&mut self.requests, generation, parts);
        sent.map_err(|(at, cause)| {
            let step = at.and_then(|at| steps.get(at));
            let step = step.map_or_else(|| "commit".into(), describe);
            RulesError::Step { step, cause }
        })
    }

    fn generation(&mut self) -> Result<u32, Refused> {
        generation(&mut self.requests)
    }

    fn table(&mut self) -> Result<Option<Row>, Refused> {
        let attributes = vec![TableAttribute::Name(TABLE.into())];
        let message = NfTablesMessage::GetTable(TableMessage { attributes });
        listing::object(&mut self.requests, message)
    }

    fn rule_rows(&mut self) -> Result<Vec<Row>, Refused> {
        let attributes = vec![RuleAttribute::Table(TABLE.into())];
        let message = NfTablesMessage::GetRule(RuleMessage { attributes });
        self.ours(message)
    }

    fn ours(&mut self, message: NfTablesMessage) -> Result<Vec<Row>, Refused> {
        listing::objects(&mut self.requests, TABLE, message)
    }

    /// Returns a digest of the table, its chains, rules, sets and elements as the kernel lists them.
    fn listing(&mut self) -> Result<Digest, Refused> {
        let mut digester = Digester::default();
        let table = self.table()?;
        for kind in [TABLE_FLAGS, TABLE_HANDLE] {
            let value = table.as_ref().and_then(|row| find(of_netfilter(row), kind));
            digester.add(value.unwrap_or_default());
        }
        let attributes = Vec::new();
        for row in self.ours(NfTablesMessage::GetChain(ChainMessage { attributes }))? {
            digester.add(of_netfilter(&row));
        }
        for row in self.rule_rows()? {
            add_rule(&row, &mut digester);
        }
        let attributes = vec![SetAttribute::Table(TABLE.into())];
        for row in self.ours(NfTablesMessage::GetSet(SetMessage { attributes }))? {
            digester.add(of_netfilter(&row));
            let name = find(of_netfilter(&row), SET_NAME)
                .map(text)
                .unwrap_or_default();
            let elements = self.elements(&name)?;
            elements.iter().for_each(|element| digester.add(element));
        }
        Ok(digester.finish())
    }

    /// Returns the elements of a set, sorted: the kernel lists them in the order of its hash table.
    fn elements(&mut self, set: &str) -> Result<Vec<Vec<u8>>, Refused> {
        let message = NfTablesMessage::GetSetElement(message::all_elements(TABLE, set));
        let rows = self.ours(message)?;
        let elements = rows.iter().flat_map(listing::elements);
        let mut elements: Vec<Vec<u8>> = elements.map(<[u8]>::to_vec).collect();
        elements.sort_unstable();
        Ok(elements)
    }
}

impl Known {
    /// Returns whether this is the kernel's listing of the written table.
    fn lists(self, found: Digest) -> bool {
        matches!(self, Self::Listed { listing, .. } if listing == found)
    }
}

fn describe(step: &Change) -> String {
    match step {
        Change::AddTable => format!("make table inet {TABLE}"),
        Change::DeleteTable => format!("replace table inet {TABLE}"),
        Change::AddChain(name, _) => format!("make chain {name}"),
        Change::AddSet(name, kind) => format!("make set {name} of {kind}"),
        Change::FlushChain(name) => format!("empty chain {name}"),
        Change::AddRule(chain, rule) => {
            format!("add to chain {chain} the rule '{}'", rule_text(rule))
        }
        Change::AddElements(set, ..) => format!("add elements to {set}"),
        Change::DeleteElements(set, ..) => format!("remove elements from {set}"),
        Change::DeleteChain(name) => format!("remove chain {name}"),
        Change::DeleteSet(name) => format!("remove set {name}"),
    }
}

/// Returns the digest of the messages of steps.
fn digest(steps: &[Change]) -> Digest {
    let mut set_id = 0;
    let mut digester = Digester::default();
    for step in steps {
        let messages = messages(step, &mut set_id).into_iter();
        messages.for_each(|message| digester.add_message(message));
    }
    digester.finish()
}

/// Returns the generation that a transaction creates.
fn after(generation: u32) -> u32 {
    generation.wrapping_add(1).max(1)
}

fn add_rule(row: &Row, digester: &mut Digester) {
    for (kind, value) in iterate(of_netfilter(row)) {
        digester.add(&kind.to_be_bytes());
        if kind != RULE_EXPRESSIONS {
            digester.add(value);
            continue;
        }
        for (name, data) in expressions(value) {
            let counted: &[u8] = &[];
            let data = if name == "counter" { counted } else { data };
            digester.add(name.as_bytes());
            digester.add(data);
        }
    }
}
