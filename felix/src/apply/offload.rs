//! Writes the table of offloaded connections, in transactions of its own.

use std::collections::BTreeSet;

use netlink::message::{self, HOST_ORDER};
use netlink::nftables::{ERESTART, Step, generation, inet, number, transact};
use netlink::{Refused, Requests};
use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED, NLM_F_APPEND, NLM_F_CREATE};
use netlink_packet_netfilter::nftables::{
    DataAttribute, Expressions, InetHookNumber, ListAttribute, NfTablesMessage, SetAttribute,
    SetElementAttribute, SetFlags, SetMessage,
};

use super::encode::{NAME_OCTETS, TYPE_INTERFACE, name_octets, named};
use super::expression;
use crate::limits::{ELEMENTS_PER_MESSAGE, TRANSACTION_ATTEMPTS};
use crate::render::{
    OFFLOAD_CHAIN, OFFLOAD_INTERFACES, OFFLOAD_PRIORITY, OFFLOAD_TABLE, OFFLOADED, Rule,
    offload_rules,
};

/// `NFTA_FLOWTABLE_TABLE`, `NFTA_FLOWTABLE_NAME`, `NFTA_FLOWTABLE_HOOK`.
const TABLE: u16 = 1;
const NAME: u16 = 2;
const HOOK: u16 = 3;
/// `NFTA_FLOWTABLE_FLAGS`; `NFT_FLOWTABLE_COUNTER`: connection tracking counts offloaded packets.
const FLAGS: u16 = 7;
const COUNTS: u32 = 1 << 1;
/// `NFTA_FLOWTABLE_HOOK_NUM`, `NFTA_FLOWTABLE_HOOK_PRIORITY`, `NFTA_FLOWTABLE_HOOK_DEVS`.
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const HOOK_DEVICES: u16 = 3;
/// `NFTA_DEVICE_NAME`.
const DEVICE: u16 = 1;
/// `NF_NETDEV_INGRESS`, and the priority `filter` there.
const INGRESS: u32 = 0;
const FILTER: u32 = 0;
/// `NFTA_FLOW_TABLE_NAME` of the expression.
const FLOWS: u16 = 1;

/// Replaces the table by one for these interfaces; without any, only removes it. Returns the answer of the
/// kernel, and whether a table may exist: after an error, if the former one cannot be removed either.
///
/// An error means that the kernel lacks flowtables, or that an interface does not exist.
pub(super) fn replace(
    requests: &mut Requests,
    interfaces: &BTreeSet<String>,
) -> (Result<(), Refused>, bool) {
    if interfaces.is_empty() {
        let removed = match exists(requests) {
            Ok(true) => send(requests, &removal()),
            Ok(false) => Ok(()),
            Err(cause) => Err(cause),
        };
        let may_exist = removed.is_err();
        return (removed, may_exist);
    }
    let mut outcome = send(requests, &messages(interfaces, COUNTS));
    if matches!(&outcome, Err(cause) if cause.errno == libc::EOPNOTSUPP) {
        // Linux before 5.7 has no flag.
        outcome = send(requests, &messages(interfaces, 0));
    }
    if outcome.is_ok() {
        return (outcome, true);
    }
    // The former table has other interfaces.
    let may_exist = send(requests, &removal()).is_err();
    (outcome, may_exist)
}

/// Returns whether a table exists, also one of an earlier run.
fn exists(requests: &mut Requests) -> Result<bool, Refused> {
    let table = NfTablesMessage::GetTable(named(OFFLOAD_TABLE));
    match requests.fetch(inet(table)) {
        Ok(row) => Ok(row.is_some()),
        Err(cause) if cause.errno == libc::ENOENT => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// Sends a transaction; that of another program in between is no reason to give up.
fn send(requests: &mut Requests, steps: &[Step]) -> Result<(), Refused> {
    let mut attempts = TRANSACTION_ATTEMPTS;
    loop {
        attempts -= 1;
        let on = generation(requests)?;
        match transact(requests, on, [steps.to_vec()]) {
            Err((_, cause)) if cause.errno == ERESTART && attempts > 0 => {}
            outcome => return outcome.map_err(|(_, cause)| cause),
        }
    }
}

/// Returns the messages that remove any table.
fn removal() -> Vec<Step> {
    let table = || message::table(OFFLOAD_TABLE);
    vec![
        // A missing table cannot be deleted.
        (NfTablesMessage::NewTable(table()), NLM_F_CREATE),
        (NfTablesMessage::DeleteTable(table()), 0),
    ]
}

/// Returns the messages that replace any table.
fn messages(interfaces: &BTreeSet<String>, flags: u32) -> Vec<Step> {
    let mut steps = removal();
    let mut create = |message| steps.push((message, NLM_F_CREATE));
    create(NfTablesMessage::NewTable(message::table(OFFLOAD_TABLE)));
    create(NfTablesMessage::NewFlowTable(flowtable(interfaces, flags)));
    create(NfTablesMessage::NewSet(set()));
    let elements: Vec<_> = interfaces.iter().map(|name| element(name)).collect();
    for part in elements.chunks(ELEMENTS_PER_MESSAGE) {
        let part = message::elements(OFFLOAD_TABLE, OFFLOAD_INTERFACES, part.to_vec());
        create(NfTablesMessage::NewSetElement(part));
    }
    let base = (InetHookNumber::Forward, OFFLOAD_PRIORITY, "filter");
    let chain = message::chain(OFFLOAD_TABLE, OFFLOAD_CHAIN, Some(base));
    create(NfTablesMessage::NewChain(chain));
    steps.extend(offload_rules().iter().map(|rule| {
        let rule = message::rule(OFFLOAD_TABLE, OFFLOAD_CHAIN, expressions(rule), None);
        (NfTablesMessage::NewRule(rule), NLM_F_CREATE | NLM_F_APPEND)
    }));
    steps
}

/// Returns the expressions of a rule, with the offload instead of its verdict.
fn expressions(rule: &Rule) -> Vec<Expressions> {
    let mut expressions = expression::of_rule(rule);
    expressions.pop();
    expressions.push(Expressions::Other {
        expression_type: "flow_offload".into(),
        attributes: vec![DefaultNla::new(FLOWS, terminated(OFFLOADED))],
    });
    expressions
}

fn flowtable(interfaces: &BTreeSet<String>, flags: u32) -> Vec<DefaultNla> {
    let devices = interfaces
        .iter()
        .map(|name| DefaultNla::new(DEVICE, terminated(name)));
    let hook = [
        number(HOOK_NUMBER, INGRESS),
        number(HOOK_PRIORITY, FILTER),
        nested(HOOK_DEVICES, &devices.collect::<Vec<_>>()),
    ];
    let mut attributes = vec![
        DefaultNla::new(TABLE, terminated(OFFLOAD_TABLE)),
        DefaultNla::new(NAME, terminated(OFFLOADED)),
        nested(HOOK, &hook),
    ];
    if flags != 0 {
        attributes.push(number(FLAGS, flags));
    }
    attributes
}

fn set() -> SetMessage {
    let attributes = vec![
        SetAttribute::Table(OFFLOAD_TABLE.into()),
        SetAttribute::Name(OFFLOAD_INTERFACES.into()),
        SetAttribute::Flags(SetFlags::empty()),
        SetAttribute::KeyType(TYPE_INTERFACE),
        SetAttribute::KeyLen(NAME_OCTETS as u32),
        SetAttribute::Id(1),
        SetAttribute::UserData(HOST_ORDER.into()),
    ];
    SetMessage { attributes }
}

fn element(name: &str) -> ListAttribute<SetElementAttribute> {
    let key = DataAttribute::Value(name_octets(name).into());
    ListAttribute::Element(vec![SetElementAttribute::Key(key)])
}

fn nested(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    let mut octets = vec![0; attributes.buffer_len()];
    attributes.emit(&mut octets);
    DefaultNla::new(kind | NLA_F_NESTED, octets)
}

fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use netlink::attributes::{find, iterate, text};
    use netlink_packet_core::NetlinkSerializable;

    use super::*;

    fn encoded(message: NfTablesMessage) -> (u16, Vec<u8>) {
        let message = inet(message);
        let mut octets = vec![0; NetlinkSerializable::buffer_len(&message)];
        NetlinkSerializable::serialize(&message, &mut octets);
        (message.message_type() & 0xff, octets[4..].to_vec())
    }

    #[test]
    fn messages_name_the_interfaces_and_the_flowtable() {
        let interfaces = ["cali1", "eth0"].map(str::to_owned).into();
        let all: Vec<_> = messages(&interfaces, COUNTS)
            .into_iter()
            .map(|(message, _)| encoded(message))
            .collect();
        let kinds: Vec<u16> = all.iter().map(|(kind, _)| *kind).collect();
        // NEWTABLE, DELTABLE, NEWTABLE, NEWFLOWTABLE, NEWSET, NEWSETELEM, NEWCHAIN, NEWRULE.
        assert_eq!(kinds, [0, 2, 0, 22, 9, 12, 3, 6, 6]);
        let flowtable = &all[3].1;
        assert_eq!(text(find(flowtable, TABLE).unwrap()), OFFLOAD_TABLE);
        assert_eq!(text(find(flowtable, NAME).unwrap()), OFFLOADED);
        assert_eq!(find(flowtable, FLAGS), Some(&[0, 0, 0, 2][..]));
        let hook = find(flowtable, HOOK).unwrap();
        assert_eq!(find(hook, HOOK_NUMBER), Some(&[0; 4][..]));
        assert_eq!(find(hook, HOOK_PRIORITY), Some(&[0; 4][..]));
        let devices = iterate(find(hook, HOOK_DEVICES).unwrap());
        let devices: Vec<String> = devices.map(|(_, name)| text(name)).collect();
        assert_eq!(devices, ["cali1", "eth0"]);
        for (_, rule) in &all[7..] {
            let is_part = |part: &[u8]| rule.windows(part.len()).any(|window| window == part);
            assert!(is_part(b"flow_offload\0") && is_part(b"offloaded\0"));
            assert_eq!(
                rule.windows(11)
                    .filter(|part| part == b"interfaces\0")
                    .count(),
                2
            );
            assert!(!is_part(b"immediate\0"), "a verdict");
        }
        assert_eq!(removal().len(), 2);
        let (plain, _) = messages(&interfaces, 0).swap_remove(3);
        assert_eq!(find(&encoded(plain).1, FLAGS), None);
    }
}
