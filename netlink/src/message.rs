//! nftables messages about tables, chains, rules and sets, with nft's own encodings, so that
//! `nft list` prints them in their proper form.

use netlink_packet_netfilter::nftables::{
    ChainAttribute, ChainMessage, Expressions, Hook, InetHookNumber, ListAttribute, RuleAttribute,
    RuleMessage, SetElementAttribute, SetElementList, SetElementMessage, TableAttribute,
    TableFlags, TableMessage,
};

/// nft's number of the data type of IPv4 addresses.
pub const TYPE_IPV4_ADDRESS: u32 = 7;
/// nft's number of the data type of IPv6 addresses.
pub const TYPE_IPV6_ADDRESS: u32 = 8;
/// nft's number of the data type of ports.
pub const TYPE_PORT: u32 = 13;
/// A concatenation's type contains the types of its parts, this many bits each.
pub const TYPE_BITS: u32 = 6;
/// nft's userdata of a set with keys in host byte order.
pub const HOST_ORDER: [u8; 6] = [0, 4, 1, 0, 0, 0];
/// nft's userdata of a set with keys in network byte order.
pub const NETWORK_ORDER: [u8; 6] = [0, 4, 2, 0, 0, 0];

/// `NF_ACCEPT`: the policy of a base chain.
const NF_ACCEPT: u32 = 1;
/// nft's userdata type of a rule comment.
const NOTE_COMMENT: u8 = 0;
/// Octets of a comment that nft prints.
const COMMENT_OCTETS_MAX: usize = 127;

/// Returns a table.
pub fn table(name: &str) -> TableMessage {
    let attributes = vec![
        TableAttribute::Name(name.into()),
        TableAttribute::Flags(TableFlags::empty()),
    ];
    TableMessage { attributes }
}

/// Returns a chain; a base chain, whose policy is to accept, has a hook, a priority and a type.
pub fn chain(table: &str, name: &str, base: Option<(InetHookNumber, i32, &str)>) -> ChainMessage {
    let mut attributes = vec![
        ChainAttribute::Table(table.into()),
        ChainAttribute::Name(name.into()),
    ];
    if let Some((hook, priority, kind)) = base {
        attributes.extend([
            ChainAttribute::Hook(vec![
                Hook::Number(hook.into()),
                Hook::Priority(priority.cast_unsigned()),
            ]),
            ChainAttribute::Policy(NF_ACCEPT),
            ChainAttribute::Type(kind.into()),
        ]);
    }
    ChainMessage { attributes }
}

/// Returns all rules of a chain.
pub fn rules(table: &str, chain: &str) -> RuleMessage {
    let attributes = vec![
        RuleAttribute::Table(table.into()),
        RuleAttribute::Chain(chain.into()),
    ];
    RuleMessage { attributes }
}

/// Returns a rule of a chain, with a comment of at most 127 octets.
pub fn rule(
    table: &str,
    chain: &str,
    expressions: Vec<Expressions>,
    comment: Option<&str>,
) -> RuleMessage {
    let mut message = rules(table, chain);
    let expressions = expressions.into_iter().map(ListAttribute::from);
    let expressions = RuleAttribute::Expressions(expressions.collect());
    message.attributes.push(expressions);
    let comment = comment.map(|comment| RuleAttribute::UserData(note(comment)));
    message.attributes.extend(comment);
    message
}

/// Returns nft's encoding of a comment: type, length with the terminating NUL, text, NUL.
fn note(comment: &str) -> Vec<u8> {
    let text = comment.as_bytes();
    let text = text.get(..COMMENT_OCTETS_MAX).unwrap_or(text);
    let octets = u8::try_from(text.len() + 1).unwrap_or(u8::MAX);
    [&[NOTE_COMMENT, octets], text, &[0]].concat()
}

/// Returns all elements of a set.
pub fn all_elements(table: &str, set: &str) -> SetElementMessage {
    let attributes = vec![
        SetElementList::Table(table.into()),
        SetElementList::Set(set.into()),
    ];
    SetElementMessage { attributes }
}

/// Returns these elements of a set. An empty list is sent as such: without a list, the kernel deletes
/// all elements.
pub fn elements(
    table: &str,
    set: &str,
    elements: Vec<ListAttribute<SetElementAttribute>>,
) -> SetElementMessage {
    let mut message = all_elements(table, set);
    message.attributes.push(SetElementList::Elements(elements));
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_has_its_length_and_at_most_127_octets() {
        assert_eq!(note("ab"), [0, 3, b'a', b'b', 0]);
        assert_eq!(note(""), [0, 1, 0]);
        let long = note(&"x".repeat(300));
        assert_eq!((long.len(), long[1]), (130, 128));
    }

    #[test]
    fn empty_list_of_elements_is_not_the_whole_set() {
        assert_eq!(all_elements("t", "s").attributes.len(), 2);
        let none = elements("t", "s", vec![]).attributes;
        assert_eq!(none.get(2), Some(&SetElementList::Elements(vec![])));
    }
}
