//! Translates the conditions of a rule into nftables matches, in one rule or in several.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use calico_model::{
    EntityRule, IcmpMatch, Network, Port, Protocol, Rule as Stored, Selector, unsupported_in_rule,
};
use ipnet::IpNet;

use super::names::SetId;
use super::ruleset::{End, Family, Is, Key, Match, Set, SetKind};
use super::selection::{Compiled, Context, NamedPorts, Unsupported, parse, selection, service};

/// The protocols that have ports: TCP, UDP, SCTP.
pub const PROTOCOLS_WITH_PORTS: [u8; 3] = [6, 17, 132];

type Ranges = Vec<RangeInclusive<u16>>;

/// Returns lists of conditions. The rule matches if all conditions of one list hold; lists of
/// different families never match the same packet.
pub(super) fn alternatives(
    rule: &Stored,
    namespace: Option<&str>,
    context: &Context,
    compiled: &mut Compiled,
) -> Result<Vec<Vec<Match>>, Unsupported> {
    refuse(rule)?;
    let protocol = number("protocol", rule.protocol.as_ref())?;
    let not_protocol = number("notProtocol", rule.not_protocol.as_ref())?;
    let ends = [
        (End::Source, &rule.source),
        (End::Destination, &rule.destination),
    ];
    let mut of = |(end, entity): (End, &EntityRule)| {
        let mut found = Entity::of(end, entity, namespace, protocol, compiled)?;
        found.take_service(entity, namespace, context, compiled)?;
        Ok::<Entity, Unsupported>(found)
    };
    let [source, destination] = ends;
    let ends = [of(source)?, of(destination)?];
    let mut rest: Vec<Match> = Vec::new();
    let ports = ends.iter().flat_map(|end| end.ports.iter().cloned());
    rest.extend(ports);
    let icmp = icmp(rule, protocol)?;
    let has_ports = !rest.is_empty();
    let is_open = icmp.iter().any(Vec::is_empty);
    let bare = protocol.filter(|_| !has_ports && is_open);
    rest.extend(not_protocol.map(|protocol| Match::Protocol(protocol, Is::Not)));
    let mut found = Vec::new();
    for addresses in by_family(rule.ip_version, &ends) {
        // A condition on the number of a port implies the protocol.
        let implied = addresses
            .iter()
            .any(|m| matches!(m, Match::Port(..) | Match::PortIn(..)));
        let bare = bare.filter(|_| !implied);
        let bare: Vec<Match> = bare
            .map(|protocol| Match::Protocol(protocol, Is::Yes))
            .into_iter()
            .collect();
        for icmp in &icmp {
            let mut all = [&*addresses, &*bare, &*rest, icmp].concat();
            // A set with protocols compares the protocol itself.
            let has_named = all.iter().any(|m| matches!(m, Match::EndpointPortIn(..)));
            if !has_named {
                all.sort_by_key(effort);
            }
            found.push(all);
        }
    }
    Ok(found)
}

/// Returns a number that is higher the longer the kernel needs for a condition: one that compares a field
/// of the packet takes a tenth of the time of one that searches a set.
const fn effort(condition: &Match) -> u8 {
    match condition {
        Match::Family(_) => 0,
        Match::Protocol(..) | Match::Port(..) | Match::IcmpType(..) | Match::IcmpCode(..) => 1,
        Match::InNet(..) => 2,
        _ => 3,
    }
}

/// Rejects a condition that the schema declares as unsupported or lacks, and an invalid IP
/// version.
fn refuse(rule: &Stored) -> Result<(), Unsupported> {
    if let Some(found) = unsupported_in_rule(rule) {
        return Err(Unsupported::new(found.field, found.reason));
    }
    match rule.ip_version {
        None | Some(4 | 6) => Ok(()),
        Some(version) => {
            let reason = format!("{version} is not 4 or 6");
            Err(Unsupported::new("ipVersion", reason))
        }
    }
}

/// Returns the number of a protocol. 0 means any, as in OpenStack.
fn number(field: &str, protocol: Option<&Protocol>) -> Result<Option<u8>, Unsupported> {
    let Some(protocol) = protocol else {
        return Ok(None);
    };
    match protocol.number() {
        Some(0) => Ok(None),
        Some(number) => Ok(Some(number)),
        None => Err(Unsupported::new(
            field,
            format!("{protocol} is not the name or number of a protocol"),
        )),
    }
}

/// Returns the conditions on ICMP, as alternatives.
fn icmp(rule: &Stored, protocol: Option<u8>) -> Result<Vec<Vec<Match>>, Unsupported> {
    let family = |field: &str| match protocol {
        Some(1) => Ok(Family::V4),
        Some(58) => Ok(Family::V6),
        _ => Err(Unsupported::new(
            field,
            "it is for the protocols ICMP and ICMPv6",
        )),
    };
    let parts = |field: &str, icmp: &Option<IcmpMatch>| match icmp {
        None => Ok(None),
        Some(icmp) => match (icmp.kind, icmp.code) {
            (None, None) => Ok(None),
            (Some(kind), code) => Ok(Some((family(field)?, kind, code))),
            (None, Some(_)) => Err(Unsupported::new(
                format!("{field}.type"),
                "a code means nothing without a type",
            )),
        },
    };
    let wanted = parts("icmp", &rule.icmp)?.map_or_else(Vec::new, |(family, kind, code)| {
        let code = code.map(|code| Match::IcmpCode(family, code, Is::Yes));
        let kind = Match::IcmpType(family, kind, Is::Yes);
        [kind].into_iter().chain(code).collect()
    });
    let Some((family, kind, code)) = parts("notICMP", &rule.not_icmp)? else {
        return Ok(vec![wanted]);
    };
    // Not of this type; or of this type, but not of this code.
    let other = vec![Match::IcmpType(family, kind, Is::Not)];
    let same = code.map(|code| {
        vec![
            Match::IcmpType(family, kind, Is::Yes),
            Match::IcmpCode(family, code, Is::Not),
        ]
    });
    let alternatives = [other].into_iter().chain(same);
    Ok(alternatives
        .map(|unwanted| [&*wanted, &*unwanted].concat())
        .collect())
}

/// One end of a rule, split into conditions.
struct Entity {
    end: End,
    nets: Vec<IpNet>,
    not_nets: Vec<IpNet>,
    /// Conditions on the address by family, `None` if it cannot match.
    addresses: [Option<Vec<Match>>; 2],
    /// Conditions on numbers of ports.
    ports: Vec<Match>,
    /// Conditions on names of ports by family, as alternatives that never match the same packet.
    named: [Vec<Vec<Match>>; 2],
}

impl Entity {
    fn of(
        end: End,
        entity: &EntityRule,
        namespace: Option<&str>,
        protocol: Option<u8>,
        compiled: &mut Compiled,
    ) -> Result<Self, Unsupported> {
        let at = |fault: Unsupported| {
            Unsupported::new(format!("{}.{}", path(end), fault.field), fault.reason)
        };
        let mut found = Self {
            end,
            nets: nets(&entity.nets),
            not_nets: nets(&entity.not_nets),
            addresses: [None, None],
            ports: Vec::new(),
            named: [vec![Vec::new()], vec![Vec::new()]],
        };
        let wanted = selection(entity, namespace).map_err(at)?;
        found
            .take_ports(entity, protocol, wanted.as_ref(), compiled)
            .map_err(at)?;
        let wanted = wanted.map(|selector| compiled.use_selector(selector));
        let unwanted = match &*entity.not_selector {
            "" => None,
            text => Some(parse("notSelector", text).map_err(at)?),
        };
        let unwanted = unwanted.map(|selector| compiled.use_selector(selector));
        let sets = [(wanted, Is::Yes), (unwanted, Is::Not)];
        for (place, family) in Family::ALL.into_iter().enumerate() {
            let Some(mut matches) = found.in_nets(family, compiled) else {
                continue;
            };
            for (id, is) in &sets {
                let name = id.as_ref().map(|id| id.set_name(family));
                matches.extend(name.map(|name| Match::InSet(end, family, name, *is)));
            }
            found.addresses[place] = Some(matches);
        }
        Ok(found)
    }

    /// Adds the condition on a service. At the source, it stands for the addresses of its endpoints;
    /// at the destination, for these with their ports.
    fn take_service(
        &mut self,
        entity: &EntityRule,
        namespace: Option<&str>,
        context: &Context,
        compiled: &mut Compiled,
    ) -> Result<(), Unsupported> {
        let has_ports = self.end == End::Destination;
        let at = |fault: Unsupported| {
            let field = format!("{}.{}", path(self.end), fault.field);
            Unsupported::new(field, fault.reason)
        };
        let Some(service) = service(entity, namespace, has_ports).map_err(at)? else {
            return Ok(());
        };
        if !context.services.contains(&service) {
            let reason = format!("the datastore has no endpoints of service {service}");
            return Err(at(Unsupported::new("services", reason)));
        }
        let id = compiled.use_service(service, has_ports);
        for (family, matches) in Family::ALL.into_iter().zip(&mut self.addresses) {
            let name = id.set_name(family);
            matches.iter_mut().for_each(|matches| {
                matches.push(match has_ports {
                    true => Match::EndpointPortIn(self.end, family, name.clone(), Is::Yes),
                    false => Match::InSet(self.end, family, name.clone(), Is::Yes),
                });
            });
        }
        Ok(())
    }

    /// Adds the conditions on ports. A name stands for the ports with this name of the selected
    /// endpoints, or of all endpoints without a selector.
    fn take_ports(
        &mut self,
        entity: &EntityRule,
        protocol: Option<u8>,
        selected: Option<&Selector>,
        compiled: &mut Compiled,
    ) -> Result<(), Unsupported> {
        for (field, ports, is) in [
            ("ports", &entity.ports, Is::Yes),
            ("notPorts", &entity.not_ports, Is::Not),
        ] {
            if ports.is_empty() {
                continue;
            }
            let Some(protocol) = protocol.filter(|number| PROTOCOLS_WITH_PORTS.contains(number))
            else {
                let reason = "ports are for the protocols TCP, UDP and SCTP";
                return Err(Unsupported::new(field, reason));
            };
            let (ranges, names) = merged(field, ports)?;
            let mut number = |is| number_match(self.end, protocol, &ranges, is, compiled);
            match (ranges.is_empty(), is) {
                (true, _) => {}
                (false, Is::Yes) if !names.is_empty() => {
                    let (yes, not) = (number(Is::Yes), number(Is::Not));
                    let id = name_set(names, protocol, selected, compiled)?;
                    for (family, named) in Family::ALL.into_iter().zip(&mut self.named) {
                        let name = id.set_name(family);
                        let name = Match::EndpointPortIn(self.end, family, name, Is::Yes);
                        *named = vec![vec![yes.clone()], vec![name, not.clone()]];
                    }
                    continue;
                }
                (false, is) => self.ports.push(number(is)),
            }
            if names.is_empty() {
                continue;
            }
            let id = name_set(names, protocol, selected, compiled)?;
            for (family, named) in Family::ALL.into_iter().zip(&mut self.named) {
                let name = Match::EndpointPortIn(self.end, family, id.set_name(family), is);
                named.iter_mut().for_each(|one| one.push(name.clone()));
            }
        }
        Ok(())
    }

    /// Returns the conditions on ranges. A rule with ranges of one family only applies to that
    /// family.
    fn in_nets(&self, family: Family, compiled: &mut Compiled) -> Option<Vec<Match>> {
        let mut matches = Vec::new();
        for (nets, is) in [(&self.nets, Is::Yes), (&self.not_nets, Is::Not)] {
            let own: Vec<IpNet> = nets
                .iter()
                .filter(|net| Family::of(net.addr()) == family)
                .copied()
                .collect();
            match *own {
                [] if nets.is_empty() => {}
                [] => return None,
                [net] if net.prefix_len() == 0 && is == Is::Not => return None,
                [net] if net.prefix_len() == 0 => matches.push(Match::Family(family)),
                [net] => matches.push(Match::InNet(self.end, net, is)),
                _ => {
                    let set = Set::of(SetKind::Nets(family), own.into_iter().map(Key::Net));
                    let name = compiled.use_set("nets-", set);
                    matches.push(Match::InSet(self.end, family, name, is));
                }
            }
        }
        Some(matches)
    }
}

/// Returns the field of a rule with the conditions of an end.
const fn path(end: End) -> &'static str {
    match end {
        End::Source => "source",
        End::Destination => "destination",
    }
}

/// Returns the conditions on addresses, for each family that can match; or for both at once.
fn by_family(version: Option<u8>, ends: &[Entity; 2]) -> Vec<Vec<Match>> {
    let mut found = Vec::new();
    for (place, family) in Family::ALL.into_iter().enumerate() {
        let given = match family {
            Family::V4 => version == Some(4),
            Family::V6 => version == Some(6),
        };
        let [Some(source), Some(destination)] = [0, 1].map(|end| &ends[end].addresses[place])
        else {
            continue;
        };
        if !given && version.is_some() {
            continue;
        }
        let pairs = ends[0].named[place].iter();
        let pairs =
            pairs.flat_map(|one| ends[1].named[place].iter().map(move |other| (one, other)));
        for (from, to) in pairs {
            let mut matches: Vec<Match> = [&**source, destination, from, to].concat();
            // A condition on an address implies the family.
            let asks = |m: &Match| {
                matches!(
                    m,
                    Match::InNet(..) | Match::InSet(..) | Match::EndpointPortIn(..)
                )
            };
            let implied = matches.iter().any(asks);
            let bare = matches.is_empty() && !given;
            matches.retain(|m| !matches!(m, Match::Family(_)));
            if !implied && !bare {
                matches.push(Match::Family(family));
            }
            found.push(matches);
        }
    }
    if found.iter().all(Vec::is_empty) {
        found.truncate(1);
    }
    found
}

/// Returns the ranges without overlaps, in order.
fn nets(given: &[Network]) -> Vec<IpNet> {
    IpNet::aggregate(&given.iter().map(|net| net.0.trunc()).collect())
}

/// Returns the condition that a port is in these ranges, or is not.
fn number_match(
    end: End,
    protocol: u8,
    ranges: &[RangeInclusive<u16>],
    is: Is,
    compiled: &mut Compiled,
) -> Match {
    match ranges {
        [one] if one.start() == one.end() => Match::Port(end, protocol, *one.start(), is),
        _ => {
            let keys = ranges
                .iter()
                .map(|range| Key::Ports(*range.start(), *range.end()));
            let name = compiled.use_set("ports-", Set::of(SetKind::Ports, keys));
            Match::PortIn(end, protocol, name, is)
        }
    }
}

/// Returns the set of the ports with these names.
fn name_set(
    names: BTreeSet<String>,
    protocol: u8,
    selected: Option<&Selector>,
    compiled: &mut Compiled,
) -> Result<SetId, Unsupported> {
    let selector = selected.map_or_else(|| parse("selector", ""), |one| Ok(one.clone()))?;
    Ok(compiled.use_ports(selector, NamedPorts { protocol, names }))
}

/// Returns the numbers of ports as ranges in order that neither overlap nor touch, and the names.
fn merged(field: &str, ports: &[Port]) -> Result<(Ranges, BTreeSet<String>), Unsupported> {
    let mut ranges = Vec::with_capacity(ports.len());
    let mut names = BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        if port.is_name() {
            names.insert(port.to_string());
            continue;
        }
        let Some(range) = port.range() else {
            let reason = format!("{port} is neither a port, a range nor the name of a port");
            return Err(Unsupported::new(format!("{field}[{at}]"), reason));
        };
        ranges.push(range);
    }
    ranges.sort_unstable_by_key(|range| (*range.start(), *range.end()));
    let mut merged: Ranges = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if u32::from(*range.start()) <= u32::from(*last.end()) + 1 => {
                let end = *last.end().max(range.end());
                *last = *last.start()..=end;
            }
            _ => merged.push(range),
        }
    }
    Ok((merged, names))
}
