//! The state that a host should be in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::settings::Settings;
use super::types::{Endpoint, EndpointId, Problem};
use crate::render::{Assembly, Control, Ruleset, Touched};

/// What a host should look like, and what is said about its endpoints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// The settings that all else follows.
    pub settings: Settings,
    /// Workload interfaces to set up, by name, each with its endpoint.
    pub interfaces: BTreeMap<String, Endpoint>,
    /// Routes: a workload's address, or one outside that stands for it, to interface; /32 or /128.
    pub routes: BTreeMap<IpAddr, String>,
    /// What belongs to the fabric itself.
    pub control: Control,
    /// The packet filter.
    pub(super) rules: Assembly,
    /// Every endpoint of this host, and whether it has its interface.
    pub endpoints: BTreeMap<EndpointId, Placement>,
    /// What cannot be followed, or not in full.
    pub problems: BTreeSet<Problem>,
    /// How many values are refused; of each the one before, if any, stays in force.
    pub refused: usize,
}

impl Desired {
    /// The packet filter.
    pub const fn rules(&self) -> &Ruleset {
        self.rules.ruleset()
    }
}

/// Whether an endpoint has its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The endpoint, with the addresses that are its own.
    pub endpoint: Endpoint,
    /// Why it is refused, if it is: it is not set up, or not with all its addresses, or as it was
    /// before its last value.
    pub denied: Option<String>,
    /// What is dropped because a profile is missing. The endpoint is set up all the same.
    pub missing: Option<String>,
}

/// What of [`Desired`] may be different.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// Interfaces that endpoints have, or had.
    pub interfaces: BTreeSet<String>,
    /// Endpoints.
    pub endpoints: BTreeSet<EndpointId>,
    /// Addresses that are gone or have moved.
    pub left: BTreeSet<IpAddr>,
    /// Parts of the packet filter.
    pub rules: Touched,
    /// The settings are others.
    pub settings: bool,
    /// Unsupported fields that are newly found in values that are in force.
    pub unsupported: Vec<Problem>,
}
