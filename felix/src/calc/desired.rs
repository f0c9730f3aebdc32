//! The desired state of a host.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::overlay::{Overlay, OverlayTouched};
use super::settings::Settings;
use super::types::{Endpoint, EndpointId, Problem};
use crate::render::{Assembly, Control, PacketLog, Ruleset, Touched};

/// The desired state of a host, and the status of its endpoints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Desired {
    /// The settings on which everything else is based.
    pub settings: Settings,
    /// The packet log to which rules report, while the flow log is on.
    pub flows: Option<PacketLog>,
    /// Workload interfaces to set up, by name, each with its endpoint.
    pub interfaces: BTreeMap<String, Endpoint>,
    /// Routes: a workload's address, or a floating address, to interface; /32 or /128.
    pub routes: BTreeMap<IpAddr, String>,
    /// The overlay.
    pub overlay: Overlay,
    /// Addresses and ports of the fabric itself.
    pub control: Control,
    /// The packet filter.
    pub(super) rules: Assembly,
    /// Every endpoint of this host, with its placement.
    pub endpoints: BTreeMap<EndpointId, Placement>,
    /// Values that are not applied, or not in full.
    pub problems: BTreeSet<Problem>,
    /// Number of rejected values; the previous value of each, if any, stays in effect.
    pub refused: usize,
}

impl Desired {
    /// Returns whether another route of this host than that over an interface needs an address: one to
    /// another interface, or one of the overlay.
    pub(crate) fn needs(&self, interface: &str, address: IpAddr) -> bool {
        let held = self.routes.get(&address);
        held.is_some_and(|held| held != interface)
            || self.overlay.routes.contains_key(&IpNet::from(address))
    }

    /// Returns the packet filter.
    pub const fn rules(&self) -> &Ruleset {
        self.rules.ruleset()
    }
}

/// The assigned interface and addresses of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The endpoint, with the addresses that it gets.
    pub endpoint: Endpoint,
    /// Why it is rejected, if it is: it is not set up, or not with all its addresses, or with its
    /// previous value.
    pub denied: Option<String>,
    /// Traffic that is dropped because of a missing profile. The endpoint is set up nevertheless.
    pub missing: Option<String>,
}

/// The parts of [`Desired`] that may have changed.
#[derive(Clone, Debug, Default)]
pub struct Recomputed {
    /// Interfaces of present or former endpoints.
    pub interfaces: BTreeSet<String>,
    /// Endpoints.
    pub endpoints: BTreeSet<EndpointId>,
    /// Addresses that were removed or moved.
    pub left: BTreeSet<IpAddr>,
    /// Parts of the overlay.
    pub overlay: OverlayTouched,
    /// Parts of the packet filter.
    pub rules: Touched,
    /// The settings have changed.
    pub settings: bool,
    /// Newly found unsupported fields of values in effect.
    pub unsupported: Vec<Problem>,
}
