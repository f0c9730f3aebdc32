//! Compiles rules of policies and profiles into chains.

use std::collections::BTreeMap;
use std::sync::Arc;

use calico_model::{Action as Decision, Rule as Stored, Selector, ServiceName};

use super::build::{counted, rule};
use super::conditions::alternatives;
use super::decision::{Allowance, Denial, PacketLog};
use super::encapsulation;
use super::flows;
use super::names::{SetId, chain_name, short_hash, token};
use super::owner::{Direction, Owner};
use super::ruleset::{Action, Chain, Is, Match, Rule, Set, Verdict};
use super::selection::{Compiled, Context, NamedPorts, Selected, Template, Unsupported, service};

/// Compiles a chain of rules.
///
/// A rule that is not supported fails closed: one that allows is left out, one that denies or
/// passes drops all traffic that reaches it.
pub fn compile(
    direction: Direction,
    owner: &Owner,
    rules: &[Stored],
    context: &Context,
) -> Compiled {
    let (id, namespace) = (owner.id.as_str(), owner.namespace.as_deref());
    let mut compiled = Compiled::empty(direction, id);
    if rules.iter().any(depends_on_context) {
        compiled.template = Some(Arc::new(Template {
            direction,
            owner: owner.clone(),
            rules: rules.into(),
            services: rules
                .iter()
                .flat_map(|rule| services(rule, owner))
                .collect(),
            closed: None,
        }));
    }
    let mut chain = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let place = format!("{}[{at}]", direction.field());
        let found = alternatives(rule, namespace, context, &mut compiled).map_err(|fault| {
            Unsupported::new(format!("spec.{place}.{}", fault.field), fault.reason)
        });
        let fault = match found {
            Ok(found) => {
                compiled.passes |= rule.action == Decision::Pass && !found.is_empty();
                let rules = found.into_iter().map(|mut matches| {
                    matches.extend(limit(rule.action, context));
                    Rule {
                        matches,
                        counter: true,
                        report: None,
                        action: action(rule.action, owner, context),
                        comment: Some(place.clone()),
                    }
                });
                chain.extend(rules);
                continue;
            }
            Err(fault) => fault,
        };
        let closes = matches!(rule.action, Decision::Deny | Decision::Pass);
        let reason = format!("{}; {}", fault.reason, rule.action.when_unsupported());
        if closes {
            let words = format!("{}: {}", fault.field, fault.reason);
            chain.push(counted(Vec::new(), Verdict::Drop, comment(&words)));
        }
        compiled
            .unsupported
            .push(Unsupported::new(fault.field, reason));
        if closes {
            break;
        }
    }
    compiled.chain = Arc::new(Chain {
        hook: None,
        rules: chain,
    });
    compiled.deny(context.denial);
    compiled.report(context.flows);
    if direction == Direction::Egress {
        name_encapsulation(owner, rules, context, &mut compiled);
    }
    compiled
}

/// Copies the rules that explicitly allow encapsulation into a separate chain.
fn name_encapsulation(owner: &Owner, rules: &[Stored], context: &Context, compiled: &mut Compiled) {
    let (id, namespace) = (owner.id.as_str(), owner.namespace.as_deref());
    let mut chain = Vec::new();
    for (at, stored) in rules.iter().enumerate() {
        let Some(stored) = encapsulation::named(stored) else {
            continue;
        };
        // A problem was already reported for the whole rule.
        let found = alternatives(&stored, namespace, context, compiled).unwrap_or_default();
        let place = format!("{}[{at}]", Direction::Egress.field());
        let rules = found.into_iter();
        chain.extend(rules.map(|matches| counted(matches, Verdict::Accept, place.clone())));
    }
    if !chain.is_empty() {
        let name = chain_name("pe-", id);
        let rules = Chain {
            hook: None,
            rules: chain,
        };
        compiled.encapsulation = Some((name, Arc::new(rules)));
    }
}

impl Compiled {
    fn empty(direction: Direction, id: &str) -> Self {
        Self {
            name: chain_name(direction.letters().0, id),
            chain: Arc::default(),
            passes: false,
            selected: BTreeMap::new(),
            sets: BTreeMap::new(),
            encapsulation: None,
            unsupported: Vec::new(),
            denial: Denial::Drop,
            direction,
            flows: None,
            template: None,
        }
    }

    /// Sets the packet log to which the rules report.
    fn report(&mut self, flows: Option<PacketLog>) {
        if self.flows.is_some() || flows.is_some() {
            let rules = &mut Arc::make_mut(&mut self.chain).rules;
            flows::of_rules(flows, self.direction, &token(&self.name), rules);
            self.flows = flows;
        }
    }

    /// Sets the action of rules that deny.
    fn deny(&mut self, denial: Denial) {
        if self.denial != denial {
            denial.apply(&mut Arc::make_mut(&mut self.chain).rules);
            self.denial = denial;
        }
    }

    /// Returns the services that the rules name.
    pub fn services(&self) -> impl Iterator<Item = &ServiceName> {
        let template = self.template.iter();
        template.flat_map(|template| &template.services)
    }

    /// Returns the same rules in another context; `None` if they are the same there.
    pub fn within(&self, context: &Context) -> Option<Self> {
        let Some(template) = &self.template else {
            let is_same = self.denial == context.denial && self.flows == context.flows;
            return (!is_same).then(|| {
                let mut other = self.clone();
                other.deny(context.denial);
                other.report(context.flows);
                other
            });
        };
        let compiled = compile(
            template.direction,
            &template.owner,
            &template.rules,
            context,
        );
        Some(match &template.closed {
            Some(reason) => compiled.then_closed(reason),
            None => compiled,
        })
    }

    /// Returns the chain of an unparsable policy: all traffic is dropped.
    pub fn closed(direction: Direction, id: &str, reason: &str) -> Self {
        Self::empty(direction, id).then_closed(reason)
    }

    /// Returns the same rules, followed by a drop of all traffic.
    #[must_use]
    pub(crate) fn then_closed(mut self, reason: &str) -> Self {
        let rule = counted(Vec::new(), Verdict::Drop, comment(reason));
        let action = self.denial.action();
        let rules = &mut Arc::make_mut(&mut self.chain).rules;
        rules.push(Rule { action, ..rule });
        self.report(self.flows);
        if let Some(template) = &mut self.template {
            Arc::make_mut(template).closed = Some(reason.to_owned());
        }
        self
    }

    pub(super) fn use_selector(&mut self, selector: Selector) -> SetId {
        let id = SetId::of(&selector);
        let selected = Arc::new(Selected::Addresses(selector));
        self.selected.insert(id.clone(), selected);
        id
    }

    pub(super) fn use_ports(&mut self, selector: Selector, ports: NamedPorts) -> SetId {
        let id = SetId::of_ports(&selector, ports.protocol, &ports.names);
        let selected = Arc::new(Selected::Ports(selector, ports));
        self.selected.insert(id.clone(), selected);
        id
    }

    pub(super) fn use_service(&mut self, service: ServiceName, has_ports: bool) -> SetId {
        let id = SetId::of_service(&service, has_ports);
        let selected = Arc::new(Selected::Service(service, has_ports));
        self.selected.insert(id.clone(), selected);
        id
    }

    pub(super) fn use_set(&mut self, prefix: &str, set: Set) -> String {
        let keys: Vec<String> = set.elements.keys().map(ToString::to_string).collect();
        let name = format!("{prefix}{}", short_hash(&keys.join(" ")));
        self.sets.insert(name.clone(), Arc::new(set));
        name
    }
}

/// Returns the name of [`tier_chain`]. Endpoints with the same policies share it.
pub fn tier_name(direction: Direction, tier: &str, denies: bool, policies: &[&Compiled]) -> String {
    let names: Vec<&str> = policies.iter().map(|policy| &*policy.name).collect();
    let hash = short_hash(&format!("{denies} {}", names.join(" ")));
    chain_name(direction.letters().1, &format!("{tier}-{hash}"))
}

/// Returns the chain of a tier for endpoints with these policies of it. A `Pass` to the next tier
/// is a return from this chain, so the rules of policies with `Pass` are inserted into it.
pub fn tier_chain(tier: &str, denies: bool, policies: &[&Compiled]) -> Chain {
    let mut rules = Vec::new();
    for policy in policies {
        if !policy.passes {
            rules.push(rule(Vec::new(), Verdict::Jump(policy.name.clone())));
            continue;
        }
        rules.extend(policy.chain.rules.iter().cloned().map(|rule| {
            let place = rule.comment.unwrap_or_default();
            Rule {
                comment: Some(comment(&format!("{} {place}", policy.name))),
                ..rule
            }
        }));
    }
    if denies {
        let words = comment(&format!("tier {tier}: no policy decides"));
        let first = policies.first();
        let last = Rule {
            action: first
                .map(|policy| policy.denial)
                .unwrap_or_default()
                .action(),
            ..counted(Vec::new(), Verdict::Drop, words)
        };
        match first {
            Some(first) => {
                let tier = token(tier);
                rules.extend(flows::of_tier(first.flows, first.direction, &tier, last));
            }
            None => rules.push(last),
        }
    }
    Chain { hook: None, rules }
}

/// Returns whether the translation of a rule depends on more than the rule.
fn depends_on_context(rule: &Stored) -> bool {
    let ends = [&rule.source, &rule.destination];
    rule.action == Decision::Log || ends.iter().any(|end| end.services.is_some())
}

/// Returns the services that a rule names.
fn services(rule: &Stored, owner: &Owner) -> impl Iterator<Item = ServiceName> + use<> {
    let namespace = owner.namespace.as_deref();
    let ends = [(&rule.source, false), (&rule.destination, true)];
    // An invalid name was already reported.
    let names = ends.map(|(end, is_destination)| service(end, namespace, is_destination));
    names.into_iter().filter_map(|name| name.ok().flatten())
}

/// Returns the condition on the rate of the packets of an action.
fn limit(decision: Decision, context: &Context) -> Option<Match> {
    let rate = context.log.rate.filter(|_| decision == Decision::Log);
    rate.map(|rate| Match::Rate(rate, Is::Yes))
}

fn action(decision: Decision, owner: &Owner, context: &Context) -> Action {
    match decision {
        Decision::Allow => match owner.allowance {
            Allowance::Accept => Action::Verdict(Verdict::Accept),
            Allowance::Mark => Action::AcceptMarked,
            Allowance::Untrack => Action::AcceptUntracked,
        },
        Decision::Deny => Action::Verdict(Verdict::Drop),
        Decision::Pass => Action::Verdict(Verdict::Return),
        Decision::Log => Action::Log(context.log.prefix_of(owner)),
    }
}

/// Returns the text with only the characters that a quoted comment may contain.
fn comment(words: &str) -> String {
    let fits = |c: &char| c.is_ascii_graphic() || *c == ' ';
    let plain = words.replace(['"', '\\'], "'");
    plain.chars().filter(fits).take(127).collect()
}
