//! The packet filter in a real kernel. Needs root and `CAMBRIC_LAB=1`; `nft` is only the oracle.

use std::sync::Arc;

use crate::world::{lab, run};
use calico_model::ServiceName;
use cambric_felix::agent::Checked;
use cambric_felix::apply::Rules;
use cambric_felix::render::{
    Allowance, Context, Control, Denial, Direction, Encapsulation, EndpointRules, Failsafe,
    FailsafePort, Family, Frame, HostInterface, HostRules, Key, Limits, LogSettings, Outgoing,
    Owner, PacketLog, Passage, Period, Pools, Qos, Rate, RuleInputs, Ruleset, Selected, Set,
    SetKind, TCP, Through, Touched, UDP, changes, compile, creation, host_part, render, table_text,
    tier_chain, tier_name,
};

const FLOWS: Option<PacketLog> = Some(PacketLog {
    group: 80,
    records_per_second: 10,
});

mod large;

fn passage(allowed: bool) -> Passage {
    Passage {
        through: Vec::new(),
        allowed,
        reason: "profile p".into(),
    }
}

fn ruleset(endpoints: &[(&str, &[&str], bool, bool)]) -> Ruleset {
    let endpoints = endpoints.iter().map(|(name, addresses, from, to)| {
        let rules = EndpointRules {
            addresses: addresses
                .iter()
                .map(|a| a.parse().expect("address"))
                .collect(),
            from: passage(*from),
            to: passage(*to),
            qos: Qos::default(),
            takes_invalid: false,
            denial: Denial::Drop,
            flows: None,
            encapsulation: Vec::new(),
            openstack: false,
            spoofed: Vec::new(),
            floating: Vec::new(),
        };
        ((*name).to_owned(), rules)
    });
    render(&RuleInputs {
        frame: Frame {
            interface_prefixes: vec!["cali".into(), "tap".into()],
            ..Frame::default()
        },
        endpoints: endpoints.collect(),
        control: control(),
        ..RuleInputs::default()
    })
}

/// Returns a value with an element in every set of the guard.
fn control() -> Control {
    let address = |text: &str| text.parse().unwrap();
    Control {
        ports: [(TCP, 179), (TCP, 1790), (TCP, 1791), (UDP, 3784)].into(),
        node_ports: [2379].into(),
        host_is_closed: true,
        nodes: ["10.0.0.11", "fd00::11"].map(address).into(),
        services: ["10.0.0.254", "fd00::1"]
            .map(|at| (address(at), 2379))
            .into(),
        exceptions: ["10.65.0.0/28", "fd65::7/128"]
            .map(|net| net.parse().unwrap())
            .into(),
        tunnel_sources: ["192.0.2.0/24", "2001:db8::/32"]
            .map(|net| net.parse().unwrap())
            .into(),
    }
}

fn two() -> Ruleset {
    ruleset(&[
        ("cali1", &["10.65.0.1", "fd65::1"], true, true),
        ("cali2", &["10.65.0.2", "fd65::2"], true, false),
    ])
}

const PROTOCOL_NAMES: [(&str, u8); 7] = [
    ("ipencap", 4),
    ("ipip", 4),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("l2tp", 115),
];

/// Returns a table's text without insignificant differences: counters' values, order of elements,
/// blanks, empty lines.
fn normal(text: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    // nft takes the names of protocols from the system's files.
    let mut text = text.replace(",\n", ", ");
    for (name, number) in PROTOCOL_NAMES {
        text = text.replace(&format!("l4proto {name} "), &format!("l4proto {number} "));
    }
    for line in text.lines() {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        while let Some(at) = words
            .windows(2)
            .position(|two| two == ["counter", "packets"])
        {
            words.drain(at + 1..at + 5);
        }
        let mut line = words.join(" ");
        if let Some(elements) = line.strip_prefix("elements = { ") {
            let mut elements: Vec<&str> = elements.trim_end_matches(" }").split(", ").collect();
            elements.sort_unstable();
            line = format!("elements {}", elements.join(", "));
        }
        let begins = ["table ", "set ", "map ", "chain "];
        if begins.iter().any(|word| line.starts_with(word)) {
            blocks.push(line);
        } else if let (Some(block), false) = (blocks.last_mut(), line.is_empty() || line == "}") {
            block.push('\n');
            block.push_str(&line);
        }
    }
    blocks.sort_unstable();
    blocks
}

/// The table in the kernel, written and restored as the agent does it.
struct Keeper {
    rules: Rules,
    held: Option<Ruleset>,
    foreign_edits: u64,
}

impl Keeper {
    fn open() -> Self {
        Self {
            rules: Rules::open().unwrap(),
            held: None,
            foreign_edits: 0,
        }
    }

    /// Lists and records the table as the daemon does.
    fn record(&mut self) {
        self.rules.list().unwrap();
        self.rules.record().unwrap();
        assert!(!self.rules.is_unrecorded());
    }

    fn check(&mut self) -> Checked {
        let found = self.rules.check().unwrap();
        if let (Some(held), Checked::Changed | Checked::Doubtful) = (&self.held, found) {
            self.rules.write(&creation(held)).unwrap();
            self.foreign_edits += u64::from(found == Checked::Changed);
        }
        found
    }
}

fn apply(keeper: &mut Keeper, wanted: &Ruleset) {
    let changed = keeper.held.replace(wanted.clone()).is_some_and(|held| {
        let steps = changes(&held, wanted, &Touched::between(&held, wanted));
        let done = steps.is_empty() || keeper.rules.write(&steps).is_ok();
        keeper.foreign_edits += u64::from(!done);
        done
    });
    if !changed {
        keeper.rules.write(&creation(wanted)).unwrap();
    }
}

fn assert_listed(wanted: &Ruleset) {
    let listed =
        ["inet", "arp"].map(|family| run(&format!("nft list table {family} cambric-felix")));
    let listed = listed.concat();
    assert_eq!(normal(&listed), normal(&table_text(wanted)), "{listed}");
}

#[test]
fn written_rules_are_listed_by_nft() {
    lab("written_rules_are_listed_by_nft", || {
        let mut rules = Keeper::open();
        assert!(!rules.rules.present().unwrap());
        for wanted in [
            ruleset(&[]),
            two(),
            ruleset(&[
                ("cali2", &["10.65.0.9"], false, false),
                ("tap3", &[], true, true),
            ]),
            ruleset(&[]),
        ] {
            apply(&mut rules, &wanted);
            assert_listed(&wanted);
        }
        assert!(rules.rules.present().unwrap());
        assert_eq!(rules.foreign_edits, 0);
    });
}

/// Returns two workloads, and host endpoints that allow everything.
fn with_hosts() -> Ruleset {
    let frame = Frame {
        interface_prefixes: vec!["cali".into()],
        encapsulation: Encapsulation {
            ipip: true,
            vxlan: true,
            ..Encapsulation::default()
        },
        ..Frame::default()
    };
    let through = || Passage {
        through: vec!["pi-gnp/p".into()],
        ..passage(true)
    };
    let rules = HostRules {
        to_host: through(),
        from_host: passage(false),
        forward_in: through(),
        forward_out: passage(true),
        untranslated: through(),
        untracked: [through(), passage(true)],
        takes_invalid: false,
        denial: Denial::Drop,
        flows: None,
    };
    let port = |protocol, port, net: &str| FailsafePort {
        protocol,
        port,
        net: Some(net.parse().unwrap()),
    };
    let failsafe = Failsafe {
        inbound: vec![port(TCP, 22, "10.0.0.0/8"), port(17, 68, "::/0")],
        outbound: vec![port(132, 7, "fd00::1/128")],
    };
    let endpoints = ["eth0", "eth1"].map(|name| HostInterface::Named(name.into()));
    let endpoints = endpoints.into_iter().chain([HostInterface::All]);
    let endpoints = endpoints
        .map(|interface| (interface, rules.clone()))
        .collect();
    let excluded = ["kube-ipvs0".to_owned()].into();
    let mut part = host_part(&frame, &failsafe, &endpoints, &excluded);
    let rules = serde_json::json!([{"action": "Allow", "protocol": "TCP"}]);
    let rules: Vec<calico_model::Rule> = serde_json::from_value(rules).unwrap();
    for (id, allowance) in [
        ("gnp/p", Allowance::Accept),
        ("gnp/marked", Allowance::Mark),
        ("gnp/untracked", Allowance::Untrack),
    ] {
        let owner = Owner {
            id: id.into(),
            allowance,
            ..Owner::default()
        };
        let chain = compile(Direction::Ingress, &owner, &rules, &Context::default());
        part.chains.insert(chain.name, chain.chain);
    }
    render(&RuleInputs {
        frame,
        parts: vec![part],
        ..RuleInputs::default()
    })
}

#[test]
fn rules_of_host_endpoints_are_listed_by_nft() {
    lab("rules_of_host_endpoints_are_listed_by_nft", || {
        let mut rules = Keeper::open();
        for wanted in [two(), with_hosts(), two(), with_hosts()] {
            apply(&mut rules, &wanted);
            assert_listed(&wanted);
        }
        assert_eq!(rules.foreign_edits, 0);
    });
}

#[test]
fn our_own_text_is_taken_by_nft() {
    lab("our_own_text_is_taken_by_nft", || {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), table_text(&two())).unwrap();
        run(&format!("nft -f {}", file.path().display()));
        assert_listed(&two());
    });
}

fn rate(packets: u32, burst: u32) -> Rate {
    Rate {
        packets,
        per: Period::Second,
        burst,
    }
}

fn service(namespace: &str, name: &str) -> ServiceName {
    ServiceName {
        namespace: namespace.into(),
        name: name.into(),
    }
}

/// Returns chains with every kind of condition of policies, used by an endpoint.
fn with_policies() -> Ruleset {
    let rules = serde_json::json!([
        {"action": "Allow", "ipVersion": 4, "protocol": "tcp", "source": {"selector": "has(web)"},
         "destination": {"ports": [80]}},
        {"action": "Deny", "protocol": 17, "source": {"notSelector": "has(web)"},
         "destination": {"ports": [53, "8000:8010", 65535], "notPorts": ["8003:8004"]}},
        {"action": "Log", "protocol": "SCTP", "source": {"ports": [7]}, "destination": {"notPorts": [9]}},
        {"action": "Allow", "ipVersion": 6},
        {"action": "Deny", "notProtocol": "TCP", "source": {"nets": ["10.0.0.0/8"],
         "notNets": ["10.1.0.0/16", "10.3.0.0/16"]}, "destination": {"notNets": ["10.65.0.9/32"]}},
        {"action": "Allow", "source": {"nets": ["192.0.2.0/25", "198.51.100.7/32", "fd65::/16",
         "255.255.255.255/32", "2001:db8::/32"]}, "destination": {"nets": ["0.0.0.0/0", "::/0"]}},
        {"action": "Allow", "protocol": "ICMP", "icmp": {"type": 8}, "notICMP": {"type": 8, "code": 3}},
        {"action": "Deny", "protocol": "ICMPv6", "icmp": {"type": 128, "code": 0}},
        {"action": "Allow", "protocol": 50},
        {"action": "Allow", "protocol": "UDP", "destination": {"ports": [53, 4789, 6081, "6000:7000"],
         "selector": "has(web)"}},
        {"action": "Allow", "protocol": "TCP", "source": {"ports": ["http"]},
         "destination": {"ports": [443, "http", "8000:8010"], "selector": "has(web)"}},
        {"action": "Deny", "protocol": "UDP", "destination": {"notPorts": ["dns", 53]}},
        {"action": "Allow", "protocol": "TCP", "source": {"services": {"name": "db"}, "ports": [7]}},
        {"action": "Deny", "destination": {"services": {"name": "web", "namespace": "other"}}},
    ]);
    let rules: Vec<calico_model::Rule> = serde_json::from_value(rules).unwrap();
    let mut inputs = RuleInputs {
        frame: Frame {
            interface_prefixes: vec!["tap".into()],
            metadata: Some(([127, 0, 0, 1].into(), 8775)),
            records_per_second: 10,
            ..Frame::default()
        },
        ..RuleInputs::default()
    };
    let member = |text: &str| Key::Address(text.parse().unwrap());
    let mut encapsulation = Vec::new();
    let owner = Owner {
        id: "np/ns/p".into(),
        kind: "np",
        tier: "default".into(),
        name: "p".into(),
        namespace: Some("ns".into()),
        ..Owner::default()
    };
    let context = Context {
        log: LogSettings {
            prefix: "%k %p".into(),
            rate: Some(Rate {
                packets: 10,
                per: Period::Minute,
                burst: 20,
            }),
        },
        denial: Denial::Reject,
        flows: FLOWS,
        services: Arc::new([service("ns", "db"), service("other", "web")].into()),
    };
    let mut passages = [Direction::Ingress, Direction::Egress].map(|direction| {
        let chain = compile(direction, &owner, &rules, &context);
        assert_eq!(chain.unsupported, []);
        let tier = tier_name(direction, "default", true, &[&chain]);
        let tier_chain = tier_chain("default", true, &[&chain]);
        inputs.chains.insert(tier.clone(), tier_chain.into());
        inputs.chains.insert(chain.name.clone(), chain.chain);
        if let Some((name, rules)) = chain.encapsulation {
            inputs.chains.insert(name.clone(), rules);
            encapsulation.push(name);
        }
        inputs.sets.extend(chain.sets);
        for (id, selected) in &chain.selected {
            for (family, text) in [(Family::V4, "10.65.0.2"), (Family::V6, "fd65::2")] {
                let with_port = |protocol| {
                    let key = Key::EndpointPort(text.parse().unwrap(), protocol, 8080);
                    Set::of(SetKind::EndpointPort(family), [key])
                };
                let set = match &**selected {
                    Selected::Addresses(_) | Selected::Service(_, false) => {
                        Set::of(SetKind::Address(family), [member(text)])
                    }
                    Selected::Ports(_, ports) => with_port(ports.protocol),
                    Selected::Service(_, true) => with_port(TCP),
                };
                inputs.sets.insert(id.set_name(family), set.into());
            }
        }
        Passage {
            through: vec![tier],
            ..passage(false)
        }
    });
    let endpoint = EndpointRules {
        addresses: vec!["10.65.0.1".parse().unwrap(), "fd65::1".parse().unwrap()],
        to: passages[0].clone(),
        from: std::mem::replace(&mut passages[1], passage(false)),
        qos: Qos {
            ingress: Limits {
                packets: Some(rate(10_000, 20)),
                connections: Some(7),
            },
            egress: Limits {
                packets: Some(rate(1, 5)),
                connections: Some(u32::MAX),
            },
            dscp: Some(46),
        },
        takes_invalid: false,
        denial: Denial::Reject,
        flows: FLOWS,
        encapsulation,
        openstack: true,
        spoofed: ["192.0.2.64/27", "fd99::/32"]
            .map(|net| net.parse().unwrap())
            .into(),
        floating: [("192.0.2.1", "10.65.0.1"), ("2001:db8::1", "fd65::1")]
            .map(|(outside, inside)| (outside.parse().unwrap(), inside.parse().unwrap()))
            .into(),
    };
    inputs.endpoints.insert("tap1".into(), endpoint);
    render(&inputs)
}

#[test]
fn policies_in_the_kernel_match_their_text() {
    lab("policies_in_the_kernel_match_their_text", || {
        let wanted = with_policies();
        let mut rules = Keeper::open();
        apply(&mut rules, &wanted);
        let by_us = run("nft list table inet cambric-felix");
        assert_eq!(rules.check(), Checked::Intact);
        run("nft delete table inet cambric-felix");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), table_text(&wanted)).unwrap();
        run(&format!("nft -f {}", file.path().display()));
        let by_nft = run("nft list table inet cambric-felix");
        assert_eq!(normal(&by_us), normal(&by_nft));
        // From there to other rulesets and back, in steps.
        let mut rules = Keeper::open();
        for step in [&wanted, &two(), &wanted, &ruleset(&[])] {
            apply(&mut rules, step);
        }
        assert_eq!(rules.foreign_edits, 0, "no step was refused");
        assert_listed(&ruleset(&[]));
    });
}

/// Returns a host with pools, each with its `natOutgoing`.
fn with_pools(pools: &[(&str, bool)], outgoing: Outgoing) -> Ruleset {
    let ranges = |wanted: fn(bool) -> bool| {
        let own = pools.iter().filter(|(_, hidden)| wanted(*hidden));
        own.map(|(range, _)| range.parse().unwrap()).collect()
    };
    let frame = Frame {
        interface_prefixes: vec!["cali".into()],
        outgoing,
        ..Frame::default()
    };
    render(&RuleInputs {
        frame,
        pools: Pools {
            all: ranges(|_| true),
            nat_outgoing: ranges(|hidden| hidden),
        },
        ..RuleInputs::default()
    })
}

#[test]
fn pools_come_go_and_change_in_place() {
    lab("pools_come_go_and_change_in_place", || {
        let mut rules = Keeper::open();
        let plain = Outgoing::default;
        let address = Some([192, 0, 2, 7].into());
        let of = |address, ports| Outgoing {
            address,
            ports,
            spares_nodes: ports.is_some(),
            through: ports.map(|(first, last)| match first == last {
                true => Through::Named("eth0".into()),
                false => Through::Prefix("eth".into()),
            }),
        };
        let hidden: &[(&str, bool)] = &[("10.65.0.0/16", true), ("fd65::/48", true)];
        for (pools, outgoing) in [
            (hidden, plain()),
            (hidden, of(address, None)),
            (hidden, of(address, Some((4000, 4099)))),
            (hidden, of(None, Some((4000, 65535)))),
            (hidden, of(None, Some((4000, 4000)))),
            // Adjacent ranges, nested ranges, from the first possible address to the last.
            (&[("10.0.1.0/24", true), ("10.0.2.0/23", false)], plain()),
            (
                &[
                    ("10.0.1.0/24", true),
                    ("10.0.2.0/23", true),
                    ("10.0.4.0/24", false),
                ],
                plain(),
            ),
            (
                &[
                    ("10.0.0.0/22", true),
                    ("10.0.4.7/32", true),
                    ("10.0.4.8/32", false),
                ],
                plain(),
            ),
            (&[("10.0.0.0/8", false), ("10.0.4.0/24", true)], plain()),
            (
                &[
                    ("0.0.0.0/1", true),
                    ("255.255.255.255/32", true),
                    ("::/0", true),
                ],
                plain(),
            ),
            (&[("0.0.0.0/0", true), ("ff00::/8", true)], plain()),
            (&[("10.65.0.0/17", true)], plain()),
            (&[("10.65.0.0/17", true), ("10.65.128.0/17", true)], plain()),
            (&[("10.65.128.0/17", true)], plain()),
            (&[("10.65.128.0/17", false)], plain()),
            (hidden, plain()),
        ] {
            let wanted = with_pools(pools, outgoing);
            apply(&mut rules, &wanted);
            assert_listed(&wanted);
            assert_eq!(rules.check(), Checked::Intact);
            assert_eq!(rules.foreign_edits, 0, "refused: {pools:?}");
        }
    });
}

#[test]
fn a_change_leaves_the_other_endpoints_counters_alone() {
    lab("a_change_leaves_the_other_endpoints_counters_alone", || {
        let mut rules = Keeper::open();
        apply(&mut rules, &two());
        let handles = || {
            let listed = run("nft -a list chain inet cambric-felix from-cali1");
            listed
                .lines()
                .filter(|line| line.contains("handle"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let before = handles();
        let one: (&str, &[&str], bool, bool) = ("cali1", &["10.65.0.1", "fd65::1"], true, true);
        apply(&mut rules, &ruleset(&[one]));
        assert_eq!(handles(), before);
        assert_eq!(rules.rules.packets().unwrap()["from-cali1"], [Some(0); 2]);
    });
}

#[test]
fn a_foreign_edit_is_healed() {
    lab("a_foreign_edit_is_healed", || {
        let mut rules = Keeper::open();
        assert_eq!(rules.check(), Checked::Nothing);
        apply(&mut rules, &two());
        assert_eq!(rules.check(), Checked::Intact);
        // Other tables are ignored.
        run("nft add table ip elsewhere");
        assert_eq!(rules.check(), Checked::Intact);
        let edits = [
            "nft flush chain inet cambric-felix dispatch-from",
            "nft delete element inet cambric-felix dispatch-from { \"cali1\" }",
            "nft add element inet cambric-felix sources-ipv4 { \"cali2\" . 10.65.0.1 }",
            "nft insert rule inet cambric-felix forward accept",
            "nft add chain inet cambric-felix more",
            "nft add table inet cambric-felix { flags dormant; }",
            "nft delete table inet cambric-felix",
            "nft flush chain arp cambric-felix workload",
            "nft add element arp cambric-felix sources { \"cali2\" . 10.65.0.1 }",
            "nft delete table arp cambric-felix",
            "nft flush ruleset",
        ];
        for (count, edit) in edits.iter().enumerate() {
            run(edit);
            assert_eq!(rules.check(), Checked::Changed, "{edit}");
            assert_eq!(rules.foreign_edits, count as u64 + 1);
            assert_listed(&two());
            assert_eq!(rules.check(), Checked::Intact, "{edit}");
        }
        // A change right after an own transaction is detected, too.
        apply(&mut rules, &ruleset(&[]));
        apply(&mut rules, &two());
        assert!(rules.rules.is_unlisted());
        run(edits[2]);
        assert_eq!(rules.check(), Checked::Changed);
        assert_listed(&two());
        run("nft delete table inet cambric-felix");
        let other = ruleset(&[("cali1", &["10.65.0.1"], true, true)]);
        apply(&mut rules, &other);
        assert_listed(&other);
    });
}

/// A foreign change before an own transaction is not mistaken for an own one.
#[test]
fn a_foreign_edit_does_not_hide_behind_a_change() {
    lab("a_foreign_edit_does_not_hide_behind_a_change", || {
        let mut rules = Keeper::open();
        let one = || ruleset(&[("cali1", &["10.65.0.1"], true, true)]);
        let edit = "nft flush chain inet cambric-felix dispatch-from";
        apply(&mut rules, &two());
        assert_eq!(rules.check(), Checked::Intact);
        run(edit);
        apply(&mut rules, &one());
        assert_listed(&one());
        assert_eq!(rules.foreign_edits, 1);
        assert_eq!(rules.check(), Checked::Intact);
        // Neither if the own table was not listed yet.
        apply(&mut rules, &two());
        assert!(rules.rules.is_unlisted());
        run(edit);
        apply(&mut rules, &one());
        assert_listed(&one());
        assert_eq!(rules.check(), Checked::Intact);
        assert_eq!(rules.foreign_edits, 2);
        // Other tables are ignored, whatever own changes are made in between.
        run("nft add table ip elsewhere");
        apply(&mut rules, &two());
        rules.rules.list().unwrap();
        run("nft delete table ip elsewhere");
        apply(&mut rules, &one());
        assert_eq!(rules.check(), Checked::Intact);
        assert_eq!(rules.foreign_edits, 2);
    });
}

/// Returns endpoints with an address each.
fn endpoints(count: u32) -> Ruleset {
    let name = |number| format!("cali{number}");
    let address = |number: u32| format!("10.65.{}.{}", number / 250, number % 250);
    let names: Vec<_> = (0..count).map(|at| (name(at), address(at))).collect();
    let addresses: Vec<[&str; 1]> = names.iter().map(|(_, at)| [at.as_str()]).collect();
    let all = names.iter().zip(&addresses);
    let all: Vec<_> = all
        .map(|((name, _), addresses)| (name.as_str(), addresses.as_slice(), true, true))
        .collect();
    ruleset(&all)
}

#[test]
fn foreign_edit_within_own_burst_is_healed() {
    lab("foreign_edit_within_own_burst_is_healed", || {
        let mut rules = Keeper::open();
        apply(&mut rules, &endpoints(20));
        for count in 0..20 {
            apply(&mut rules, &endpoints(count));
            if count == 10 {
                run("nft insert rule inet cambric-felix forward accept");
            }
        }
        assert_eq!(rules.foreign_edits, 1);
        assert_eq!(rules.check(), Checked::Intact);
        assert_listed(&endpoints(19));
    });
}

#[test]
fn gap_of_notifications_is_resolved_by_a_listing() {
    lab("gap_of_notifications_is_resolved_by_a_listing", || {
        let mut rules = Keeper::open();
        // The kernel's minimum: a second unread notification does not fit.
        rules.rules = Rules::open_with(1).unwrap();
        // Each one is two notifications at least.
        let others = || {
            for _ in 0..4 {
                run("nft add table ip elsewhere");
                run("nft delete table ip elsewhere");
            }
        };
        // Its notifications fit.
        let edit = "nft flush chain inet cambric-felix control-unknown";
        apply(&mut rules, &two());
        rules.rules.list().unwrap();
        let before = rules.rules.effort();
        others();
        rules.rules.follow();
        assert!(rules.rules.is_in_doubt());
        assert_eq!(rules.check(), Checked::Intact);
        assert!(rules.rules.effort().rows > before.rows);
        assert_eq!(rules.foreign_edits, 0);
        // After it, changes are followed again.
        let before = rules.rules.effort();
        run(edit);
        assert_eq!(rules.check(), Checked::Changed);
        assert_eq!(rules.rules.effort().rows, before.rows);

        // A change within the gap.
        rules.rules.list().unwrap();
        others();
        run(edit);
        assert_eq!(rules.check(), Checked::Changed);
        assert_listed(&two());

        // Without a listing of the last own transaction, the table is written again.
        apply(&mut rules, &ruleset(&[]));
        assert!(rules.rules.is_unlisted());
        others();
        run(edit);
        assert_eq!(rules.check(), Checked::Doubtful);
        assert_listed(&ruleset(&[]));
        assert_eq!(rules.check(), Checked::Intact);

        // A gap before an own transaction.
        others();
        run(edit);
        apply(&mut rules, &two());
        assert_eq!(rules.check(), Checked::Doubtful);
        assert_listed(&two());
    });
}

#[test]
fn effort_of_a_change_is_independent_of_the_table() {
    lab("effort_of_a_change_is_independent_of_the_table", || {
        let [small, large] = [10, 2000].map(|count| {
            let mut rules = Keeper::open();
            apply(&mut rules, &endpoints(count));
            assert_eq!(rules.check(), Checked::Intact);
            let before = rules.rules.effort();
            apply(&mut rules, &endpoints(count - 1));
            assert_eq!(rules.check(), Checked::Intact);
            let after = rules.rules.effort();
            assert_eq!(rules.foreign_edits, 0);
            (
                after.notifications - before.notifications,
                after.rows - before.rows,
            )
        });
        assert_eq!(small, large);
        assert_eq!(large, (1, 0), "the end of the transaction, and no listing");
    });
}

#[test]
fn listing_in_steps_equals_one_in_one_step() {
    lab("listing_in_steps_equals_one_in_one_step", || {
        let mut rules = Keeper::open();
        apply(&mut rules, &endpoints(300));
        let mut steps = 0;
        while !rules.rules.list_for(std::time::Duration::ZERO).unwrap() {
            steps += 1;
        }
        assert!(steps > 5, "{steps} steps");
        rules.rules.record().unwrap();
        assert_eq!(first_check(), Checked::Intact);
        // An own transaction ends the listing in progress.
        apply(&mut rules, &endpoints(299));
        assert!(!rules.rules.list_for(std::time::Duration::ZERO).unwrap());
        apply(&mut rules, &endpoints(298));
        assert!(!rules.rules.is_unrecorded());
        rules.record();
        assert_eq!(first_check(), Checked::Intact);
    });
}

#[test]
fn an_earlier_runs_table_is_replaced_as_a_whole() {
    lab("an_earlier_runs_table_is_replaced_as_a_whole", || {
        apply(&mut Keeper::open(), &two());
        run("nft add chain inet cambric-felix stray");
        let mut rules = Keeper::open();
        assert!(rules.rules.present().unwrap());
        apply(&mut rules, &two());
        assert_listed(&two());
    });
}

#[test]
fn change_of_an_earlier_runs_table_is_detected() {
    lab("change_of_an_earlier_runs_table_is_detected", || {
        for edit in [
            "nft flush table inet cambric-felix",
            "nft delete element inet cambric-felix dispatch-from { \"cali1\" }",
            "nft insert rule inet cambric-felix forward accept",
            "nft delete table inet cambric-felix",
        ] {
            apply(&mut Keeper::open(), &two());
            let mut rules = Rules::open().unwrap();
            assert_eq!(rules.check().unwrap(), Checked::Unrecorded);
            run("nft add table ip elsewhere");
            assert_eq!(rules.check().unwrap(), Checked::Intact, "another table");
            run(edit);
            assert_eq!(rules.check().unwrap(), Checked::Changed, "{edit}");
        }
        // Removed before it was listed.
        let mut rules = Rules::open().unwrap();
        assert_eq!(rules.check().unwrap(), Checked::Nothing);
    });
}

/// Returns the result of the first check of another run.
fn first_check() -> Checked {
    Rules::open().unwrap().check().unwrap()
}

#[test]
fn change_between_two_runs_is_detected() {
    lab("change_between_two_runs_is_detected", || {
        let saved = tempfile::NamedTempFile::new().unwrap();
        let load = format!("nft -f {}", saved.path().display());
        for (edits, expected) in [
            (
                &["nft flush table inet cambric-felix"][..],
                Checked::Changed,
            ),
            (
                &["nft delete element inet cambric-felix dispatch-from { \"cali1\" }"],
                Checked::Changed,
            ),
            (
                &["nft add table inet cambric-felix { flags dormant; }"],
                Checked::Changed,
            ),
            // The same rules, also with the same record, are another table.
            (&["nft flush ruleset", &load], Checked::Changed),
            (&["nft flush ruleset"], Checked::Nothing),
        ] {
            let mut earlier = Keeper::open();
            apply(&mut earlier, &two());
            earlier.record();
            assert_eq!(first_check(), Checked::Intact);
            // Other tables are ignored.
            run("nft add table ip elsewhere");
            assert_eq!(first_check(), Checked::Intact);
            std::fs::write(saved.path(), run("nft list ruleset")).unwrap();
            edits.iter().for_each(|edit| drop(run(edit)));
            assert_eq!(first_check(), expected, "{edits:?}");
        }
    });
}

#[test]
fn record_is_removed_with_the_change_of_the_table() {
    lab("record_is_removed_with_the_change_of_the_table", || {
        let mut rules = Keeper::open();
        apply(&mut rules, &two());
        rules.record();
        let transactions = rules.rules.transactions();
        // Changes in place and replacements, after the record was written by this or an earlier run.
        apply(&mut rules, &ruleset(&[]));
        assert_eq!(first_check(), Checked::Unrecorded);
        rules.record();
        assert_eq!(first_check(), Checked::Intact);
        apply(&mut Keeper::open(), &two());
        assert_eq!(first_check(), Checked::Unrecorded);
        assert_eq!(rules.rules.transactions(), transactions + 1, "not counted");

        // A change by another program after the listing is not recorded.
        let mut rules = Keeper::open();
        apply(&mut rules, &two());
        rules.rules.list().unwrap();
        run("nft flush chain inet cambric-felix dispatch-from");
        rules.rules.record().unwrap();
        assert_eq!(first_check(), Checked::Unrecorded);
        assert_eq!(rules.check(), Checked::Changed);

        // Another program deletes the record: the table counts as unchanged, and the next record is
        // written.
        rules.record();
        run("nft delete table inet cambric-felix-record");
        assert_eq!(rules.check(), Checked::Intact);
        apply(&mut rules, &ruleset(&[]));
        rules.record();
        assert_eq!(first_check(), Checked::Intact);
        assert_eq!(rules.foreign_edits, 1);
    });
}

#[test]
fn table_of_an_earlier_run_is_kept_if_it_is_wanted() {
    lab("table_of_an_earlier_run_is_kept_if_it_is_wanted", || {
        let stop = |mut earlier: Keeper| {
            earlier.rules.list().unwrap();
            let held = earlier.held.as_ref().unwrap();
            earlier.rules.record_last(&creation(held)).unwrap();
        };
        let handles = || run("nft -a list table inet cambric-felix");
        let mut earlier = Keeper::open();
        apply(&mut earlier, &with_policies());
        earlier.record();
        // In steps, and after a record that is not the last one.
        apply(&mut earlier, &two());
        stop(earlier);
        let before = handles();
        // Also a run that changes nothing is followed by one that changes nothing.
        for _ in 0..2 {
            let mut rules = Keeper::open();
            apply(&mut rules, &two());
            assert_eq!((rules.rules.transactions(), handles()), (0, before.clone()));
            assert_eq!(rules.check(), Checked::Intact);
            // A lost record is written again.
            run("nft delete table inet cambric-felix-record");
            stop(rules);
        }
        // One that is complete stays.
        let records = || run("nft -a list table inet cambric-felix-record");
        let mut rules = Keeper::open();
        apply(&mut rules, &two());
        let record = records();
        stop(rules);
        assert_eq!(records(), record);
        let mut rules = Keeper::open();
        apply(&mut rules, &two());
        run("nft flush chain inet cambric-felix dispatch-from");
        assert_eq!(rules.check(), Checked::Changed);
        assert_listed(&two());
        stop(rules);

        // Its changes are those of the kept table.
        let mut rules = Keeper::open();
        apply(&mut rules, &two());
        apply(&mut rules, &with_policies());
        assert_eq!((rules.rules.transactions(), rules.foreign_edits), (1, 0));
        assert_eq!(first_check(), Checked::Unrecorded);
        stop(rules);

        // Another wanted filter, a change by another program, or a killed run: it is replaced.
        let mut rules = Keeper::open();
        apply(&mut rules, &two());
        assert_eq!(rules.rules.transactions(), 1);
        stop(rules);
        run("nft flush chain inet cambric-felix dispatch-from");
        let mut rules = Keeper::open();
        apply(&mut rules, &two());
        assert_eq!(rules.rules.transactions(), 1);
        assert_listed(&two());
        rules.record();
        let mut rules = Keeper::open();
        apply(&mut rules, &two());
        assert_eq!(rules.rules.transactions(), 1);
    });
}

#[test]
fn a_thousand_endpoints_fit_one_transaction() {
    lab("a_thousand_endpoints_fit_one_transaction", || {
        let names: Vec<(String, [String; 2])> = (0..1000)
            .map(|n| {
                (
                    format!("cali{n}"),
                    [
                        format!("10.65.{}.{}", n / 250, n % 250),
                        format!("fd65::{n}"),
                    ],
                )
            })
            .collect();
        let addresses: Vec<[&str; 2]> = names
            .iter()
            .map(|(_, [v4, v6])| [v4.as_str(), v6.as_str()])
            .collect();
        let endpoints: Vec<(&str, &[&str], bool, bool)> = names
            .iter()
            .zip(&addresses)
            .map(|((name, _), addresses)| (name.as_str(), addresses.as_slice(), true, true))
            .collect();
        let mut rules = Keeper::open();
        let start = std::time::Instant::now();
        apply(&mut rules, &ruleset(&endpoints));
        let whole = start.elapsed();
        let start = std::time::Instant::now();
        apply(&mut rules, &ruleset(&endpoints[1..]));
        let one = start.elapsed();
        let start = std::time::Instant::now();
        assert_eq!(rules.check(), Checked::Intact);
        println!(
            "1000 endpoints {whole:?}, one fewer {one:?}, check {:?}",
            start.elapsed()
        );
        assert_eq!(rules.rules.packets().unwrap().len(), 40 + 2 * 999);
        assert_listed(&ruleset(&endpoints[1..]));
    });
}
