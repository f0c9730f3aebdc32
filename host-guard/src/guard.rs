//! The table in the kernel: loads it in one transaction, reads it, removes it. Everything acts in
//! the network namespace of the calling thread.

use std::collections::{BTreeMap, BTreeSet};

use netlink::attributes::{find, of_netfilter};
use netlink::nftables::{self, ERESTART, OpenError, generation};
use netlink::{Refused, Requests, listing, message};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, NfTablesMessage, RuleAttribute, RuleMessage, TableAttribute,
    TableMessage,
};

use crate::cover::{Cover, Holder, bfd_users};
use crate::limits::TRANSACTION_ATTEMPTS;
use crate::rules::{BFD_PORTS, BFD_USERS, Family, OUTPUT, VERDICT, peers_of, ports_of, users_of};
use crate::table::{self, Step, TABLE};

/// Attributes of a table, of a chain, of an element.
const TABLE_FLAGS: u16 = 2;
const CHAIN_HOOK: u16 = 4;
const ELEMENT_KEY: u16 = 1;
const DATA_VALUE: u16 = 1;
/// `NFT_TABLE_F_DORMANT`: the table exists, but its chains are at no hook.
const DORMANT: u32 = 1;

/// Why the table is not in effect.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// This process cannot use nftables.
    #[error(transparent)]
    Open(#[from] OpenError),
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
    /// effect.
    pub fn is_permission(&self) -> bool {
        const REFUSALS: [i32; 3] = [libc::EPERM, libc::EACCES, libc::EAFNOSUPPORT];
        match self {
            Self::Open(OpenError::NotPermitted(_)) => true,
            // For example, if systemd's RestrictAddressFamilies= excludes netlink.
            Self::Open(OpenError::Socket(error)) => error
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
    /// Why not all of its rules are in effect, if so.
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
        let requests = nftables::open()?;
        Ok(Self { requests })
    }

    /// Loads the table, in one transaction, with `cover` as the entries of this daemon; those of
    /// the other daemon stay. On success the table has been read back and is as written.
    ///
    /// # Errors
    ///
    /// Nothing was changed, or the table read back differs.
    pub fn load(&mut self, holder: Holder, cover: &Cover) -> Result<(), GuardError> {
        self.transact(&table::load(holder, cover, &bfd_users()))?;
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
        let Some(row) = listing::object(&mut self.requests, asked)? else {
            return Ok(None);
        };
        let mut loaded = Loaded::default();
        let flags = find(of_netfilter(&row), TABLE_FLAGS).and_then(|octets| octets.first_chunk());
        if flags.is_some_and(|flags| u32::from_be_bytes(*flags) & DORMANT != 0) {
            loaded.broken = Some("it is dormant".into());
        } else if !self.is_hooked()? {
            loaded.broken = Some(format!("chain {OUTPUT} is not at the output hook"));
        }
        self.read_rules(&mut loaded)?;
        if loaded.broken.is_none() {
            loaded.broken = self.lacks_bfd()?;
        }
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
        let row = listing::object(&mut self.requests, asked)?;
        Ok(row.is_some_and(|row| find(of_netfilter(&row), CHAIN_HOOK).is_some()))
    }

    /// Returns why the table does not guard BFD, or drops that of this host's `cambric-bfd`.
    fn lacks_bfd(&mut self) -> Result<Option<String>, Refused> {
        let ports = table::ports(&self.keys(BFD_PORTS.0)?);
        if let Some(port) = BFD_PORTS.1.iter().find(|port| !ports.contains(port)) {
            return Ok(Some(format!("it does not cover port {port} of BFD")));
        }
        let held = table::users(&self.keys(BFD_USERS)?);
        let missing = bfd_users().into_iter().find(|user| !held.contains(user));
        Ok(missing.map(|user| format!("it does not allow user id {user} to send BFD")))
    }

    fn read_rules(&mut self, loaded: &mut Loaded) -> Result<(), Refused> {
        let attributes = vec![RuleAttribute::Table(TABLE.into())];
        let asked = NfTablesMessage::GetRule(RuleMessage { attributes });
        let rows = listing::objects(&mut self.requests, TABLE, asked)?;
        loaded.dropped = rows.iter().filter_map(listing::packets).sum();
        for chain in [OUTPUT, VERDICT] {
            let wanted = table::rules_in(chain);
            let chains = rows.iter().filter_map(listing::chain_of);
            let found = chains.filter(|found| found == chain).count();
            if found != wanted && loaded.broken.is_none() {
                let why = format!("chain {chain} has {found} rules, not {wanted}");
                loaded.broken = Some(why);
            }
        }
        Ok(())
    }

    /// Returns the keys of a set.
    fn keys(&mut self, set: &str) -> Result<Vec<Vec<u8>>, Refused> {
        let asked = NfTablesMessage::GetSetElement(message::all_elements(TABLE, set));
        let rows = listing::objects(&mut self.requests, TABLE, asked)?;
        let elements = rows.iter().flat_map(listing::elements);
        let keys = elements.filter_map(|element| {
            let key = find(element, ELEMENT_KEY)?;
            Some(find(key, DATA_VALUE)?.to_vec())
        });
        Ok(keys.collect())
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
        let messages = steps.iter().map(|step| vec![step.message.clone()]);
        let sent = nftables::transact(&mut self.requests, on, messages);
        sent.map_err(|(at, cause)| {
            let what = at.and_then(|at| steps.get(at));
            let what = what.map_or_else(|| "commit the change".into(), |step| step.what.clone());
            GuardError::Step { what, cause }
        })
    }
}
