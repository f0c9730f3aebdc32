//! Rules of policies and profiles as chains.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use calico_model::{Action as Decision, EntityRule, Rule as Stored, Selector};

use super::build::{counted, rule};
use super::conditions::alternatives;
use super::encapsulation;
use super::names::{SetId, chain_name, short_hash};
use super::ruleset::{Action, Chain, Rule, Set, Verdict};
use crate::limits::LOG_PREFIX;

const NAMESPACE: &str = "projectcalico.org/namespace";
const SERVICE_ACCOUNT: &str = "projectcalico.org/serviceaccount";
/// What stands before the names of labels that endpoints take on from their namespace and service
/// account.
const OF_NAMESPACE: &str = "pcns.";
const OF_SERVICE_ACCOUNT: &str = "pcsa.";

/// A direction of traffic, as seen from the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// What it is sent.
    Ingress,
    /// What it sends.
    Egress,
}

impl Direction {
    /// The first letters of chains' names.
    const fn letters(self) -> (&'static str, &'static str) {
        match self {
            Self::Ingress => ("pi-", "ti-"),
            Self::Egress => ("po-", "te-"),
        }
    }

    /// The field of a spec that holds its rules.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}

/// A part of a rule that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The field, as a path.
    pub field: String,
    /// Why, and what is done instead.
    pub reason: String,
}

impl Unsupported {
    pub(super) fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

/// The rules of one direction of a policy or profile, as a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// The chain's name.
    pub name: String,
    /// The chain. It accepts, drops, or returns: because no rule matched, or because of a `Pass`.
    pub chain: Arc<Chain>,
    /// Whether some rule says `Pass`.
    pub passes: bool,
    /// The selectors whose endpoints its rules ask for.
    pub selectors: BTreeMap<SetId, Selector>,
    /// The sets of ranges that its rules ask.
    pub sets: BTreeMap<String, Arc<Set>>,
    /// Those of its rules that allow a workload to send encapsulated packets, and name them.
    pub encapsulation: Option<(String, Arc<Chain>)>,
    /// What could not be followed.
    pub unsupported: Vec<Unsupported>,
}

/// Makes a chain of rules. `id` tells whose they are (`np/<namespace>/<name>`), `namespace` which
/// namespace bare selectors are limited to.
///
/// A rule that cannot be followed errs on the closed side: one that allows is left out, one that
/// denies or passes closes all that follows it.
pub fn compile(
    direction: Direction,
    id: &str,
    namespace: Option<&str>,
    rules: &[Stored],
) -> Compiled {
    let mut compiled = Compiled::empty(direction, id);
    let mut chain = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        let place = format!("{}[{at}]", direction.field());
        let found = alternatives(rule, namespace, &mut compiled).map_err(|fault| {
            Unsupported::new(format!("spec.{place}.{}", fault.field), fault.reason)
        });
        let fault = match found {
            Ok(found) => {
                compiled.passes |= rule.action == Decision::Pass && !found.is_empty();
                let rules = found.into_iter().map(|matches| Rule {
                    matches,
                    counter: true,
                    action: action(rule.action),
                    comment: Some(place.clone()),
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
    if direction == Direction::Egress {
        name_encapsulation(id, namespace, rules, &mut compiled);
    }
    compiled
}

/// Takes the rules that name encapsulation into a chain of their own.
fn name_encapsulation(
    id: &str,
    namespace: Option<&str>,
    rules: &[Stored],
    compiled: &mut Compiled,
) {
    let mut chain = Vec::new();
    for (at, stored) in rules.iter().enumerate() {
        let Some(stored) = encapsulation::named(stored) else {
            continue;
        };
        // What is wrong with it was told of the rule as a whole.
        let found = alternatives(&stored, namespace, compiled).unwrap_or_default();
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
            selectors: BTreeMap::new(),
            sets: BTreeMap::new(),
            encapsulation: None,
            unsupported: Vec::new(),
        }
    }

    /// The chain of a policy that cannot be read: nothing passes.
    pub fn closed(direction: Direction, id: &str, reason: &str) -> Self {
        Self::empty(direction, id).then_closed(reason)
    }

    /// The same rules, after which nothing passes.
    #[must_use]
    pub fn then_closed(mut self, reason: &str) -> Self {
        let rule = counted(Vec::new(), Verdict::Drop, comment(reason));
        Arc::make_mut(&mut self.chain).rules.push(rule);
        self
    }

    pub(super) fn use_selector(&mut self, selector: Selector) -> SetId {
        let id = SetId::of(&selector);
        self.selectors.insert(id.clone(), selector);
        id
    }

    pub(super) fn use_set(&mut self, prefix: &str, set: Set) -> String {
        let keys: Vec<String> = set.elements.keys().map(ToString::to_string).collect();
        let name = format!("{prefix}{}", short_hash(&keys.join(" ")));
        self.sets.insert(name.clone(), Arc::new(set));
        name
    }
}

/// The name of [`tier_chain`]. Endpoints that the same policies are for share it.
pub fn tier_name(direction: Direction, tier: &str, denies: bool, policies: &[&Compiled]) -> String {
    let names: Vec<&str> = policies.iter().map(|policy| &*policy.name).collect();
    let hash = short_hash(&format!("{denies} {}", names.join(" ")));
    chain_name(direction.letters().1, &format!("{tier}-{hash}"))
}

/// The chain of a tier for endpoints that these policies of it are for. To pass on to the next tier
/// is to return from it, so policies with such rules stand in it themselves.
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
        rules.push(counted(Vec::new(), Verdict::Drop, words));
    }
    Chain { hook: None, rules }
}

fn action(decision: Decision) -> Action {
    match decision {
        Decision::Allow => Action::Verdict(Verdict::Accept),
        Decision::Deny => Action::Verdict(Verdict::Drop),
        Decision::Pass => Action::Verdict(Verdict::Return),
        Decision::Log => Action::Log(LOG_PREFIX.into()),
    }
}

/// Words that can stand between the quotes of a comment.
fn comment(words: &str) -> String {
    let fits = |c: &char| c.is_ascii_graphic() || *c == ' ';
    let plain = words.replace(['"', '\\'], "'");
    plain.chars().filter(fits).take(127).collect()
}

/// The endpoints that an end of a rule asks for; `None` if it does not ask.
pub(super) fn selection(
    entity: &EntityRule,
    namespace: Option<&str>,
) -> Result<Option<Selector>, Unsupported> {
    let mut parts = Vec::new();
    let accounts = entity.service_accounts.as_ref();
    if !entity.namespace_selector.is_empty() {
        let selector = parse("namespaceSelector", &entity.namespace_selector)?;
        parts.push(selector.under(OF_NAMESPACE, NAMESPACE));
    } else if let Some(namespace) = namespace
        && (!entity.selector.is_empty() || !entity.not_selector.is_empty() || accounts.is_some())
    {
        parts.push(Selector::equal(NAMESPACE, namespace));
    }
    if let Some(accounts) = accounts {
        if !accounts.names.is_empty() {
            parts.push(Selector::any_of(
                SERVICE_ACCOUNT,
                accounts.names.iter().cloned(),
            ));
        }
        if !accounts.selector.is_empty() {
            let selector = parse("serviceAccounts.selector", &accounts.selector)?;
            parts.push(selector.under(OF_SERVICE_ACCOUNT, SERVICE_ACCOUNT));
        }
    }
    if !entity.selector.is_empty() {
        parts.push(parse("selector", &entity.selector)?);
    }
    Ok(parts.into_iter().reduce(|one, other| one.and(&other)))
}

pub(super) fn parse(field: &str, text: &str) -> Result<Selector, Unsupported> {
    text.parse()
        .map_err(|error: calico_model::SelectorError| Unsupported::new(field, error.to_string()))
}

/// The endpoints that a policy is for.
///
/// # Errors
///
/// One of the texts is no selector.
pub fn subjects(
    namespace: Option<&str>,
    selector: &str,
    namespace_selector: &str,
    service_account_selector: &str,
) -> Result<Selector, Unsupported> {
    let mut parts = Vec::new();
    if !selector.trim().is_empty() {
        parts.push(parse("selector", selector)?);
    }
    if !namespace_selector.is_empty() {
        let found = parse("namespaceSelector", namespace_selector)?;
        parts.push(found.under(OF_NAMESPACE, NAMESPACE));
    }
    if !service_account_selector.is_empty() {
        let found = parse("serviceAccountSelector", service_account_selector)?;
        parts.push(found.under(OF_SERVICE_ACCOUNT, SERVICE_ACCOUNT));
    }
    if let Some(namespace) = namespace {
        parts.push(Selector::equal(NAMESPACE, namespace));
    }
    let joined = parts.into_iter().reduce(|one, other| one.and(&other));
    joined.map_or_else(|| parse("selector", ""), Ok)
}
