//! Encodes the steps of a ruleset change as nftables messages.

use std::collections::HashMap;
use std::net::IpAddr;

use netlink::message::{
    self, HOST_ORDER, NETWORK_ORDER, TYPE_BITS, TYPE_IPV4_ADDRESS, TYPE_IPV6_ADDRESS, TYPE_PORT,
};
use netlink::nftables::inet;
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use netlink_packet_netfilter::nftables::{
    ChainMessage, DataAttribute, InetHookNumber, ListAttribute, NfTablesMessage, RuleMessage,
    SetAttribute, SetDescription, SetElementAttribute, SetElementFlags, SetElementList,
    SetElementMessage, SetFlags, SetMessage, TableAttribute, TableFlags, TableMessage,
};
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};

use super::expression;
use crate::limits::{
    ELEMENTS_PER_MESSAGE, INTERFACE_NAME_OCTETS_MAX, METERS_MAX, RATES_S, SEEN_MAX, SEEN_S,
};
use crate::render::{
    BOOT_TABLE, Change, Family, Hook, Key, Rule, SetKind, TABLE, Value, local_name,
};

/// nft's numbers of data types, so that `nft list` prints keys in their proper form.
const TYPE_PROTOCOL: u32 = 12;
const TYPE_ICMPV6: u32 = 29;
pub(super) const TYPE_INTERFACE: u32 = 41;
/// `NFT_DATA_VERDICT`.
const TYPE_VERDICT: u32 = 0xffff_ff00;
/// Octets of an interface name in a key, NULs included.
pub(super) const NAME_OCTETS: usize = INTERFACE_NAME_OCTETS_MAX + 1;

/// A message of a transaction, with its netlink flags.
pub(super) type Message = (NetfilterMessage, u16);

/// Milliseconds in a second.
const MS: u64 = 1000;

/// Returns a message about the tables of family `arp`.
pub(super) fn arp(message: NfTablesMessage) -> NetfilterMessage {
    let header = NetfilterHeader::new(NetfilterProtoFamily::ARP, 0, 0);
    NetfilterMessage::new(header, message)
}

/// The state of the encoding of a transaction.
#[derive(Debug)]
pub(super) struct Encoding {
    /// The IDs of new sets.
    sets: HashMap<String, u32>,
    /// New tables are owned by the socket.
    is_owner: bool,
    /// The tables were deleted: they are new.
    is_new: bool,
}

impl Encoding {
    /// Begins a transaction. `is_owner`: new tables are owned by the socket, and outlive it.
    pub(super) fn new(is_owner: bool) -> Self {
        Self {
            sets: HashMap::new(),
            is_owner,
            is_new: false,
        }
    }

    /// Returns the table. Flags are those of a new table only: the kernel rejects others than those of a
    /// present one.
    fn table(&self) -> TableMessage {
        match (self.is_new, self.is_owner) {
            (true, true) => owned(TABLE),
            (true, false) => message::table(TABLE),
            (false, _) => named(TABLE),
        }
    }
}

/// Returns a table by its name alone.
pub(super) fn named(name: &str) -> TableMessage {
    let attributes = vec![TableAttribute::Name(name.into())];
    TableMessage { attributes }
}

/// Returns a table that the socket owns, and that outlives it.
pub(super) fn owned(name: &str) -> TableMessage {
    let mut table = named(name);
    let flags = TableFlags::Owner | TableFlags::Persisent;
    table.attributes.push(TableAttribute::Flags(flags));
    table
}

/// Returns the messages of one step, each for the table of its object.
pub(super) fn messages(change: &Change, encoding: &mut Encoding) -> Vec<Message> {
    let both = |one, other, flags| vec![(inet(one), flags), (arp(other), flags)];
    let name = match change {
        Change::AddTable => {
            let table = || NfTablesMessage::NewTable(encoding.table());
            return both(table(), table(), NLM_F_CREATE);
        }
        Change::RemoveBoot => return boot_removal(),
        Change::DeleteTable => {
            encoding.is_new = true;
            let table = || NfTablesMessage::DeleteTable(named(TABLE));
            return both(table(), table(), 0);
        }
        Change::AddChain(name, _)
        | Change::DeleteChain(name)
        | Change::AddSet(name, _)
        | Change::DeleteSet(name)
        | Change::FlushChain(name)
        | Change::AddRule(name, _)
        | Change::AddElements(name, ..)
        | Change::DeleteElements(name, ..) => name,
    };
    let local = local_name(name);
    let within = if local == name { inet } else { arp };
    if let Change::AddSet(name, _) = change {
        let id = u32::try_from(encoding.sets.len() + 1).unwrap_or(u32::MAX);
        encoding.sets.insert(name.clone(), id);
    }
    let new = match change {
        // Kernels before 6.12 search the ID among all steps, and a replacement begins with many removals.
        Change::AddElements(..) if encoding.is_new => None,
        _ => encoding.sets.get(name).copied(),
    };
    let steps = of_object(change, local, new).into_iter();
    steps
        .map(|(message, flags)| (within(message), flags))
        .collect()
}

/// Returns the messages that remove the tables of the boot.
pub(super) fn boot_removal() -> Vec<Message> {
    let table = || message::table(BOOT_TABLE);
    [inet, arp]
        .into_iter()
        .flat_map(|within| {
            // A missing table cannot be deleted.
            let made = (within(NfTablesMessage::NewTable(table())), NLM_F_CREATE);
            [made, (within(NfTablesMessage::DeleteTable(table())), 0)]
        })
        .collect()
}

/// Returns the messages of a step about an object, by its name within its table. `new`: the ID of a set
/// that is new in this transaction.
fn of_object(change: &Change, name: &str, new: Option<u32>) -> Vec<(NfTablesMessage, u16)> {
    match change {
        Change::AddTable | Change::DeleteTable | Change::RemoveBoot => Vec::new(),
        Change::AddChain(_, hook) => {
            vec![(NfTablesMessage::NewChain(chain(name, *hook)), NLM_F_CREATE)]
        }
        Change::DeleteChain(_) => vec![(NfTablesMessage::DeleteChain(chain(name, None)), 0)],
        Change::AddSet(_, kind) => {
            let id = new.unwrap_or_default();
            vec![(NfTablesMessage::NewSet(set(name, *kind, id)), NLM_F_CREATE)]
        }
        Change::DeleteSet(_) => vec![(NfTablesMessage::DeleteSet(named_set(name)), 0)],
        Change::FlushChain(_) => {
            vec![(NfTablesMessage::DeleteRule(message::rules(TABLE, name)), 0)]
        }
        Change::AddRule(_, rule) => {
            vec![(
                NfTablesMessage::NewRule(new_rule(name, rule)),
                NLM_F_CREATE | NLM_F_APPEND,
            )]
        }
        Change::AddElements(_, _, elements) => elements
            .chunks(ELEMENTS_PER_MESSAGE)
            .map(|part| {
                part.iter()
                    .flat_map(|(key, value)| key_elements(key, value.as_ref()))
            })
            .map(|part| NfTablesMessage::NewSetElement(elements_of(name, new, part.collect())))
            .map(|message| (message, NLM_F_CREATE))
            .collect(),
        Change::DeleteElements(_, _, keys) => keys
            .chunks(ELEMENTS_PER_MESSAGE)
            .map(|part| {
                part.iter()
                    .flat_map(|key| key_elements(key, None))
                    .collect()
            })
            .map(|part| {
                (
                    NfTablesMessage::DeleteSetElement(elements_of(name, None, part)),
                    0,
                )
            })
            .collect(),
    }
}

fn chain(name: &str, hook: Option<Hook>) -> ChainMessage {
    let base = hook.map(|hook| {
        let number = match hook {
            // `NF_ARP_IN`, which has the same number.
            Hook::Arp
            | Hook::Fragments
            | Hook::Prerouting
            | Hook::Guard
            | Hook::HostUntracked
            | Hook::HostUntranslated
            | Hook::TranslateDestination => InetHookNumber::PreRouting,
            Hook::CutInput
            | Hook::GuardInput
            | Hook::Input
            | Hook::InputToHost
            | Hook::BudgetInput
            | Hook::HostInput => InetHookNumber::LocalIn,
            Hook::CutForward
            | Hook::GuardForward
            | Hook::MarkForward
            | Hook::Forward
            | Hook::ForwardTo
            | Hook::ForwardLast
            | Hook::BudgetForward
            | Hook::HostForward
            | Hook::HostForwardTo => InetHookNumber::Forward,
            Hook::CutOutput
            | Hook::Output
            | Hook::HostOutput
            | Hook::HostUntrackedOutput
            | Hook::TranslateOwnDestination => InetHookNumber::LocalOut,
            Hook::TranslateSource => InetHookNumber::PostRouting,
        };
        let kind = if hook.translates() { "nat" } else { "filter" };
        (number, hook.priority(), kind)
    });
    message::chain(TABLE, name, base)
}

fn named_set(name: &str) -> SetMessage {
    let attributes = vec![
        SetAttribute::Table(TABLE.into()),
        SetAttribute::Name(name.into()),
    ];
    SetMessage { attributes }
}

fn set(name: &str, kind: SetKind, id: u32) -> SetMessage {
    let mut message = named_set(name);
    let with = |address: u32| (TYPE_INTERFACE << TYPE_BITS) | address;
    let (key_type, octets, note) = match kind {
        SetKind::Interface
        | SetKind::InterfaceVerdict
        | SetKind::Rates
        | SetKind::Connections
        | SetKind::Marked(_) => (TYPE_INTERFACE, 16, HOST_ORDER),
        SetKind::InterfaceIpv4 | SetKind::Seen(Family::V4) => {
            (with(TYPE_IPV4_ADDRESS), 20, NETWORK_ORDER)
        }
        SetKind::InterfaceIpv6 | SetKind::Seen(Family::V6) => {
            (with(TYPE_IPV6_ADDRESS), 32, NETWORK_ORDER)
        }
        SetKind::Icmpv6Type => (TYPE_ICMPV6, 1, NETWORK_ORDER),
        SetKind::Ports => (TYPE_PORT, 2, NETWORK_ORDER),
        SetKind::Address(family) | SetKind::Nets(family) | SetKind::AddressMap(family) => {
            let (address, octets) = address_type(family);
            (address, octets, NETWORK_ORDER)
        }
        SetKind::Service(family) => {
            let (address, octets) = address_type(family);
            // A part of a concatenation takes a multiple of four octets.
            (address << TYPE_BITS | TYPE_PORT, octets + 4, NETWORK_ORDER)
        }
        SetKind::EndpointPort(family) => {
            let (address, octets) = address_type(family);
            let kind = (address << TYPE_BITS | TYPE_PROTOCOL) << TYPE_BITS | TYPE_PORT;
            (kind, octets + 8, NETWORK_ORDER)
        }
        SetKind::AddressPairMap(family) => {
            let (address, octets) = address_type(family);
            (address << TYPE_BITS | address, 2 * octets, NETWORK_ORDER)
        }
    };
    let values = match kind {
        SetKind::InterfaceVerdict => Some((TYPE_VERDICT, 0)),
        SetKind::AddressMap(family) | SetKind::AddressPairMap(family) => Some(address_type(family)),
        _ => None,
    };
    let flags = match kind {
        SetKind::Nets(_) | SetKind::Ports => SetFlags::Interval,
        SetKind::Connections => SetFlags::Eval,
        SetKind::Rates | SetKind::Marked(_) | SetKind::Seen(_) => {
            SetFlags::Eval | SetFlags::Timeout
        }
        _ if values.is_some() => SetFlags::Map,
        _ => SetFlags::empty(),
    };
    message.attributes.extend([
        SetAttribute::Flags(flags),
        SetAttribute::KeyType(key_type),
        SetAttribute::KeyLen(octets),
    ]);
    if let Some((kind, octets)) = values {
        message
            .attributes
            .extend([SetAttribute::DataType(kind), SetAttribute::DataLen(octets)]);
    }
    message.attributes.extend(bounds(kind));
    message.attributes.push(SetAttribute::Id(id));
    message.attributes.push(SetAttribute::UserData(note.into()));
    message
}

/// Returns the limits of a set of which rules add the elements.
fn bounds(kind: SetKind) -> Vec<SetAttribute> {
    let (size, timeout_ms) = match kind {
        SetKind::Connections => (METERS_MAX, None),
        SetKind::Marked(ms) => (METERS_MAX, Some(ms)),
        SetKind::Rates => (METERS_MAX, Some(RATES_S * MS)),
        SetKind::Seen(_) => (SEEN_MAX, Some(SEEN_S * MS)),
        _ => return Vec::new(),
    };
    let size = SetAttribute::Description(vec![SetDescription::Size(size)]);
    let timeout = timeout_ms.map(SetAttribute::Timeout);
    [Some(size), timeout].into_iter().flatten().collect()
}

const fn address_type(family: Family) -> (u32, u32) {
    match family {
        Family::V4 => (TYPE_IPV4_ADDRESS, 4),
        Family::V6 => (TYPE_IPV6_ADDRESS, 16),
    }
}

/// Returns a message about elements of a set. A new set is referred to by its ID alone, which the kernel
/// searches from the latest one; a search by name passes all sets of the table.
fn elements_of(
    name: &str,
    new: Option<u32>,
    elements: Vec<ListAttribute<SetElementAttribute>>,
) -> SetElementMessage {
    let mut message = message::elements(TABLE, name, elements);
    if let Some(id) = new {
        for attribute in &mut message.attributes {
            if matches!(attribute, SetElementList::Set(_)) {
                *attribute = SetElementList::SetId(id);
            }
        }
    }
    message
}

/// Returns the kernel's element or elements of a key: a range consists of its first value and,
/// unless it extends to the last possible value, the first value after it.
fn key_elements(key: &Key, value: Option<&Value>) -> Vec<ListAttribute<SetElementAttribute>> {
    let element = |octets: Vec<u8>, more| {
        let mut attributes = vec![SetElementAttribute::Key(DataAttribute::Value(octets))];
        attributes.extend(more);
        ListAttribute::Element(attributes)
    };
    let data = value.map(|value| match value {
        Value::Verdict(verdict) => DataAttribute::Verdict(expression::verdict(verdict)),
        Value::Address(address) => DataAttribute::Value(address_octets(*address)),
    });
    let mut elements = vec![element(
        key_octets(key),
        data.map(SetElementAttribute::Data),
    )];
    let end = SetElementAttribute::Flags(SetElementFlags::IntervalEnd);
    elements.extend(after(key).map(|octets| element(octets, Some(end))));
    elements
}

/// Returns the first key after a range.
fn after(key: &Key) -> Option<Vec<u8>> {
    let mut octets = match key {
        Key::Net(net) => address_octets(net.broadcast()),
        Key::Ports(_, last) => last.to_be_bytes().to_vec(),
        _ => return None,
    };
    let more = octets.iter_mut().rev().any(|octet| {
        *octet = octet.wrapping_add(1);
        *octet != 0
    });
    more.then_some(octets)
}

fn key_octets(key: &Key) -> Vec<u8> {
    match key {
        Key::Interface(name) => name_octets(name).into(),
        Key::InterfaceIpv4(name, address) => pair(name, (*address).into()),
        Key::InterfaceIpv6(of) => pair(&of.0, of.1.into()),
        Key::Icmpv6Type(code) => vec![*code],
        Key::Address(address) => address_octets(*address),
        Key::Net(net) => address_octets(net.network()),
        Key::Ports(first, _) => first.to_be_bytes().to_vec(),
        Key::Service(address, port) => {
            [&*address_octets(*address), &port.to_be_bytes(), &[0, 0]].concat()
        }
        Key::EndpointPort(address, protocol, port) => {
            let [high, low] = port.to_be_bytes();
            let rest = [*protocol, 0, 0, 0, high, low, 0, 0];
            [&*address_octets(*address), &rest].concat()
        }
        Key::AddressPair(of) => [address_octets(of.0), address_octets(of.1)].concat(),
    }
}

fn address_octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn pair(name: &str, address: IpAddr) -> Vec<u8> {
    let mut octets = Vec::from(name_octets(name));
    octets.extend(address_octets(address));
    octets
}

pub(super) fn name_octets(name: &str) -> [u8; NAME_OCTETS] {
    let mut octets = [0; NAME_OCTETS];
    for (place, octet) in octets
        .iter_mut()
        .zip(name.bytes())
        .take(INTERFACE_NAME_OCTETS_MAX)
    {
        *place = octet;
    }
    octets
}

fn new_rule(chain: &str, rule: &Rule) -> RuleMessage {
    message::rule(
        TABLE,
        chain,
        expression::of_rule(rule),
        rule.comment.as_deref(),
    )
}
