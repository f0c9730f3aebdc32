//! The table in the kernel: writes it in transactions, checks it, reads its counters.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use netlink::attributes::{find, of_netfilter, text, walk};
use netlink::nftables::{ERESTART, NETLINK_NETFILTER, batch_begin, batch_end, generation, inet};
use netlink::{Refused, Requests, Row};
use netlink_packet_core::NLM_F_ACK;
use netlink_packet_netfilter::nftables::{
    ChainMessage, NfTablesMessage, RuleAttribute, RuleMessage, SetAttribute, SetElementList,
    SetElementMessage, SetMessage, TableAttribute, TableMessage,
};

use super::encode::messages;
use crate::agent::Checked;
use crate::limits::TRANSACTION_ATTEMPTS;
use crate::render::{Change, TABLE, rule_text};

/// Attributes of objects in a table, of a rule, of an expression, of a counter.
const OF_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const SET_NAME: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const COUNTER_PACKETS: u16 = 2;
const ELEMENTS: u16 = 3;

/// Why the rules are not in force.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The socket cannot be opened.
    #[error("no netlink socket for nftables: {0}; the kernel needs CONFIG_NETFILTER_NETLINK")]
    Socket(#[source] io::Error),
    /// Privileges are missing.
    #[error("the kernel refuses nftables to this process: {0}; it needs CAP_NET_ADMIN")]
    NotPermitted(Refused),
    /// The kernel lacks nftables.
    #[error(
        "the kernel has no nftables: {0}; load the module nf_tables, or run a kernel with \
         CONFIG_NF_TABLES and CONFIG_NF_TABLES_INET"
    )]
    Absent(Refused),
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
}

/// The known state of the table. The ruleset's generation increases with every transaction of any
/// program on any table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Nothing was written yet.
    Unwritten,
    /// Unchanged since the own transaction that created this generation; the kernel's listing has
    /// not been read yet.
    Unlisted(u32),
    /// Unchanged since the last own transaction, at least until this generation.
    Listed {
        generation: u32,
        /// A hash of the kernel's listing, with handles, without counters.
        listing: u64,
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
        let requests = Requests::open(NETLINK_NETFILTER).map_err(RulesError::Socket)?;
        let mut rules = Self {
            requests,
            known: Known::Unwritten,
            transactions: 0,
        };
        match rules.generation() {
            Ok(_) => Ok(rules),
            Err(cause) if matches!(cause.errno, libc::EPERM | libc::EACCES) => {
                Err(RulesError::NotPermitted(cause))
            }
            Err(cause) => Err(RulesError::Absent(cause)),
        }
    }

    /// Returns whether the kernel has Felix's table, from an earlier run.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub fn present(&mut self) -> Result<bool, RulesError> {
        let attributes = vec![TableAttribute::Name(TABLE.into())];
        let message = NfTablesMessage::GetTable(TableMessage { attributes });
        match self.requests.fetch(inet(message)) {
            Ok(row) => Ok(row.is_some()),
            Err(cause) if cause.errno == libc::ENOENT => Ok(false),
            Err(cause) => Err(cause.into()),
        }
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

    /// Compares the table with the one that was written. Costs one small request as long as no
    /// program changes any nftables rules.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub fn check(&mut self) -> Result<Checked, RulesError> {
        if self.known == Known::Unwritten {
            return Ok(Checked::Nothing);
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
            let chain = find(of_netfilter(&row), RULE_CHAIN)
                .map(text)
                .unwrap_or_default();
            packets.entry(chain).or_default().push(counted(&row));
        }
        Ok(packets)
    }

    /// Returns the number of transactions carried out.
    pub const fn transactions(&self) -> u64 {
        self.transactions
    }

    /// Replaces the table, whatever its present content.
    fn create(&mut self, steps: &[Change]) -> Result<(), RulesError> {
        let made = self.transact(steps, |rules| Ok(Some(rules.generation()?)))?;
        if let Some(made) = made {
            self.known = Known::Unlisted(made);
        }
        Ok(())
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
                    return Ok(Some(generation.wrapping_add(1).max(1)));
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

    fn send(&mut self, steps: &[Change], generation: u32) -> Result<(), RulesError> {
        let mut batch = self.requests.batch();
        batch.push(batch_begin(generation), 0);
        let mut sent: Vec<u32> = Vec::with_capacity(steps.len());
        let mut set_id = 0;
        let count = steps.len();
        for (at, step) in steps.iter().enumerate() {
            let parts = messages(step, &mut set_id);
            let last = parts.len().saturating_sub(1);
            for (part, (message, flags)) in parts.into_iter().enumerate() {
                // Errors are returned in any case; one acknowledgment confirms the end.
                let ends = at + 1 == count && part == last;
                let flags = if ends { flags | NLM_F_ACK } else { flags };
                let sequence = batch.push(inet(message), flags);
                if part == last {
                    sent.push(sequence);
                }
            }
        }
        batch.push(batch_end(), 0);
        batch.commit().map_err(|cause| {
            let at = cause.sequence.map_or(count, |refused| {
                sent.partition_point(|sequence| *sequence < refused)
            });
            let step = steps.get(at).map_or_else(|| "commit".into(), describe);
            RulesError::Step { step, cause }
        })
    }

    fn generation(&mut self) -> Result<u32, Refused> {
        generation(&mut self.requests)
    }

    fn rule_rows(&mut self) -> Result<Vec<Row>, Refused> {
        let attributes = vec![RuleAttribute::Table(TABLE.into())];
        let message = NfTablesMessage::GetRule(RuleMessage { attributes });
        self.ours(message)
    }

    /// Returns a dump without objects of other tables: not every kernel filters every dump.
    fn ours(&mut self, message: NfTablesMessage) -> Result<Vec<Row>, Refused> {
        let mut rows = match self.requests.dump(inet(message)) {
            // The table does not exist.
            Err(cause) if cause.errno == libc::ENOENT => return Ok(Vec::new()),
            rows => rows?,
        };
        rows.retain(|row| table_of(row).as_deref() == Some(TABLE));
        Ok(rows)
    }

    /// Returns a hash over chains, rules, sets and elements as the kernel lists them.
    fn listing(&mut self) -> Result<u64, Refused> {
        let mut hasher = DefaultHasher::new();
        let attributes = Vec::new();
        for row in self.ours(NfTablesMessage::GetChain(ChainMessage { attributes }))? {
            of_netfilter(&row).hash(&mut hasher);
        }
        for row in self.rule_rows()? {
            hash_rule(&row, &mut hasher);
        }
        let attributes = vec![SetAttribute::Table(TABLE.into())];
        for row in self.ours(NfTablesMessage::GetSet(SetMessage { attributes }))? {
            of_netfilter(&row).hash(&mut hasher);
            let name = find(of_netfilter(&row), SET_NAME)
                .map(text)
                .unwrap_or_default();
            self.elements(&name)?.hash(&mut hasher);
        }
        Ok(hasher.finish())
    }

    /// Returns the elements of a set, sorted: the kernel lists them in the order of its hash table.
    fn elements(&mut self, set: &str) -> Result<Vec<Vec<u8>>, Refused> {
        let attributes = vec![
            SetElementList::Table(TABLE.into()),
            SetElementList::Set(set.into()),
        ];
        let message = NfTablesMessage::GetSetElement(SetElementMessage { attributes });
        let rows = match self.requests.dump(inet(message)) {
            Err(cause) if cause.errno == libc::ENOENT => return Ok(Vec::new()),
            rows => rows?,
        };
        let mut elements: Vec<Vec<u8>> = rows
            .iter()
            .filter_map(|row| find(of_netfilter(row), ELEMENTS))
            .flat_map(|list| walk(list).map(|(_, element)| element.to_vec()))
            .collect();
        elements.sort_unstable();
        Ok(elements)
    }
}

impl Known {
    /// Returns whether this is the kernel's listing of the written table.
    fn lists(self, found: u64) -> bool {
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

/// Returns the table of a listed object.
fn table_of(row: &Row) -> Option<String> {
    find(of_netfilter(row), OF_TABLE).map(text)
}

/// Returns name and data of each expression of a rule.
fn expressions(list: &[u8]) -> impl Iterator<Item = (String, &[u8])> {
    walk(list).map(|(_, expression)| {
        let name = find(expression, EXPRESSION_NAME)
            .map(text)
            .unwrap_or_default();
        (name, find(expression, EXPRESSION_DATA).unwrap_or_default())
    })
}

fn counted(row: &Row) -> Option<u64> {
    let list = find(of_netfilter(row), RULE_EXPRESSIONS)?;
    let (_, counter) = expressions(list).find(|(name, _)| name == "counter")?;
    let packets = find(counter, COUNTER_PACKETS)?;
    Some(u64::from_be_bytes(*packets.first_chunk()?))
}

fn hash_rule(row: &Row, hasher: &mut DefaultHasher) {
    for (kind, value) in walk(of_netfilter(row)) {
        kind.hash(hasher);
        if kind != RULE_EXPRESSIONS {
            value.hash(hasher);
            continue;
        }
        for (name, data) in expressions(value) {
            let counter = name == "counter";
            name.hash(hasher);
            (!counter).then_some(data).hash(hasher);
        }
    }
}
