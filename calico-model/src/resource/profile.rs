//! Profile: rules and labels that endpoints inherit by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rule::{self, Action, Rule};
use super::{Metadata, Resource, Spec};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, or_default};
use crate::validate::{Faults, Invalid, Problem};

/// The profile that allows everything. It exists without being stored, and cannot be written.
pub const DEFAULT_ALLOW_PROFILE: &str = "projectcalico-default-allow";

/// Spec of a profile.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileSpec {
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
    /// Labels that endpoints with this profile have, unless they have their own.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub labels_to_apply: BTreeMap<String, String>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl ProfileSpec {
    /// Returns whether the rules allow every packet in both directions.
    pub fn allows_everything(&self) -> bool {
        let open = |rules: &[Rule]| {
            rules
                .iter()
                .find(|rule| rule.action != Action::Log)
                .is_some_and(|rule| rule.action == Action::Allow && rule.is_unconditional())
        };
        open(&self.ingress) && open(&self.egress)
    }
}

impl Resource<ProfileSpec> {
    /// Returns the profile that exists without being stored and allows everything.
    pub fn default_allow() -> Self {
        let allow = vec![Rule::every(Action::Allow)];
        let spec = ProfileSpec {
            ingress: allow.clone(),
            egress: allow,
            ..ProfileSpec::default()
        };
        let mut profile = Self::new(DEFAULT_ALLOW_PROFILE, spec);
        profile.metadata.resource_version = "1".to_owned();
        profile
    }
}

impl Spec for ProfileSpec {
    const KIND: Option<Kind> = Some(Kind::Profile);

    fn validate(&self, metadata: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        if metadata.name == DEFAULT_ALLOW_PROFILE {
            faults.push("metadata.name", Problem::Reserved);
        }
        for (path, rules) in [
            ("spec.ingress", &self.ingress),
            ("spec.egress", &self.egress),
        ] {
            rule::validate(path, rules, &mut faults);
            rule::validate_services(path, rules, true, &mut faults);
        }
        faults.0
    }
}
