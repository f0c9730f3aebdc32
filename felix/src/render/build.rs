//! Builds the ruleset.
//!
//! ```text
//! prerouting (raw)  ours in?  → workload-source    source address check, both families
//! forward           ours in?  → dispatch-from      ─ map dispatch-from ─→ from-<interface>
//!                   ours out? → dispatch-to        ─ map dispatch-to   ─→ to-<interface>
//! input             ours in?  → workload-to-host   neighbour discovery, dispatch-from, then the
//!                                                  action for endpoint to host traffic
//! output            ours out? → host-to-workload   neighbour discovery, dispatch-to
//! ```
//!
//! "Ours" is an interface whose name begins with one of the interface prefixes. Every dispatch
//! ends in `drop`, so an interface of ours without an endpoint passes nothing. A chain of an
//! endpoint returns to let a packet go on and drops it otherwise.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::ruleset::{
    Action, Chain, ConnectionStates, Hook, Key, Match, Rule, Ruleset, Set, SetKind, Side, Verdict,
};

/// The name of the table; its family is `inet`.
pub const TABLE: &str = "cambric-felix";

/// ICMPv6 types that a workload and its host exchange to find each other, and by which the
/// workload tells its multicast groups: MLD query, report, done (RFC 2710), router and neighbour
/// solicitation, neighbour advertisement (RFC 4861), MLDv2 report (RFC 3810).
pub const NEIGHBOUR_DISCOVERY: [u8; 7] = [130, 131, 132, 133, 135, 136, 143];

const SOURCE_CHECK: &str = "workload-source";
const TO_HOST: &str = "workload-to-host";
const FROM_HOST: &str = "host-to-workload";
// Chain and map of the same name: their names do not meet. Nor do they meet those of endpoints'
// chains, `from-<interface>` and `to-<interface>`.
const DISPATCH_FROM: &str = "dispatch-from";
const DISPATCH_TO: &str = "dispatch-to";
const SOURCES_IPV4: &str = "sources-ipv4";
const SOURCES_IPV6: &str = "sources-ipv6";
const WORKLOADS: &str = "workloads";
const DISCOVERY: &str = "neighbour-discovery";

/// What the ruleset is made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleInputs {
    /// Beginnings of interface names that are ours, each 1 to 15 octets.
    pub interface_prefixes: Vec<String>,
    /// What becomes of workload traffic to the host itself that its endpoint may send.
    pub to_host: ToHostAction,
    /// Endpoints by interface name.
    pub endpoints: BTreeMap<String, EndpointRules>,
}

/// The part of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointRules {
    /// The source addresses it may use.
    pub addresses: Vec<IpAddr>,
    /// Traffic that it sends (egress in policy).
    pub from: Passage,
    /// Traffic that it is sent (ingress in policy).
    pub to: Passage,
}

/// Whether traffic of one direction passes, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// It passes.
    pub allowed: bool,
    /// Named in the rule's comment: the profile that decided, or the want of one.
    pub reason: String,
}

/// What becomes of traffic from a workload to its host (`DefaultEndpointToHostAction`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ToHostAction {
    /// Dropped, except answers to what the host began.
    #[default]
    Drop,
    /// Accepted by this table.
    Accept,
    /// Left to the other tables of the host.
    Return,
}

/// Builds the whole ruleset.
pub fn render(inputs: &RuleInputs) -> Ruleset {
    let mut ruleset = Ruleset {
        chains: shared_chains(inputs),
        sets: sets(inputs),
    };
    for (interface, endpoint) in &inputs.endpoints {
        let (from, to) = (&endpoint.from, &endpoint.to);
        ruleset
            .chains
            .insert(from_chain(interface), endpoint_chain(from, to));
        ruleset
            .chains
            .insert(to_chain(interface), endpoint_chain(to, from));
    }
    ruleset
}

fn shared_chains(inputs: &RuleInputs) -> BTreeMap<String, Chain> {
    let jump = |side, chain: &str| dispatch_prefixes(inputs, side, &Verdict::Jump(chain.into()));
    let goto = |side, chain: &str| dispatch_prefixes(inputs, side, &Verdict::Goto(chain.into()));
    let mut forward = jump(Side::Input, DISPATCH_FROM);
    forward.extend(jump(Side::Output, DISPATCH_TO));
    [
        base(
            "prerouting",
            Hook::Prerouting,
            goto(Side::Input, SOURCE_CHECK),
        ),
        base("forward", Hook::Forward, forward),
        base("input", Hook::Input, goto(Side::Input, TO_HOST)),
        base("output", Hook::Output, goto(Side::Output, FROM_HOST)),
        chain(SOURCE_CHECK, source_check()),
        chain(DISPATCH_FROM, dispatch(Side::Input, DISPATCH_FROM)),
        chain(DISPATCH_TO, dispatch(Side::Output, DISPATCH_TO)),
        chain(TO_HOST, to_host(inputs.to_host)),
        chain(FROM_HOST, from_host()),
    ]
    .into()
}

fn base(name: &str, hook: Hook, rules: Vec<Rule>) -> (String, Chain) {
    let hook = Some(hook);
    (name.into(), Chain { hook, rules })
}

fn chain(name: &str, rules: Vec<Rule>) -> (String, Chain) {
    (name.into(), Chain { hook: None, rules })
}

fn rule(matches: Vec<Match>, verdict: Verdict) -> Rule {
    Rule {
        matches,
        counter: false,
        action: Action::Verdict(verdict),
        comment: None,
    }
}

fn counted(matches: Vec<Match>, verdict: Verdict, comment: impl Into<String>) -> Rule {
    Rule {
        counter: true,
        comment: Some(comment.into()),
        ..rule(matches, verdict)
    }
}

fn dispatch_prefixes(inputs: &RuleInputs, side: Side, verdict: &Verdict) -> Vec<Rule> {
    inputs
        .interface_prefixes
        .iter()
        .map(|prefix| {
            rule(
                vec![Match::InterfacePrefix(side, prefix.clone())],
                verdict.clone(),
            )
        })
        .collect()
}

fn dispatch(side: Side, map: &str) -> Vec<Rule> {
    let lookup = Rule {
        action: Action::Lookup(side, map.into()),
        ..rule(Vec::new(), Verdict::Drop)
    };
    vec![
        lookup,
        counted(Vec::new(), Verdict::Drop, "interface without endpoint"),
    ]
}

fn source_check() -> Vec<Rule> {
    let discovery = || {
        [
            Match::Icmpv6TypeIn(DISCOVERY.into()),
            Match::InterfaceIn(Side::Input, WORKLOADS.into()),
        ]
    };
    let mut link_local = vec![Match::SourceLinkLocal];
    link_local.extend(discovery());
    // Duplicate address detection and MLD reports before it: RFC 4862 §5.4.2, RFC 3590.
    let mut unspecified = vec![
        Match::SourceUnspecified,
        Match::DestinationLinkLocalMulticast,
    ];
    unspecified.extend(discovery());
    vec![
        rule(
            vec![Match::SourceIpv4In(SOURCES_IPV4.into())],
            Verdict::Accept,
        ),
        rule(
            vec![Match::SourceIpv6In(SOURCES_IPV6.into())],
            Verdict::Accept,
        ),
        rule(link_local, Verdict::Accept),
        rule(unspecified, Verdict::Accept),
        counted(Vec::new(), Verdict::Drop, "source is not the endpoint's"),
    ]
}

fn discovery(side: Side) -> Rule {
    let matches = vec![
        Match::InterfaceIn(side, WORKLOADS.into()),
        Match::Icmpv6TypeIn(DISCOVERY.into()),
    ];
    rule(matches, Verdict::Accept)
}

fn to_host(action: ToHostAction) -> Vec<Rule> {
    let (verdict, words) = match action {
        ToHostAction::Drop => (Verdict::Drop, "endpoint to host: drop"),
        ToHostAction::Accept => (Verdict::Accept, "endpoint to host: accept"),
        ToHostAction::Return => (Verdict::Return, "endpoint to host: return"),
    };
    vec![
        discovery(Side::Input),
        rule(Vec::new(), Verdict::Jump(DISPATCH_FROM.into())),
        rule(vec![answers()], Verdict::Accept),
        counted(Vec::new(), verdict, words),
    ]
}

fn from_host() -> Vec<Rule> {
    vec![
        discovery(Side::Output),
        rule(Vec::new(), Verdict::Goto(DISPATCH_TO.into())),
    ]
}

const fn answers() -> Match {
    Match::Connection(ConnectionStates::EstablishedOrRelated)
}

/// The chain of one direction. Answers pass a closed direction only if the other one is open:
/// otherwise nothing passes at all, not even connections from before.
fn endpoint_chain(own: &Passage, other: &Passage) -> Chain {
    let mut rules = Vec::new();
    if !own.allowed && other.allowed {
        rules.push(counted(vec![answers()], Verdict::Return, "answers"));
    }
    let verdict = match own.allowed {
        true => Verdict::Return,
        false => Verdict::Drop,
    };
    rules.push(counted(Vec::new(), verdict, own.reason.clone()));
    Chain { hook: None, rules }
}

fn from_chain(interface: &str) -> String {
    format!("from-{interface}")
}

fn to_chain(interface: &str) -> String {
    format!("to-{interface}")
}

fn sets(inputs: &RuleInputs) -> BTreeMap<String, Set> {
    let names = || inputs.endpoints.keys().cloned();
    let sources = || {
        inputs.endpoints.iter().flat_map(|(name, endpoint)| {
            endpoint.addresses.iter().map(move |address| match address {
                IpAddr::V4(v4) => Key::InterfaceIpv4(name.clone(), *v4),
                IpAddr::V6(v6) => Key::InterfaceIpv6(name.clone(), *v6),
            })
        })
    };
    let ipv4 = sources().filter(|key| matches!(key, Key::InterfaceIpv4(..)));
    let ipv6 = sources().filter(|key| matches!(key, Key::InterfaceIpv6(..)));
    let discovery = NEIGHBOUR_DISCOVERY.into_iter().map(Key::Icmpv6Type);
    [
        (DISPATCH_FROM.into(), verdicts(inputs, from_chain)),
        (DISPATCH_TO.into(), verdicts(inputs, to_chain)),
        (SOURCES_IPV4.into(), Set::of(SetKind::InterfaceIpv4, ipv4)),
        (SOURCES_IPV6.into(), Set::of(SetKind::InterfaceIpv6, ipv6)),
        (
            WORKLOADS.into(),
            Set::of(SetKind::Interface, names().map(Key::Interface)),
        ),
        (DISCOVERY.into(), Set::of(SetKind::Icmpv6Type, discovery)),
    ]
    .into()
}

fn verdicts(inputs: &RuleInputs, chain: fn(&str) -> String) -> Set {
    let element = |name: &String| {
        (
            Key::Interface(name.clone()),
            Some(Verdict::Goto(chain(name))),
        )
    };
    Set {
        kind: SetKind::InterfaceVerdict,
        elements: inputs.endpoints.keys().map(element).collect(),
    }
}
