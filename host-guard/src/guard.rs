//! The table in the kernel: loads it in one transaction, reads it, removes it. Everything acts in
//! the network namespace of the calling thread.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use netlink::attributes::{find, of_netfilter, text, walk};
use netlink::nftables::{ERESTART, NETLINK_NETFILTER, batch_begin, batch_end, generation, inet};
use netlink::{Refused, Requests, Row};
use netlink_packet_core::NLM_F_ACK;
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, NfTablesMessage, RuleAttribute, RuleMessage, SetElementList,
    SetElementMessage, TableAttribute, TableMessage,
};

use crate::cover::{Cover, Holder};
use crate::limits::TRANSACTION_ATTEMPTS;
use crate::rules::{Family, JUDGE, OUTPUT, peers_of, ports_of, users_of};
use crate::table::{self, Step, TABLE};

/// Attributes of a table, of a chain, of a rule, of an expression, of a counter, of an element.
const TABLE_FLAGS: u16 = 2;
const CHAIN_HOOK: u16 = 4;
const OF_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const COUNTER_PACKETS: u16 = 2;
const ELEMENTS: u16 = 3;
const ELEMENT_KEY: u16 = 1;
const DATA_VALUE: u16 = 1;
/// `NFT_TABLE_F_DORMANT`: the table exists, but its chains are at no hook.
const DORMANT: u32 = 1;

/// Why the table is not in force.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
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
    #[error("the kernel refused to {what} of table inet {TABLE}: {cause}")]
    Step {
        /// The rejected step.
        what: String,
        /// The kernel's answer.
        cause: Refused,
    },
    /// The table was created by another version.
    #[error(
        "table inet {TABLE} is another version's, and does not become this one's by a change: \
         `cambric guard --remove` removes it, then load it again"
    )]
    Stranger,
    /// The table was written, but the kernel's table differs.
    #[error("table inet {TABLE} is not as it was loaded: {0}")]
    Unlike(String),
    /// Any other request failed.
    #[error("nftables: {0}")]
    Refused(#[from] Refused),
}

impl GuardError {
    /// Returns whether the process lacks the permission, in which case the table may still be in
    /// force.
    pub fn is_permission(&self) -> bool {
        const REFUSALS: [i32; 3] = [libc::EPERM, libc::EACCES, libc::EAFNOSUPPORT];
        match self {
            Self::NotPermitted(_) => true,
            // For example, if systemd's RestrictAddressFamilies= excludes netlink.
            Self::Socket(error) => error
                .raw_os_error()
                .is_some_and(|no| REFUSALS.contains(&no)),
            _ => false,
        }
    }
}

/// The table as read from the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The entries of each daemon.
    pub entries: BTreeMap<Holder, Cover>,
    /// Segments dropped since the rules were written.
    pub dropped: u64,
    /// Why not all of its rules are in force, if so.
    pub broken: Option<String>,
}

impl Loaded {
    /// Returns why the table does not guard a daemon as wanted; `None` if it does.
    pub fn lacks(&self, holder: Holder, wanted: &Cover) -> Option<String> {
        let nothing = Cover::default();
        let held = self.entries.get(&holder).unwrap_or(&nothing);
        self.broken.clone().or_else(|| held.lacks(wanted))
    }
}

/// Access to the table.
#[derive(Debug)]
pub struct Guard {
    requests: Requests,
}

impl Guard {
    /// Opens the kernel's nftables.
    ///
    /// # Errors
    ///
    /// The kernel lacks nftables, or denies access to this process.
    pub fn open() -> Result<Self, GuardError> {
        let mut requests = Requests::open(NETLINK_NETFILTER).map_err(GuardError::Socket)?;
        match generation(&mut requests) {
            Ok(_) => Ok(Self { requests }),
            Err(cause) if matches!(cause.errno, libc::EPERM | libc::EACCES) => {
                Err(GuardError::NotPermitted(cause))
            }
            Err(cause) => Err(GuardError::Absent(cause)),
        }
    }

    /// Loads the table, in one transaction, with `cover` as the entries of this daemon; those of
    /// the other daemon stay. On success the table has been read back and is as written.
    ///
    /// # Errors
    ///
    /// Nothing was changed, or the table read back differs.
    pub fn load(&mut self, holder: Holder, cover: &Cover) -> Result<(), GuardError> {
        self.transact(&table::load(holder, cover))?;
        let loaded = self.read()?.unwrap_or_default();
        loaded
            .lacks(holder, cover)
            .map_or(Ok(()), |why| Err(GuardError::Unlike(why)))
    }

    /// Removes the entries of a daemon, and the table with the last of them. Returns false if there
    /// was no table.
    ///
    /// # Errors
    ///
    /// Nothing was changed.
    pub fn withdraw(&mut self, holder: Holder) -> Result<bool, GuardError> {
        let Some(loaded) = self.read()? else {
            return Ok(false);
        };
        let mut others = loaded.entries.iter().filter(|(other, _)| **other != holder);
        if others.all(|(_, cover)| cover.ports.is_empty() && cover.peers.is_empty()) {
            return self.remove();
        }
        self.transact(&table::entries(holder, &Cover::default()))?;
        Ok(true)
    }

    /// Removes the table. Returns false if there was none.
    ///
    /// # Errors
    ///
    /// The kernel rejected the request.
    pub fn remove(&mut self) -> Result<bool, GuardError> {
        match self.transact(&table::remove()) {
            Ok(()) => Ok(true),
            Err(GuardError::Step { cause, .. }) if cause.errno == libc::ENOENT => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads the table; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub fn read(&mut self) -> Result<Option<Loaded>, GuardError> {
        let attributes = vec![TableAttribute::Name(TABLE.into())];
        let asked = NfTablesMessage::GetTable(TableMessage { attributes });
        let row = match self.requests.fetch(inet(asked)) {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(None),
            Err(cause) if cause.errno == libc::ENOENT => return Ok(None),
            Err(cause) => return Err(cause.into()),
        };
        let mut loaded = Loaded::default();
        let flags = find(of_netfilter(&row), TABLE_FLAGS).and_then(|octets| octets.first_chunk());
        if flags.is_some_and(|flags| u32::from_be_bytes(*flags) & DORMANT != 0) {
            loaded.broken = Some("it is dormant".into());
        } else if !self.is_hooked()? {
            loaded.broken = Some(format!("chain {OUTPUT} is not at the output hook"));
        }
        self.read_rules(&mut loaded)?;
        for holder in Holder::ALL {
            let mut cover = Cover {
                peers: BTreeSet::new(),
                ports: table::ports(&self.keys(&ports_of(holder))?),
                users: table::users(&self.keys(&users_of(holder))?),
            };
            for family in Family::ALL {
                let keys = self.keys(&peers_of(holder, family))?;
                cover.peers.extend(table::peers(&keys));
            }
            loaded.entries.insert(holder, cover);
        }
        Ok(Some(loaded))
    }

    /// Returns whether the chain of the hook exists, and is at a hook.
    fn is_hooked(&mut self) -> Result<bool, Refused> {
        let attributes = vec![
            ChainAttribute::Table(TABLE.into()),
            ChainAttribute::Name(OUTPUT.into()),
        ];
        let asked = NfTablesMessage::GetChain(ChainMessage { attributes });
        match self.requests.fetch(inet(asked)) {
            Ok(row) => Ok(row.is_some_and(|row| find(of_netfilter(&row), CHAIN_HOOK).is_some())),
            Err(cause) if cause.errno == libc::ENOENT => Ok(false),
            Err(cause) => Err(cause),
        }
    }

    fn read_rules(&mut self, loaded: &mut Loaded) -> Result<(), Refused> {
        let attributes = vec![RuleAttribute::Table(TABLE.into())];
        let asked = NfTablesMessage::GetRule(RuleMessage { attributes });
        let rows = self.dump(asked)?;
        loaded.dropped = rows.iter().filter_map(counted).sum();
        for chain in [OUTPUT, JUDGE] {
            let wanted = table::rules_in(chain);
            let found = rows.iter().filter(|row| is_in(row, chain)).count();
            if found != wanted && loaded.broken.is_none() {
                let why = format!("chain {chain} has {found} rules, not {wanted}");
                loaded.broken = Some(why);
            }
        }
        Ok(())
    }

    /// Returns the keys of a set.
    fn keys(&mut self, set: &str) -> Result<Vec<Vec<u8>>, Refused> {
        let attributes = vec![
            SetElementList::Table(TABLE.into()),
            SetElementList::Set(set.into()),
        ];
        let asked = NfTablesMessage::GetSetElement(SetElementMessage { attributes });
        let rows = self.dump(asked)?;
        let lists = rows
            .iter()
            .filter_map(|row| find(of_netfilter(row), ELEMENTS));
        let keys = lists.flat_map(walk).filter_map(|(_, element)| {
            let key = find(element, ELEMENT_KEY)?;
            Some(find(key, DATA_VALUE)?.to_vec())
        });
        Ok(keys.collect())
    }

    /// Returns a dump without objects of other tables: not every kernel filters every dump.
    fn dump(&mut self, asked: NfTablesMessage) -> Result<Vec<Row>, Refused> {
        let mut rows = match self.requests.dump(inet(asked)) {
            Err(cause) if cause.errno == libc::ENOENT => return Ok(Vec::new()),
            rows => rows?,
        };
        let is_ours = |row: &Row| find(of_netfilter(row), OF_TABLE).map(text);
        rows.retain(|row| is_ours(row).as_deref() == Some(TABLE));
        Ok(rows)
    }

    fn transact(&mut self, steps: &[Step]) -> Result<(), GuardError> {
        let mut attempts = TRANSACTION_ATTEMPTS;
        loop {
            attempts -= 1;
            match self.send(steps) {
                // Another program's transaction came in between.
                Err(GuardError::Step { cause, .. }) if cause.errno == ERESTART && attempts > 0 => {}
                Err(GuardError::Step { cause, .. })
                    if matches!(cause.errno, libc::EEXIST | libc::EBUSY) =>
                {
                    return Err(GuardError::Stranger);
                }
                done => return done,
            }
        }
    }

    fn send(&mut self, steps: &[Step]) -> Result<(), GuardError> {
        let on = generation(&mut self.requests)?;
        let mut batch = self.requests.batch();
        batch.push(batch_begin(on), 0);
        let mut sent = Vec::with_capacity(steps.len());
        for (at, step) in steps.iter().enumerate() {
            // Errors are returned in any case; one acknowledgment confirms the end.
            let ends = at + 1 == steps.len();
            let flags = step.flags | if ends { NLM_F_ACK } else { 0 };
            sent.push(batch.push(inet(step.message.clone()), flags));
        }
        batch.push(batch_end(), 0);
        batch.commit().map_err(|cause| {
            let at = cause
                .sequence
                .and_then(|refused| sent.iter().position(|one| *one == refused));
            let what = at.and_then(|at| steps.get(at));
            let what = what.map_or_else(|| "commit the change".into(), |step| step.what.clone());
            GuardError::Step { what, cause }
        })
    }
}

fn is_in(row: &Row, chain: &str) -> bool {
    let of = find(of_netfilter(row), RULE_CHAIN).map(text);
    of.as_deref() == Some(chain)
}

/// Returns the packets counted by a rule, if it has a counter.
fn counted(row: &Row) -> Option<u64> {
    let list = find(of_netfilter(row), RULE_EXPRESSIONS)?;
    let named = |expression| find(expression, EXPRESSION_NAME).map(text);
    let mut expressions = walk(list).map(|(_, expression)| expression);
    let counter = expressions.find(|one| named(one).as_deref() == Some("counter"))?;
    let packets = find(find(counter, EXPRESSION_DATA)?, COUNTER_PACKETS)?;
    Some(u64::from_be_bytes(*packets.first_chunk()?))
}
