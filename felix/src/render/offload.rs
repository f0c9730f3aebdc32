//! The table of offloaded connections: the kernel forwards their packets without the packet filter.
//!
//! A connection is offloaded by a packet that has passed all chains of the packet filter, between two of
//! the interfaces. The table is separate, because the kernel rejects a transaction that names a missing
//! interface.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::guard::{TCP, UDP};
use super::ruleset::{Action, ConnectionStates, Is, Match, Rule, Side, Verdict};
use super::text::rule_text;

/// The table, of the family `inet`.
pub const OFFLOAD_TABLE: &str = "cambric-felix-offload";
/// The flowtable.
pub const OFFLOADED: &str = "offloaded";
/// The set of the interfaces.
pub const OFFLOAD_INTERFACES: &str = "interfaces";
/// The base chain.
pub const OFFLOAD_CHAIN: &str = "forward";
/// The priority of the base chain: after all chains of the packet filter.
pub const OFFLOAD_PRIORITY: i32 = 10;

/// Returns the rules that select connections. Each ends with the offload instead of its verdict. Both
/// interfaces are compared: an entry is used by the packets of both directions.
pub fn offload_rules() -> [Rule; 2] {
    [TCP, UDP].map(|protocol| Rule {
        matches: vec![
            Match::InterfaceIn(Side::Input, OFFLOAD_INTERFACES.into()),
            Match::InterfaceIn(Side::Output, OFFLOAD_INTERFACES.into()),
            Match::Protocol(protocol, Is::Yes),
            Match::Connection(ConnectionStates::EstablishedOrRelated),
        ],
        counter: true,
        action: Action::Verdict(Verdict::Return),
        comment: None,
        report: None,
    })
}

/// Returns the table as nft writes it.
pub fn offload_text(interfaces: &BTreeSet<String>) -> String {
    let quoted: Vec<String> = interfaces
        .iter()
        .map(|name| format!("\"{name}\""))
        .collect();
    let quoted = quoted.join(", ");
    let mut text = format!(
        "table inet {OFFLOAD_TABLE} {{\n\tset {OFFLOAD_INTERFACES} {{\n\t\ttype ifname\n\t\telements = \
         {{ {quoted} }}\n\t}}\n\n\tflowtable {OFFLOADED} {{\n\t\thook ingress priority filter\n\t\tdevices \
         = {{ {quoted} }}\n\t\tcounter\n\t}}\n\n\tchain {OFFLOAD_CHAIN} {{\n\t\ttype filter hook forward priority \
         {OFFLOAD_PRIORITY}; policy accept;\n"
    );
    for rule in offload_rules() {
        let rule = rule_text(&rule);
        let matches = rule.trim_end_matches("return");
        let _ = writeln!(text, "\t\t{matches}flow add @{OFFLOADED}");
    }
    text.push_str("\t}\n}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offload_needs_both_interfaces_and_an_established_connection() {
        let interfaces = ["cali1", "eth0"].map(str::to_owned).into();
        let wanted = r#"table inet cambric-felix-offload {
	set interfaces {
		type ifname
		elements = { "cali1", "eth0" }
	}

	flowtable offloaded {
		hook ingress priority filter
		devices = { "cali1", "eth0" }
		counter
	}

	chain forward {
		type filter hook forward priority 10; policy accept;
		iifname @interfaces oifname @interfaces meta l4proto tcp ct state established,related counter flow add @offloaded
		iifname @interfaces oifname @interfaces meta l4proto udp ct state established,related counter flow add @offloaded
	}
}
"#;
        assert_eq!(offload_text(&interfaces), wanted);
    }
}
