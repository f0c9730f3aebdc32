//! Lists the table in steps, so that other work can be done in between.

use std::time::{Duration, Instant};

use netlink::attributes::{find, iterate, of_netfilter, text};
use netlink::listing::{self, RULE_EXPRESSIONS, expressions};
use netlink::nftables::{self, OpenError, inet};
use netlink::{Dump, Refused, Requests, Row, message};
use netlink_packet_netfilter::nftables::{
    ChainMessage, NfTablesMessage, RuleAttribute, RuleMessage, SetAttribute, SetMessage,
    TableAttribute, TableMessage,
};

use super::encode::arp;
use super::record::{Digest, Digester, Sum};
use crate::limits::LISTING_ATTEMPTS;
use crate::render::{BOOT_TABLE, TABLE};

/// `NFTA_TABLE_FLAGS`: a dormant table filters nothing.
const TABLE_FLAGS: u16 = 2;
/// `NFT_TABLE_F_OWNER`, `NFT_TABLE_F_PERSIST`: the kernel removes the former when the owner ends.
const OWNERSHIP: u32 = 0x2 | 0x4;
/// `NFTA_TABLE_HANDLE`.
const TABLE_HANDLE: u16 = 4;
/// The attribute of every object that names its table.
const OBJECT_TABLE: u16 = 1;
/// `NFTA_SET_NAME`, `NFTA_SET_FLAGS`, `NFTA_SET_COUNT`; `NFT_SET_EVAL`: rules add its elements.
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_COUNT: u16 = 20;
const DYNAMIC: u32 = 0x20;

/// A listing of the tables: its digest has each table, its chains, rules, sets and elements as the kernel
/// lists them, with handles, without counters and without the elements that rules add.
#[derive(Debug)]
pub(super) struct Listing {
    /// A socket of its own: each one reads one dump at a time.
    requests: Requests,
    digester: Digester,
    phase: Phase,
    /// The table of the family `arp` is listed, which is the second one.
    is_arp: bool,
    /// The dump in progress.
    dump: Option<Dump>,
    /// Sets of which the elements are not listed yet, the next one last.
    sets: Vec<String>,
    /// The elements of the set in progress.
    sum: Sum,
    attempts: u32,
    /// Rows read.
    rows: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Table,
    Chains,
    Rules,
    Sets,
    Elements,
}

impl Listing {
    /// Begins a listing in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel denies nftables.
    pub(super) fn begin() -> Result<Self, OpenError> {
        Ok(Self {
            requests: nftables::open()?,
            digester: Digester::default(),
            phase: Phase::Table,
            is_arp: false,
            dump: None,
            sets: Vec::new(),
            sum: Sum::default(),
            attempts: LISTING_ATTEMPTS,
            rows: 0,
        })
    }

    /// Reads parts until the listing is complete, or this time is used. Returns the digest of a
    /// complete one.
    ///
    /// # Errors
    ///
    /// The kernel did not answer, or other programs' transactions interrupt every attempt (`EINTR`).
    pub(super) fn step(&mut self, time: Duration) -> Result<Option<Digest>, Refused> {
        let begun = Instant::now();
        loop {
            if let Some(digest) = self.part()? {
                return Ok(Some(digest));
            }
            if begun.elapsed() >= time {
                return Ok(None);
            }
        }
    }

    /// Completes a listing in one step.
    ///
    /// # Errors
    ///
    /// As of [`step`](Self::step).
    pub(super) fn whole() -> Result<Digest, Refused> {
        let mut listing = Self::begin().map_err(refused)?;
        loop {
            if let Some(digest) = listing.part()? {
                return Ok(digest);
            }
        }
    }

    /// Returns the number of rows read.
    pub(super) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Reads one part.
    fn part(&mut self) -> Result<Option<Digest>, Refused> {
        let Some(dump) = &mut self.dump else {
            return self.begin_phase();
        };
        let Self {
            requests,
            digester,
            sets,
            sum,
            phase,
            rows,
            ..
        } = self;
        let ended = requests.dump_part(dump, |row| {
            *rows += 1;
            if table_of(&row).as_deref() == Some(TABLE) {
                add(*phase, &row, digester, sets, sum);
            }
        });
        // A table that another program has deleted has no objects.
        let ended = match ended {
            Err(cause) if cause.errno == libc::ENOENT => true,
            ended => ended?,
        };
        if ended {
            let is_consistent = dump.is_consistent();
            self.dump = None;
            if !is_consistent {
                return self.restart().map(|()| None);
            }
            self.end_phase();
        }
        Ok(None)
    }

    /// Begins the next phase, or completes the listing.
    fn begin_phase(&mut self) -> Result<Option<Digest>, Refused> {
        let message = match self.phase {
            Phase::Table => {
                self.table()?;
                self.phase = Phase::Chains;
                return Ok(None);
            }
            Phase::Chains => {
                let attributes = Vec::new();
                NfTablesMessage::GetChain(ChainMessage { attributes })
            }
            Phase::Rules => {
                let attributes = vec![RuleAttribute::Table(TABLE.into())];
                NfTablesMessage::GetRule(RuleMessage { attributes })
            }
            Phase::Sets => {
                let attributes = vec![SetAttribute::Table(TABLE.into())];
                NfTablesMessage::GetSet(SetMessage { attributes })
            }
            Phase::Elements => match self.sets.last() {
                Some(set) => NfTablesMessage::GetSetElement(message::all_elements(TABLE, set)),
                None if !self.is_arp => {
                    (self.phase, self.is_arp) = (Phase::Table, true);
                    return Ok(None);
                }
                None => return Ok(Some(std::mem::take(&mut self.digester).finish())),
            },
        };
        let message = match self.is_arp {
            true => arp(message),
            false => inet(message),
        };
        self.dump = Some(self.requests.begin_dump(message)?);
        Ok(None)
    }

    fn end_phase(&mut self) {
        self.phase = match self.phase {
            Phase::Table | Phase::Chains => Phase::Rules,
            Phase::Rules => Phase::Sets,
            Phase::Sets => {
                self.sets.reverse();
                Phase::Elements
            }
            Phase::Elements => {
                self.digester.add_sum(std::mem::take(&mut self.sum));
                self.sets.pop();
                Phase::Elements
            }
        };
    }

    /// Begins again after a change of any table interrupted a dump.
    fn restart(&mut self) -> Result<(), Refused> {
        self.attempts -= 1;
        if self.attempts == 0 {
            return Err(Refused::of(libc::EINTR));
        }
        (self.phase, self.digester) = (Phase::Table, Digester::default());
        self.is_arp = false;
        (self.sets, self.sum) = (Vec::new(), Sum::default());
        Ok(())
    }

    fn table(&mut self) -> Result<(), Refused> {
        let row = match self.is_arp {
            true => arp_table(&mut self.requests, TABLE)?,
            false => table(&mut self.requests)?,
        };
        let value = |kind| row.as_ref().and_then(|row| find(of_netfilter(row), kind));
        let flags = value(TABLE_FLAGS).and_then(|octets| octets.first_chunk());
        match flags.map(|octets| u32::from_be_bytes(*octets) & !OWNERSHIP) {
            Some(flags) => self.digester.add(&flags.to_be_bytes()),
            None => self.digester.add(&[]),
        }
        self.digester.add(value(TABLE_HANDLE).unwrap_or_default());
        Ok(())
    }
}

/// Reads the table itself; `None` if it does not exist.
///
/// # Errors
///
/// The kernel did not answer.
pub(super) fn table(requests: &mut Requests) -> Result<Option<Row>, Refused> {
    let attributes = vec![TableAttribute::Name(TABLE.into())];
    let message = NfTablesMessage::GetTable(TableMessage { attributes });
    listing::object(requests, message)
}

/// Returns whether there is a table of the boot, of any family.
///
/// # Errors
///
/// The kernel did not answer.
pub(super) fn boot_tables(requests: &mut Requests) -> Result<bool, Refused> {
    let attributes = vec![TableAttribute::Name(BOOT_TABLE.into())];
    let message = NfTablesMessage::GetTable(TableMessage { attributes });
    let is_inet = listing::object(requests, message)?.is_some();
    Ok(is_inet || arp_table(requests, BOOT_TABLE)?.is_some())
}

/// Reads a table of the family `arp`; `None` if it does not exist.
fn arp_table(requests: &mut Requests, name: &str) -> Result<Option<Row>, Refused> {
    let attributes = vec![TableAttribute::Name(name.into())];
    let message = NfTablesMessage::GetTable(TableMessage { attributes });
    match requests.fetch(arp(message)) {
        Err(cause) if cause.errno == libc::ENOENT => Ok(None),
        row => row,
    }
}

/// Returns the error of a socket that cannot be opened.
fn refused(error: OpenError) -> Refused {
    match error {
        OpenError::NotPermitted(cause) | OpenError::Absent(cause) => cause,
        OpenError::Socket(error) => error.into(),
        _ => Refused::of(libc::EIO),
    }
}

/// Returns the table of an object.
pub(super) fn table_of(row: &Row) -> Option<String> {
    find(of_netfilter(row), OBJECT_TABLE).map(text)
}

fn add(phase: Phase, row: &Row, digester: &mut Digester, sets: &mut Vec<String>, sum: &mut Sum) {
    match phase {
        Phase::Table => {}
        Phase::Chains => digester.add(of_netfilter(row)),
        Phase::Rules => add_rule(row, digester),
        Phase::Sets => {
            let flags = find(of_netfilter(row), SET_FLAGS).and_then(|flags| flags.first_chunk());
            let flags = flags.map_or(0, |flags| u32::from_be_bytes(*flags));
            if flags & DYNAMIC == 0 {
                digester.add(of_netfilter(row));
                let name = find(of_netfilter(row), SET_NAME).map(text);
                return sets.push(name.unwrap_or_default());
            }
            for (kind, value) in iterate(of_netfilter(row)).filter(|(kind, _)| *kind != SET_COUNT) {
                digester.add(&kind.to_be_bytes());
                digester.add(value);
            }
        }
        // The kernel lists elements in the order of its hash table.
        Phase::Elements => listing::elements(row).for_each(|element| sum.add(element)),
    }
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
