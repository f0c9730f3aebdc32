//! Explains verdicts and endpoints: evaluates the calculated packet filter for one packet, and lists
//! the policies that apply to an endpoint.
//!
//! The rules are those that Felix has calculated and writes into the kernel. The stored policies are
//! not parsed a second time.

mod connection;
mod ends;
mod evaluation;
mod packet;
#[cfg(test)]
mod page_tests;
mod preview;
#[cfg(test)]
mod preview_tests;
#[cfg(test)]
pub(crate) mod tests;
mod why;

use std::collections::BTreeMap;
use std::net::IpAddr;

use calico_model::Protocol;
use daemon_common::command::PacketQuery;
use daemon_common::report::{PacketStep, PacketVerdict, RuleOwner};

pub(crate) use connection::{Begun, Class, Evaluator, wanted};
pub use connection::{Connection, Wanted};
pub(crate) use preview::preview;
pub(crate) use why::endpoint;

use self::ends::Place;
use self::evaluation::{BEFORE_ROUTING, Bases, DELIVERED, Decision, FORWARDED, Fate};
use self::packet::{Changes, Packet, WITH_PORTS};
use crate::calc::{Calculator, ListOwner};
use crate::render::{Hook, rule_text};

/// The type of an echo request, by IP version.
const ECHO: [(u8, u8); 2] = [(1, 8), (58, 128)];

/// Returns the verdict of the calculated rules on the first packet of a connection.
///
/// # Errors
///
/// An end or the protocol is unknown, or none of the ends is on this host.
pub(crate) fn packet(
    calculator: &Calculator,
    query: &PacketQuery,
) -> Result<PacketVerdict, String> {
    let from = Place::find(calculator, &query.from)?;
    let to = Place::find(calculator, &query.to)?;
    let elsewhere = elsewhere(&from, &to);
    if !matches!(from, Place::Local(_)) && !matches!(to, Place::Local(_)) {
        let hint = match elsewhere.is_empty() {
            true => "`cambric show endpoints` lists those of this host".to_owned(),
            false => elsewhere.join("; "),
        };
        return Err(format!("neither end is an endpoint of this host: {hint}"));
    }
    if matches!(from, Place::Host(_)) {
        return Err("packets of the host itself are not evaluated".to_owned());
    }
    let mut packet = first_packet(query, &from, &to)?;
    let described = packet.to_string();
    let (steps, fate) = evaluate(calculator, &mut packet);
    let verdict = match fate {
        Fate::Accept => "allowed".to_owned(),
        Fate::Drop => "denied".to_owned(),
        Fate::Reject => "denied, with an ICMP error or a reset".to_owned(),
        Fate::DependsOn(part) => format!("unknown: it depends on {part}"),
    };
    Ok(PacketVerdict {
        packet: described,
        allowed: match fate {
            Fate::Accept => Some(true),
            Fate::Drop | Fate::Reject => Some(false),
            Fate::DependsOn(_) => None,
        },
        verdict,
        steps,
        elsewhere,
        in_sync: true,
        not_evaluated: not_evaluated(&from),
    })
}

/// Returns the hosts that evaluate the other end.
fn elsewhere(from: &Place<'_>, to: &Place<'_>) -> Vec<String> {
    let ends = [(from, "egress"), (to, "ingress")];
    let of = ends.into_iter().filter_map(|(end, direction)| match end {
        Place::Remote(remote) => {
            let (name, node) = (&remote.resource, &remote.node);
            Some(format!(
                "{direction} of {name} is not on this host: ask {node}"
            ))
        }
        _ => None,
    });
    of.collect()
}

/// Returns the parts of the way of a packet that have no influence on the verdict.
fn not_evaluated(from: &Place<'_>) -> Vec<String> {
    let mut parts = vec![
        "established connections: their packets pass where any policy applies, also after a change"
            .to_owned(),
        "other tables of nftables and iptables on this host, and the routes".to_owned(),
        "budgets of the workload, and limits of packets and connections".to_owned(),
        "translations of services by other programs".to_owned(),
    ];
    if !matches!(from, Place::Local(_)) {
        parts.push("tunnels: the packet arrives without encapsulation".to_owned());
    }
    parts
}

fn first_packet(query: &PacketQuery, from: &Place<'_>, to: &Place<'_>) -> Result<Packet, String> {
    let protocol = &query.protocol;
    let number = Protocol::Name(protocol.clone()).number();
    let number = number.filter(|number| *number != 0);
    let number = number.ok_or_else(|| format!("'{protocol}' is not a protocol"))?;
    let has_ports = WITH_PORTS.iter().any(|(known, _)| *known == number);
    let port = |port: Option<u64>| {
        let read = port.map(u16::try_from).transpose();
        read.map_err(|_| format!("{} is not a port", port.unwrap_or_default()))
    };
    let (source_port, port) = (port(query.from_port)?, port(query.port)?);
    match (has_ports, port, source_port) {
        (true, None, _) => return Err(format!("a packet of {protocol} needs a port")),
        (false, Some(_), _) | (false, _, Some(_)) => {
            return Err(format!("a packet of {protocol} has no ports"));
        }
        _ => {}
    }
    let wants = match (query.to.parse(), number) {
        (Ok(IpAddr::V4(_)), _) | (Err(_), 1) => Some(true),
        (Ok(IpAddr::V6(_)), _) | (Err(_), 58) => Some(false),
        (Err(_), _) => query.from_ip.map(|source| source.is_ipv4()),
    };
    let (sources, destinations) = match query.from_ip {
        Some(source) => (vec![source], destination(query, to)),
        None => (from.addresses(), destination(query, to)),
    };
    let of = |all: &[IpAddr], is_v4: bool| all.iter().copied().find(|one| one.is_ipv4() == is_v4);
    let versions = [true, false].into_iter();
    let versions = versions.filter(|is_v4| wants.is_none_or(|wanted| wanted == *is_v4));
    let mut pairs = versions.filter_map(|is_v4| {
        let source = of(&sources, is_v4)?;
        Some((source, of(&destinations, is_v4)?))
    });
    let (source, destination) = pairs.next().ok_or_else(|| {
        "both ends need an address of one IP version, which the protocol may fix".to_owned()
    })?;
    let echo = ECHO.iter().find(|(of, _)| *of == number);
    Ok(Packet {
        input: from.interface(),
        output: None,
        source,
        destination,
        protocol: number,
        source_port,
        port,
        icmp: echo.map(|(_, kind)| *kind),
        changes: Changes::default(),
    })
}

/// Returns the addresses of the destination: the given one, or those of the endpoint.
fn destination(query: &PacketQuery, to: &Place<'_>) -> Vec<IpAddr> {
    match query.to.parse() {
        Ok(address) => vec![address],
        Err(_) => to.addresses(),
    }
}

/// Evaluates the base chains in order, until one drops the packet.
fn evaluate(calculator: &Calculator, packet: &mut Packet) -> (Vec<PacketStep>, Fate) {
    let mut steps = Vec::new();
    let before = pass(calculator, &BEFORE_ROUTING, packet, &mut steps);
    if before != Fate::Accept {
        return (steps, before);
    }
    let to = Place::at(calculator, packet.destination);
    packet.output = to.interface();
    let after: &[Hook] = match to {
        Place::Host(_) => &DELIVERED,
        _ => &FORWARDED,
    };
    let fate = pass(calculator, after, packet, &mut steps);
    (steps, fate)
}

/// Evaluates the base chains at these hooks.
fn pass(
    calculator: &Calculator,
    hooks: &[Hook],
    packet: &mut Packet,
    steps: &mut Vec<PacketStep>,
) -> Fate {
    let bases = Bases::of(calculator.desired().rules());
    for hook in hooks {
        let Some(decision) = bases.at_hook(*hook, packet) else {
            continue;
        };
        if decision.fate != Fate::Accept || is_decisive(*hook) {
            steps.push(step(calculator, *hook, packet, &decision));
        }
        if decision.fate != Fate::Accept {
            return decision.fate;
        }
    }
    Fate::Accept
}

/// Returns whether an acceptance is a part of the answer.
const fn is_decisive(hook: Hook) -> bool {
    matches!(
        hook,
        Hook::TranslateDestination
            | Hook::Forward
            | Hook::ForwardTo
            | Hook::Input
            | Hook::InputToHost
            | Hook::HostUntracked
            | Hook::HostUntranslated
            | Hook::HostForward
            | Hook::HostForwardTo
    )
}

fn step(
    calculator: &Calculator,
    hook: Hook,
    packet: &Packet,
    decision: &Decision<'_>,
) -> PacketStep {
    let (part, interface) = match hook {
        Hook::Prerouting => ("source check", &packet.input),
        Hook::TranslateDestination => ("translation", &None),
        Hook::HostUntracked => ("host endpoint, doNotTrack", &None),
        Hook::HostUntranslated => ("host endpoint, preDNAT", &None),
        Hook::HostForward | Hook::HostForwardTo => ("host endpoint", &None),
        Hook::Forward | Hook::Input => ("egress", &packet.input),
        Hook::ForwardTo => ("ingress", &packet.output),
        Hook::ForwardLast => ("services", &None),
        Hook::InputToHost => ("endpoint to host", &packet.input),
        _ => ("guard", &packet.input),
    };
    let endpoint = interface.as_ref().and_then(|name| {
        let endpoint = calculator.desired().interfaces.get(name)?;
        Some(endpoint.resource.clone())
    });
    let verdict = match decision.fate {
        Fate::Accept if hook == Hook::TranslateDestination => {
            format!("to {}", packet.destination)
        }
        Fate::Accept => "accept".to_owned(),
        Fate::Drop => "drop".to_owned(),
        Fate::Reject => "reject".to_owned(),
        Fate::DependsOn(part) => format!("depends on {part}"),
    };
    PacketStep {
        part: part.to_owned(),
        endpoint,
        verdict,
        by: owner(&calculator.owners(), decision),
        chain: decision.chain.to_owned(),
        rule: rule_text(decision.rule),
    }
}

/// Returns the policy or profile with the rule of a decision, and the number of the rule.
fn owner(owners: &BTreeMap<&str, ListOwner>, decision: &Decision<'_>) -> RuleOwner {
    let comment = decision.rule.comment.as_deref().unwrap_or_default();
    // The chain of a tier contains the rules of policies with `Pass`, and names their chains.
    let (chain, place) = match owners.contains_key(decision.chain) {
        true => (decision.chain, comment),
        false => comment.split_once(' ').unwrap_or((comment, "")),
    };
    match owners.get(chain) {
        Some(owner) => RuleOwner {
            tier: owner.tier.clone(),
            list: Some(owner.name.clone()),
            rule: Some(place.to_owned()),
            words: comment.to_owned(),
        },
        None => RuleOwner {
            words: comment.to_owned(),
            ..RuleOwner::default()
        },
    }
}
