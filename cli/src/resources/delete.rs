//! `cambric delete`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use calico_ipam::{Holder, Ipam, IpamError, Release};
use calico_model::{Kind, Network, ResourceKey};
use calico_store::Revision;
use calico_store::resources::{Item, ResourceError, Resources, version_in};
use serde_json::Value;

use super::connect::Connection;
use super::input::{Files, Namespace, key, kind};
use super::results::{Results, Words};

/// The arguments of `cambric delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    /// The kind, in any case, singular, plural or short, such as wep
    #[arg(required_unless_present = "filename")]
    kind: Option<String>,
    /// The names
    #[arg(required_unless_present = "filename")]
    names: Vec<String>,
    #[command(flatten)]
    files: Files,
    /// The namespace of resources without one [default: default]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Skip missing resources
    #[arg(short, long)]
    skip_not_exists: bool,
    #[command(flatten)]
    connection: Connection,
}

/// A resource to delete, and its expected version.
struct Target {
    key: ResourceKey,
    version: Option<String>,
    /// Prefix of messages about it.
    place: String,
}

/// Runs `cambric delete`.
pub(crate) async fn delete(args: Delete) -> Result<ExitCode> {
    let targets = args.targets()?;
    let all = args.connection.resources().await?;
    let mut results = Results::default();
    for target in targets {
        let is_done = match remove(&all, &target).await {
            Ok(()) => true,
            Err(Failure::Resource(ResourceError::Missing(_))) if args.skip_not_exists => {
                results.skip();
                continue;
            }
            Err(error) => {
                eprintln!("cambric: {}{error}", target.place);
                false
            }
        };
        results.add(target.key.kind().name(), is_done);
    }
    Ok(results.print(WORDS))
}

const WORDS: Words = Words {
    verb: "delete",
    done: "deleted",
    skipped: "missing",
};

impl Delete {
    fn targets(&self) -> Result<Vec<Target>> {
        let namespace = Namespace {
            named: self.namespace.clone(),
            all: false,
        };
        let mut targets = Vec::new();
        if let Some(word) = &self.kind {
            if !self.files.filename.is_empty() {
                bail!("name a kind or files, not both");
            }
            let kind = kind(word)?;
            let namespace = namespace.of(kind, None)?;
            for name in &self.names {
                targets.push(Target {
                    key: ResourceKey::new(kind, namespace.as_deref(), name)?,
                    version: None,
                    place: String::new(),
                });
            }
            return Ok(targets);
        }
        let (documents, mut mistakes) = self.files.documents()?;
        for document in documents {
            match key(&document, &namespace) {
                Ok(key) => targets.push(Target {
                    key,
                    version: version_in(&document.value()),
                    place: document.fault(".", String::new()).to_string(),
                }),
                Err(problems) => mistakes.add(&document, problems),
            }
        }
        if mistakes.is_empty() {
            return Ok(targets);
        }
        bail!("nothing is deleted:\n{mistakes}")
    }
}

/// Time for pool users, which may have read the pool before it was closed, to finish an allocation.
const POOL_CLOSES_IN: Duration = Duration::from_millis(500);

/// The attribute with the node that uses an address.
const NODE: &str = "node";

/// Deletes a resource, and the objects that depend on it. If the version is outdated, nothing is
/// deleted.
async fn remove(all: &Resources, target: &Target) -> Result<(), Failure> {
    let version = target.version.as_deref();
    match target.key.kind() {
        Kind::Node => {
            let node = all.get_version(&target.key, version).await?;
            remove_what_is_of_node(all, &node).await?;
        }
        Kind::IpPool => {
            let closed = close_pool(all, target).await?.to_string();
            all.delete(&target.key, version.and(Some(&closed))).await?;
            return Ok(());
        }
        _ => {}
    }
    all.delete(&target.key, version).await?;
    Ok(())
}

/// Deletes the objects of a node: its addresses and blocks, its endpoints, its peers, its settings.
async fn remove_what_is_of_node(all: &Resources, node: &Item) -> Result<(), Failure> {
    let name = node.key.name();
    let is_its = |item: &Item| item.value["spec"]["node"] == name;
    let endpoints = all.list(Kind::WorkloadEndpoint, None).await?.items;
    let (own, others): (Vec<&Item>, Vec<&Item>) = endpoints.iter().partition(|item| is_its(item));
    let mut addresses: BTreeSet<IpAddr> = own.iter().flat_map(|item| addresses_of(item)).collect();
    addresses.extend(tunnels(node));
    // An endpoint that moves may exist on both nodes for a while.
    for address in others.iter().flat_map(|item| addresses_of(item)) {
        addresses.remove(&address);
    }
    let addresses: Vec<IpAddr> = addresses.into_iter().collect();
    let ipam = Ipam::new(all.store());
    let holders = ipam.holders(&addresses).await?;
    // The address of an endpoint that was left behind may have been allocated to another node
    // since.
    let is_of_node = |holder: &&Holder| holder.attributes.get(NODE).is_none_or(|of| of == name);
    let releases: Vec<Release> = holders
        .iter()
        .filter(is_of_node)
        .map(Holder::release)
        .collect();
    ipam.release(&releases).await?;
    ipam.remove_host(name).await?;
    for endpoint in own {
        gone(all.delete(&endpoint.key, None).await)?;
    }
    for kind in [Kind::BgpPeer, Kind::HostEndpoint] {
        for item in all
            .list(kind, None)
            .await?
            .items
            .iter()
            .filter(|item| is_its(item))
        {
            gone(all.delete(&item.key, None).await)?;
        }
    }
    for kind in [Kind::FelixConfiguration, Kind::BgpConfiguration] {
        if let Ok(key) = ResourceKey::new(kind, None, &format!("node.{name}")) {
            gone(all.delete(&key, None).await)?;
        }
    }
    Ok(())
}

/// The addresses of an endpoint.
fn addresses_of(endpoint: &Item) -> impl Iterator<Item = IpAddr> {
    let networks = endpoint.value["spec"]["ipNetworks"].as_array();
    let networks = networks.into_iter().flatten().filter_map(Value::as_str);
    networks.filter_map(|text| Some(text.parse::<Network>().ok()?.address()))
}

/// The addresses of a node's tunnels.
fn tunnels(node: &Item) -> impl Iterator<Item = IpAddr> {
    [
        "/spec/bgp/ipv4IPIPTunnelAddr",
        "/spec/ipv4VXLANTunnelAddr",
        "/spec/ipv6VXLANTunnelAddr",
        "/spec/wireguard/interfaceIPv4Address",
        "/spec/wireguard/interfaceIPv6Address",
    ]
    .iter()
    .filter_map(|path| node.value.pointer(path)?.as_str()?.parse::<Network>().ok())
    .map(|network| network.address())
}

/// Prevents further allocations from a pool, and releases its blocks from their hosts; returns the
/// version of the closed pool.
async fn close_pool(all: &Resources, target: &Target) -> Result<Revision, Failure> {
    let mut open = false;
    let disable = |pool: &mut Value| {
        let spec = pool.get_mut("spec").and_then(Value::as_object_mut);
        let was = spec.and_then(|spec| spec.insert("disabled".to_owned(), true.into()));
        open = was != Some(Value::Bool(true));
        open
    };
    let version = target.version.as_deref();
    let pool = all.patch(&target.key, version, disable).await?;
    if open {
        tokio::time::sleep(POOL_CLOSES_IN).await;
    }
    let range = pool.value["spec"]["cidr"]
        .as_str()
        .and_then(|text| text.parse::<Network>().ok());
    if let Some(range) = range {
        Ipam::new(all.store())
            .release_range(range.0.trunc())
            .await?;
    }
    Ok(pool.revision)
}

/// Accepts the error that another client has deleted the object.
fn gone(deleted: Result<Item, ResourceError>) -> Result<(), ResourceError> {
    match deleted {
        Err(ResourceError::Missing(_)) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Why an object is not deleted.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The error is about the resource, or one that depends on it.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// The error is about its addresses.
    #[error(transparent)]
    Addresses(#[from] IpamError),
}
