//! Parses policies.

use calico_model::{Kind, PolicySpec, PolicyType, Resource, ResourceKey, Selector};

use super::super::read::resource;
use super::super::types::Problem;
use crate::render::{Allowance, Compiled, Context, Direction, Owner, compile, subjects};

/// The packets that a policy applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Packets to and from workloads, and to and from hosts.
    #[default]
    Normal,
    /// The same, and those that hosts forward (`applyOnForward`).
    Forwarded,
    /// Packets that arrive at hosts, before their destination is translated (`preDNAT`).
    Untranslated,
    /// Packets to and from hosts, before connection tracking (`doNotTrack`).
    Untracked,
}

impl Scope {
    /// Returns whether workloads evaluate the policy.
    pub(crate) const fn is_for_workloads(self) -> bool {
        matches!(self, Self::Normal | Self::Forwarded)
    }

    fn of<const GLOBAL: bool>(spec: &PolicySpec<GLOBAL>) -> Self {
        Self::from_fields(spec.do_not_track, spec.pre_dnat, spec.apply_on_forward)
    }

    /// Returns whether policies have rules for a direction.
    pub(super) fn has(self, direction: Direction) -> bool {
        self != Self::Untranslated || direction == Direction::Ingress
    }

    /// Returns the action of rules that allow.
    const fn allowance(self) -> Allowance {
        match self {
            Self::Normal | Self::Forwarded => Allowance::Accept,
            Self::Untranslated => Allowance::Mark,
            Self::Untracked => Allowance::Untrack,
        }
    }

    /// Returns the scope by the fields `doNotTrack`, `preDNAT` and `applyOnForward`.
    pub(super) const fn from_fields(untracked: bool, untranslated: bool, forwarded: bool) -> Self {
        match (untracked, untranslated, forwarded) {
            (true, ..) => Self::Untracked,
            (_, true, _) => Self::Untranslated,
            (.., true) => Self::Forwarded,
            _ => Self::Normal,
        }
    }
}

/// A place where an endpoint evaluates policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Packets of a workload, and packets of a host itself.
    Normal,
    /// Packets that a host forwards.
    Forward,
    /// Packets that arrive at a host, before their destination is translated.
    Untranslated,
    /// Packets of a host before connection tracking.
    Untracked,
}

impl Stage {
    /// Returns whether policies of a scope are evaluated here.
    pub(crate) const fn has(self, scope: Scope) -> bool {
        match self {
            Self::Normal => scope.is_for_workloads(),
            Self::Forward => matches!(scope, Scope::Forwarded),
            Self::Untranslated => matches!(scope, Scope::Untranslated),
            Self::Untracked => matches!(scope, Scope::Untracked),
        }
    }

    /// Returns whether a tier denies what its policies do not decide. Policies of later stages decide
    /// about the packets of an early one.
    pub(crate) const fn denies(self) -> bool {
        matches!(self, Self::Normal | Self::Forward)
    }
}

/// A valid policy, with its rules as chains.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Policy {
    /// The tier it is in.
    pub(crate) tier: String,
    /// Its order in the tier.
    pub(crate) order: f64,
    /// Tie-breaker between policies of the same order: [`tie`].
    pub(crate) tie: String,
    /// The packets that it applies to.
    pub(crate) scope: Scope,
    /// The endpoints that it applies to.
    pub(crate) subjects: Selector,
    /// Rules for traffic to them, if it applies to that.
    pub(crate) ingress: Option<Compiled>,
    /// Rules for traffic from them, if it applies to that.
    pub(crate) egress: Option<Compiled>,
    /// It is unparsable, and no earlier value was valid.
    pub(crate) broken: bool,
}

impl Policy {
    pub(crate) const fn side(&self, direction: Direction) -> Option<&Compiled> {
        match direction {
            Direction::Ingress => self.ingress.as_ref(),
            Direction::Egress => self.egress.as_ref(),
        }
    }

    /// Returns whether it applies to any packet.
    pub(crate) fn is_asked(&self) -> bool {
        self.sides().next().is_some()
    }

    pub(crate) fn sides(&self) -> impl Iterator<Item = &Compiled> {
        [&self.ingress, &self.egress].into_iter().flatten()
    }

    /// Returns the policy with its rules in this context.
    #[must_use]
    pub(crate) fn within(mut self, context: &Context) -> Self {
        for side in [&mut self.ingress, &mut self.egress].into_iter().flatten() {
            if let Some(other) = side.within(context) {
                *side = other;
            }
        }
        self
    }
}

/// Returns the policy as an owner of rules.
pub(super) fn owner(key: &ResourceKey, name: &str, tier: &str, scope: Scope) -> Owner {
    let (stored, namespace) = (key.name(), key.namespace());
    Owner {
        id: match namespace {
            Some(namespace) => format!("np/{namespace}/{stored}"),
            None => format!("gnp/{stored}"),
        },
        kind: match namespace {
            Some(_) => "np",
            None => "gnp",
        },
        tier: tier.to_owned(),
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
        allowance: scope.allowance(),
    }
}

/// Parses a policy.
pub(crate) fn policy(text: &str, key: &ResourceKey, octets: &[u8]) -> Result<Policy, Problem> {
    match key.kind() {
        Kind::GlobalNetworkPolicy => of_spec::<true>(text, key, octets),
        _ => of_spec::<false>(text, key, octets),
    }
}

fn of_spec<const GLOBAL: bool>(
    text: &str,
    key: &ResourceKey,
    octets: &[u8],
) -> Result<Policy, Problem> {
    let mut read: Resource<PolicySpec<GLOBAL>> = resource(text, octets)?;
    // The name is that of the key, whatever the value contains.
    key.name().clone_into(&mut read.metadata.name);
    let spec = &read.spec;
    let subjects = subjects(
        key.namespace(),
        &spec.selector,
        &spec.namespace_selector,
        &spec.service_account_selector,
    )
    .map_err(|fault| Problem::new(text, format!("spec.{}", fault.field), fault.reason))?;
    let types = spec.effective_types();
    let name = read.real_name();
    let scope = Scope::of(spec);
    let owner = owner(key, &name, spec.effective_tier(), scope);
    let context = Context::default();
    let side = |kind, direction, rules| {
        let asked = scope.has(direction) && types.contains(&kind);
        asked.then(|| compile(direction, &owner, rules, &context))
    };
    Ok(Policy {
        tier: spec.effective_tier().to_owned(),
        order: place(spec.order.as_ref()),
        tie: tie(key, &name),
        scope,
        subjects,
        ingress: side(PolicyType::Ingress, Direction::Ingress, &spec.ingress),
        egress: side(PolicyType::Egress, Direction::Egress, &spec.egress),
        broken: false,
    })
}

/// Returns the tie-breaker between policies of the same order, as in Calico 3.32:
/// `<name>/<namespace>/<kind>`, compared octet by octet. So `web-2` precedes `web`, because `-`
/// precedes `/`.
pub(super) fn tie(key: &ResourceKey, name: &str) -> String {
    let namespace = key.namespace().unwrap_or_default();
    format!("{name}/{namespace}/{}", key.kind().name())
}

/// Returns the sort key of an order. A missing number is the last. A number beyond the range of
/// `f64` is first or last, according to its sign.
pub(super) fn place(order: Option<&serde_json::Number>) -> f64 {
    let Some(number) = order else {
        return f64::INFINITY;
    };
    let order = number.as_f64().unwrap_or_else(|| {
        let is_negative = number.to_string().starts_with('-');
        if is_negative {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        }
    });
    // -0 is 0.
    order + 0.0
}
