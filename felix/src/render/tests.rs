use std::sync::Arc;

use fib_sync::Tunnel;
use ipnet::IpNet;

use super::*;
use crate::limits::{CONNECTION_KEPT_S, WORKLOAD_BUDGET_MAX, WORKLOAD_CONNECTIONS};
use proptest::prelude::*;

fn passage(allowed: bool, reason: &str) -> Passage {
    Passage {
        through: Vec::new(),
        allowed,
        reason: reason.into(),
    }
}

fn endpoint(addresses: &[&str], from: bool, to: bool) -> EndpointRules {
    EndpointRules {
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        from: passage(
            from,
            if from {
                "profile open"
            } else {
                "no profile allows it"
            },
        ),
        to: passage(
            to,
            if to {
                "profile open"
            } else {
                "no profile allows it"
            },
        ),
        encapsulation: Vec::new(),
        qos: Qos::default(),
        takes_invalid: false,
        denial: Denial::Drop,
        flows: None,
        openstack: false,
        spoofed: Vec::new(),
        floating: Vec::new(),
    }
}

fn inputs() -> RuleInputs {
    RuleInputs {
        frame: Frame {
            interface_prefixes: vec!["cali".into(), "tap".into()],
            encapsulation: Encapsulation {
                ipip: true,
                ..Encapsulation::default()
            },
            ..Frame::default()
        },
        endpoints: [
            (
                "cali1".to_owned(),
                endpoint(&["10.65.0.1", "fd65::1"], true, true),
            ),
            ("cali2".to_owned(), endpoint(&["10.65.0.2"], true, false)),
            ("tap3".to_owned(), endpoint(&["fd65::3"], false, false)),
        ]
        .into(),
        control: Control {
            ports: [
                (TCP, 179),
                (TCP, 180),
                (TCP, 1790),
                (UDP, 3784),
                (UDP, 4784),
            ]
            .into(),
            node_ports: [2379].into(),
            host_is_closed: true,
            nodes: [[10, 0, 0, 11].into(), "fd00::11".parse().unwrap()].into(),
            services: [("10.0.0.1".parse().unwrap(), 1179)].into(),
            exceptions: vec!["10.65.0.1/32".parse().unwrap()],
            tunnel_sources: vec!["192.0.2.0/24".parse().unwrap()],
        },
        tunnels: ["tunl0", "tunl1"]
            .map(|name| (name.to_owned(), Tunnel::Ipip))
            .into(),
        ..RuleInputs::default()
    }
}

/// Returns the part of a host endpoint for `eth0` with a policy, and one for all other interfaces.
fn hosts(frame: &Frame) -> Part {
    let rules = |through: &[&str]| {
        let passage = |allowed, reason| Passage {
            through: through.iter().map(|chain| (*chain).to_owned()).collect(),
            ..passage(allowed, reason)
        };
        HostRules {
            to_host: passage(false, "no policy or profile allows it"),
            from_host: passage(true, "profile open"),
            forward_in: passage(true, "no policy decides"),
            forward_out: passage(true, "no policy decides"),
            untranslated: passage(true, "no policy decides"),
            untracked: [(); 2].map(|()| passage(true, "no policy decides")),
            takes_invalid: false,
            denial: Denial::Drop,
            flows: None,
        }
    };
    let endpoints = [
        (HostInterface::Named("eth0".into()), rules(&["pi-gnp/p"])),
        (HostInterface::All, rules(&[])),
    ];
    let mut part = host_part(
        frame,
        &Failsafe::default(),
        &endpoints.into(),
        &["kube-ipvs0".to_owned()].into(),
    );
    let accept = Rule {
        matches: Vec::new(),
        counter: true,
        report: None,
        action: Action::Verdict(Verdict::Accept),
        comment: Some("ingress[0]".into()),
    };
    let chain = Chain {
        hook: None,
        rules: vec![accept],
    };
    part.chains.insert("pi-gnp/p".into(), Arc::new(chain));
    part
}

/// Returns the rules of a policy that allows everything, by the action of its rules.
fn allowed(allowance: Allowance) -> String {
    let owner = Owner {
        id: "gnp/p".into(),
        allowance,
        ..Owner::default()
    };
    let rules = serde_json::json!([{"action": "Allow"}, {"action": "Deny"}]);
    let rules: Vec<calico_model::Rule> = serde_json::from_value(rules).unwrap();
    let compiled = compile(Direction::Ingress, &owner, &rules, &Context::default());
    let texts: Vec<String> = compiled.chain.rules.iter().map(rule_text).collect();
    texts.join("; ")
}

#[test]
fn allowing_rules_mark_or_untrack_packets() {
    let deny = "counter drop comment \"ingress[1]\"";
    for (allowance, action) in [
        (Allowance::Accept, "accept"),
        (
            Allowance::Mark,
            "meta mark set meta mark | 0x00010000 accept",
        ),
        (
            Allowance::Untrack,
            "meta mark set meta mark | 0x00010000 notrack accept",
        ),
    ] {
        let expected = format!("counter {action} comment \"ingress[0]\"; {deny}");
        assert_eq!(allowed(allowance), expected);
    }
}

/// Compares with the checked-in text; `UPDATE_GOLDEN=1 cargo test` updates it.
#[test]
fn text_is_the_golden_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/render/golden.nft");
    let mut inputs = inputs();
    inputs.parts = vec![hosts(&inputs.frame)];
    let text = table_text(&render(&inputs));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap());
}

#[test]
fn host_without_endpoints_drops_workload_traffic() {
    let frame = Frame {
        interface_prefixes: vec!["cali".into()],
        ..Frame::default()
    };
    let ruleset = render(&RuleInputs {
        frame,
        ..RuleInputs::default()
    });
    let last = |chain: &str| ruleset.chains[chain].rules.last().unwrap().action.clone();
    for chain in ["workload-source", "dispatch-from", "dispatch-to"] {
        assert_eq!(last(chain), Action::Verdict(Verdict::Drop), "{chain}");
    }
    for map in [
        "dispatch-from",
        "dispatch-to",
        "workloads",
        "sources-ipv4",
        "sources-ipv6",
    ] {
        assert!(ruleset.sets[map].elements.is_empty(), "{map}");
    }
}

/// Returns the set that a condition uses.
fn set_of(condition: &Match) -> Option<&String> {
    match condition {
        Match::InterfaceIn(_, set)
        | Match::InputKindIn(set)
        | Match::SourceIpv4In(set)
        | Match::SourceIpv6In(set)
        | Match::TupleSourceIn(_, _, set)
        | Match::ArpSenderIn(set)
        | Match::NextHopIn(_, set)
        | Match::InterfaceNextHopIn(_, set)
        | Match::OverLimit(_, set)
        | Match::Mark(set)
        | Match::Remember(_, _, set)
        | Match::Icmpv6TypeIn(set)
        | Match::InSet(_, _, set, _)
        | Match::ServiceIn(_, set)
        | Match::PortIn(_, _, set, _) => Some(set),
        _ => None,
    }
}

#[test]
fn every_name_that_a_rule_uses_exists() {
    let mut inputs = inputs();
    let tap3 = inputs.endpoints.get_mut("tap3").unwrap();
    (tap3.openstack, tap3.qos.dscp) = (true, Some(46));
    inputs.frame.metadata = Some(([127, 0, 0, 1].into(), 8775));
    inputs.pools.all = vec![
        "10.65.0.0/16".parse().unwrap(),
        "fd65::/48".parse().unwrap(),
    ];
    inputs.pools.nat_outgoing = inputs.pools.all.clone();
    for (outside, inside) in [("192.0.2.1", "10.65.0.1"), ("2001:db8::1", "fd65::1")] {
        let pair = (outside.parse().unwrap(), inside.parse().unwrap());
        inputs
            .endpoints
            .get_mut("cali1")
            .unwrap()
            .floating
            .push(pair);
    }
    inputs.parts = vec![hosts(&inputs.frame)];
    let ruleset = render(&inputs);
    let chain = |verdict: &Verdict| match verdict {
        Verdict::Jump(name) | Verdict::Goto(name) => {
            assert!(ruleset.chains.contains_key(name), "{name}")
        }
        _ => {}
    };
    for rule in ruleset.chains.values().flat_map(|chain| &chain.rules) {
        match &rule.action {
            Action::Verdict(verdict) => chain(verdict),
            Action::Lookup(_, map) => assert_eq!(ruleset.sets[map].kind, SetKind::InterfaceVerdict),
            Action::DestinationBy(_, map) | Action::SourceBy(_, map) => {
                assert!(ruleset.sets.contains_key(map), "{map}");
            }
            Action::Log(_)
            | Action::AcceptMarked
            | Action::ClearMark
            | Action::AcceptUntracked
            | Action::Reject
            | Action::ResetTcp
            | Action::Dscp(..)
            | Action::DestinationTo(..)
            | Action::Masquerade(_)
            | Action::SourceTo(..) => {}
        }
        for set in rule.matches.iter().filter_map(set_of) {
            assert!(ruleset.sets.contains_key(set), "{set}");
        }
    }
    for value in ruleset
        .sets
        .values()
        .flat_map(|set| set.elements.values())
        .flatten()
    {
        if let Value::Verdict(verdict) = value {
            chain(verdict);
        }
    }
}

#[test]
fn answers_pass_a_closed_direction_only_beside_an_open_one() {
    let ruleset = render(&inputs());
    let texts = |chain: &str| -> Vec<String> {
        ruleset.chains[chain].rules.iter().map(rule_text).collect()
    };
    assert_eq!(
        texts("to-cali2"),
        [
            "ct state established,related counter accept comment \"answers\"",
            "counter drop comment \"no profile allows it\"",
        ]
    );
    assert_eq!(
        texts("from-tap3"),
        ["counter drop comment \"no profile allows it\""]
    );
}

#[test]
fn endpoint_to_host_actions() {
    let last = |to_host| {
        let mut inputs = inputs();
        inputs.frame.to_host = to_host;
        let ruleset = render(&inputs);
        rule_text(ruleset.chains["workload-to-host"].rules.last().unwrap())
    };
    assert!(last(ToHostAction::Drop).starts_with("counter drop"));
    assert!(last(ToHostAction::Return).starts_with("counter return"));
    assert!(last(ToHostAction::Accept).starts_with("counter accept"));
}

#[test]
fn one_more_endpoint_touches_nothing_of_the_others() {
    let mut more = inputs();
    let old = render(&more);
    more.endpoints
        .insert("cali9".into(), endpoint(&["10.65.0.9"], true, true));
    for step in between(&old, &render(&more)) {
        let text = format!("{step:?}");
        assert!(text.contains("cali9"), "{text}");
        assert!(!matches!(step, Change::FlushChain(_)), "{text}");
    }
    assert_eq!(between(&old, &old), []);
}

/// Returns the connections that pass on average between two counted ones, and the limit of those that
/// are counted.
fn sample_of(ruleset: &Ruleset) -> (u64, u64) {
    let chains = ["workload-connections", "workload-connections-counted"];
    let rules = chains.iter().flat_map(|name| &ruleset.chains[*name].rules);
    let (mut one_of, mut counted) = (1, 0);
    for condition in rules.flat_map(|rule| &rule.matches) {
        match condition {
            Match::Unsampled(of) => one_of = u64::from(*of),
            Match::OverLimit(Limit::Connections(max), _) => counted = u64::from(*max),
            _ => {}
        }
    }
    (one_of - 1, counted)
}

#[test]
fn budget_of_connections_bounds_those_over_days() {
    for connections in [
        1,
        1024,
        2048,
        4096,
        WORKLOAD_CONNECTIONS,
        WORKLOAD_BUDGET_MAX,
    ] {
        let mut inputs = inputs();
        inputs.frame.budgets.connections = connections;
        let ruleset = render(&inputs);
        let (between, counted) = sample_of(&ruleset);
        let budget = u64::from(connections);
        assert!(
            (1..=budget).contains(&(counted * (between + 1))),
            "{budget}"
        );
        let SetKind::Marked(pressed_ms) = ruleset.sets["connections-pressed"].kind else {
            panic!("no time");
        };
        // One pause after each time in which all are counted; the kernel keeps those that passed.
        let pauses = (CONNECTION_KEPT_S * 1000).div_ceil(pressed_ms);
        let beyond = between * pauses;
        assert!(beyond * 8 <= budget, "{beyond} beyond {budget}");
    }
}

/// The kernel publishes new sets of ranges in the order of the steps, and after the rules.
#[test]
fn set_of_all_addresses_is_the_last_set_of_ranges() {
    let mut inputs = inputs();
    inputs.pools.all = vec!["10.65.0.0/16".parse().unwrap()];
    let ports = Set::of(SetKind::Ports, [Key::Ports(80, 90)]);
    inputs.sets.insert("ports-x".into(), Arc::new(ports));
    let ranges = creation(&render(&inputs))
        .into_iter()
        .filter_map(|step| match step {
            Change::AddElements(name, SetKind::Nets(_) | SetKind::Ports, _) => Some(name),
            _ => None,
        });
    let ranges: Vec<String> = ranges.collect();
    assert!(ranges.len() > 5 && ranges.contains(&"ports-x".to_owned()));
    assert_eq!(ranges[ranges.len() - 2..], ["whole-ipv4", "whole-ipv6"]);
}

#[test]
fn new_set_of_ranges_is_written_before_its_rules() {
    let mut inputs = inputs();
    let old = render(&inputs);
    let matches = vec![Match::PortIn(
        End::Destination,
        TCP,
        "ports-x".into(),
        Is::Yes,
    )];
    let drop = Rule {
        matches,
        counter: true,
        report: None,
        action: Action::Verdict(Verdict::Drop),
        comment: None,
    };
    let chain = Chain {
        hook: None,
        rules: vec![drop],
    };
    let ports = Set::of(SetKind::Ports, [Key::Ports(80, 90)]);
    let hashed = Set::of(
        SetKind::Address(Family::V4),
        [Key::Address([10, 0, 0, 1].into())],
    );
    inputs.sets.insert("ports-x".into(), Arc::new(ports));
    inputs.sets.insert("cali40s-x".into(), Arc::new(hashed));
    inputs.chains.insert("pi-x".into(), Arc::new(chain));
    let wanted = render(&inputs);
    let mut held = old.clone();
    let part = preparation(&held, &wanted, &Touched::between(&old, &wanted), 1000).unwrap();
    assert!(part.chains.is_empty());
    assert!(part.sets.keys().eq(["ports-x"]), "{part:?}");
    held.follow(&wanted, &part, &Touched::default());
    let rest = Touched::between(&held, &wanted);
    assert_eq!(preparation(&held, &wanted, &rest, 1000), None);
}

#[test]
fn chains_that_report_are_prepared_as_others_are() {
    let prepared = |log: Option<PacketLog>| {
        let mut inputs = inputs();
        inputs.frame.records_per_second = log.map_or(0, |log| log.records_per_second);
        let old = render(&inputs);
        for n in 0..100 {
            let tcp = vec![Match::Protocol(TCP, Is::Yes)];
            let mut rules = vec![build::counted(tcp, Verdict::Accept, "ingress[0]")];
            flows::of_rules(log, Direction::Ingress, "pi-x", &mut rules);
            let chain = Chain { hook: None, rules };
            inputs.chains.insert(format!("pi-{n}"), Arc::new(chain));
        }
        let wanted = render(&inputs);
        let (mut held, mut rest) = (old.clone(), Touched::between(&old, &wanted));
        let mut transactions = 0;
        while prepare(&mut held, &wanted, &mut rest, 10).is_some() {
            transactions += 1;
        }
        transactions
    };
    let log = PacketLog {
        group: 80,
        records_per_second: 10,
    };
    // A chain weighs 2 without the limit, and 3 with it; the last 10 chains are not prepared.
    assert_eq!([prepared(None), prepared(Some(log))], [18, 23]);
}

/// Copies the touched parts of `wanted` key by key: a difference that is not among them stays.
pub(crate) fn copy(held: &mut Ruleset, wanted: &Ruleset, touched: &Touched) {
    for name in &touched.chains {
        match wanted.chains.get(name) {
            Some(chain) => held.chains.insert(name.clone(), Arc::clone(chain)),
            None => held.chains.remove(name),
        };
    }
    for (name, keys) in &touched.sets {
        let Some(set) = wanted.sets.get(name) else {
            held.sets.remove(name);
            continue;
        };
        let is_created = touched.created.contains(name);
        let held_set = held.sets.get_mut(name);
        let held_set = held_set.filter(|held| held.kind == set.kind && !is_created);
        let Some(held) = held_set else {
            held.sets.insert(name.clone(), set.clone());
            continue;
        };
        for key in keys {
            match set.elements.get(key) {
                Some(value) => held.elements.insert(key.clone(), value.clone()),
                None => held.elements.remove(key),
            };
        }
    }
}

fn between(old: &Ruleset, new: &Ruleset) -> Vec<Change> {
    changes(old, new, &Touched::between(old, new))
}

/// A table that applies steps as the kernel does, and rejects what the kernel would reject.
#[derive(Debug, Default)]
pub(crate) struct Kernel(pub(crate) Option<Ruleset>);

impl Kernel {
    pub(crate) fn take(&mut self, step: &Change) {
        if let Change::AddTable = step {
            self.0.get_or_insert_default();
            return;
        }
        if let Change::DeleteTable = step {
            assert!(self.0.take().is_some());
            return;
        }
        let table = self.0.as_mut().expect("a table");
        match step {
            Change::AddTable | Change::DeleteTable | Change::RemoveBoot => {}
            Change::AddChain(name, hook) => {
                let chain = Chain {
                    hook: *hook,
                    rules: Vec::new(),
                };
                assert!(table.chains.insert(name.clone(), chain.into()).is_none());
            }
            Change::AddSet(name, kind) => {
                assert!(
                    table
                        .sets
                        .insert(name.clone(), Set::of(*kind, []))
                        .is_none()
                );
            }
            Change::FlushChain(name) => chain_mut(table, name).rules.clear(),
            Change::AddRule(name, rule) => {
                if let Action::Verdict(verdict) = &rule.action {
                    Self::known(table, verdict);
                }
                for set in rule.matches.iter().filter_map(set_of) {
                    assert!(table.sets.contains_key(set), "{set} is not there yet");
                }
                chain_mut(table, name).rules.push(rule.clone());
            }
            Change::AddElements(name, kind, elements) => {
                for (_, value) in elements {
                    if let Some(Value::Verdict(verdict)) = value {
                        Self::known(table, verdict);
                    }
                }
                let set = set_mut(table, name);
                assert_eq!(set.kind, *kind);
                for (key, verdict) in elements {
                    assert!(set.elements.insert(key.clone(), verdict.clone()).is_none());
                }
            }
            Change::DeleteElements(name, _, keys) => {
                let set = set_mut(table, name);
                for key in keys {
                    assert!(set.elements.remove(key).is_some());
                }
            }
            Change::DeleteChain(name) => {
                let chain = table.chains.remove(name).unwrap();
                assert!(chain.rules.is_empty(), "{name} still has rules");
                assert!(!Self::named(table, name), "{name} is still jumped to");
            }
            Change::DeleteSet(name) => {
                table.sets.remove(name).unwrap();
                let rules = table.chains.values().flat_map(|chain| &chain.rules);
                let mut asked = rules.flat_map(|rule| rule.matches.iter().filter_map(set_of));
                assert!(!asked.any(|set| set == name), "{name} is still asked");
            }
        }
    }

    fn known(table: &Ruleset, verdict: &Verdict) {
        if let Verdict::Jump(name) | Verdict::Goto(name) = verdict {
            assert!(table.chains.contains_key(name), "{name} is not there yet");
        }
    }

    fn named(table: &Ruleset, name: &str) -> bool {
        let to = |verdict: &Verdict| matches!(verdict, Verdict::Jump(to) | Verdict::Goto(to) if to == name);
        let rules = table.chains.values().flat_map(|chain| &chain.rules);
        rules
            .clone()
            .any(|rule| matches!(&rule.action, Action::Verdict(verdict) if to(verdict)))
            || table
                .sets
                .values()
                .flat_map(|set| set.elements.values())
                .flatten()
                .any(|value| matches!(value, Value::Verdict(verdict) if to(verdict)))
    }
}

fn chain_mut<'t>(table: &'t mut Ruleset, name: &str) -> &'t mut Chain {
    Arc::make_mut(table.chains.get_mut(name).unwrap())
}

fn set_mut<'t>(table: &'t mut Ruleset, name: &str) -> &'t mut Set {
    table.sets.get_mut(name).unwrap()
}

prop_compose! {
    fn any_endpoint()(
        addresses in prop::collection::btree_set(0_u8..6, 0..3),
        from in any::<bool>(),
        to in any::<bool>(),
        ipv6 in any::<bool>(),
    ) -> EndpointRules {
        let text = |n: u8| if ipv6 { format!("fd65::{n}") } else { format!("10.65.0.{n}") };
        let addresses: Vec<String> = addresses.into_iter().map(text).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        endpoint(&addresses, from, to)
    }
}

prop_compose! {
    fn any_control()(
        ports in prop::collection::btree_set((any::<bool>(), 178_u16..183), 0..6),
        node_ports in prop::collection::btree_set(2379_u16..2382, 0..3),
        host_is_closed in any::<bool>(),
        nodes in prop::collection::btree_set(0_u8..4, 0..4),
        services in prop::collection::btree_set((0_u8..3, 1_u16..3), 0..4),
        exceptions in prop::collection::vec((0_u8..4, 30_u8..=32), 0..3),
    ) -> Control {
        let address = |n: u8| match n % 2 {
            0 => std::net::IpAddr::from([10, 0, 0, n]),
            _ => std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()).into(),
        };
        Control {
            ports: ports
                .into_iter()
                .map(|(is_tcp, port)| (if is_tcp { TCP } else { UDP }, port))
                .collect(),
            node_ports,
            host_is_closed,
            nodes: nodes.into_iter().map(address).collect(),
            services: services.into_iter().map(|(n, port)| (address(n), port)).collect(),
            tunnel_sources: exceptions
                .iter()
                .map(|(n, length)| IpNet::new(address(n / 2), *length).unwrap())
                .collect(),
            exceptions: exceptions
                .into_iter()
                .map(|(n, length)| IpNet::new(address(n), length).unwrap())
                .collect(),
        }
    }
}

prop_compose! {
    fn any_inputs()(
        prefixes in prop::sample::subsequence(vec!["cali", "tap", "veth"], 0..=3),
        action in 0_u32..3,
        endpoints in prop::collection::btree_map("cali[0-4]", any_endpoint(), 0..5),
        pools in prop::collection::vec((0_u8..3, 15_u8..19, any::<bool>()), 0..4),
        control in any_control(),
        ports in prop::option::of(Just((4000, 4099))),
        has_hosts in any::<bool>(),
    ) -> RuleInputs {
        let range = |n: u8, length| IpNet::new([10, 65, n << 6, 0].into(), length).unwrap();
        let hidden = pools.iter().filter(|(.., hidden)| *hidden);
        let pools = Pools {
            all: pools.iter().map(|(n, length, _)| range(*n, *length)).collect(),
            nat_outgoing: hidden.map(|(n, length, _)| range(*n, *length)).collect(),
        };
        let mut inputs = RuleInputs {
            frame: Frame {
                interface_prefixes: prefixes.into_iter().map(str::to_owned).collect(),
                to_host: match action {
                    0 => ToHostAction::Drop,
                    1 => ToHostAction::Accept,
                    _ => ToHostAction::Return,
                },
                police_host: action == 1,
                metadata: None,
                outgoing: Outgoing {
                    ports,
                    ..Outgoing::default()
                },
                encapsulation: Encapsulation {
                    vxlan_port: 4788 + u16::from(action > 0),
                    ipip: action < 2,
                    vxlan: action > 1,
                    allows_vxlan: action == 1,
                    allows_ipip: action == 0,
                },
                budgets: Budgets {
                    connections: action,
                    next_hops_per_minute: 2 - action,
                    ..Budgets::default()
                },
                service_loops: match action {
                    0 => LoopPrevention::Drop,
                    1 => LoopPrevention::Reject,
                    _ => LoopPrevention::Disabled,
                },
                cut_mark: (action == 2).then_some(1 << 30),
                records_per_second: action * 5,
            },
            endpoints,
            pools,
            control,
            ..RuleInputs::default()
        };
        if has_hosts {
            inputs.parts.push(hosts(&inputs.frame));
        }
        inputs
    }
}

proptest! {
    #[test]
    fn steps_lead_from_any_ruleset_to_any_other(all in prop::collection::vec(any_inputs(), 1..5)) {
        let mut kernel = Kernel::default();
        let mut held: Option<Ruleset> = None;
        for inputs in &all {
            let wanted = render(inputs);
            let steps = match &held {
                Some(held) => between(held, &wanted),
                None => creation(&wanted),
            };
            if let Some(held) = &held {
                // Sets of which any element may differ.
                let mut touched = Touched::between(held, &wanted);
                touched.created = touched.sets.keys().cloned().collect();
                prop_assert_eq!(&changes(held, &wanted, &touched), &steps);
            }
            steps.iter().for_each(|step| kernel.take(step));
            prop_assert_eq!(kernel.0.as_ref(), Some(&wanted));
            held = Some(wanted);
        }
        // Written as a whole over the present table, the result is the same.
        let wanted = render(&all[0]);
        creation(&wanted).iter().for_each(|step| kernel.take(step));
        prop_assert_eq!(kernel.0, Some(wanted));
    }
}
