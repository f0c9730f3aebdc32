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
    /// Its order in its tier; without one, the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Number>,
    /// The endpoints it applies to; all if not given.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub selector: String,
    /// The namespaces of these endpoints; cluster-wide policies only.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub namespace_selector: String,
    /// The service accounts of these endpoints.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub service_account_selector: String,
    /// The directions it applies to; see [`Self::effective_types`].
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub types: Vec<PolicyType>,
    /// Whether it applies to packets before connection tracking; cluster-wide policies only.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub do_not_track: bool,
    /// Whether it applies to packets before their destination is translated; cluster-wide policies
    /// only.
    #[serde(
        rename = "preDNAT",
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub pre_dnat: bool,
    /// Whether it also applies to packets that a host interface forwards; cluster-wide policies
    /// only.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_false"
    )]
    pub apply_on_forward: bool,
    /// Performance hints, unchanged.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub performance_hints: Vec<String>,
    /// Ingress rules, in order.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub ingress: Vec<Rule>,
    /// Egress rules, in order.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub egress: Vec<Rule>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

words! {
    /// A direction, from the view of the endpoint.
    PolicyType, "one of \"Ingress\" and \"Egress\"";
    /// Traffic to the endpoint.
    Ingress "Ingress",
    /// Traffic from the endpoint.
    Egress "Egress",
}

impl<const GLOBAL: bool> PolicySpec<GLOBAL> {
    /// Returns its tier.
    pub fn effective_tier(&self) -> &str {
        match self.tier.as_str() {
            "" => policy::DEFAULT_TIER,
            tier => tier,
        }
    }

    /// Returns the directions it applies to. If none is given: those that it has rules for, or
    /// ingress if it has no rules at all.
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

    /// Returns whether it applies to workloads: not if it applies to packets before connection
    /// tracking or before translation, which only host interfaces evaluate.
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
    /// Returns the name for users, which may differ from the stored one.
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
        for (path, rules) in [
            ("spec.ingress", &self.ingress),
            ("spec.egress", &self.egress),
        ] {
            rule::validate(path, rules, &mut faults);
            rule::validate_services(path, rules, GLOBAL, &mut faults);
        }
        faults.0
    }

    fn complete(&mut self, _: Kind, metadata: &mut Metadata) {
        policy::complete_name(metadata, self.effective_tier());
        self.types = self.effective_types();
    }
}

/// Spec of a tier: a group of policies with an order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TierSpec {
    /// Its order among the tiers; without one, the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Number>,
    /// The action for packets to which policies of the tier apply but none of its rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_action: Option<Action>,
    /// Unknown fields, kept unchanged.
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
