//! NetworkPolicy, GlobalNetworkPolicy and Tier: rules for the endpoints that a selector selects.

use serde::{Deserialize, Serialize};
use serde_json::Number;

use super::rule::{self, Action, Rule};
use super::{Metadata, Resource, Spec, policy};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, is_false, or_default};
use crate::validate::{Faults, Invalid, Problem};
use crate::value::words::words;

/// Spec of a policy of one namespace.
pub type NetworkPolicySpec = PolicySpec<false>;

/// Spec of a policy of the whole cluster.
pub type GlobalNetworkPolicySpec = PolicySpec<true>;

/// Spec of a policy, of the whole cluster or of one namespace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicySpec<const GLOBAL: bool> {
    /// Its tier; see [`Self::effective_tier`].
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub tier: String,
    /// Its place among the policies of its tier; without one, the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Number>,
    /// Which endpoints it is for; all without one.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub selector: String,
    /// Endpoints of which namespaces it is for; only of the whole cluster.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub namespace_selector: String,
    /// Endpoints of which service accounts it is for.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub service_account_selector: String,
    /// The directions that it is for; see [`Self::effective_types`].
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub types: Vec<PolicyType>,
    /// Whether it is for packets before connection tracking; only of the whole cluster.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub do_not_track: bool,
    /// Whether it is for packets before their destination is translated; only of the whole
    /// cluster.
    #[serde(
        rename = "preDNAT",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub pre_dnat: bool,
    /// Whether a host's interface asks it about forwarded packets too; only of the whole cluster.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub apply_on_forward: bool,
    /// Hints, as they are.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub performance_hints: Vec<String>,
    /// Rules for what comes in, in order.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ingress: Vec<Rule>,
    /// Rules for what goes out, in order.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub egress: Vec<Rule>,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub unknown: Unknown,
}

words! {
    /// A direction, as seen from the endpoint.
    PolicyType, "one of \"Ingress\" and \"Egress\"";
    /// What comes in.
    Ingress "Ingress",
    /// What goes out.
    Egress "Egress",
}

impl<const GLOBAL: bool> PolicySpec<GLOBAL> {
    /// The tier that it is in.
    pub fn effective_tier(&self) -> &str {
        match self.tier.as_str() {
            "" => policy::DEFAULT_TIER,
            tier => tier,
        }
    }

    /// The directions that it is for. Where it names none: those that it has rules for, or what
    /// comes in if it has no rules at all.
    pub fn effective_types(&self) -> Vec<PolicyType> {
        if !self.types.is_empty() {
            return self.types.clone();
        }
        match (self.ingress.is_empty(), self.egress.is_empty()) {
            (false, false) => vec![PolicyType::Ingress, PolicyType::Egress],
            (true, false) => vec![PolicyType::Egress],
            (_, true) => vec![PolicyType::Ingress],
        }
    }

    /// Whether it has a say about workloads: not if it is for packets before connection tracking
    /// or before translation, which only interfaces of hosts ask about.
    pub const fn is_for_workloads(&self) -> bool {
        !self.do_not_track && !self.pre_dnat
    }

    fn validate_global(&self, faults: &mut Faults) {
        rule::selector("spec.namespaceSelector", &self.namespace_selector, faults);
        let unless = |condition: bool, field: &str, why, faults: &mut Faults| {
            if !condition {
                faults.push(field, Problem::Unwanted(why));
            }
        };
        for (field, set) in [
            ("spec.doNotTrack", self.do_not_track),
            ("spec.preDNAT", self.pre_dnat),
        ] {
            let why = "it needs spec.applyOnForward to be true";
            unless(!set || self.apply_on_forward, field, why, faults);
        }
        let pre_dnat = "a policy with spec.preDNAT has no egress rules and tracks connections";
        if self.pre_dnat {
            unless(self.egress.is_empty(), "spec.egress", pre_dnat, faults);
            unless(!self.do_not_track, "spec.doNotTrack", pre_dnat, faults);
            let egress = self.types.contains(&PolicyType::Egress);
            unless(!egress, "spec.types", pre_dnat, faults);
        }
    }

    fn validate_namespaced(&self, faults: &mut Faults) {
        for (field, set) in [
            (
                "spec.namespaceSelector",
                !self.namespace_selector.is_empty(),
            ),
            ("spec.doNotTrack", self.do_not_track),
            ("spec.preDNAT", self.pre_dnat),
            ("spec.applyOnForward", self.apply_on_forward),
        ] {
            if set {
                faults.push(
                    field,
                    Problem::Unwanted("only a GlobalNetworkPolicy has it"),
                );
            }
        }
    }
}

impl<const GLOBAL: bool> Resource<PolicySpec<GLOBAL>> {
    /// The name that people use, which may differ from the one that it is stored under.
    pub fn real_name(&self) -> String {
        let annotation = self.metadata.annotations.get(policy::NAME_ANNOTATION);
        policy::real_name(
            &self.metadata.name,
            annotation.map(String::as_str),
            self.spec.effective_tier(),
        )
    }
}

impl<const GLOBAL: bool> Spec for PolicySpec<GLOBAL> {
    const KIND: Option<Kind> = Some(match GLOBAL {
        true => Kind::GlobalNetworkPolicy,
        false => Kind::NetworkPolicy,
    });

    fn validate(&self, _: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        rule::selector("spec.selector", &self.selector, &mut faults);
        let accounts = &self.service_account_selector;
        rule::selector("spec.serviceAccountSelector", accounts, &mut faults);
        match GLOBAL {
            true => self.validate_global(&mut faults),
            false => self.validate_namespaced(&mut faults),
        }
        rule::validate("spec.ingress", &self.ingress, &mut faults);
        rule::validate("spec.egress", &self.egress, &mut faults);
        faults.0
    }

    fn complete(&mut self, _: Kind, metadata: &mut Metadata) {
        policy::complete_name(metadata, self.effective_tier());
        self.types = self.effective_types();
    }
}

/// Spec of a tier: an order of policies.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TierSpec {
    /// Its place among the tiers; without one, the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Number>,
    /// What becomes of packets that some policy of the tier is for and none decides about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_action: Option<Action>,
    /// Fields that are not known here.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Spec for TierSpec {
    const KIND: Option<Kind> = Some(Kind::Tier);

    fn validate(&self, _: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        if let Some(Action::Allow | Action::Log) = self.default_action {
            let given = format!("{:?}", self.default_action.unwrap_or(Action::Deny));
            faults.range("spec.defaultAction", given, "Deny or Pass");
        }
        faults.0
    }
}
