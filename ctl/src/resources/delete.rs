//! `cambric delete`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use datastore::resources::{Item, ResourceError, Resources, version_in};
use ipam::{Ipam, IpamError, Release};
use model::{Kind, Network, ResourceKey};
use serde_json::Value;

use super::connect::Connection;
use super::input::{Files, Namespace, key, kind};
use super::write::summary;

/// The arguments of `cambric delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    /// The kind: its name, also in the plural, in any case, or a short one such as wep
    #[arg(required_unless_present = "filename")]
    kind: Option<String>,
    /// The names
    #[arg(required_unless_present = "filename")]
    names: Vec<String>,
    #[command(flatten)]
    files: Files,
    /// The namespace of resources that name none [default: default]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Pass over resources that are not there
    #[arg(short, long)]
    skip_not_exists: bool,
    #[command(flatten)]
    connection: Connection,
}

/// A resource to delete, and the version that it must have.
struct Target {
    key: ResourceKey,
    version: Option<String>,
    /// What a message about it begins with.
    place: String,
}

/// Runs `cambric delete`.
pub(crate) async fn delete(args: Delete) -> Result<ExitCode> {
    let targets = args.targets()?;
    let all = args.connection.resources().await?;
    let kinds: Vec<String> = targets
        .iter()
        .map(|target| target.key.kind().name().to_owned())
        .collect();
    let (mut done, mut failed) = (0, 0);
    for target in targets {
        match remove(&all, &target).await {
            Ok(()) => done += 1,
            Err(Failure::Resource(ResourceError::Missing(_))) if args.skip_not_exists => done += 1,
            Err(error) => {
                failed += 1;
                eprintln!("cambric: {}{error}", target.place);
            }
        }
    }
    println!("{}", summary("delete", "deleted", &kinds, done));
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

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
        for document in self.files.documents()? {
            targets.push(Target {
                key: key(&document, &namespace)?,
                version: version_in(&document.value()),
                place: document.fault(".", String::new()).to_string(),
            });
        }
        Ok(targets)
    }
}

/// How long those who take addresses out of a pool that has just been closed may take for it.
const POOL_CLOSES_IN: Duration = Duration::from_millis(500);

/// Deletes a resource, and what is nothing without it.
async fn remove(all: &Resources, target: &Target) -> Result<(), Failure> {
    let mut version = target.version.as_deref();
    match target.key.kind() {
        Kind::Node => {
            let node = all.get(&target.key).await?;
            remove_what_is_of_node(all, &node).await?;
        }
        Kind::IpPool if close_pool(all, target).await? => version = None,
        _ => {}
    }
    all.delete(&target.key, version).await?;
    Ok(())
}

/// Deletes what belongs to a node: its addresses and blocks, its endpoints, its peers, its
/// settings.
async fn remove_what_is_of_node(all: &Resources, node: &Item) -> Result<(), Failure> {
    let name = node.key.name();
    let is_its = |item: &Item| item.value["spec"]["node"] == name;
    let endpoints = all.list(Kind::WorkloadEndpoint, None).await?.items;
    let mut addresses = tunnels(node);
    for endpoint in endpoints.iter().filter(|item| is_its(item)) {
        let networks = endpoint.value["spec"]["ipNetworks"].as_array();
        let networks = networks.into_iter().flatten().filter_map(Value::as_str);
        addresses.extend(networks.filter_map(|text| text.parse::<Network>().ok()));
    }
    let releases: Vec<Release> = addresses
        .iter()
        .map(|network| Release::of(network.address()))
        .collect();
    let ipam = Ipam::new(all.store());
    ipam.release(&releases).await?;
    ipam.remove_host(name).await?;
    for endpoint in endpoints.iter().filter(|item| is_its(item)) {
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

/// The addresses of a node's tunnels.
fn tunnels(node: &Item) -> Vec<Network> {
    [
        "/spec/bgp/ipv4IPIPTunnelAddr",
        "/spec/ipv4VXLANTunnelAddr",
        "/spec/ipv6VXLANTunnelAddr",
        "/spec/wireguard/interfaceIPv4Address",
        "/spec/wireguard/interfaceIPv6Address",
    ]
    .iter()
    .filter_map(|path| node.value.pointer(path)?.as_str()?.parse().ok())
    .collect()
}

/// Sees to it that nothing more is taken out of a pool, and takes its blocks from their hosts;
/// tells whether the pool was written for that.
async fn close_pool(all: &Resources, target: &Target) -> Result<bool, Failure> {
    let mut pool = all.get(&target.key).await?.value;
    let open = pool["spec"]["disabled"] != true;
    if open {
        pool["spec"]["disabled"] = true.into();
        if let Some(version) = &target.version {
            pool["metadata"]["resourceVersion"] = version.clone().into();
        }
        all.replace(pool.clone()).await?;
        tokio::time::sleep(POOL_CLOSES_IN).await;
    }
    let range = pool["spec"]["cidr"]
        .as_str()
        .and_then(|text| text.parse::<Network>().ok());
    if let Some(range) = range {
        Ipam::new(all.store())
            .release_range(range.0.trunc())
            .await?;
    }
    Ok(open)
}

/// Somebody else may have deleted it.
fn gone(deleted: Result<Item, ResourceError>) -> Result<(), ResourceError> {
    match deleted {
        Err(ResourceError::Missing(_)) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Why something is not deleted.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The resource, or one that goes with it.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// Its addresses.
    #[error(transparent)]
    Addresses(#[from] IpamError),
}
