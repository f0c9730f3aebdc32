//! `cambric node tunnels`: allocates the addresses of the nodes' VXLAN devices, writes them to the
//! Nodes, and releases them when no pool uses VXLAN.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use calico_ipam::{
    AddressRequest, Ipam, IpamError, NODE, NamedPool, Pool, Pools, Request, TYPE, Taker,
};
use calico_model::{EncapsulationMode, Kind, Mac, Metadata, ResourceKey};
use calico_store::resources::{Item, Resources};
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

/// Runs the command. Returns one line for each change.
pub(super) async fn run(args: &Args) -> Result<String> {
    let resources = args.connection.resources().await?;
    reconcile(&resources, &args.nodes).await
}

/// Reconciles the devices of nodes, or of all nodes, with the pools.
async fn reconcile(resources: &Resources, names: &[String]) -> Result<String> {
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
    let pools = Ipam::new(resources.store()).pools().await?;
    let mut text = String::new();
    for key in keys {
        for device in &DEVICES {
            let line = settle(resources, &pools, &key, device).await;
            let line = line.with_context(|| format!("node {}", clean(key.name())))?;
            text.extend(line);
        }
    }
    Ok(text)
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
    let name = key.name();
    let handle = format!("{}{name}", device.handle);
    let mut line = None;
    for _ in 0..ATTEMPTS_MAX {
        let node = resources.get(key).await?;
        let current = text_at(&node.value, device.address);
        if !pools.all.iter().any(|pool| is_of(pool, device)) {
            let released = ipam.release_handle(&handle).await?;
            if current.is_none() && text_at(&node.value, device.mac).is_none() {
                let released = released.first();
                return Ok(line.or_else(|| Some(format!("{name}: {} released\n", released?))));
            }
            write(resources, &node, device, None).await?;
            let words = current.unwrap_or_else(|| "Ethernet address".to_owned());
            line = Some(format!("{name}: {words} released\n"));
            continue;
        }
        if let Some(address) = current.as_deref().and_then(|text| text.parse().ok())
            && is_kept(&ipam, pools, &node, device, address).await?
        {
            return Ok(line);
        }
        // A Node may have lost the address of an earlier allocation.
        ipam.release_handle(&handle).await?;
        let taker = taker(name, device);
        let from = usable(pools, &node, device)?;
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
        let written = write(resources, &node, device, Some(given.address)).await;
        if !matches!(written, Ok(true)) {
            ipam.release(&[given.release(&taker.handle)]).await?;
        }
        if written? {
            line = Some(format!("{name}: {} allocated\n", given.address));
        }
        // Another program may have released it since: the next attempt finds it out.
    }
    bail!("other programs change it at the same time; try again")
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
) -> Result<bool> {
    let before = text_at(&node.value, device.address);
    let mac = mac_of(node.key.name(), device.ipv6).to_string();
    let mut written = false;
    let change = |value: &mut Value| {
        written = false;
        if text_at(value, device.address) != before {
            return false;
        }
        let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) else {
            return false;
        };
        let stored = spec.get(device.mac).and_then(Value::as_str);
        match address {
            Some(address) => {
                // An Ethernet address that an operator has chosen stays.
                if stored.is_none_or(str::is_empty) {
                    spec.insert(device.mac.to_owned(), mac.clone().into());
                }
                spec.insert(device.address.to_owned(), address.to_string().into());
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
mod tests {
    use std::sync::Arc;

    use calico_store::Store;
    use etcd_lite::Local;
    use serde_json::json;

    use super::*;

    fn key(name: &str) -> ResourceKey {
        ResourceKey::new(Kind::Node, None, name).expect("a name")
    }

    async fn put(resources: &Resources, kind: &str, name: &str, spec: Value) {
        let resource = json!({"kind": kind, "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": name}, "spec": spec});
        resources.apply(resource).await.expect("applied");
    }

    async fn fabric() -> Resources {
        let store: Arc<dyn Store> = Arc::new(Local::empty());
        let resources = Resources::from(store);
        resources.initialize().await.expect("ready");
        for n in [1, 2] {
            let spec = json!({"bgp": {"ipv4Address": format!("10.0.0.{n}/24")}});
            put(&resources, "Node", &format!("n{n}"), spec).await;
        }
        pool(&resources, "Always").await;
        resources
    }

    async fn pool(resources: &Resources, mode: &str) {
        let spec = json!({"cidr": "10.65.0.0/16", "vxlanMode": mode});
        put(resources, "IPPool", "a", spec).await;
    }

    async fn text(resources: &Resources, node: &str, field: &str) -> Option<String> {
        let node = resources.get(&key(node)).await.expect("a node");
        text_at(&node.value, field)
    }

    #[tokio::test]
    async fn addresses_are_allocated_once_and_released() {
        let resources = fabric().await;
        let ipam = Ipam::new(resources.store());
        let first = reconcile(&resources, &[]).await.expect("allocated");
        assert_eq!(first.lines().count(), 2, "{first}");
        let address = text(&resources, "n1", "ipv4VXLANTunnelAddr")
            .await
            .expect("one");
        let mac = text(&resources, "n1", "vxlanTunnelMACAddr").await;
        assert_eq!(mac.as_deref(), Some("66:40:b3:ea:b6:3f"));
        let given: IpAddr = address.parse().expect("an address");
        let holders = ipam.holders(&[given]).await.expect("holders");
        assert_eq!(holders[0].handle.as_deref(), Some("vxlan-tunnel-addr-n1"));
        assert_eq!(holders[0].attributes[NODE], "n1");
        assert_eq!(holders[0].attributes[TYPE], "vxlanTunnelAddress");
        assert_eq!(reconcile(&resources, &[]).await.expect("the same"), "");
        // A Node that has lost its address gets one; the lost one is free again.
        let clear = |node: &mut Value| {
            let spec = node["spec"].as_object_mut().expect("a spec");
            spec.remove("ipv4VXLANTunnelAddr").is_some()
        };
        resources
            .patch(&key("n1"), None, clear)
            .await
            .expect("cleared");
        let names = ["n1".to_owned()];
        assert!(
            !reconcile(&resources, &names)
                .await
                .expect("again")
                .is_empty()
        );
        let all = ipam
            .release_handle("vxlan-tunnel-addr-n1")
            .await
            .expect("released");
        assert_eq!(all.len(), 1);
        // An allocation that was released by mistake is made again for the same address.
        let before = text(&resources, "n1", "ipv4VXLANTunnelAddr").await;
        assert_eq!(reconcile(&resources, &names).await.expect("again"), "");
        assert_eq!(text(&resources, "n1", "ipv4VXLANTunnelAddr").await, before);
        assert_eq!(ipam.holders(&all).await.expect("holders").len(), 1);
        // Without VXLAN nothing is left.
        pool(&resources, "Never").await;
        let last = reconcile(&resources, &[]).await.expect("released");
        assert_eq!(last.lines().count(), 2, "{last}");
        for field in ["ipv4VXLANTunnelAddr", "vxlanTunnelMACAddr"] {
            assert_eq!(text(&resources, "n1", field).await, None);
        }
        assert!(ipam.holders(&all).await.expect("holders").is_empty());
        assert_eq!(reconcile(&resources, &[]).await.expect("the same"), "");
    }

    #[tokio::test]
    async fn address_of_another_holder_is_replaced() {
        let resources = fabric().await;
        let spec = json!({"bgp": {"ipv4Address": "10.0.0.1/24"},
            "ipv4VXLANTunnelAddr": "10.65.9.9", "vxlanTunnelMACAddr": "66:00:00:00:00:01"});
        put(&resources, "Node", "n1", spec).await;
        let ipam = Ipam::new(resources.store());
        let taker = Taker {
            handle: "k8s-pod-network.web".to_owned(),
            attributes: BTreeMap::new(),
        };
        let pools = ipam.pools().await.expect("pools").enabled();
        let request = AddressRequest {
            host: "n2",
            taker: &taker,
            address: "10.65.9.9".parse().expect("an address"),
            pools: &pools,
        };
        ipam.assign_address(&request).await.expect("assigned");
        let line = reconcile(&resources, &["n1".to_owned()])
            .await
            .expect("replaced");
        assert!(line.contains("allocated"), "{line}");
        let address = text(&resources, "n1", "ipv4VXLANTunnelAddr").await;
        assert_ne!(address.as_deref(), Some("10.65.9.9"));
        let mac = text(&resources, "n1", "vxlanTunnelMACAddr").await;
        assert_eq!(mac.as_deref(), Some("66:00:00:00:00:01"), "an operator's");
        let holders = ipam.holders(&[request.address]).await.expect("holders");
        assert_eq!(holders[0].handle.as_deref(), Some("k8s-pod-network.web"));
    }

    #[tokio::test]
    async fn node_that_no_pool_selects_is_an_error() {
        let resources = fabric().await;
        let spec =
            json!({"cidr": "10.65.0.0/16", "vxlanMode": "Always", "allowedUses": ["Workload"]});
        put(&resources, "IPPool", "a", spec).await;
        let error = reconcile(&resources, &[]).await.expect_err("no pool");
        assert!(format!("{error:#}").contains("allows tunnels"), "{error:#}");
    }
}
