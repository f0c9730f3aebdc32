//! The programs of an endpoint: traffic from it, and traffic to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::endpoints::Endpoint;
use super::fabric::Fabric;
use super::policies::{Direction, Policy, Stage, rank};
use super::rules::{Action, Rule};
use crate::packet::{Family, Field, state};
use crate::ranges::Ranges;
use crate::space::{Act, ProgramId, Space, Step};

/// The profile that allows everything without being stored.
const DEFAULT_ALLOW: &str = "projectcalico-default-allow";

/// Steps and programs that several programs use.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// The places of the policies that apply to an endpoint, by its name.
    applied: BTreeMap<String, Arc<Vec<usize>>>,
    passages: BTreeMap<(String, Direction, Family), ProgramId>,
    policies: BTreeMap<(usize, Direction, Family), Arc<Vec<Step>>>,
}

/// The effect of the profiles of an endpoint, if no policy decides.
struct Profiles {
    steps: Vec<Step>,
    /// A rule allows something.
    allows: bool,
    /// There are rules at all.
    has_rules: bool,
    /// Everything is allowed.
    is_open: bool,
}

/// The parts of one direction.
struct Parts {
    /// The tiers.
    tiers: Vec<ProgramId>,
    profiles: Profiles,
}

impl Parts {
    /// Returns whether a new connection may pass.
    fn is_open(&self) -> bool {
        !self.tiers.is_empty() || self.profiles.allows
    }
}

/// Returns the program of one direction of an endpoint: states of connections, then tiers, then
/// profiles.
pub(super) fn passage(
    fabric: &Fabric,
    cache: &mut Cache,
    space: &mut Space,
    (endpoint, direction): (&Endpoint, Direction),
    family: Family,
) -> ProgramId {
    let key = (endpoint.name.clone(), direction, family);
    if let Some(known) = cache.passages.get(&key) {
        return *known;
    }
    let own = parts(fabric, cache, space, (endpoint, direction), family);
    let other = parts(fabric, cache, space, (endpoint, direction.other()), family);
    let act = match own.is_open() || other.is_open() {
        true => Act::Accept,
        false if own.profiles.has_rules || other.profiles.has_rules => Act::Either,
        false => Act::Drop,
    };
    let mut steps = vec![answers(space, act)];
    steps.extend(decisions(fabric, space, own));
    let program = space.program(steps);
    cache.passages.insert(key, program);
    program
}

/// Returns the step for packets of established connections.
pub(super) fn answers(space: &mut Space, act: Act) -> Step {
    let states = Ranges::of([(state::ESTABLISHED, state::RELATED)]);
    Step {
        conditions: vec![space.is_in(Field::State, states, true)],
        act,
        place: space.place("packets of established connections".to_owned()),
    }
}

/// Returns the steps of a direction of a host endpoint for packets to the host or of it.
pub(super) fn of_host(
    fabric: &Fabric,
    cache: &mut Cache,
    space: &mut Space,
    of: (&Endpoint, Direction),
    family: Family,
) -> Vec<Step> {
    let own = parts(fabric, cache, space, of, family);
    decisions(fabric, space, own)
}

/// Returns the steps about new connections.
fn decisions(fabric: &Fabric, space: &mut Space, own: Parts) -> Vec<Step> {
    let mut steps = Vec::new();
    let invalid = space.place("packets of no connection".to_owned());
    if !fabric.settings.takes_invalid {
        steps.push(Step {
            conditions: vec![space.is(Field::State, state::INVALID)],
            act: Act::Drop,
            place: invalid,
        });
    }
    let place = invalid;
    steps.extend(own.tiers.into_iter().map(|tier| Step {
        conditions: Vec::new(),
        act: Act::Call(tier),
        place,
    }));
    steps.extend(own.profiles.steps);
    steps
}

/// Returns the places of the policies that apply to an endpoint.
fn applied(fabric: &Fabric, cache: &mut Cache, endpoint: &Endpoint) -> Arc<Vec<usize>> {
    if let Some(known) = cache.applied.get(&endpoint.name) {
        return Arc::clone(known);
    }
    let all = fabric.policies.iter().enumerate();
    let own = all.filter(|(_, policy)| policy.applies_to(endpoint));
    let own: Arc<Vec<usize>> = Arc::new(own.map(|(at, _)| at).collect());
    cache
        .applied
        .insert(endpoint.name.clone(), Arc::clone(&own));
    own
}

/// Returns the programs of the tiers with policies of a stage.
pub(super) fn tiers(
    fabric: &Fabric,
    cache: &mut Cache,
    space: &mut Space,
    (endpoint, direction, stage): (&Endpoint, Direction, Stage),
    family: Family,
) -> Vec<ProgramId> {
    let mut by_tier: BTreeMap<&str, Vec<(usize, &Policy)>> = BTreeMap::new();
    for at in applied(fabric, cache, endpoint).iter().copied() {
        let policy = fabric.policies.get(at);
        let decides = |policy: &&Policy| policy.is_of(stage) && policy.rules(direction).is_some();
        if let Some(policy) = policy.filter(decides) {
            by_tier.entry(&policy.tier).or_default().push((at, policy));
        }
    }
    let mut tiers = by_tier
        .into_iter()
        .map(|(name, policies)| (rank(name, fabric.tiers.get(name)), policies))
        .collect::<Vec<_>>();
    tiers.sort_by(|((one, _), _), ((other, _), _)| {
        let orders = one.0.cmp(&other.0).then(one.1.total_cmp(&other.1));
        orders.then_with(|| one.2.cmp(other.2))
    });
    // Before translation and connection tracking, policies that do not decide leave it to the others.
    let is_early = matches!(stage, Stage::Untranslated | Stage::Untracked);
    let tiers = tiers.into_iter().map(|((rank, denies), policies)| {
        let denies = denies && !is_early;
        let fault = fabric.tiers.get(rank.2).and_then(|tier| tier.fault.clone());
        tier_program(
            fabric,
            cache,
            space,
            (rank.2, denies, fault),
            policies,
            direction,
            family,
        )
    });
    tiers.collect()
}

fn parts(
    fabric: &Fabric,
    cache: &mut Cache,
    space: &mut Space,
    (endpoint, direction): (&Endpoint, Direction),
    family: Family,
) -> Parts {
    let of = (endpoint, direction, Stage::Normal);
    Parts {
        tiers: tiers(fabric, cache, space, of, family),
        profiles: profiles(fabric, space, endpoint, direction, family),
    }
}

fn tier_program(
    fabric: &Fabric,
    cache: &mut Cache,
    space: &mut Space,
    (name, denies, fault): (&str, bool, Option<String>),
    mut policies: Vec<(usize, &Policy)>,
    direction: Direction,
    family: Family,
) -> ProgramId {
    policies.sort_by(|(_, one), (_, other)| {
        let (one, other) = (one.position(), other.position());
        one.0.total_cmp(&other.0).then_with(|| one.1.cmp(other.1))
    });
    let faults = policies.iter().find_map(|(_, policy)| policy.fault.clone());
    if let Some(fault) = fault.or(faults) {
        let place = space.place(fault);
        return space.always(Act::Unknown, place);
    }
    let mut steps: Vec<Step> = Vec::new();
    for (at, policy) in policies {
        let key = (at, direction, family);
        let known = cache.policies.get(&key).cloned();
        let found = known.unwrap_or_else(|| {
            let mut steps = Vec::new();
            for rule in policy.rules(direction).unwrap_or_default() {
                rule.steps(space, &fabric.members, family, &mut steps);
            }
            let allowed = steps.iter_mut().filter(|step| step.act == Act::Accept);
            allowed.for_each(|step| step.act = policy.accepts());
            let steps = Arc::new(steps);
            cache.policies.insert(key, Arc::clone(&steps));
            steps
        });
        steps.extend(found.iter().cloned());
    }
    if denies {
        let place = space.place(format!("tier {name}: no rule matches"));
        steps.push(Step {
            conditions: Vec::new(),
            act: Act::Drop,
            place,
        });
    }
    space.program(steps)
}

fn profiles(
    fabric: &Fabric,
    space: &mut Space,
    endpoint: &Endpoint,
    direction: Direction,
    family: Family,
) -> Profiles {
    let mut found = Profiles {
        steps: Vec::new(),
        allows: false,
        has_rules: false,
        is_open: false,
    };
    // Rules behind one that matches everything have no effect.
    let mut is_decided = false;
    let mut end = (Act::Drop, "no policy or profile allows it".to_owned());
    for name in &endpoint.profiles {
        if name == DEFAULT_ALLOW {
            found.allows = true;
            end = (Act::Accept, format!("profile {name}"));
            break;
        }
        let Some(profile) = fabric.profiles.get(name) else {
            end = (Act::Drop, format!("profile {name} does not exist"));
            break;
        };
        if let Some(fault) = &profile.fault {
            end = (Act::Unknown, fault.clone());
            break;
        }
        let rules = match direction {
            Direction::Ingress => &profile.ingress,
            Direction::Egress => &profile.egress,
        };
        for rule in rules {
            found.has_rules = true;
            found.allows |= rule.action == Action::Allow;
            profile_rule(fabric, space, rule, family, &mut found.steps);
            if rule.is_unconditional() {
                is_decided = true;
                break;
            }
        }
        if is_decided {
            break;
        }
    }
    let (act, text) = end;
    let place = space.place(text);
    found.steps.push(Step {
        conditions: Vec::new(),
        act,
        place,
    });
    let program = space.program(found.steps.iter().cloned());
    found.is_open = space
        .constant(program)
        .is_some_and(|(outcome, _)| outcome == crate::space::Outcome::Accept);
    found
}

/// Adds the steps of a rule. In a profile, `Pass` has no meaning.
fn profile_rule(
    fabric: &Fabric,
    space: &mut Space,
    rule: &Rule,
    family: Family,
    steps: &mut Vec<Step>,
) {
    let first = steps.len();
    rule.steps(space, &fabric.members, family, steps);
    for step in steps
        .iter_mut()
        .skip(first)
        .filter(|step| step.act == Act::Return)
    {
        step.act = Act::Unknown;
    }
}
