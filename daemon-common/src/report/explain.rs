//! Explanations of the packet filter.

use serde::{Deserialize, Serialize};

use super::Endpoint;

/// The verdict of a host's packet filter on the first packet of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PacketVerdict {
    /// The packet.
    pub packet: String,
    /// Whether the rules of this host let it pass; absent if that is unknown.
    pub allowed: Option<bool>,
    /// The same in words.
    pub verdict: String,
    /// The decisions, in the order of the kernel.
    pub steps: Vec<PacketStep>,
    /// The ends that another host evaluates.
    pub elsewhere: Vec<String>,
    /// Whether the rules in the kernel are the evaluated ones.
    pub in_sync: bool,
    /// The parts of the way of a packet that are not evaluated.
    pub not_evaluated: Vec<String>,
}

/// The decision of a part of the packet filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PacketStep {
    /// `source check`, `guard`, `translation`, `egress`, `ingress`, `services`, `endpoint to host`.
    pub part: String,
    /// `namespace/name` of its endpoint, if it has one.
    pub endpoint: Option<String>,
    /// `accept`, `drop`, `reject`, …
    pub verdict: String,
    /// The policy, profile or other cause.
    pub by: RuleOwner,
    /// The chain of the rule.
    pub chain: String,
    /// The rule, in the syntax of `nft`.
    pub rule: String,
}

/// The cause of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleOwner {
    /// The tier of the policy.
    pub tier: Option<String>,
    /// Kind and name of a policy or profile: `NetworkPolicy prod/web`.
    pub list: Option<String>,
    /// The place of the rule in it: `ingress[0]`.
    pub rule: Option<String>,
    /// The comment of the rule.
    pub words: String,
}

/// An endpoint, and the rules that apply to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointRules {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The policies and profiles for packets that it sends, in order.
    pub egress: Vec<AppliedRules>,
    /// The same for packets that it receives.
    pub ingress: Vec<AppliedRules>,
}

/// A policy, the default action of a tier, or a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppliedRules {
    /// The tier of a policy.
    pub tier: Option<String>,
    /// Kind and name: `NetworkPolicy prod/web`.
    pub name: String,
    /// The selector by which a policy applies.
    pub selector: Option<String>,
    /// Its rules, in the syntax of `nft`.
    pub rules: Vec<String>,
    /// The next step if no rule decides: `the next policy`, `deny`, `allow`, …
    pub end: String,
}
