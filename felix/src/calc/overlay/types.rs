//! The overlay that a host needs, and its changed parts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use calico_model::Mac;
use ipnet::IpNet;

use super::super::pattern::Pattern;
use crate::render::Family;

/// The overlay that this host needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// The device of each family.
    pub devices: BTreeMap<Family, DeviceState>,
    /// The device for IP in IP.
    pub ipip: IpipState,
    /// Tunnel ends of other nodes, by the address of their tunnel device.
    pub ends: BTreeMap<IpAddr, TunnelEnd>,
    /// Routes to blocks of pools of which Felix installs the routes, and to addresses outside the blocks of
    /// their node.
    pub routes: BTreeMap<IpNet, Way>,
}

/// The device that a family needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// No pool of the family uses VXLAN: a device of an earlier run is removed.
    Unused {
        /// The VXLAN network identifier of such a device.
        vni: u32,
    },
    /// VXLAN is in use, but no pool of the family uses it. A device of any program stays.
    Idle,
    /// A pool uses VXLAN, but the Node of this host lacks this field. A device of an earlier run stays.
    Lacks(&'static str),
    /// The device.
    Wanted(TunnelDevice),
}

/// A VXLAN device of this host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelDevice {
    /// Its name.
    pub name: &'static str,
    /// Its VXLAN network identifier.
    pub vni: u32,
    /// The UDP port.
    pub port: u16,
    /// The source address of its packets.
    pub local: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its own address, with which this host sends into the overlay.
    pub address: IpAddr,
    /// Its MTU; `None`: the one of the uplinks without the octets of the encapsulation.
    pub mtu: Option<u32>,
    /// The uplinks; `None`: the interfaces with the built-in names.
    pub uplinks: Option<Pattern>,
}

/// The device for IP in IP, which the kernel makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IpipState {
    /// No pool uses IP in IP: the device is set down without its addresses.
    Unused {
        /// The ranges of the pools, in which these addresses are.
        pools: BTreeSet<IpNet>,
    },
    /// A pool uses IP in IP, but the Node of this host lacks a field. Its former address may belong to
    /// another node or to a workload, so it is removed too.
    Lacks {
        /// The field.
        field: &'static str,
        /// As above.
        pools: BTreeSet<IpNet>,
    },
    /// The device.
    Wanted(IpipDevice),
}

impl Default for IpipState {
    fn default() -> Self {
        let pools = BTreeSet::new();
        Self::Unused { pools }
    }
}

/// The device for IP in IP of this host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpipDevice {
    /// Its own address, with which this host sends into tunnels.
    pub address: Ipv4Addr,
    /// The address of this host, whose interface is an uplink.
    pub node: Option<IpAddr>,
    /// Its MTU; `None`: the one of the uplinks without the octets of the encapsulation.
    pub mtu: Option<u32>,
    /// The uplinks; `None`: the interfaces with the built-in names.
    pub uplinks: Option<Pattern>,
}

/// The tunnel end of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunnelEnd {
    /// The Ethernet address of its tunnel device.
    pub mac: Mac,
    /// The address of the node.
    pub node: IpAddr,
}

/// How packets to a prefix are forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// Through the tunnel device to the tunnel end with this address.
    Tunnel(IpAddr),
    /// In IP in IP to the node with this address.
    Ipip(IpAddr),
    /// To the node with this address, which is in a subnet of this one.
    Direct(IpAddr),
    /// Nowhere: an address of an own block that has no endpoint does not exist.
    Blackhole,
}

/// The changed parts of an overlay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverlayTouched {
    /// The devices.
    pub devices: bool,
    /// Tunnel ends.
    pub ends: BTreeSet<IpAddr>,
    /// Routes.
    pub routes: BTreeSet<IpNet>,
}
