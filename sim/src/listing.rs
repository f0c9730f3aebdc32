//! The listing of a simulated kernel's table, as `nft --json --numeric list ruleset` prints it.

use std::net::IpAddr;

use cambric_felix::render::{
    ACCEPTED, Action, Change, ConnectionStates, End, Family, Hook, Is, Key, Limit, Match, Rate,
    Rule, Seen, SetKind, Side, TupleDirection, Value, Verdict, local_name,
};
use ipnet::IpNet;
use serde_json::{Value as Json, json};

use crate::table::{Set, Table, transact};

/// Felix's table.
const TABLE: &str = "cambric-felix";

/// Returns the listing of the table of the family `inet`.
pub(crate) fn listing(table: &Table) -> String {
    let mut all = vec![json!({"table": {"family": "inet", "name": TABLE, "handle": 1}})];
    let is_inet = |name: &str| local_name(name) == name;
    for (name, set) in table.sets.iter().filter(|(name, _)| is_inet(name)) {
        all.push(set_object(name, set));
    }
    for (name, chain) in table.chains.iter().filter(|(name, _)| is_inet(name)) {
        let mut object = json!({"family": "inet", "table": TABLE, "name": name});
        if let Some(hook) = chain.hook {
            object["type"] = if hook.translates() { "nat" } else { "filter" }.into();
            object["hook"] = place(hook).into();
            object["prio"] = hook.priority().into();
            object["policy"] = "accept".into();
        }
        all.push(json!({ "chain": object }));
        for (handle, rule) in (1..).zip(&chain.rules) {
            all.push(rule_object(name, handle, rule));
        }
    }
    json!({ "nftables": all }).to_string()
}

/// Returns the listing after transactions, or the reason why the kernel rejects one of them.
///
/// # Errors
/// A transaction is rejected.
pub fn listed(transactions: &[Vec<Change>]) -> Result<String, String> {
    let mut table = None;
    for steps in transactions {
        table = transact(table.as_ref(), steps)?;
    }
    Ok(table.as_ref().map(listing).unwrap_or_default())
}

/// Returns the kernel's hook.
const fn place(hook: Hook) -> &'static str {
    match hook {
        Hook::Fragments
        | Hook::Prerouting
        | Hook::Guard
        | Hook::HostUntracked
        | Hook::HostUntranslated
        | Hook::TranslateDestination => "prerouting",
        Hook::Arp
        | Hook::CutInput
        | Hook::GuardInput
        | Hook::Input
        | Hook::InputToHost
        | Hook::BudgetInput
        | Hook::HostInput => "input",
        Hook::CutForward
        | Hook::GuardForward
        | Hook::MarkForward
        | Hook::Forward
        | Hook::ForwardTo
        | Hook::ForwardLast
        | Hook::BudgetForward
        | Hook::HostForward
        | Hook::HostForwardTo => "forward",
        Hook::CutOutput
        | Hook::Output
        | Hook::HostOutput
        | Hook::HostUntrackedOutput
        | Hook::TranslateOwnDestination => "output",
        Hook::TranslateSource => "postrouting",
    }
}

fn set_object(name: &str, set: &Set) -> Json {
    let (key, value, flags): (Json, Option<&str>, &[&str]) = kind(set.kind);
    let mut object = json!({"family": "inet", "table": TABLE, "name": name, "type": key});
    if !flags.is_empty() {
        object["flags"] = json!(flags);
    }
    let elements = set.elements.iter().map(|(key, value)| match value {
        None => key_of(key),
        Some(Value::Verdict(one)) => json!([key_of(key), verdict(one)]),
        Some(Value::Address(address)) => json!([key_of(key), address.to_string()]),
    });
    let elements: Vec<Json> = elements.collect();
    if !elements.is_empty() {
        object["elem"] = elements.into();
    }
    match value {
        None => json!({ "set": object }),
        Some(value) => {
            object["map"] = value.into();
            json!({ "map": object })
        }
    }
}

/// Returns the type of the keys, that of the values, and the flags.
fn kind(kind: SetKind) -> (Json, Option<&'static str>, &'static [&'static str]) {
    let address = |family| match family {
        Family::V4 => "ipv4_addr",
        Family::V6 => "ipv6_addr",
    };
    match kind {
        SetKind::Interface => (json!("ifname"), None, &[]),
        SetKind::Connections => (json!("ifname"), None, &["dynamic"]),
        SetKind::Rates | SetKind::Marked(_) => (json!("ifname"), None, &["dynamic", "timeout"]),
        SetKind::InterfaceIpv4 => (json!(["ifname", "ipv4_addr"]), None, &[]),
        SetKind::InterfaceIpv6 => (json!(["ifname", "ipv6_addr"]), None, &[]),
        SetKind::Seen(family) => {
            let key = json!(["ifname", address(family)]);
            (key, None, &["dynamic", "timeout"])
        }
        SetKind::Icmpv6Type => (json!("icmpv6_type"), None, &[]),
        SetKind::InterfaceVerdict => (json!("ifname"), Some("verdict"), &[]),
        SetKind::Address(family) => (json!(address(family)), None, &[]),
        SetKind::Nets(family) => (json!(address(family)), None, &["interval"]),
        SetKind::Ports => (json!("inet_service"), None, &["interval"]),
        SetKind::Service(family) => (json!([address(family), "inet_service"]), None, &[]),
        SetKind::EndpointPort(family) => {
            let key = json!([address(family), "inet_proto", "inet_service"]);
            (key, None, &[])
        }
        SetKind::AddressMap(family) => (json!(address(family)), Some(address(family)), &[]),
        SetKind::AddressPairMap(family) => {
            let key = json!([address(family), address(family)]);
            (key, Some(address(family)), &[])
        }
    }
}

fn key_of(key: &Key) -> Json {
    match key {
        Key::Interface(name) => json!(name),
        Key::InterfaceIpv4(name, address) => json!({"concat": [name, address.to_string()]}),
        Key::InterfaceIpv6(of) => json!({"concat": [of.0, of.1.to_string()]}),
        Key::Icmpv6Type(number) => json!(number),
        Key::Address(address) => json!(address.to_string()),
        Key::Net(net) => network(*net),
        Key::Ports(first, last) if first == last => json!(first),
        Key::Ports(first, last) => json!({"range": [first, last]}),
        Key::Service(address, port) => json!({"concat": [address.to_string(), port]}),
        Key::EndpointPort(address, protocol, port) => {
            json!({"concat": [address.to_string(), protocol, port]})
        }
        Key::AddressPair(of) => json!({"concat": [of.0.to_string(), of.1.to_string()]}),
    }
}

fn network(net: IpNet) -> Json {
    let address: IpAddr = net.network();
    match net.prefix_len() == net.max_prefix_len() {
        true => json!(address.to_string()),
        false => json!({"prefix": {"addr": address.to_string(), "len": net.prefix_len()}}),
    }
}

fn verdict(verdict: &Verdict) -> Json {
    match verdict {
        Verdict::Accept => json!({ "accept": null }),
        Verdict::Drop => json!({ "drop": null }),
        Verdict::Return => json!({ "return": null }),
        Verdict::Jump(chain) => json!({"jump": {"target": local_name(chain)}}),
        Verdict::Goto(chain) => json!({"goto": {"target": local_name(chain)}}),
    }
}

fn rule_object(chain: &str, handle: u64, rule: &Rule) -> Json {
    let mut expressions: Vec<Json> = rule.matches.iter().flat_map(matched).collect();
    if rule.counter {
        expressions.push(json!({ "counter": null }));
    }
    if let Some(report) = &rule.report {
        expressions.push(json!({"log": {"prefix": report.prefix, "group": report.group}}));
    }
    expressions.extend(action(&rule.action));
    let mut object = json!({"family": "inet", "table": TABLE, "chain": chain, "handle": handle,
        "expr": expressions});
    if let Some(comment) = &rule.comment {
        object["comment"] = comment.as_str().into();
    }
    json!({ "rule": object })
}

fn meta(key: &str) -> Json {
    json!({"meta": {"key": key}})
}

fn interface(side: Side) -> Json {
    meta(match side {
        Side::Input => "iifname",
        Side::Output => "oifname",
    })
}

const fn header(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

fn payload(protocol: &str, field: &str) -> Json {
    json!({"payload": {"protocol": protocol, "field": field}})
}

fn address(end: End, family: Family) -> Json {
    let field = match end {
        End::Source => "saddr",
        End::Destination => "daddr",
    };
    payload(header(family), field)
}

fn port(end: End, protocol: &str) -> Json {
    let field = match end {
        End::Source => "sport",
        End::Destination => "dport",
    };
    payload(protocol, field)
}

fn next_hop(family: Family) -> Json {
    json!({"rt": {"key": "nexthop", "family": header(family)}})
}

fn compared(is: Is, left: &Json, right: impl Into<Json>) -> Json {
    let operator = match is {
        Is::Yes => "==",
        Is::Not => "!=",
    };
    let right: Json = right.into();
    json!({"match": {"op": operator, "left": left, "right": right}})
}

fn equal(left: &Json, right: impl Into<Json>) -> Json {
    compared(Is::Yes, left, right)
}

fn named(set: &str) -> Json {
    format!("@{}", local_name(set)).into()
}

fn joined(parts: &[Json]) -> Json {
    json!({ "concat": parts })
}

fn masked(left: &Json, mask: u64) -> Json {
    json!({"&": [left, mask]})
}

/// Returns the expressions of a condition; several for one with an implied condition that has no
/// expression of its own in a listing.
fn matched(one: &Match) -> Vec<Json> {
    vec![match one {
        Match::InterfacePrefix(side, prefix) => equal(&interface(*side), format!("{prefix}*")),
        Match::Interface(side, name) => equal(&interface(*side), name.as_str()),
        Match::InterfaceIn(side, set) => equal(&interface(*side), named(set)),
        Match::SourceIpv4In(set) => source_in(Family::V4, set),
        Match::SourceIpv6In(set) => source_in(Family::V6, set),
        Match::SourceLinkLocal => of_net(End::Source, "fe80::", 10),
        Match::SourceUnspecified => equal(&address(End::Source, Family::V6), "::"),
        Match::DestinationLinkLocalMulticast => of_net(End::Destination, "ff02::", 16),
        Match::DestinationLinkLocal => of_net(End::Destination, "fe80::", 10),
        Match::DestinationElsewhere => {
            let route = json!({"fib": {"result": "type", "flags": ["daddr", "iif"]}});
            compared(Is::Not, &route, 2)
        }
        Match::ArpSenderIn(set) => {
            let parts = [interface(Side::Input), payload("arp", "saddr ip")];
            equal(&joined(&parts), named(set))
        }
        Match::ArpSender(sender) => equal(&payload("arp", "saddr ip"), sender.to_string()),
        Match::Fragment(Family::V4) => {
            let bits = masked(&payload("ip", "frag-off"), 16_383);
            compared(Is::Not, &bits, 0)
        }
        Match::Fragment(Family::V6) => equal(&json!({"exthdr": {"name": "frag"}}), true),
        Match::NextHopIn(family, set) => equal(&next_hop(*family), named(set)),
        Match::InterfaceNextHopIn(family, set) => {
            let parts = [interface(Side::Input), next_hop(*family)];
            equal(&joined(&parts), named(set))
        }
        Match::Icmpv6TypeIn(set) => equal(&payload("icmpv6", "type"), named(set)),
        Match::Connection(states) => {
            let left = json!({"ct": {"key": "state"}});
            json!({"match": {"op": "in", "left": left, "right": bits(*states)}})
        }
        Match::TupleSourceIn(direction, family, set) => {
            let direction = match direction {
                TupleDirection::Original => "original",
                TupleDirection::Reply => "reply",
            };
            let key = format!("{} saddr", header(*family));
            let source = json!({"ct": {"key": key, "dir": direction}});
            equal(&joined(&[interface(Side::Input), source]), named(set))
        }
        Match::ReplyDirection => equal(&json!({"ct": {"key": "direction"}}), 1),
        Match::ConnectionMark(mark) => {
            let mark = u64::from(*mark);
            equal(&masked(&json!({"ct": {"key": "mark"}}), mark), mark)
        }
        Match::Marked => equal(&masked(&meta("mark"), ACCEPTED.into()), ACCEPTED),
        Match::NoSyn => compared(Is::Not, &masked(&payload("tcp", "flags"), 0x17), 2),
        Match::DestinationTranslated => {
            let left = json!({"ct": {"key": "status"}});
            json!({"match": {"op": "in", "left": left, "right": 32}})
        }
        Match::InputKindIn(set) => equal(&meta("iifkind"), named(set)),
        Match::SourceElsewhere => {
            let route = json!({"fib": {"result": "oif", "flags": ["saddr", "iif"]}});
            equal(&route, false)
        }
        Match::SourceLocal => {
            let route = json!({"fib": {"result": "type", "flags": ["saddr"]}});
            equal(&route, 2)
        }
        Match::Family(family) => equal(
            &meta("nfproto"),
            match family {
                Family::V4 => 2,
                Family::V6 => 10,
            },
        ),
        Match::Protocol(protocol, is) => compared(*is, &meta("l4proto"), *protocol),
        Match::InNet(end, net, is) => {
            let left = address(*end, Family::of(net.addr()));
            compared(*is, &left, network(*net))
        }
        Match::InSet(end, family, set, is) => compared(*is, &address(*end, *family), named(set)),
        Match::Port(end, protocol, number, is) => {
            return of_port(*end, *protocol, *is, json!(number));
        }
        Match::PortIn(end, protocol, set, is) => {
            return of_port(*end, *protocol, *is, named(set));
        }
        Match::ServiceIn(family, set) => {
            let parts = [
                address(End::Destination, *family),
                port(End::Destination, "tcp"),
            ];
            equal(&joined(&parts), named(set))
        }
        Match::EndpointPortIn(end, family, set, is) => {
            let parts = [address(*end, *family), meta("l4proto"), port(*end, "th")];
            compared(*is, &joined(&parts), named(set))
        }
        Match::IcmpType(family, number, is) => compared(*is, &icmp(*family, "type"), *number),
        Match::IcmpCode(family, number, is) => compared(*is, &icmp(*family, "code"), *number),
        Match::Rate(rate, is) => limit(*rate, *is),
        Match::ConnectionsOver(count) => json!({"ct count": {"val": count, "inv": true}}),
        Match::Unsampled(of) => {
            let number = json!({"numgen": {"mode": "random", "mod": of, "offset": 0}});
            compared(Is::Not, &number, 0)
        }
        Match::OverLimit(limit, set) => {
            let limit = over(*limit);
            let key = interface(Side::Input);
            json!({"set": {"op": "update", "elem": key, "set": named(set), "stmt": [limit]}})
        }
        Match::Mark(set) => {
            json!({"set": {"op": "update", "elem": interface(Side::Input), "set": named(set)}})
        }
        Match::Remember(seen, family, set) => {
            let seen = match seen {
                Seen::Source => address(End::Source, *family),
                Seen::NextHop => next_hop(*family),
            };
            let key = joined(&[interface(Side::Input), seen]);
            json!({"set": {"op": "add", "elem": key, "set": named(set)}})
        }
    }]
}

fn source_in(family: Family, set: &str) -> Json {
    let parts = [interface(Side::Input), address(End::Source, family)];
    equal(&joined(&parts), named(set))
}

fn of_net(end: End, first: &str, length: u8) -> Json {
    let net = json!({"prefix": {"addr": first, "len": length}});
    equal(&address(end, Family::V6), net)
}

/// Returns the condition on a port; the protocol is implied by its name, or a condition of its own.
fn of_port(end: End, protocol: u8, is: Is, right: Json) -> Vec<Json> {
    let name = match protocol {
        6 => "tcp",
        17 => "udp",
        33 => "dccp",
        132 => "sctp",
        136 => "udplite",
        other => {
            let protocol = equal(&meta("l4proto"), other);
            return vec![protocol, compared(is, &port(end, "th"), right)];
        }
    };
    vec![compared(is, &port(end, name), right)]
}

fn icmp(family: Family, field: &str) -> Json {
    let protocol = match family {
        Family::V4 => "icmp",
        Family::V6 => "icmpv6",
    };
    payload(protocol, field)
}

/// Returns the kernel's bits of the states: a number, or a list of numbers.
fn bits(states: ConnectionStates) -> Json {
    match states {
        ConnectionStates::Established => json!(2),
        ConnectionStates::EstablishedOrRelated => json!([2, 4]),
        ConnectionStates::Related => json!(4),
        ConnectionStates::New => json!(8),
        ConnectionStates::Invalid => json!(1),
        ConnectionStates::NoError => json!([2, 8, 64]),
    }
}

fn limit(rate: Rate, is: Is) -> Json {
    let per = rate.per.name();
    let mut limit = json!({"rate": rate.packets, "burst": rate.burst, "per": per});
    if is == Is::Not {
        limit["inv"] = true.into();
    }
    json!({ "limit": limit })
}

fn over(limit: Limit) -> Json {
    let rate = |packets: u32, per: &str| json!({"limit": {"rate": packets, "burst": packets, "per": per, "inv": true}});
    match limit {
        Limit::PerSecond(packets) => rate(packets, "second"),
        Limit::PerMinute(packets) => rate(packets, "minute"),
        Limit::Connections(count) => json!({"ct count": {"val": count, "inv": true}}),
    }
}

/// Returns the statements of an action.
fn action(action: &Action) -> Vec<Json> {
    let marked = |operator: &str, number: u32| {
        let value = json!({operator: [meta("mark"), number]});
        json!({"mangle": {"key": meta("mark"), "value": value}})
    };
    let mapped = |key: Json, map: &str| json!({"map": {"key": key, "data": named(map)}});
    match action {
        Action::Verdict(one) => vec![verdict(one)],
        Action::Lookup(side, map) => {
            vec![json!({"vmap": {"key": interface(*side), "data": named(map)}})]
        }
        Action::Log(prefix) => vec![json!({"log": {"prefix": prefix, "level": "info"}})],
        Action::AcceptMarked => vec![marked("|", ACCEPTED), json!({ "accept": null })],
        Action::ClearMark => vec![marked("&", !ACCEPTED)],
        Action::AcceptUntracked => vec![
            marked("|", ACCEPTED),
            json!({ "notrack": null }),
            json!({ "accept": null }),
        ],
        Action::Reject => vec![json!({"reject": {"type": "icmpx", "expr": "port-unreachable"}})],
        Action::ResetTcp => vec![json!({"reject": {"type": "tcp reset"}})],
        Action::Dscp(family, value) => {
            let key = payload(header(*family), "dscp");
            vec![json!({"mangle": {"key": key, "value": value}})]
        }
        Action::DestinationTo(to, port) => {
            vec![json!({"dnat": {"family": "ip", "addr": to.to_string(), "port": port}})]
        }
        Action::DestinationBy(family, map) => {
            let to = mapped(address(End::Destination, *family), map);
            vec![json!({"dnat": {"family": header(*family), "addr": to}})]
        }
        Action::SourceBy(family, map) => {
            let ends = [End::Source, End::Destination].map(|end| address(end, *family));
            let to = mapped(joined(&ends), map);
            vec![json!({"snat": {"family": header(*family), "addr": to}})]
        }
        Action::Masquerade(ports) => vec![json!({"masquerade": drawn(*ports)})],
        Action::SourceTo(to, ports) => {
            let mut body = drawn(*ports);
            body["family"] = "ip".into();
            body["addr"] = to.to_string().into();
            vec![json!({ "snat": body })]
        }
    }
}

/// Returns the choice of a source port.
fn drawn(ports: Option<(u16, u16)>) -> Json {
    let mut body = json!({"flags": "fully-random"});
    if let Some((first, last)) = ports {
        body["port"] = match first == last {
            true => json!(first),
            false => json!({"range": [first, last]}),
        };
    }
    body
}
