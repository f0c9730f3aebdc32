//! Ports of rules: by protocol, merged as Calico merges them.

use std::collections::BTreeMap;

use calico_model::Port;
use serde_json::Value;

use crate::limits::PORT_NAME_OCTETS_MAX;

/// The protocols with ports, in the order of their rules.
pub(crate) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// The ports of one protocol that an element of a rule allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Match {
    /// All ports.
    All,
    /// The ports from the first to the last one.
    Range(u16, u16),
    /// The ports with the name.
    Name(String),
}

/// The ports of a rule by protocol; `None` for all ports of it.
#[derive(Debug, Default)]
pub(crate) struct ByProtocol(BTreeMap<&'static str, Option<Vec<Match>>>);

/// The protocol and the ports of a rule of Calico; without a protocol: all traffic.
pub(crate) type Ports = (Option<&'static str>, Vec<Port>);

impl ByProtocol {
    /// Adds ports. All ports of a protocol have precedence over single ones.
    pub(crate) fn add(&mut self, protocol: &'static str, ports: Match) {
        let known = self.0.entry(protocol).or_insert_with(|| Some(Vec::new()));
        match (ports, known) {
            (Match::All, known) => *known = None,
            (other, Some(known)) => known.push(other),
            (_, None) => {}
        }
    }

    /// Returns the protocols with their ports.
    pub(crate) fn into_ports(self) -> Vec<Ports> {
        let ports = self.0.into_iter();
        let ports = ports.map(|(protocol, ports)| (Some(protocol), merged(ports)));
        ports.collect()
    }
}

/// Merges the numbers of ports into ranges. Names are first, unless there is at most one number.
fn merged(ports: Option<Vec<Match>>) -> Vec<Port> {
    let ports = ports.unwrap_or_default();
    let mut ranges: Vec<(u16, u16)> = ports
        .iter()
        .filter_map(|port| match port {
            Match::Range(first, last) => Some((*first, *last)),
            Match::Name(_) | Match::All => None,
        })
        .collect();
    let numbers = ranges
        .iter()
        .map(|(first, last)| u32::from(last - first) + 1);
    if numbers.sum::<u32>() <= 1 || ports.len() == 1 {
        return ports.into_iter().filter_map(port).collect();
    }
    ranges.sort_unstable();
    let mut joined: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => joined.push((first, last)),
        }
    }
    let names = ports
        .into_iter()
        .filter(|port| matches!(port, Match::Name(_)));
    let joined = joined
        .into_iter()
        .map(|(first, last)| Match::Range(first, last));
    names.chain(joined).filter_map(port).collect()
}

fn port(port: Match) -> Option<Port> {
    match port {
        Match::All => None,
        Match::Range(first, last) if first == last => Some(Port::Number(first.into())),
        Match::Range(first, last) => Some(Port::Text(format!("{first}:{last}"))),
        Match::Name(name) => Some(Port::Text(name)),
    }
}

/// Returns the name of a protocol with ports.
pub(crate) fn protocol(value: &Value) -> Option<&'static str> {
    let text = value.as_str()?;
    PROTOCOLS.into_iter().find(|name| *name == text)
}

/// Returns the number of a port.
pub(crate) fn number(value: &Value) -> Option<u16> {
    let number = u16::try_from(value.as_u64()?).ok()?;
    (number != 0).then_some(number)
}

/// Returns whether a text is the name of a port (RFC 6335 §5.1). A name in digits is none.
pub(crate) fn is_name(text: &str) -> bool {
    let octets = text.as_bytes();
    let is_edge = |octet: Option<&u8>| octet.is_some_and(|octet| *octet != b'-');
    text.len() <= PORT_NAME_OCTETS_MAX
        && is_edge(octets.first())
        && is_edge(octets.last())
        && octets.iter().any(u8::is_ascii_lowercase)
        && !text.contains("--")
        && octets
            .iter()
            .all(|octet| octet.is_ascii_lowercase() || octet.is_ascii_digit() || *octet == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(ports: &[Match]) -> Vec<String> {
        let mut by_protocol = ByProtocol::default();
        for port in ports {
            by_protocol.add("TCP", port.clone());
        }
        let found = by_protocol.into_ports();
        assert_eq!(found.len(), 1);
        found[0].1.iter().map(Port::to_string).collect()
    }

    fn name(text: &str) -> Match {
        Match::Name(text.to_owned())
    }

    #[test]
    fn ports_are_merged_as_calico_merges_them() {
        let one = |number| Match::Range(number, number);
        assert_eq!(texts(&[one(82), one(80), one(81)]), ["80:82"]);
        assert_eq!(texts(&[one(80), name("http")]), ["80", "http"]);
        assert_eq!(
            texts(&[one(80), name("b"), one(90), name("a"), one(80)]),
            ["b", "a", "80", "90"]
        );
        assert_eq!(texts(&[Match::Range(80, 90)]), ["80:90"]);
        assert_eq!(texts(&[Match::Range(80, 80)]), ["80"]);
        assert_eq!(
            texts(&[Match::Range(80, 90), Match::Range(85, 95)]),
            ["80:95"]
        );
        assert_eq!(
            texts(&[Match::Range(1, u16::MAX), one(u16::MAX)]),
            ["1:65535"]
        );
        assert_eq!(texts(&[one(80), Match::All, one(90)]), [""; 0]);
    }

    #[test]
    fn protocols_are_in_the_order_of_their_names() {
        let mut by_protocol = ByProtocol::default();
        by_protocol.add("UDP", Match::All);
        by_protocol.add("SCTP", name("x"));
        by_protocol.add("TCP", Match::All);
        let names = by_protocol.into_ports().into_iter();
        let names: Vec<_> = names.filter_map(|(protocol, _)| protocol).collect();
        assert_eq!(names, PROTOCOLS);
    }

    #[test]
    fn names_of_ports_have_a_letter() {
        for text in ["http", "a", "1a", "a-b-1"] {
            assert!(is_name(text), "{text}");
        }
        for text in [
            "",
            "80",
            "HTTP",
            "-a",
            "a-",
            "a--b",
            "80:90",
            "abcdefghijklmnop",
        ] {
            assert!(!is_name(text), "{text}");
        }
    }
}
