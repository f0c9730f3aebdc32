//! Rules of profiles and policies: an action for packets that match.
//!
//! Parsing accepts everything of the right shape; [`Protocol::number`] and [`Port::range`] check
//! the values, and validation checks the rule when it is written.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::lenient::{Unknown, or_default};
use crate::limits::PORT_NAME_OCTETS_MAX;
use crate::selector::Selector;
use crate::validate::{Faults, Problem};
use crate::value::network::Network;

/// A rule: an action for packets that match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// The action.
    pub action: Action,
    /// The IP version, 4 or 6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_version: Option<u8>,
    /// The protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// An excluded protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_protocol: Option<Protocol>,
    /// Type and code of ICMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<IcmpMatch>,
    /// An excluded combination of ICMP type and code.
    #[serde(rename = "notICMP", default, skip_serializing_if = "Option::is_none")]
    pub not_icmp: Option<IcmpMatch>,
    /// Conditions on the source.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "EntityRule::is_empty"
    )]
    pub source: EntityRule,
    /// Conditions on the destination.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "EntityRule::is_empty"
    )]
    pub destination: EntityRule,
    /// Conditions on an HTTP request, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Value>,
    /// Metadata without effect, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// Unknown fields, kept unchanged. Conditions may be among them.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The action of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Action {
    /// Accept the packet.
    Allow,
    /// Drop it.
    Deny,
    /// Log the packet and continue with the next rule.
    Log,
    /// Continue with the next tier.
    Pass,
}

impl Action {
    /// Returns the measure for a rule with an unsupported condition, which fails closed.
    pub const fn when_unsupported(self) -> &'static str {
        match self {
            Self::Allow | Self::Log => "the rule is left out",
            Self::Deny | Self::Pass => "all packets that reach this rule are dropped",
        }
    }
}

/// Conditions on one end of a packet. All given ones must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntityRule {
    /// The address is in one of these.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub nets: Vec<Network>,
    /// The address is in none of these.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub not_nets: Vec<Network>,
    /// It is a selected endpoint.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub selector: String,
    /// It is not a selected endpoint.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub not_selector: String,
    /// It is an endpoint in a selected namespace.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub namespace_selector: String,
    /// The port is one of these.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ports: Vec<Port>,
    /// The port is none of these.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub not_ports: Vec<Port>,
    /// It is an endpoint with one of these service accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_accounts: Option<ServiceAccountMatch>,
    /// It is an endpoint of this service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub services: Option<ServiceMatch>,
    /// Unknown fields, kept unchanged. Conditions may be among them.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Service accounts, by name and by selector.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountMatch {
    /// Their names.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub names: Vec<String>,
    /// A selector over their labels.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub selector: String,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A Kubernetes service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMatch {
    /// Its name.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// Its namespace; without one, that of the policy.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub namespace: String,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Type and code of an ICMP message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IcmpMatch {
    /// The type.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<u8>,
    /// The code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A protocol: by number, by name, or by a number in quotes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Protocol {
    /// By number.
    Number(i64),
    /// By name.
    Name(String),
}

/// A port: a number, a range `"1000:2000"`, or the name of a port in an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Port {
    /// By number.
    Number(i64),
    /// A range, a name, or a number in quotes.
    Text(String),
}

const PROTOCOLS: [(&str, u8); 6] = [
    ("TCP", 6),
    ("UDP", 17),
    ("ICMP", 1),
    ("ICMPv6", 58),
    ("SCTP", 132),
    ("UDPLite", 136),
];

/// The protocols that have ports: TCP, UDP and SCTP.
pub(super) const WITH_PORTS: [u8; 3] = [6, 17, 132];

impl Protocol {
    /// Returns its number; `None` for an unknown protocol. Names are accepted in any case.
    pub fn number(&self) -> Option<u8> {
        match self {
            Self::Number(number) => u8::try_from(*number).ok(),
            Self::Name(name) => PROTOCOLS
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name))
                .map(|(_, number)| *number)
                .or_else(|| name.parse().ok()),
        }
    }

    /// Returns the number of TCP, UDP or SCTP; `None` for another protocol.
    pub(crate) fn number_with_ports(&self) -> Option<u8> {
        self.number().filter(|number| WITH_PORTS.contains(number))
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl Port {
    /// Returns the range of ports; `None` for a name, and for an invalid text.
    pub fn range(&self) -> Option<RangeInclusive<u16>> {
        let (first, last) = match self {
            Self::Number(number) => {
                let port = u16::try_from(*number).ok()?;
                (port, port)
            }
            Self::Text(text) => {
                let (first, last) = text.split_once(':').unwrap_or((text, text));
                (number_of(first)?, number_of(last)?)
            }
        };
        (first <= last).then_some(first..=last)
    }

    /// Returns whether it is the name of a port. A text of digits is a number, or invalid.
    pub fn is_name(&self) -> bool {
        let Self::Text(text) = self else {
            return false;
        };
        text.len() <= PORT_NAME_OCTETS_MAX
            && !text.bytes().all(|c| c.is_ascii_digit())
            && text
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
    }
}

/// Returns the number of a text that has only digits.
fn number_of(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|c| c.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl Rule {
    /// Returns a rule that matches every packet.
    pub fn every(action: Action) -> Self {
        Self {
            action,
            ip_version: None,
            protocol: None,
            not_protocol: None,
            icmp: None,
            not_icmp: None,
            source: EntityRule::default(),
            destination: EntityRule::default(),
            http: None,
            metadata: None,
            unknown: Unknown::new(),
        }
    }

    /// Returns whether the rule matches every packet. Its `metadata` is not a condition; neither
    /// are fields that are `null` or empty.
    pub fn is_unconditional(&self) -> bool {
        let bare = Self {
            metadata: self.metadata.clone(),
            unknown: self.unknown.clone(),
            ..Self::every(self.action)
        };
        *self == bare && self.unknown.values().all(is_empty_value)
    }

    fn validate(&self, path: &str, faults: &mut Faults) {
        if let Some(version) = self.ip_version
            && !matches!(version, 4 | 6)
        {
            faults.range(format!("{path}.ipVersion"), version, "4 or 6");
        }
        for (name, protocol) in [
            ("protocol", &self.protocol),
            ("notProtocol", &self.not_protocol),
        ] {
            if let Some(protocol) = protocol
                && protocol.number().is_none_or(|number| number == 0)
            {
                let expected = "one of TCP, UDP, ICMP, ICMPv6, SCTP, UDPLite or 1 to 255";
                faults.range(format!("{path}.{name}"), protocol, expected);
            }
        }
        let protocol = self.protocol.as_ref().and_then(Protocol::number);
        for (name, icmp) in [("icmp", &self.icmp), ("notICMP", &self.not_icmp)] {
            let Some(icmp) = icmp else { continue };
            if !matches!(protocol, Some(1 | 58)) {
                let why = Problem::Unwanted("it is for the protocols ICMP and ICMPv6");
                faults.push(format!("{path}.{name}"), why);
            }
            if icmp.kind.is_none() && icmp.code.is_some() {
                faults.push(format!("{path}.{name}.type"), Problem::Missing);
            }
            if icmp.kind == Some(255) {
                faults.range(format!("{path}.{name}.type"), 255, "a type from 0 to 254");
            }
        }
        self.source
            .validate(&format!("{path}.source"), self, faults);
        self.destination
            .validate(&format!("{path}.destination"), self, faults);
    }
}

impl EntityRule {
    /// Returns whether it has no conditions.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the first field that cannot be combined with `services`. Fields of ports can, at the
    /// source, where a service means addresses only.
    pub fn field_beside_services(&self, is_destination: bool) -> Option<&'static str> {
        let fields = [
            ("selector", !self.selector.is_empty()),
            ("notSelector", !self.not_selector.is_empty()),
            ("namespaceSelector", !self.namespace_selector.is_empty()),
            ("serviceAccounts", self.service_accounts.is_some()),
            ("nets", !self.nets.is_empty()),
            ("notNets", !self.not_nets.is_empty()),
            ("ports", is_destination && !self.ports.is_empty()),
            ("notPorts", is_destination && !self.not_ports.is_empty()),
        ];
        let mut set = fields.into_iter().filter(|(_, is_set)| *is_set);
        set.next().map(|(field, _)| field)
    }

    /// Checks the service of an end; `is_allowed`: at this end of the direction, as in Calico.
    fn validate_service(
        &self,
        path: &str,
        is_destination: bool,
        is_allowed: bool,
        is_global: bool,
        faults: &mut Faults,
    ) {
        let Some(service) = &self.services else {
            return;
        };
        let field = format!("{path}.services");
        if !is_allowed {
            let why = "services are for the source of ingress and the destination of egress";
            faults.push(&*field, Problem::Unwanted(why));
        }
        if service.name.is_empty() {
            faults.push(format!("{field}.name"), Problem::Missing);
        }
        if service.namespace.is_empty() && is_global {
            faults.push(format!("{field}.namespace"), Problem::Missing);
        }
        if let Some(other) = self.field_beside_services(is_destination) {
            let why = "it cannot be combined with services";
            faults.push(format!("{path}.{other}"), Problem::Unwanted(why));
        }
    }

    fn validate(&self, path: &str, rule: &Rule, faults: &mut Faults) {
        for (name, text) in [
            ("selector", &self.selector),
            ("notSelector", &self.not_selector),
            ("namespaceSelector", &self.namespace_selector),
        ] {
            selector(format!("{path}.{name}"), text, faults);
        }
        if let Some(accounts) = &self.service_accounts {
            let field = format!("{path}.serviceAccounts.selector");
            selector(field, &accounts.selector, faults);
        }
        for (name, nets) in [("nets", &self.nets), ("notNets", &self.not_nets)] {
            let other = nets.iter().enumerate().find(|(_, net)| {
                let version = if net.address().is_ipv4() { 4 } else { 6 };
                rule.ip_version.is_some_and(|given| given != version)
            });
            if let Some((at, net)) = other {
                let expected = "of the rule's ipVersion";
                faults.range(format!("{path}.{name}[{at}]"), net, expected);
            }
        }
        let protocol = rule.protocol.as_ref().and_then(Protocol::number);
        for (name, ports) in [("ports", &self.ports), ("notPorts", &self.not_ports)] {
            if !ports.is_empty() && !protocol.is_some_and(|number| WITH_PORTS.contains(&number)) {
                let why = Problem::Unwanted("ports are for the protocols TCP, UDP and SCTP");
                faults.push(format!("{path}.{name}"), why);
            }
            for (at, port) in ports.iter().enumerate() {
                if port.range().is_none() && !port.is_name() {
                    let expected = "a port, a range \"1000:2000\" or the name of a port";
                    faults.range(format!("{path}.{name}[{at}]"), port, expected);
                }
            }
        }
    }
}

/// Checks the rules of a list.
pub(super) fn validate(path: &str, rules: &[Rule], faults: &mut Faults) {
    for (at, rule) in rules.iter().enumerate() {
        rule.validate(&format!("{path}[{at}]"), faults);
    }
}

/// Checks the services of the rules of a policy; in a `global` one they need a namespace.
pub(super) fn validate_services(path: &str, rules: &[Rule], is_global: bool, faults: &mut Faults) {
    let is_egress = path.ends_with("egress");
    for (at, rule) in rules.iter().enumerate() {
        for (end, entity, is_destination) in [
            ("source", &rule.source, false),
            ("destination", &rule.destination, true),
        ] {
            let path = format!("{path}[{at}].{end}");
            let is_allowed = is_destination == is_egress;
            entity.validate_service(&path, is_destination, is_allowed, is_global, faults);
        }
    }
}

/// Checks that the text is a selector.
pub(super) fn selector(field: impl Into<String>, text: &str, faults: &mut Faults) {
    if text.parse::<Selector>().is_err() {
        faults.range(field, text, "a selector");
    }
}

fn is_empty_value(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty)
}
