//! The tunnels between the hosts of the fabric.

use std::net::IpAddr;

use serde_json::Value;

use super::settings::Settings;
use crate::packet::{Family, Field, protocol};
use crate::ranges::{Ranges, number};
use crate::space::{ConditionId, Space};

/// The protocol number of IP in IP.
const IPIP: u128 = 4;

/// The encapsulations in use, and the ends of tunnels.
#[derive(Clone, Debug, Default)]
pub(super) struct Tunnels {
    ipip: bool,
    vxlan: Option<u128>,
    ends: Vec<(Family, (u128, u128))>,
    nodes: Vec<(Family, (u128, u128))>,
}

impl Tunnels {
    /// Reads pools and nodes.
    pub(super) fn read<'s>(
        pools: impl Iterator<Item = &'s Value>,
        nodes: impl Iterator<Item = &'s Value>,
        settings: &Settings,
    ) -> Self {
        let mut tunnels = Self {
            ipip: false,
            vxlan: None,
            ends: settings.tunnel_sources.clone(),
            nodes: Vec::new(),
        };
        // Of IPv4, which a setting overrides, and of IPv6.
        let mut vxlan = [false; 2];
        for value in pools {
            let spec = &value["spec"];
            let uses = |field: &str| {
                let mode = spec[field].as_str().unwrap_or_default();
                !mode.is_empty() && mode != "Never"
            };
            tunnels.ipip |= uses("ipipMode");
            let cidr = spec["cidr"].as_str().unwrap_or_default();
            vxlan[usize::from(cidr.contains(':'))] |= uses("vxlanMode");
        }
        for value in nodes {
            tunnels.nodes.extend(addresses(&value["spec"]));
        }
        tunnels.ends.extend(&tunnels.nodes);
        tunnels.ipip = settings.ipip.unwrap_or(tunnels.ipip);
        let [v4, v6] = vxlan;
        let uses_vxlan = settings.vxlan.unwrap_or(v4) || v6;
        tunnels.vxlan = uses_vxlan.then_some(settings.vxlan_port.into());
        tunnels
    }

    /// Returns the conditions of the packets of each encapsulation in use.
    pub(super) fn packets(&self, space: &mut Space, family: Family) -> Vec<Vec<ConditionId>> {
        let mut all = Vec::new();
        if self.ipip && family == Family::V4 {
            all.push(vec![space.is(Field::Protocol, IPIP)]);
        }
        if let Some(port) = self.vxlan {
            all.push(vec![
                space.is(Field::Protocol, protocol::UDP),
                space.is(Field::DestinationPort, port),
            ]);
        }
        all
    }

    /// Returns the addresses of the ends of tunnels.
    pub(super) fn ends(&self, family: Family) -> Ranges {
        let own = self.ends.iter().filter(|(of, _)| *of == family);
        Ranges::of(own.map(|(_, range)| *range))
    }

    /// Returns the addresses of nodes.
    pub(super) fn nodes(&self, family: Family) -> Ranges {
        let own = self.nodes.iter().filter(|(of, _)| *of == family);
        Ranges::of(own.map(|(_, range)| *range))
    }
}

/// Returns all addresses of a node.
fn addresses(spec: &Value) -> Vec<(Family, (u128, u128))> {
    let bgp = &spec["bgp"];
    let listed = spec["addresses"].as_array().into_iter().flatten();
    let all = [
        &bgp["ipv4Address"],
        &bgp["ipv6Address"],
        &bgp["ipv4IPIPTunnelAddr"],
        &spec["ipv4VXLANTunnelAddr"],
        &spec["ipv6VXLANTunnelAddr"],
        &spec["wireguard"]["interfaceIPv4Address"],
        &spec["wireguard"]["interfaceIPv6Address"],
    ];
    let all = all.into_iter().chain(listed.map(|one| &one["address"]));
    let one = |value: &Value| {
        // The address of a network: without its length.
        let text = value.as_str()?;
        let address: IpAddr = text.split('/').next()?.parse().ok()?;
        let family = match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        };
        Some((family, (number(address), number(address))))
    };
    all.filter_map(one).collect()
}
