//! The device for IP in IP of this host, and the mode of its pools.

use std::net::IpAddr;

use calico_model::{ClusterRoutes, EncapsulationMode, Kind};
use ipnet::IpNet;

use super::types::{IpipDevice, IpipState};
use super::writers;
use super::{Around, OverlayInputs};
use crate::calc::types::Problem;
use crate::render::Family;

/// The field with the address of the device.
const FIELD: &str = "spec.bgp.ipv4IPIPTunnelAddr";

impl Around<'_> {
    /// Returns whether this host needs the device.
    pub(super) fn uses_ipip(&self) -> bool {
        self.settings.ipip.unwrap_or_else(|| self.pools.use_ipip())
    }

    /// Returns when Felix installs routes through the device to a block or an address.
    pub(super) fn ipip_mode_of(&self, net: IpNet) -> EncapsulationMode {
        match self.ipip && self.uses_ipip() {
            true => self.pools.ipip_mode_of(net),
            false => EncapsulationMode::Never,
        }
    }
}

impl OverlayInputs {
    /// Returns whether Felix installs the routes of pools with IP in IP: the settings of Felix and of the
    /// BGP daemons fit, so that each prefix has one writer.
    pub(in crate::calc) fn ipip_routes(&self, felix: ClusterRoutes) -> bool {
        felix.ipip() && writers::fit(felix, self.bgp())
    }

    /// Returns the device that this host needs.
    pub(super) fn ipip(&self, around: Around<'_>) -> IpipState {
        let pools = || {
            let all = around.pools.ranges().all.into_iter();
            all.filter(|range| matches!(range, IpNet::V4(_))).collect()
        };
        if !around.uses_ipip() {
            return IpipState::Unused { pools: pools() };
        }
        let Some(address) = self.ends.ipip_of(around.hostname) else {
            return IpipState::Lacks {
                field: FIELD,
                pools: pools(),
            };
        };
        let own = self.ends.of(around.hostname, Family::V4);
        IpipState::Wanted(IpipDevice {
            address,
            node: own.and_then(|own| own.node).map(|node| node.addr()),
            mtu: around.settings.ipip_mtu,
            uplinks: around.uplinks.cloned(),
        })
    }

    /// Returns the problem of a Node: that of this host, if its address is missing.
    pub(super) fn ipip_problem(&self, around: Around<'_>, node: &str) -> Option<Problem> {
        let is_own = node == around.hostname && around.uses_ipip();
        if !is_own || self.ends.ipip_of(node).is_some() {
            return None;
        }
        let key = format!("{}{node}", Kind::Node.prefix());
        let reason =
            "is missing: this host has no address for IP in IP in the pools with an ipipMode";
        Some(Problem::new(key, FIELD, reason))
    }

    /// Returns the address of another node to which packets are sent in IP in IP, if this host has the
    /// device.
    pub(super) fn ipip_end(&self, around: Around<'_>, node: &str) -> Option<IpAddr> {
        let far = self.ends.of(node, Family::V4)?.node?;
        let has_device = around.uses_ipip() && self.ends.ipip_of(around.hostname).is_some();
        has_device.then(|| far.addr())
    }
}
