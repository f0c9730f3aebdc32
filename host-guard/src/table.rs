//! Encodes the table as nftables messages.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink::message::{
    self, HOST_ORDER, NETWORK_ORDER, TYPE_BITS, TYPE_IPV4_ADDRESS, TYPE_IPV6_ADDRESS, TYPE_PORT,
};
use netlink::nftables;
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use netlink_packet_netfilter::nftables::{
    DataAttribute, InetHookNumber, ListAttribute, NfTablesMessage, RuleMessage, SetAttribute,
    SetDescription, SetElementAttribute, SetFlags, SetMessage,
};

use crate::cover::{Cover, Holder};
use crate::limits::{ELEMENTS_PER_MESSAGE, REFUSED_CONNECTION_MS, REFUSED_CONNECTIONS_MAX};
use crate::rules::{
    self, BFD_PORTS, BFD_USERS, Family, OUTPUT, REFUSED_IPV4, REFUSED_IPV6, Rule, VERDICT,
    peers_of, ports_of, users_of,
};

/// The table, of family `inet`.
pub const TABLE: &str = "cambric-guard";

/// After destination NAT (-100), so that a translated destination is seen as sent.
const PRIORITY: i32 = -10;
/// nft's number of the data type of users, so that `nft list` prints keys in their proper form.
const TYPE_USER: u32 = 24;

/// One step of a transaction.
pub(crate) struct Step {
    pub(crate) message: nftables::Step,
    /// Its description, for an error.
    pub(crate) what: String,
}

impl Step {
    fn new(message: NfTablesMessage, flags: u16, what: impl Into<String>) -> Self {
        Self {
            message: (message, flags),
            what: what.into(),
        }
    }
}

/// Returns the steps that create the table if it is missing, write its rules, and set the entries
/// of a holder to `cover`. Entries of other holders stay. The users of BFD are those of the host.
pub(crate) fn load(holder: Holder, cover: &Cover, bfd_users: &BTreeSet<u32>) -> Vec<Step> {
    let make = |message, what: &str| Step::new(message, NLM_F_CREATE, format!("make {what}"));
    let table = message::table(TABLE);
    let mut steps = vec![make(NfTablesMessage::NewTable(table), "the table")];
    for (id, set) in (1..).zip(sets()) {
        let what = format!("set {}", set.name);
        steps.push(make(NfTablesMessage::NewSet(set.message(id)), &what));
    }
    let hook = (InetHookNumber::LocalOut, PRIORITY, "filter");
    for (name, base) in [(OUTPUT, Some(hook)), (VERDICT, None)] {
        let chain = NfTablesMessage::NewChain(message::chain(TABLE, name, base));
        steps.push(make(chain, &format!("chain {name}")));
    }
    for name in [OUTPUT, VERDICT] {
        let message = NfTablesMessage::DeleteRule(message::rules(TABLE, name));
        steps.push(Step::new(message, 0, format!("empty chain {name}")));
    }
    for rule in rules::all() {
        let what = format!("add to chain {} the rule of {}", rule.chain, rule.comment);
        let message = NfTablesMessage::NewRule(new_rule(rule));
        steps.push(Step::new(message, NLM_F_CREATE | NLM_F_APPEND, what));
    }
    let ports = BFD_PORTS.1.map(|port| port.to_be_bytes().to_vec());
    steps.extend(refill(BFD_PORTS.0, ports.into()));
    let users = bfd_users.iter().map(|user| user.to_ne_bytes().to_vec());
    steps.extend(refill(BFD_USERS, users.collect()));
    steps.extend(entries(holder, cover));
    steps
}

/// Returns the steps that set the entries of a holder to `cover`.
pub(crate) fn entries(holder: Holder, cover: &Cover) -> Vec<Step> {
    let ports = cover.ports.iter().map(|port| port.to_be_bytes().to_vec());
    let users = cover.users.iter().map(|user| user.to_ne_bytes().to_vec());
    let mut steps = refill(&ports_of(holder), ports.collect());
    steps.extend(refill(&users_of(holder), users.collect()));
    for family in Family::ALL {
        let peers = cover.peers.iter().filter_map(|peer| key(family, peer));
        steps.extend(refill(&peers_of(holder, family), peers.collect()));
    }
    steps
}

/// Returns address and port as a key, each aligned to four octets. `None` for another family.
fn key(family: Family, peer: &SocketAddr) -> Option<Vec<u8>> {
    let mut key = match (family, peer.ip()) {
        (Family::V4, IpAddr::V4(address)) => address.octets().to_vec(),
        (Family::V6, IpAddr::V6(address)) => address.octets().to_vec(),
        _ => return None,
    };
    key.extend(peer.port().to_be_bytes());
    key.extend([0; 2]);
    Some(key)
}

/// Returns the steps that remove the table.
pub(crate) fn remove() -> Vec<Step> {
    vec![Step::new(
        NfTablesMessage::DeleteTable(message::table(TABLE)),
        0,
        "remove the table",
    )]
}

/// Returns the steps that set the keys of a set.
fn refill(set: &str, keys: Vec<Vec<u8>>) -> Vec<Step> {
    let empty = NfTablesMessage::DeleteSetElement(message::all_elements(TABLE, set));
    let mut steps = vec![Step::new(empty, 0, format!("empty set {set}"))];
    for part in keys.chunks(ELEMENTS_PER_MESSAGE) {
        let elements = part.iter().map(|key| {
            let key = DataAttribute::Value(key.clone());
            ListAttribute::Element(vec![SetElementAttribute::Key(key)])
        });
        let filled = message::elements(TABLE, set, elements.collect());
        let message = NfTablesMessage::NewSetElement(filled);
        steps.push(Step::new(message, NLM_F_CREATE, format!("fill set {set}")));
    }
    steps
}

struct Set {
    name: String,
    key_type: u32,
    octets: u32,
    note: [u8; 6],
    dynamic: bool,
}

fn sets() -> Vec<Set> {
    let mut sets = Vec::new();
    for holder in Holder::ALL {
        sets.push(Set {
            name: ports_of(holder),
            key_type: TYPE_PORT,
            octets: 2,
            note: NETWORK_ORDER,
            dynamic: false,
        });
        sets.push(Set {
            name: users_of(holder),
            key_type: TYPE_USER,
            octets: 4,
            note: HOST_ORDER,
            dynamic: false,
        });
        for family in Family::ALL {
            let (key_type, octets) = address_and_port(family);
            sets.push(Set {
                name: peers_of(holder, family),
                key_type,
                octets,
                note: NETWORK_ORDER,
                dynamic: false,
            });
        }
    }
    let (port, user) = ((TYPE_PORT, 2), (TYPE_USER, 4));
    for (name, (key_type, octets), note) in [
        (BFD_PORTS.0, port, NETWORK_ORDER),
        (BFD_USERS, user, HOST_ORDER),
    ] {
        sets.push(Set {
            name: name.into(),
            key_type,
            octets,
            note,
            dynamic: false,
        });
    }
    for (family, name) in [(Family::V4, REFUSED_IPV4), (Family::V6, REFUSED_IPV6)] {
        let one = address_and_port(family);
        sets.push(Set {
            name: name.into(),
            key_type: (one.0 << (2 * TYPE_BITS)) | one.0,
            octets: 2 * one.1,
            note: NETWORK_ORDER,
            dynamic: true,
        });
    }
    sets
}

/// Returns the type of a concatenation of address and port, and its octets.
const fn address_and_port(family: Family) -> (u32, u32) {
    let (address, octets) = match family {
        Family::V4 => (TYPE_IPV4_ADDRESS, 8),
        Family::V6 => (TYPE_IPV6_ADDRESS, 20),
    };
    ((address << TYPE_BITS) | TYPE_PORT, octets)
}

impl Set {
    fn message(&self, id: u32) -> SetMessage {
        let mut attributes = vec![
            SetAttribute::Table(TABLE.into()),
            SetAttribute::Name(self.name.clone()),
            SetAttribute::KeyType(self.key_type),
            SetAttribute::KeyLen(self.octets),
            SetAttribute::Id(id),
            SetAttribute::UserData(self.note.into()),
        ];
        if self.dynamic {
            attributes.extend([
                SetAttribute::Flags(SetFlags::Timeout | SetFlags::Eval),
                SetAttribute::Timeout(REFUSED_CONNECTION_MS),
                SetAttribute::Description(vec![SetDescription::Size(REFUSED_CONNECTIONS_MAX)]),
            ]);
        } else {
            attributes.push(SetAttribute::Flags(SetFlags::empty()));
        }
        SetMessage { attributes }
    }
}

fn new_rule(rule: Rule) -> RuleMessage {
    message::rule(TABLE, rule.chain, rule.expressions, Some(rule.comment))
}

/// Returns the number of rules in a chain.
pub(crate) fn rules_in(chain: &str) -> usize {
    rules::all()
        .iter()
        .filter(|rule| rule.chain == chain)
        .count()
}

/// Parses the keys of a set as numbers of two octets in network byte order.
pub(crate) fn ports(keys: &[Vec<u8>]) -> BTreeSet<u16> {
    let keys = keys.iter().filter_map(|key| key.first_chunk());
    keys.map(|octets| u16::from_be_bytes(*octets)).collect()
}

/// Parses the keys of a set as numbers of four octets in host byte order.
pub(crate) fn users(keys: &[Vec<u8>]) -> BTreeSet<u32> {
    let keys = keys.iter().filter_map(|key| key.first_chunk());
    keys.map(|octets| u32::from_ne_bytes(*octets)).collect()
}

/// Parses the keys of a set as address and port.
pub(crate) fn peers(keys: &[Vec<u8>]) -> impl Iterator<Item = SocketAddr> {
    keys.iter().filter_map(|key| {
        let (address, port) = key.split_at_checked(key.len().checked_sub(4)?)?;
        let address = match *address {
            [a, b, c, d] => Ipv4Addr::new(a, b, c, d).into(),
            _ => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(address).ok()?)),
        };
        let port = u16::from_be_bytes(*port.first_chunk()?);
        Some(SocketAddr::new(address, port))
    })
}
