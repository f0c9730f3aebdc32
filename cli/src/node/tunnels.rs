//! `cambric node tunnels`: allocates the addresses of the nodes' devices for VXLAN and IP in IP, writes
//! them to the Nodes, and releases them when no pool uses the encapsulation.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Result, bail};
use calico_ipam::{
    AddressRequest, Ipam, IpamError, NODE, NamedPool, Pool, Pools, Release, Request, TYPE, Taker,
};
use calico_model::{EncapsulationMode, IpPoolSpec, Kind, Mac, Metadata, ResourceKey};
use calico_store::Error;
use calico_store::resources::{Item, ResourceError, Resources};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::Value;

use crate::resources::Connection;
use crate::show::clean;

/// Attempts for one device while other programs change its Node or its allocation.
const ATTEMPTS_MAX: usize = 5;

/// The first octet of a generated Ethernet address: locally administered, of one device.
const GENERATED: u8 = 0x66;

/// The arguments of `cambric node tunnels`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// Names of nodes; without any, all nodes
    #[arg(value_name = "NAME")]
    nodes: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// A tunnel device.
struct Device {
    ipv6: bool,
    /// Fields of the Node's spec: the parent of the address, if it is not the spec, and the address.
    parent: Option<&'static str>,
    address: &'static str,
    /// That of its Ethernet address, if it has one.
    mac: Option<&'static str>,
    /// The field of pools that use it, and its value.
    mode: (&'static str, fn(&IpPoolSpec) -> EncapsulationMode),
    /// As in Calico: the attribute of the allocation, and the start of its handle.
    kind: &'static str,
    handle: &'static str,
}

/// The field of pools for VXLAN.
const VXLAN: (&str, fn(&IpPoolSpec) -> EncapsulationMode) = ("vxlanMode", |spec| spec.vxlan_mode);

const DEVICES: [Device; 3] = [
    Device {
        ipv6: false,
        parent: Some("bgp"),
        address: "ipv4IPIPTunnelAddr",
        mac: None,
        mode: ("ipipMode", |spec| spec.ipip_mode),
        kind: "ipipTunnelAddress",
        handle: "ipip-tunnel-addr-",
    },
    Device {
        ipv6: false,
        parent: None,
        address: "ipv4VXLANTunnelAddr",
        mac: Some("vxlanTunnelMACAddr"),
        mode: VXLAN,
        kind: "vxlanTunnelAddress",
        handle: "vxlan-tunnel-addr-",
    },
    Device {
        ipv6: true,
        parent: None,
        address: "ipv6VXLANTunnelAddr",
        mac: Some("vxlanTunnelMACAddrV6"),
        mode: VXLAN,
        kind: "vxlanV6TunnelAddress",
        handle: "vxlan-v6-tunnel-addr-",
    },
];

impl Device {
    /// Returns the stored address in a Node.
    fn stored(&self, node: &Value) -> Option<String> {
        let spec = node.get("spec")?;
        let place = match self.parent {
            Some(parent) => spec.get(parent)?,
            None => spec,
        };
        text_at(place, self.address)
    }

    /// Returns whether a Node has an Ethernet address of the device.
    fn has_mac(&self, node: &Value) -> bool {
        let spec = node.get("spec");
        let stored = |field| spec.and_then(|spec| text_at(spec, field));
        self.mac.and_then(stored).is_some()
    }
}

/// The lines for the changes of a run, and its errors.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    /// One line for each change.
    pub(super) lines: String,
    /// One line for each device that is not in order.
    pub(super) errors: String,
}

/// Runs the command.
pub(super) async fn run(args: &Args) -> Result<Report> {
    let resources = args.connection.resources().await?;
    reconcile(&resources, &args.nodes).await
}

/// Reconciles the devices of nodes, or of all nodes, with the pools. An error of one device does not
/// concern the others.
async fn reconcile(resources: &Resources, names: &[String]) -> Result<Report> {
    let keys = match names {
        [] => {
            let nodes = resources.list(Kind::Node, None).await?;
            if let Some((key, error)) = nodes.unreadable.first() {
                bail!("{}: {error}", clean(key));
            }
            nodes.items.into_iter().map(|node| node.key).collect()
        }
        names => {
            let keys = names
                .iter()
                .map(|name| ResourceKey::new(Kind::Node, None, name));
            keys.collect::<Result<Vec<ResourceKey>, _>>()?
        }
    };
    let pools = readable_pools(&Ipam::new(resources.store())).await?;
    let mut report = Report::default();
    for key in keys {
        for device in &DEVICES {
            match settle(resources, &pools, &key, device).await {
                Ok(line) => report.lines.extend(line),
                Err(error) => {
                    let name = clean(key.name());
                    let line = format!("node {name}: {}: {error:#}\n", device.address);
                    report.errors.push_str(&line);
                }
            }
        }
    }
    Ok(report)
}

/// Reads the pools. A pool that cannot be read is an error: it may be the one that uses tunnels.
async fn readable_pools(ipam: &Ipam<'_>) -> Result<Pools> {
    let pools = ipam.pools().await?;
    if let Some((key, error)) = pools.unreadable.first() {
        bail!("{}: {error}", clean(key));
    }
    let lacks_range = |pool: &&NamedPool| Pool::of(&pool.spec).is_none();
    if let Some(pool) = pools.all.iter().find(lacks_range) {
        bail!("IPPool {}: no range with a block size", clean(&pool.name));
    }
    Ok(pools)
}

/// Brings the device of a node into the state that the pools require. Returns a line if anything has
/// changed.
async fn settle(
    resources: &Resources,
    pools: &Pools,
    key: &ResourceKey,
    device: &Device,
) -> Result<Option<String>> {
    let ipam = Ipam::new(resources.store());
    let handle = format!("{}{}", device.handle, key.name());
    let mut line = None;
    let mut pools = Cow::Borrowed(pools);
    for _ in 0..ATTEMPTS_MAX {
        let node = resources.get(key).await?;
        let held = ipam.of_handle(&handle).await?;
        if is_settled(&ipam, &pools, &node, device, &held).await? {
            return Ok(line);
        }
        // Another program may have written them since.
        pools = Cow::Owned(readable_pools(&ipam).await?);
        let done = match pools.all.iter().any(|pool| is_of(pool, device)) {
            true if is_settled(&ipam, &pools, &node, device, &held).await? => return Ok(line),
            true => allocate(resources, &pools, &node, device, &held).await?,
            false => remove(resources, &node, device, &held).await?,
        };
        line = done.or(line);
        // Another program may have released the address since: the next attempt finds it out.
    }
    bail!("other programs change it at the same time; try again")
}

/// Returns whether a device is in the state that the pools require.
async fn is_settled(
    ipam: &Ipam<'_>,
    pools: &Pools,
    node: &Item,
    device: &Device,
    held: &[Release],
) -> Result<bool> {
    let current = device.stored(&node.value);
    if !pools.all.iter().any(|pool| is_of(pool, device)) {
        let has_mac = device.has_mac(&node.value);
        return Ok(current.is_none() && !has_mac && held.is_empty());
    }
    match current.as_deref().and_then(|text| text.parse().ok()) {
        Some(address) => is_kept(ipam, pools, node, device, address).await,
        None => Ok(false),
    }
}

/// Removes a device from its Node, and releases the addresses that it held. The Node is first: until
/// then, other nodes send to its address.
async fn remove(
    resources: &Resources,
    node: &Item,
    device: &Device,
    held: &[Release],
) -> Result<Option<String>> {
    let name = node.key.name();
    let current = device.stored(&node.value);
    let is_clear = current.is_none() && !device.has_mac(&node.value);
    if !is_clear && !write(resources, node, device, None).await? {
        return Ok(None);
    }
    release(&Ipam::new(resources.store()), held).await?;
    let first = || held.first().map(|release| release.address.to_string());
    let words = current
        .or_else(first)
        .unwrap_or_else(|| "Ethernet address".to_owned());
    Ok(Some(format!("{name}: {words} released\n")))
}

/// Allocates an address, and writes it to the Node. Afterwards, the other addresses that the device
/// held are released.
async fn allocate(
    resources: &Resources,
    pools: &Pools,
    node: &Item,
    device: &Device,
    held: &[Release],
) -> Result<Option<String>> {
    let ipam = Ipam::new(resources.store());
    let name = node.key.name();
    let taker = taker(name, device);
    let from = usable(pools, node, device)?;
    if from.is_empty() {
        let (field, _) = device.mode;
        bail!("no enabled pool with a {field} allows tunnels on this node");
    }
    if let Some(parent) = device.parent
        && !node.value["spec"][parent].is_object()
    {
        bail!("spec.{parent} of the Node is missing: the address is a part of it");
    }
    let request = Request {
        host: name,
        taker: &taker,
        count: 1,
        pools: &from,
        reserved: &pools.reserved,
        blocks_max: None,
    };
    let given = ipam.assign(&request).await?;
    let Some(given) = given.first() else {
        bail!("no address");
    };
    let written = write(resources, node, device, Some(given.address)).await;
    let may_be_written = match &written {
        Ok(written) => *written,
        Err(error) => matches!(error, ResourceError::Store(Error::Unavailable(_))),
    };
    if !may_be_written {
        release(&ipam, &[given.release(&taker.handle)]).await?;
    }
    if !written? {
        return Ok(None);
    }
    release(&ipam, held).await?;
    Ok(Some(format!("{name}: {} allocated\n", given.address)))
}

/// Releases addresses, except those that were allocated again since.
async fn release(ipam: &Ipam<'_>, held: &[Release]) -> Result<()> {
    for release in held {
        match ipam.release(std::slice::from_ref(release)).await {
            Ok(_) | Err(IpamError::Changed(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Returns whether the address of a node's device stays: it is in a pool that uses it, and allocated to
/// the device, or can be allocated to it now.
async fn is_kept(
    ipam: &Ipam<'_>,
    pools: &Pools,
    node: &Item,
    device: &Device,
    address: IpAddr,
) -> Result<bool> {
    let all = pools.all.iter().filter(|pool| is_of(pool, device));
    let all: Vec<Pool> = all.filter_map(|pool| Pool::of(&pool.spec)).collect();
    if !all.iter().any(|pool| pool.cidr.contains(&address)) {
        return Ok(false);
    }
    let name = node.key.name();
    let taker = taker(name, device);
    if let Some(holder) = ipam.holders(&[address]).await?.first() {
        return Ok(holder.handle.as_ref() == Some(&taker.handle));
    }
    let request = AddressRequest {
        host: name,
        taker: &taker,
        address,
        pools: &all,
    };
    match ipam.assign_address(&request).await {
        Ok(_) => Ok(true),
        Err(IpamError::Taken { .. } | IpamError::Strict { .. } | IpamError::InUse(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn taker(node: &str, device: &Device) -> Taker {
    let attributes = [(NODE, node), (TYPE, device.kind)];
    let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Taker {
        handle: format!("{}{node}", device.handle),
        attributes: attributes.into(),
    }
}

/// Returns whether a pool uses a device.
fn is_of(pool: &NamedPool, device: &Device) -> bool {
    let range = pool.spec.cidr;
    let (_, mode) = device.mode;
    mode(&pool.spec) != EncapsulationMode::Never
        && range.is_some_and(|range| range.address().is_ipv6() == device.ipv6)
}

/// Returns the pools from which the device of a node can get an address.
fn usable(pools: &Pools, node: &Item, device: &Device) -> Result<Vec<Pool>> {
    let metadata: Metadata = serde_json::from_value(node.value["metadata"].clone())?;
    let labels: &BTreeMap<String, String> = &metadata.labels;
    let all = pools.all.iter().filter(|pool| is_of(pool, device));
    let usable = all.filter(|pool| {
        let uses = &pool.spec.allowed_uses;
        let selector = pool.spec.node_selector.as_ref();
        !pool.spec.disabled
            && (uses.is_empty() || uses.iter().any(|allowed| allowed == "Tunnel"))
            && selector.is_none_or(|selector| selector.matches(labels))
    });
    Ok(usable.filter_map(|pool| Pool::of(&pool.spec)).collect())
}

/// Writes an address, or none, to a Node that has not changed since. Returns whether it was written.
async fn write(
    resources: &Resources,
    node: &Item,
    device: &Device,
    address: Option<IpAddr>,
) -> Result<bool, ResourceError> {
    let before = device.stored(&node.value);
    let mac = mac_of(node.key.name(), device.ipv6).to_string();
    let wanted = address.map(|address| address.to_string());
    let mut written = false;
    let change = |value: &mut Value| {
        let stored = device.stored(value);
        // The answer to the write may have been lost.
        written = wanted.is_some() && stored == wanted;
        if written || stored != before {
            return false;
        }
        let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) else {
            return false;
        };
        if let Some(field) = device.mac {
            let stored = spec.get(field).and_then(Value::as_str);
            match &wanted {
                // An Ethernet address that an operator has chosen stays.
                Some(_) if !stored.is_none_or(str::is_empty) => {}
                Some(_) => drop(spec.insert(field.to_owned(), mac.clone().into())),
                None => drop(spec.remove(field)),
            }
        }
        let place = match device.parent {
            Some(parent) => spec.get_mut(parent).and_then(Value::as_object_mut),
            None => Some(spec),
        };
        match (place, &wanted) {
            (Some(place), Some(address)) => {
                place.insert(device.address.to_owned(), address.clone().into());
            }
            (Some(place), None) => drop(place.remove(device.address)),
            // Another program has removed it since.
            (None, wanted) if wanted.is_some() => return false,
            (None, _) => {}
        }
        written = true;
        true
    };
    resources.patch(&node.key, None, change).await?;
    Ok(written)
}

/// Returns the Ethernet address of a node's VXLAN device, as Calico derives it from the name of the
/// node.
fn mac_of(node: &str, ipv6: bool) -> Mac {
    let suffix = if ipv6 { "-v6" } else { "" };
    let name = format!("{node}{suffix}");
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, name.as_bytes());
    let mut octets = [GENERATED; 6];
    for (octet, of_digest) in octets.iter_mut().skip(1).zip(digest.as_ref()) {
        *octet = *of_digest;
    }
    Mac(octets)
}

/// Returns a text in a part of a resource, unless it is empty.
fn text_at(part: &Value, field: &str) -> Option<String> {
    let text = part.get(field)?.as_str()?;
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
