//! Rules of policies and profiles.

use std::collections::BTreeSet;

use serde_json::Value;

use super::members::Members;
use super::ports::Port;
use super::selector::Selector;
use super::slices::ServiceName;
use super::values::{NAMESPACE, OF_ACCOUNT, OF_NAMESPACE, SERVICE_ACCOUNT, protocol_number, texts};
use crate::packet::{Family, Field, protocol};
use crate::ranges::{Ranges, parse_network};
use crate::space::{Act, ConditionId, Row, Space, Step};

/// A rule.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) action: Action,
    /// Its place in its resource.
    pub(super) place: String,
    /// The conditions; an error names a field with an unknown meaning.
    conditions: Result<Conditions, String>,
}

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Allow,
    Deny,
    Pass,
    Log,
}

#[derive(Clone, Debug)]
struct Conditions {
    family: Option<Family>,
    protocol: Option<u128>,
    not_protocol: Option<u128>,
    icmp: Option<(u128, Option<u128>)>,
    not_icmp: Option<(u128, Option<u128>)>,
    source: End,
    destination: End,
}

/// One end of the packets of a rule.
#[derive(Clone, Debug)]
struct End {
    nets: Vec<(Family, (u128, u128))>,
    not_nets: Vec<(Family, (u128, u128))>,
    selector: Option<Selector>,
    not_selector: Option<Selector>,
    ports: Option<Ports>,
    not_ports: Option<Ports>,
    service: Option<ServiceName>,
}

/// Why a rule with services is not evaluated by their endpoints.
enum ServiceFault {
    /// The datastore has no slice of a service.
    Missing,
    /// A slice cannot be read.
    Unknown(String),
}

/// Ports by number and by name.
#[derive(Clone, Debug)]
struct Ports {
    numbers: Vec<(u128, u128)>,
    names: BTreeSet<String>,
}

/// Reads a list of rules; `None` if it is no list of objects. `namespace` is that of a NetworkPolicy.
pub(super) fn rules(value: &Value, namespace: Option<&str>, place: &str) -> Option<Vec<Rule>> {
    if value.is_null() {
        return Some(Vec::new());
    }
    let list = value.as_array()?.iter().enumerate();
    let rules = list.map(|(at, rule)| {
        let action = match rule["action"].as_str()? {
            "Allow" => Action::Allow,
            "Deny" => Action::Deny,
            "Pass" => Action::Pass,
            "Log" => Action::Log,
            _ => return None,
        };
        Some(Rule {
            action,
            place: format!("{place}[{at}]"),
            conditions: conditions(rule, namespace),
        })
    });
    rules.collect()
}

impl Rule {
    /// Returns whether the rule decides about all packets.
    pub(super) fn is_unconditional(&self) -> bool {
        let decides = matches!(self.action, Action::Allow | Action::Deny);
        decides && self.conditions.as_ref().is_ok_and(Conditions::is_empty)
    }

    /// Adds the steps of the rule for one IP version.
    pub(super) fn steps(
        &self,
        space: &mut Space,
        members: &Members,
        family: Family,
        steps: &mut Vec<Step>,
    ) {
        let mut add = |space: &mut Space, conditions: Vec<ConditionId>, act: Act, text: String| {
            let place = space.place(text);
            steps.push(Step {
                conditions,
                act,
                place,
            });
        };
        let conditions = match &self.conditions {
            Ok(conditions) => conditions,
            Err(field) => {
                let text = format!("{}: {field} is not evaluated", self.place);
                return add(space, Vec::new(), Act::Unknown, text);
            }
        };
        let act = match self.action {
            Action::Allow => Act::Accept,
            Action::Deny => Act::Drop,
            Action::Pass => Act::Return,
            Action::Log => return,
        };
        match conditions.service_fault(members) {
            // Such an `Allow` is left out. Others drop all packets that reach them.
            Some(ServiceFault::Missing) if act == Act::Accept => return,
            Some(ServiceFault::Missing) => {
                let text = format!("{}: the service has no slice", self.place);
                return add(space, Vec::new(), Act::Drop, text);
            }
            Some(ServiceFault::Unknown(reason)) => {
                let text = format!("{}: {reason}", self.place);
                return add(space, Vec::new(), Act::Unknown, text);
            }
            None => {}
        }
        if let Some(conditions) = conditions.of(space, members, family) {
            add(space, conditions, act, self.place.clone());
        }
    }
}

impl Conditions {
    fn is_empty(&self) -> bool {
        let numbers = [self.protocol, self.not_protocol];
        self.family.is_none()
            && numbers.iter().all(Option::is_none)
            && self.icmp.is_none()
            && self.not_icmp.is_none()
            && self.source.is_empty()
            && self.destination.is_empty()
    }

    /// Returns the fault of the services, if they have one.
    fn service_fault(&self, members: &Members) -> Option<ServiceFault> {
        let ends = [&self.source, &self.destination];
        let names = ends.iter().filter_map(|end| end.service.as_ref());
        let mut fault = None;
        for name in names {
            let service = members.service(name);
            let Some(service) = service else {
                return Some(ServiceFault::Missing);
            };
            fault = fault.or_else(|| service.fault.clone());
        }
        fault.map(ServiceFault::Unknown)
    }

    /// Returns the conditions for packets of one IP version; `None` if none of them matches.
    fn of(&self, space: &mut Space, members: &Members, family: Family) -> Option<Vec<ConditionId>> {
        if self.family.is_some_and(|own| own != family) {
            return None;
        }
        let mut all = Vec::new();
        if let Some(number) = self.protocol {
            all.push(space.is(Field::Protocol, number));
        }
        if let Some(number) = self.not_protocol {
            all.push(space.is_in(Field::Protocol, Ranges::one(number), false));
        }
        if let Some((kind, code)) = self.icmp {
            all.push(space.is(Field::IcmpType, kind));
            all.extend(code.map(|code| space.is(Field::IcmpCode, code)));
        }
        if let Some((kind, code)) = self.not_icmp {
            all.push(match code {
                None => space.is_in(Field::IcmpType, Ranges::one(kind), false),
                Some(code) => {
                    let fields = vec![Field::IcmpType, Field::IcmpCode];
                    space.has_row(fields, vec![vec![(kind, kind), (code, code)]], false)
                }
            });
        }
        let ends = [
            (&self.source, Field::Source, Field::SourcePort),
            (
                &self.destination,
                Field::Destination,
                Field::DestinationPort,
            ),
        ];
        for (end, address, port) in ends {
            end.addresses(space, members, family, address, &mut all)?;
            for (ports, is) in [(&end.ports, true), (&end.not_ports, false)] {
                if let (Some(ports), Some(number)) = (ports, self.protocol) {
                    let fields = vec![address, port];
                    let rows = end.rows(ports, members, family, number);
                    all.push(space.has_row(fields, rows, is));
                }
            }
        }
        Some(all)
    }
}

impl End {
    const fn is_empty(&self) -> bool {
        self.nets.is_empty()
            && self.not_nets.is_empty()
            && self.selector.is_none()
            && self.not_selector.is_none()
            && self.ports.is_none()
            && self.not_ports.is_none()
            && self.service.is_none()
    }

    fn addresses(
        &self,
        space: &mut Space,
        members: &Members,
        family: Family,
        field: Field,
        all: &mut Vec<ConditionId>,
    ) -> Option<()> {
        for (nets, is) in [(&self.nets, true), (&self.not_nets, false)] {
            if nets.is_empty() {
                continue;
            }
            let own = nets.iter().filter(|(of, _)| *of == family);
            let own = Ranges::of(own.map(|(_, range)| *range));
            // A rule with networks of one IP version applies to this version only.
            if own.is_empty() {
                return None;
            }
            all.push(space.is_in(field, own, is));
        }
        let service = self.service.as_ref();
        if let Some(service) = service.and_then(|name| members.service(name)) {
            // Only a destination has the ports of the service.
            all.push(match field {
                Field::Source => space.is_in(field, service.addresses(family), true),
                _ => {
                    let fields = vec![field, Field::Protocol, Field::DestinationPort];
                    space.has_row(fields, service.rows(family), true)
                }
            });
        }
        for (selector, is) in [(&self.selector, true), (&self.not_selector, false)] {
            if let Some(selector) = selector {
                all.push(space.is_in(
                    field,
                    Ranges::clone(&members.addresses(selector, family)),
                    is,
                ));
            }
        }
        Some(())
    }

    /// Returns the addresses with their ports: those of names belong to the selected endpoints.
    fn rows(&self, ports: &Ports, members: &Members, family: Family, number: u128) -> Vec<Row> {
        let numbers = Ranges::of(ports.numbers.iter().copied());
        let mut rows: Vec<Row> = numbers
            .iter()
            .map(|range| vec![(0, family.last()), range])
            .collect();
        if !ports.names.is_empty() {
            let selector = self.selector.clone().unwrap_or(Selector::All);
            rows.extend(members.ports(&selector, family, number, &ports.names));
        }
        rows
    }
}

/// The fields of a rule with a meaning here.
const RULE: [&str; 9] = [
    "action",
    "ipVersion",
    "protocol",
    "notProtocol",
    "icmp",
    "notICMP",
    "source",
    "destination",
    "metadata",
];

/// The fields of an end of a rule.
const END: [&str; 9] = [
    "nets",
    "notNets",
    "selector",
    "notSelector",
    "namespaceSelector",
    "serviceAccounts",
    "ports",
    "notPorts",
    "services",
];

/// Rejects fields without a meaning here.
fn known(value: &Value, fields: &[&str], place: &str) -> Result<(), String> {
    let Some(object) = value.as_object() else {
        return match value.is_null() {
            true => Ok(()),
            false => Err(place.to_owned()),
        };
    };
    let mut unknown = object.iter();
    match unknown.find(|(name, value)| !fields.contains(&&***name) && !is_empty(value)) {
        Some((name, _)) => Err(format!("{place}{name}")),
        None => Ok(()),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn conditions(rule: &Value, namespace: Option<&str>) -> Result<Conditions, String> {
    known(rule, &RULE, "")?;
    let family = match &rule["ipVersion"] {
        Value::Null => None,
        version if version.as_u64() == Some(4) => Some(Family::V4),
        version if version.as_u64() == Some(6) => Some(Family::V6),
        _ => return Err("ipVersion".to_owned()),
    };
    let number = |field: &str| match &rule[field] {
        Value::Null => Ok(None),
        value => protocol_number(value)
            .map(Some)
            .ok_or_else(|| field.to_owned()),
    };
    // 0 is any protocol, as OpenStack writes it.
    let protocol = number("protocol")?.filter(|number| *number != 0);
    let not_protocol = number("notProtocol")?;
    if not_protocol == Some(0) {
        return Err("notProtocol".to_owned());
    }
    let is_icmp = matches!(protocol, Some(protocol::ICMP | protocol::ICMPV6));
    let icmp = icmp(&rule["icmp"], is_icmp).ok_or("icmp")?;
    let not_icmp = self::icmp(&rule["notICMP"], is_icmp).ok_or("notICMP")?;
    let has_ports = matches!(
        protocol,
        Some(protocol::TCP | protocol::UDP | protocol::SCTP)
    );
    let end = |field: &str| {
        let value = &rule[field];
        let service = service(value, namespace, field == "destination");
        let end = service.and_then(|service| end(value, namespace, has_ports, service));
        end.map_err(|inner| format!("{field}.{inner}"))
    };
    Ok(Conditions {
        family,
        protocol,
        not_protocol,
        icmp,
        not_icmp,
        source: end("source")?,
        destination: end("destination")?,
    })
}

type Icmp = Option<(u128, Option<u128>)>;

/// Reads type and code; the outer `None` is an unknown meaning.
fn icmp(value: &Value, is_icmp: bool) -> Option<Icmp> {
    if is_empty(value) {
        return Some(None);
    }
    known(value, &["type", "code"], "").ok()?;
    let octet = |field: &str| match &value[field] {
        Value::Null => Some(None),
        number => number
            .as_u64()
            .filter(|number| *number <= 255)
            .map(|n| Some(u128::from(n))),
    };
    match (octet("type")?, octet("code")?) {
        (None, None) => Some(None),
        (Some(kind), code) if is_icmp => Some(Some((kind, code))),
        _ => None,
    }
}

/// Reads the service of an end, with its default namespace.
fn service(
    value: &Value,
    namespace: Option<&str>,
    is_destination: bool,
) -> Result<Option<ServiceName>, String> {
    let given = &value["services"];
    if given.is_null() {
        return Ok(None);
    }
    known(given, &["name", "namespace"], "services.")?;
    let text = |field: &str| given[field].as_str().filter(|text| !text.is_empty());
    let name = text("name").ok_or("services.name")?;
    let namespace = text("namespace").or(namespace);
    let namespace = namespace.ok_or("services.namespace")?;
    // No other field selects the same end.
    let besides = END.iter().filter(|field| match **field {
        "services" => false,
        "ports" | "notPorts" => is_destination,
        _ => true,
    });
    let mut besides = besides.map(|field| &value[*field]);
    match besides.any(|other| !is_empty(other) || other.is_object()) {
        true => Err("services".to_owned()),
        false => Ok(Some((namespace.to_owned(), name.to_owned()))),
    }
}

fn end(
    value: &Value,
    namespace: Option<&str>,
    has_ports: bool,
    service: Option<ServiceName>,
) -> Result<End, String> {
    known(value, &END, "")?;
    let nets = |field: &str| {
        let given = value[field].as_array().map_or(0, Vec::len);
        let nets: Vec<_> = texts(&value[field])
            .iter()
            .filter_map(|text| parse_network(text))
            .collect();
        match nets.len() == given && (value[field].is_array() || is_empty(&value[field])) {
            true => Ok(nets),
            false => Err(field.to_owned()),
        }
    };
    let ports = |field: &str| match &value[field] {
        list if is_empty(list) => Ok(None),
        list => match has_ports.then(|| ports(list)).flatten() {
            Some(ports) => Ok(Some(ports)),
            None => Err(field.to_owned()),
        },
    };
    Ok(End {
        nets: nets("nets")?,
        not_nets: nets("notNets")?,
        selector: selected(value, namespace)?,
        not_selector: selector(value, "notSelector")?,
        ports: ports("ports")?,
        not_ports: ports("notPorts")?,
        service,
    })
}

/// Reads a selector; `None` if the field is missing or empty.
pub(super) fn selector(value: &Value, field: &str) -> Result<Option<Selector>, String> {
    let text = match &value[field] {
        Value::Null => return Ok(None),
        Value::String(text) => text,
        _ => return Err(field.to_owned()),
    };
    if text.is_empty() {
        return Ok(None);
    }
    Selector::parse(text)
        .map(Some)
        .map_err(|_| field.to_owned())
}

/// Returns the selector of an end: of its endpoints, namespaces and service accounts.
fn selected(value: &Value, namespace: Option<&str>) -> Result<Option<Selector>, String> {
    let mut parts = Vec::new();
    let accounts = &value["serviceAccounts"];
    known(accounts, &["names", "selector"], "serviceAccounts.")?;
    let own = selector(value, "selector")?;
    let negated = selector(value, "notSelector")?;
    if let Some(namespaces) = selector(value, "namespaceSelector")? {
        parts.push(namespaces.inherited(OF_NAMESPACE, NAMESPACE));
    } else if let Some(namespace) = namespace
        && (own.is_some() || negated.is_some() || accounts.is_object())
    {
        parts.push(Selector::equal(NAMESPACE, namespace));
    }
    let names = texts(&accounts["names"]);
    if !names.is_empty() {
        let test = super::selector::Test::OneOf(names);
        parts.push(Selector::Is(SERVICE_ACCOUNT.to_owned(), test));
    }
    if accounts.is_object()
        && let Some(accounts) = selector(accounts, "selector")?
    {
        parts.push(accounts.inherited(OF_ACCOUNT, SERVICE_ACCOUNT));
    }
    parts.extend(own);
    Ok(match parts.len() {
        0 => None,
        1 => parts.pop(),
        _ => Some(Selector::And(parts)),
    })
}

/// Reads a list of ports.
fn ports(list: &Value) -> Option<Ports> {
    let mut read = Ports {
        numbers: Vec::new(),
        names: BTreeSet::new(),
    };
    for port in list.as_array()? {
        match Port::parse(port)? {
            Port::Range(first, last) => read.numbers.push((first.into(), last.into())),
            Port::Name(name) => drop(read.names.insert(name)),
        }
    }
    Some(read)
}
