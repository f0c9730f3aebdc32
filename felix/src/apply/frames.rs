//! Drops frames with VLAN tags before the kernel removes the tags, in the table `netdev cambric-felix`.
//!
//! No VLAN of a host has a workload interface as its link, so the kernel drops tagged frames itself, and
//! does not report it. A chain of this family needs its interface, which may be removed at any time. So
//! the chains are written apart from the packet filter, when an interface is configured.
//!
//! ```text
//! chain cali1 {
//!     type filter hook ingress device "cali1" priority -450; policy accept;
//!     ether type 8021q vlan id != 0 counter drop comment "VLAN tag"
//!     ether type 8021ad counter drop comment "VLAN tag"
//!     ether type 8021q vlan type 8021q counter drop comment "VLAN tag"
//!     ether type 8021q vlan type 8021ad counter drop comment "VLAN tag"
//! }
//! ```
//!
//! A tag with the number 0 has a priority and no VLAN; such a packet meets all other rules.

use std::collections::BTreeMap;

use netlink::attributes::{find, of_netfilter, text};
use netlink::expression::{differs, equal, masked, meta, payload};
use netlink::message;
use netlink::nftables::{self, ERESTART, OpenError, generation};
use netlink::{Refused, Requests};
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, DevHookNumber, Expressions, Hook, MetaKey, NfTablesMessage,
    Register,
};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};
use nix::net::if_::if_nametoindex;

use super::encode::Message;
use super::expression::of_rule;
use super::listing::table_of;
use crate::limits::TRANSACTION_ATTEMPTS;
use crate::render::{Action, Rule, TABLE, Verdict};

/// `NFT_PAYLOAD_LL_HEADER`.
const LINK_LAYER: u32 = 0;
/// The offsets of the type of a frame, of the number of its tag, and of the type behind the tag.
const TYPE: u32 = 12;
const NUMBER: u32 = 14;
const INNER_TYPE: u32 = 16;
/// Types of tags: IEEE 802.1Q and 802.1ad.
const VLAN: [u8; 2] = [0x81, 0x00];
const PROVIDER: [u8; 2] = [0x88, 0xa8];
/// `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;
/// The bits of a VLAN's number.
const NUMBER_BITS: [u8; 2] = [0x0f, 0xff];
/// As that of the budget of fragments.
const PRIORITY: i32 = -450;
/// `NF_ACCEPT`.
const ACCEPT: u32 = 1;
/// `NFTA_CHAIN_NAME`.
const CHAIN_NAME: u16 = 3;
const WORDS: &str = "VLAN tag";

/// Writes the chains of workload interfaces.
#[derive(Debug)]
pub(super) struct Frames {
    requests: Requests,
    /// The interfaces with a chain of this run, each with its index.
    done: BTreeMap<String, u32>,
}

impl Frames {
    /// Opens nftables in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The kernel lacks nftables, or denies access to this process.
    pub(super) fn open() -> Result<Self, OpenError> {
        Ok(Self {
            requests: nftables::open()?,
            done: BTreeMap::new(),
        })
    }

    /// Writes the chain of an interface, unless this run has written it.
    ///
    /// # Errors
    ///
    /// The kernel rejected it: the interface was removed, or it lacks the family `netdev`.
    pub(super) fn put(&mut self, interface: &str, index: u32) -> Result<(), Refused> {
        if self.done.get(interface) == Some(&index) {
            return Ok(());
        }
        self.transact(&|| creation(interface))?;
        self.done.insert(interface.to_owned(), index);
        Ok(())
    }

    /// Removes the chains of interfaces that do not exist any more. Newer kernels keep them.
    ///
    /// # Errors
    ///
    /// The kernel did not answer.
    pub(super) fn clean(&mut self) -> Result<(), Refused> {
        let attributes = Vec::new();
        let asked = netdev(NfTablesMessage::GetChain(ChainMessage { attributes }));
        let rows = match self.requests.dump(asked) {
            Err(cause) if cause.errno == libc::ENOENT => return Ok(()),
            rows => rows?,
        };
        let own = rows
            .iter()
            .filter(|row| table_of(row).as_deref() == Some(TABLE));
        let names = own.filter_map(|row| find(of_netfilter(row), CHAIN_NAME).map(text));
        for name in names.collect::<Vec<String>>() {
            if if_nametoindex(name.as_str()).is_err() {
                self.done.remove(&name);
                self.transact(&|| removal(&name))?;
            }
        }
        Ok(())
    }

    fn transact(&mut self, steps: &dyn Fn() -> Vec<Message>) -> Result<(), Refused> {
        let mut attempts = TRANSACTION_ATTEMPTS;
        loop {
            attempts -= 1;
            let on = generation(&mut self.requests)?;
            match nftables::transact_families(&mut self.requests, on, [steps()]) {
                Ok(()) => return Ok(()),
                // Another program's transaction came in between.
                Err((_, cause)) if cause.errno == ERESTART && attempts > 0 => {}
                Err((_, cause)) => return Err(cause),
            }
        }
    }
}

fn netdev(message: NfTablesMessage) -> NetfilterMessage {
    let header = NetfilterHeader::new(NetfilterProtoFamily::NetDev, 0, 0);
    NetfilterMessage::new(header, message)
}

fn chain(interface: &str) -> ChainMessage {
    message::chain(TABLE, interface, None)
}

fn creation(interface: &str) -> Vec<Message> {
    let mut base = chain(interface);
    base.attributes.extend([
        ChainAttribute::Hook(vec![
            Hook::Number(DevHookNumber::Ingress.into()),
            Hook::Priority(PRIORITY.cast_unsigned()),
            Hook::NetDeviceName(interface.into()),
        ]),
        ChainAttribute::Policy(ACCEPT),
        ChainAttribute::Type("filter".into()),
    ]);
    let table = NfTablesMessage::NewTable(message::table(TABLE));
    let flushed = NfTablesMessage::DeleteRule(message::rules(TABLE, interface));
    let mut steps = vec![
        (netdev(table), NLM_F_CREATE),
        (netdev(NfTablesMessage::NewChain(base)), NLM_F_CREATE),
        (netdev(flushed), 0),
    ];
    steps.extend(tags().map(|expressions| {
        let rule = message::rule(TABLE, interface, expressions, Some(WORDS));
        let rule = NfTablesMessage::NewRule(rule);
        (netdev(rule), NLM_F_CREATE | NLM_F_APPEND)
    }));
    steps
}

fn removal(interface: &str) -> Vec<Message> {
    let flushed = NfTablesMessage::DeleteRule(message::rules(TABLE, interface));
    let removed = NfTablesMessage::DeleteChain(chain(interface));
    vec![(netdev(flushed), 0), (netdev(removed), 0)]
}

/// Returns the expressions of each rule.
fn tags() -> [Vec<Expressions>; 4] {
    let at = |offset| payload(LINK_LAYER, offset, 2, Register::Reg1);
    // Offsets are those of Ethernet.
    let is_ethernet = || [meta(MetaKey::Iftype), equal(&ETHERNET.to_ne_bytes())];
    let number = [at(NUMBER), masked(&NUMBER_BITS), differs(&[0; 2])];
    let drop = || {
        of_rule(&Rule {
            matches: Vec::new(),
            counter: true,
            report: None,
            action: Action::Verdict(Verdict::Drop),
            comment: None,
        })
    };
    let of = |matches: Vec<Expressions>| {
        let all = is_ethernet().into_iter().chain(matches);
        all.chain(drop()).collect()
    };
    [
        of([[at(TYPE), equal(&VLAN)].into(), Vec::from(number)].concat()),
        of(vec![at(TYPE), equal(&PROVIDER)]),
        of(vec![at(TYPE), equal(&VLAN), at(INNER_TYPE), equal(&VLAN)]),
        of(vec![
            at(TYPE),
            equal(&VLAN),
            at(INNER_TYPE),
            equal(&PROVIDER),
        ]),
    ]
}
