//! Builds a typed ruleset, its text form, and the difference of two rulesets.
//!
//! All of it is pure: the kernel sees a [`Ruleset`] only through `apply::rules`.

mod assembly;
mod build;
mod conditions;
mod cut;
mod decision;
mod diff;
mod dormant;
mod elements;
mod encapsulation;
mod failsafe;
mod flows;
mod guard;
mod hook;
mod host;
mod log;
mod names;
mod offload;
mod openstack;
mod outgoing;
mod owner;
mod policy;
mod qos;
mod ruleset;
mod selection;
mod service_loops;
#[cfg(test)]
pub(crate) mod tests;
mod text;
mod translate;

pub use assembly::{Assembly, Part, Touched};
pub use build::{
    BOOT_TABLE, EndpointRules, Frame, NEIGHBOR_DISCOVERY, Passage, RuleInputs, TABLE, ToHostAction,
    endpoint_part, render, source,
};
pub use conditions::PROTOCOLS_WITH_PORTS;
pub use decision::{Allowance, Denial, PacketLog, Report};
pub use diff::{Change, changes, creation, prepare};
pub(crate) use diff::{preparation, reshapes};
pub use elements::Elements;
pub use encapsulation::{Encapsulation, IPIP_DEVICE, TUNNEL_DEVICES, VXLAN_DEVICES, VXLAN_PORT};
pub(crate) use encapsulation::{TO_HOST, guards_ipip};
pub use failsafe::{Failsafe, FailsafePort};
pub(crate) use flows::UNSENT;
pub use flows::{Cause, Reported};
pub use guard::{Budgets, Control, TCP, UDP};
pub(crate) use host::FAILSAFE_CHAINS;
pub use host::{HostInterface, HostRules, host_part};
pub use log::LogSettings;
pub use names::SetId;
pub(crate) use names::token;
pub use offload::{
    OFFLOAD_CHAIN, OFFLOAD_INTERFACES, OFFLOAD_PRIORITY, OFFLOAD_TABLE, OFFLOADED, offload_rules,
    offload_text,
};
pub use outgoing::{Outgoing, Pools, Through};
pub use owner::{Direction, Owner};
pub use policy::{compile, tier_chain, tier_name};
pub use qos::{Limits, Qos};
pub use ruleset::{
    ACCEPTED, Action, Chain, ConnectionStates, End, Family, Hook, IN_ARP, Is, Key, Limit, Match,
    Period, Rate, Rule, Ruleset, Seen, Set, SetKind, Side, TupleDirection, Value, Verdict,
    local_name,
};
pub use selection::{Compiled, Context, NamedPorts, Selected, Unsupported, subjects};
pub use service_loops::LoopPrevention;
pub use text::{rule_text, table_text};
pub use translate::floating;
