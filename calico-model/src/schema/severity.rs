//! The order in which problems of resources are listed where not all can be.

use crate::key::kind::Kind;
use crate::resource::rule::Action;

/// The severity of a problem of a resource. The most serious one is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A host endpoint, or a part of a policy other than a condition of a rule.
    Unenforced,
    /// A condition of a rule: the rule drops more packets than it states.
    DropsMore,
    /// A condition of a rule: the rule allows no packet.
    AllowsLess,
    /// Anything else.
    Other,
}

impl Severity {
    /// Returns the severity of a problem of a resource of a kind, by the reason that an
    /// `UnsupportedField` or the agent gives.
    pub fn of(kind: Kind, reason: &str) -> Self {
        let is_policy = matches!(
            kind,
            Kind::NetworkPolicy | Kind::GlobalNetworkPolicy | Kind::Profile | Kind::Tier
        );
        match kind {
            Kind::HostEndpoint => Self::Unenforced,
            _ if !is_policy => Self::Other,
            _ if reason.ends_with(Action::Deny.when_unsupported()) => Self::DropsMore,
            _ if reason.ends_with(Action::Allow.when_unsupported()) => Self::AllowsLess,
            _ => Self::Unenforced,
        }
    }
}
