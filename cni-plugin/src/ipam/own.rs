//! Addresses from the datastore's pools.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use calico_ipam::{
    AddressRequest, Given, HostBlocks, Ipam, IpamError, OTHER_PLUGIN, Pool, Pools,
    Request as Wanted, TYPE, Taker,
};
use calico_model::Kind;
use calico_store::resources::Item;
use serde_json::Value;
use tokio::time::timeout;

use crate::answer::{Answer, Ip};
use crate::facts::Facts;
use crate::failure::{Code, Failure};
use crate::identity::Identity;
use crate::limits::{GIVE_BACK_TIMEOUT, IPAM_TIMEOUT};
use crate::lock;
use crate::request::Request;
use crate::site::{Site, key};

/// The attributes of an allocation that identify its attachment.
pub(crate) const NETWORK: &str = "network";
pub(crate) const CONTAINER: &str = "container";
pub(crate) const INTERFACE: &str = "interface";
pub(crate) const NODE: &str = "node";
pub(crate) const NAMESPACE: &str = "namespace";
pub(crate) const POD: &str = "pod";

/// Prefix of the labels of a namespace in its profile.
const NAMESPACE_LABELS: &str = calico_kubernetes::NAMESPACE_LABELS;

/// The addresses to assign.
enum Plan {
    /// These addresses.
    Named(Vec<IpAddr>, Vec<Pool>),
    /// One address from each list of pools.
    Any(Vec<Vec<Pool>>),
}

/// Assigns addresses to an attachment.
pub(super) async fn take(
    site: &Site<'_>,
    request: &Request,
    identity: &Identity,
    facts: &Facts,
) -> Result<Answer, Failure> {
    let brought = &facts.request.addresses_without_ipam;
    if !brought.is_empty() {
        return Ok(answer(brought));
    }
    let ipam = Ipam::new(&site.store);
    // Calls of one host wait for each other: what needs no lock is done before.
    let early = async {
        // Release the addresses of an earlier attempt that was not cleaned up.
        ipam.release_handle(&identity.handle).await?;
        ipam.host_blocks(&site.config.node).await
    };
    let early = within(IPAM_TIMEOUT, early);
    let labels = labels(site, identity, facts);
    let (pools, labels, blocks) = tokio::join!(ipam.pools(), labels, early);
    let (pools, (node, namespace), blocks) = (pools?, labels?, blocks?);
    let plan = plan(site, request, facts, &pools, &node, &namespace)?;
    let taker = taker(site, identity);
    let _alone = lock::ipam().await?;
    let taking = take_planned(&ipam, site, &blocks, &taker, &plan, &pools.reserved);
    match within(IPAM_TIMEOUT, taking).await {
        Ok(given) => Ok(answer(&given)),
        Err(failure) => {
            // As far as possible now: a repeated ADD, or DEL, releases them as well.
            let _ = give_back(site, &identity.handle).await;
            Err(failure)
        }
    }
}

async fn take_planned(
    ipam: &Ipam<'_>,
    site: &Site<'_>,
    blocks: &HostBlocks,
    taker: &Taker,
    plan: &Plan,
    reserved: &[ipnet::IpNet],
) -> Result<Vec<IpAddr>, IpamError> {
    let host = site.config.node.as_str();
    let mut taken: Vec<Given> = Vec::new();
    match plan {
        Plan::Named(addresses, pools) => {
            for address in addresses {
                let address = *address;
                taken.push(
                    ipam.assign_address(&AddressRequest {
                        host,
                        taker,
                        address,
                        pools,
                    })
                    .await?,
                );
            }
        }
        Plan::Any(families) => {
            for pools in families {
                let blocks_max = None;
                let wanted = Wanted {
                    host,
                    taker,
                    count: 1,
                    pools,
                    reserved,
                    blocks_max,
                };
                taken.extend(ipam.assign_after(&wanted, Some(blocks)).await?);
            }
        }
    }
    Ok(taken.into_iter().map(|given| given.address).collect())
}

/// Releases the addresses of a handle.
pub(crate) async fn give_back(site: &Site<'_>, handle: &str) -> Result<(), Failure> {
    let giving = async { Ipam::new(&site.store).release_handle(handle).await };
    within(GIVE_BACK_TIMEOUT, giving).await.map(drop)
}

/// Returns the result of address management, or fails after a timeout.
async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, IpamError>>,
) -> Result<T, Failure> {
    match timeout(limit, asked).await {
        Ok(answer) => answer.map_err(Failure::from),
        Err(_) => {
            let message = format!("address management took more than {limit:?}");
            Err(Failure::new(Code::Later, message))
        }
    }
}

/// Returns the faults of addresses that are not allocated to this handle.
pub(super) async fn faults(
    site: &Site<'_>,
    handle: &str,
    addresses: &[IpAddr],
) -> Result<Vec<String>, Failure> {
    let holders = Ipam::new(&site.store).holders(addresses).await?;
    let held = |address: &IpAddr| {
        let its = holders
            .iter()
            .find(|holder| holder.given.address == *address);
        its.is_some_and(|holder| holder.handle.as_deref() == Some(handle))
    };
    let lost = addresses.iter().filter(|address| !held(address));
    Ok(lost
        .map(|address| format!("{address} is not held by handle {handle}"))
        .collect())
}

fn taker(site: &Site<'_>, identity: &Identity) -> Taker {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    // `2026-03-04 10:21:00 +0000 UTC`, as Calico's plugin writes it.
    let timestamp = calico_model::rfc3339_utc(since.as_secs())
        .replace('T', " ")
        .replace('Z', " +0000 UTC");
    let mut attributes = BTreeMap::from([
        (NODE.to_owned(), site.config.node.clone()),
        (NETWORK.to_owned(), site.config.network.clone()),
        (CONTAINER.to_owned(), identity.container_id.clone()),
        (INTERFACE.to_owned(), identity.ifname.clone()),
        ("timestamp".to_owned(), timestamp),
    ]);
    if !identity.pod.is_empty() {
        attributes.insert(NAMESPACE.to_owned(), identity.namespace.clone());
        attributes.insert(POD.to_owned(), identity.pod.clone());
    }
    // These addresses have no endpoint, so collectors must not require one.
    if let Some(plugin) = &site.config.foreign {
        attributes.insert(TYPE.to_owned(), format!("{OTHER_PLUGIN}{plugin}"));
    }
    Taker {
        handle: identity.handle.clone(),
        attributes,
    }
}

/// Returns the labels of the node and of the namespace.
async fn labels(
    site: &Site<'_>,
    identity: &Identity,
    facts: &Facts,
) -> Result<(BTreeMap<String, String>, BTreeMap<String, String>), Failure> {
    if let Some(namespace) = &facts.namespace {
        return Ok((node_labels(site).await?, namespace.clone()));
    }
    let profile = key(Kind::Profile, None, &format!("kns.{}", identity.namespace))?;
    let (node, profile) = tokio::join!(node_labels(site), site.find(&profile));
    let node = node?;
    let handed_on = profile?
        .map(|profile| map(&profile, "/spec/labelsToApply"))
        .unwrap_or_default();
    let mut namespace: BTreeMap<String, String> = handed_on
        .into_iter()
        .filter_map(|(label, value)| {
            Some((label.strip_prefix(NAMESPACE_LABELS)?.to_owned(), value))
        })
        .collect();
    namespace.insert(
        "projectcalico.org/name".to_owned(),
        identity.namespace.clone(),
    );
    Ok((node, namespace))
}

/// Returns the labels of the node, which node selectors of pools match.
pub(crate) async fn node_labels(site: &Site<'_>) -> Result<BTreeMap<String, String>, Failure> {
    let node = site
        .find(&key(Kind::Node, None, &site.config.node)?)
        .await?;
    Ok(node
        .map(|node| map(&node, "/metadata/labels"))
        .unwrap_or_default())
}

fn map(item: &Item, at: &str) -> BTreeMap<String, String> {
    let found = item.value.pointer(at).cloned().unwrap_or_default();
    serde_json::from_value(found).unwrap_or_default()
}

fn plan(
    site: &Site<'_>,
    request: &Request,
    facts: &Facts,
    pools: &Pools,
    node: &BTreeMap<String, String>,
    namespace: &BTreeMap<String, String>,
) -> Result<Plan, Failure> {
    let (place, named) = named(site, request, facts)?;
    if !named.is_empty() {
        let usable = pools.for_addresses(&named).map_err(Failure::from);
        return Ok(Plan::Named(named, usable.map_err(|error| error.at(place))?));
    }
    let config = &site.config.ipam;
    let mut families = Vec::new();
    let asked = &facts.request;
    let (ipv4, ipv6) = asked.families.unwrap_or((config.ipv4, config.ipv6));
    for (wanted, ipv6, given, asked) in [
        (ipv4, false, &config.ipv4_pools, &asked.ipv4_pools),
        (ipv6, true, &config.ipv6_pools, &asked.ipv6_pools),
    ] {
        if !wanted {
            continue;
        }
        let place = match (asked.is_some(), ipv6) {
            (true, false) => "annotation ipv4pools",
            (true, true) => "annotation ipv6pools",
            (false, false) => "ipam.ipv4_pools",
            (false, true) => "ipam.ipv6_pools",
        };
        let words = asked.as_ref().unwrap_or(given);
        let chosen = match words.is_empty() {
            true => pools.for_workload(ipv6, node, Some(namespace)),
            false => words
                .iter()
                .map(|word| pool(pools, word, ipv6).map_err(|error| error.at(place)))
                .collect::<Result<_, _>>()?,
        };
        families.push(chosen);
    }
    Ok(Plan::Any(families))
}

/// Returns the named pool of a family.
pub(crate) fn pool(pools: &Pools, word: &str, ipv6: bool) -> Result<Pool, Failure> {
    let pool = pools.named(word)?;
    if pool.cidr.addr().is_ipv6() != ipv6 {
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        let message = format!("pool {word} has no {family} addresses");
        return Err(Failure::new(Code::Config, message));
    }
    Ok(pool)
}

/// Returns the specific addresses requested by the runtime or by the pod, and where they are requested.
fn named(
    site: &Site<'_>,
    request: &Request,
    facts: &Facts,
) -> Result<(&'static str, Vec<IpAddr>), Failure> {
    if let Some(ips) = site.config.runtime.get("ips").and_then(Value::as_array) {
        let place = "runtimeConfig.ips";
        let words = ips.iter().map(|ip| ip.as_str().unwrap_or_default());
        let addresses = words.map(|word| address(place, word));
        return Ok((place, addresses.collect::<Result<_, _>>()?));
    }
    if let Some(word) = request.args.get("IP") {
        let place = "CNI_ARGS: IP";
        return Ok((place, vec![address(place, word)?]));
    }
    Ok(("annotation ipAddrs", facts.request.addresses.clone()))
}

/// Parses an address, with or without a prefix length.
fn address(place: &str, word: &str) -> Result<IpAddr, Failure> {
    let (address, _) = word.split_once('/').unwrap_or((word, ""));
    address
        .parse()
        .map_err(|_| Failure::new(Code::Config, format!("{place}: \"{word}\" is no address")))
}

fn answer(addresses: &[IpAddr]) -> Answer {
    let ips = addresses.iter().map(|address| Ip {
        address: (*address).into(),
        gateway: None,
        interface: None,
    });
    Answer {
        ips: ips.collect(),
        ..Answer::default()
    }
}
