//! The owners of rules, and the directions of traffic.

use super::decision::Allowance;

/// A policy or profile, as the owner of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Its identity among chains: `np/<namespace>/<stored name>`.
    pub id: String,
    /// Its kind in short form, as in Calico: `np`, `gnp`, `pro`.
    pub kind: &'static str,
    /// Its tier; a profile has none.
    pub tier: String,
    /// Its name for users.
    pub name: String,
    /// Its namespace, which limits selectors without a namespace selector.
    pub namespace: Option<String>,
    /// The action of its rules that allow.
    pub allowance: Allowance,
}

/// A direction of traffic, from the view of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// Traffic to it.
    Ingress,
    /// Traffic from it.
    Egress,
}

impl Direction {
    /// Returns the prefixes of chain names.
    pub(super) const fn letters(self) -> (&'static str, &'static str) {
        match self {
            Self::Ingress => ("pi-", "ti-"),
            Self::Egress => ("po-", "te-"),
        }
    }

    /// Returns the field of a spec with its rules.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }
}
