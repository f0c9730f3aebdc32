//! `cambric node tunnels`: allocates the addresses of the nodes' VXLAN devices, writes them to the
//! Nodes, and releases them when no pool uses VXLAN.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Result, bail};
use calico_ipam::{
    AddressRequest, Ipam, IpamError, NODE, NamedPool, Pool, Pools, Release, Request, TYPE, Taker,
};
use calico_model::{EncapsulationMode, Kind, Mac, Metadata, ResourceKey};
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

/// The VXLAN device of a family.
struct Device {
    ipv6: bool,
    /// Fields of the Node's spec.
    address: &'static str,
    mac: &'static str,
    /// As in Calico: the attribute of the allocation, and the start of its handle.
    kind: &'static str,
    handle: &'static str,
}

const DEVICES: [Device; 2] = [
    Device {
        ipv6: false,
        address: "ipv4VXLANTunnelAddr",
        mac: "vxlanTunnelMACAddr",
        kind: "vxlanTunnelAddress",
        handle: "vxlan-tunnel-addr-",
    },
    Device {
        ipv6: true,
        address: "ipv6VXLANTunnelAddr",
        mac: "vxlanTunnelMACAddrV6",
        kind: "vxlanV6TunnelAddress",
        handle: "vxlan-v6-tunnel-addr-",
    },
];

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

/// Reads the pools. A pool that cannot be read is an error: it may be the one that uses VXLAN.
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
    let current = text_at(&node.value, device.address);
    if !pools.all.iter().any(|pool| is_of(pool, device)) {
        let lacks_mac = text_at(&node.value, device.mac).is_none();
        return Ok(current.is_none() && lacks_mac && held.is_empty());
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
    let current = text_at(&node.value, device.address);
    let is_clear = current.is_none() && text_at(&node.value, device.mac).is_none();
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
        bail!("no enabled pool with a vxlanMode allows tunnels on this node");
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

/// Returns whether the address of a node's device stays: it is in a pool with VXLAN, and allocated to
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

/// Returns whether a pool uses VXLAN in the family of a device.
fn is_of(pool: &NamedPool, device: &Device) -> bool {
    let range = pool.spec.cidr;
    pool.spec.vxlan_mode != EncapsulationMode::Never
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
    let before = text_at(&node.value, device.address);
    let mac = mac_of(node.key.name(), device.ipv6).to_string();
    let wanted = address.map(|address| address.to_string());
    let mut written = false;
    let change = |value: &mut Value| {
        let stored = text_at(value, device.address);
        // The answer to the write may have been lost.
        written = wanted.is_some() && stored == wanted;
        if written || stored != before {
            return false;
        }
        let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) else {
            return false;
        };
        let stored = spec.get(device.mac).and_then(Value::as_str);
        match &wanted {
            Some(address) => {
                // An Ethernet address that an operator has chosen stays.
                if stored.is_none_or(str::is_empty) {
                    spec.insert(device.mac.to_owned(), mac.clone().into());
                }
                spec.insert(device.address.to_owned(), address.clone().into());
            }
            None => {
                spec.remove(device.mac);
                spec.remove(device.address);
            }
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

/// Returns a text of a resource's spec, unless it is empty.
fn text_at(resource: &Value, field: &str) -> Option<String> {
    let text = resource.get("spec")?.get(field)?.as_str()?;
    Some(text.to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
