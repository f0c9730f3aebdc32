//! nftables objects as the kernel lists them.

use netlink_packet_netfilter::nftables::NfTablesMessage;

use crate::attributes::{find, iterate, of_netfilter, text};
use crate::nftables::inet;
use crate::{Refused, Requests, Row};

/// The table of an object.
const TABLE: u16 = 1;
/// Attributes of a rule, of an expression, of a counter, of a list of elements.
const RULE_CHAIN: u16 = 2;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const COUNTER_PACKETS: u16 = 2;
const ELEMENTS: u16 = 3;

/// The expressions of a rule.
pub const RULE_EXPRESSIONS: u16 = 4;

/// Reads one object; `None` if it does not exist.
///
/// # Errors
///
/// The kernel rejected the request, or did not answer.
pub fn object(requests: &mut Requests, asked: NfTablesMessage) -> Result<Option<Row>, Refused> {
    match requests.fetch(inet(asked)) {
        Err(cause) if cause.errno == libc::ENOENT => Ok(None),
        row => row,
    }
}

/// Reads the objects of a table; a table that does not exist has none. Objects of other tables are
/// left out: not every kernel filters every dump.
///
/// # Errors
///
/// The kernel rejected the request, or did not answer.
pub fn objects(
    requests: &mut Requests,
    table: &str,
    asked: NfTablesMessage,
) -> Result<Vec<Row>, Refused> {
    let mut rows = match requests.dump(inet(asked)) {
        Err(cause) if cause.errno == libc::ENOENT => return Ok(Vec::new()),
        rows => rows?,
    };
    rows.retain(|row| find(of_netfilter(row), TABLE).map(text).as_deref() == Some(table));
    Ok(rows)
}

/// Returns the chain of a rule.
pub fn chain_of(rule: &Row) -> Option<String> {
    find(of_netfilter(rule), RULE_CHAIN).map(text)
}

/// Returns name and data of each of the [`RULE_EXPRESSIONS`].
pub fn expressions(list: &[u8]) -> impl Iterator<Item = (String, &[u8])> {
    iterate(list).map(|(_, expression)| {
        let name = find(expression, EXPRESSION_NAME).map(text);
        let data = find(expression, EXPRESSION_DATA);
        (name.unwrap_or_default(), data.unwrap_or_default())
    })
}

/// Returns the packets that a rule has counted; `None` for a rule without a counter.
pub fn packets(rule: &Row) -> Option<u64> {
    let list = find(of_netfilter(rule), RULE_EXPRESSIONS)?;
    let (_, counter) = expressions(list).find(|(name, _)| name == "counter")?;
    let packets = find(counter, COUNTER_PACKETS)?;
    Some(u64::from_be_bytes(*packets.first_chunk()?))
}

/// Returns the elements of a part of a set.
pub fn elements(part: &Row) -> impl Iterator<Item = &[u8]> {
    let list = find(of_netfilter(part), ELEMENTS);
    list.into_iter()
        .flat_map(iterate)
        .map(|(_, element)| element)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an attribute.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(4 + value.len()).unwrap();
        let padding = vec![0; value.len().next_multiple_of(4) - value.len()];
        let header = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        [&header, value, &padding].concat()
    }

    fn row(attributes: &[Vec<u8>]) -> Row {
        let payload = [&[0; 4][..], &attributes.concat()].concat();
        Row { kind: 0, payload }
    }

    fn expression(name: &str, data: &[u8]) -> Vec<u8> {
        let name = attribute(EXPRESSION_NAME, &[name.as_bytes(), &[0]].concat());
        let data = attribute(EXPRESSION_DATA, data);
        attribute(1, &[name, data].concat())
    }

    #[test]
    fn counter_of_a_rule_is_found_behind_other_expressions() {
        let counter = [
            attribute(1, &9_000_u64.to_be_bytes()),
            attribute(COUNTER_PACKETS, &7_u64.to_be_bytes()),
        ];
        let list = |of: &[Vec<u8>]| attribute(RULE_EXPRESSIONS, &of.concat());
        let other = expression("cmp", &[1, 2]);
        let counted = [other.clone(), expression("counter", &counter.concat())];
        let chain = attribute(RULE_CHAIN, b"output\0");
        let rule = row(&[chain, list(&counted)]);
        assert_eq!(packets(&rule), Some(7));
        assert_eq!(chain_of(&rule).as_deref(), Some("output"));
        let rule = row(&[list(&[other])]);
        assert_eq!((packets(&rule), chain_of(&rule)), (None, None));
        for end in 0..rule.payload.len() {
            let payload = rule.payload[..end].to_vec();
            assert_eq!(packets(&Row { kind: 0, payload }), None);
        }
    }

    #[test]
    fn elements_of_a_part_are_its_list() {
        let two = [attribute(1, &[7]), attribute(1, &[8, 9])].concat();
        let part = row(&[attribute(TABLE, b"t\0"), attribute(ELEMENTS, &two)]);
        let found: Vec<&[u8]> = elements(&part).collect();
        assert_eq!(found, [&[7][..], &[8, 9]]);
        assert_eq!(elements(&row(&[])).count(), 0);
    }
}
