//! Addresses of load balancers: assigned from the pools, written into the status of their services, and
//! released with them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use calico_ipam::{
    AddressRequest, Ipam, IpamError, NamedPool, Pool, Pools, Release, Request, Taker,
};
use calico_kubernetes::{Balancer, Wish};
use calico_model::{AffinityOwner, ServiceName};
use calico_store::Store;
use serde_json::json;

use crate::config::DAEMON;
use kube_client::{Access, Failure, Server};

/// The owner of the blocks of load balancers: `virtual:load-balancer`.
pub(crate) const OWNER: &str = "load-balancer";

/// The use of pools for load balancers.
const USE: &str = "LoadBalancer";

/// A service whose addresses are compared with its wishes.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) service: ServiceName,
    pub(crate) balancer: Balancer,
    /// Whether it may get addresses that it does not have.
    pub(crate) may_assign: bool,
}

/// The result for a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// All is as it should be.
    Done,
    /// Not all wishes can be fulfilled: the reason. The addresses that it has stay.
    Lacking(String),
    /// The datastore or the API server does not answer: the reason.
    Failed(String),
}

impl From<Failure> for Settled {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.to_string())
    }
}

/// Assigns missing addresses of a service, and writes its status.
pub(crate) async fn settle(store: Arc<dyn Store>, access: Access, job: Job) -> Settled {
    let ipam = Ipam::new(&*store).of_virtual_owner();
    let found = assigned(&ipam, &job).await;
    let (addresses, lack) = match found {
        Ok(found) => found,
        Err(IpamError::Store(error)) if error.is_transient() => {
            return Settled::Failed(error.to_string());
        }
        Err(error) => return Settled::Lacking(error.to_string()),
    };
    let is_other = addresses != job.balancer.status;
    // A status of another controller stays.
    if !addresses.is_empty()
        && is_other
        && let Err(failure) = write_status(access, &job, &addresses).await
    {
        return failure.into();
    }
    match lack {
        None => Settled::Done,
        Some(reason) => Settled::Lacking(reason),
    }
}

/// Returns the addresses of a service after the assignment of missing ones, in the order of its
/// families, and why some are missing.
async fn assigned(ipam: &Ipam<'_>, job: &Job) -> Result<(Vec<IpAddr>, Option<String>), IpamError> {
    let handle = &job.balancer.handle;
    let held = ipam.of_handle(handle).await?;
    let mut held: Vec<IpAddr> = held.iter().map(|release| release.address).collect();
    let wish = match &job.balancer.wish {
        Ok(wish) => wish,
        // The addresses that it has stay.
        Err(reason) => return Ok((job.balancer.status.clone(), Some(reason.clone()))),
    };
    let pools = ipam.pools().await?;
    // Without such pools another controller assigns addresses.
    if held.is_empty() && !job.balancer.is_requested && usable(&pools).next().is_none() {
        return Ok((Vec::new(), None));
    }
    if held.is_empty() {
        let status = &job.balancer.status;
        // Another controller has assigned addresses that are in no pool.
        if status.iter().any(|at| pool_of(&pools, *at).is_none()) {
            return Ok((Vec::new(), None));
        }
    }
    let mut lack = None;
    for is_ipv6 in &wish.families {
        let own = held.iter().find(|at| at.is_ipv6() == *is_ipv6).copied();
        let wanted = wish.address(*is_ipv6);
        let reason = match (own, wanted) {
            (Some(own), Some(wanted)) if own != wanted => Some(format!(
                "it keeps {own}: {wanted} is assigned only to a service without an address"
            )),
            (Some(_), _) => None,
            (None, _) if !job.may_assign => None,
            (None, _) => match one(ipam, job, wish, &pools, *is_ipv6).await {
                Ok(address) => {
                    held.push(address);
                    None
                }
                Err(error @ IpamError::Store(_)) => return Err(error),
                Err(error) => Some(error.to_string()),
            },
        };
        lack = lack.or(reason);
    }
    let place = |at: &IpAddr| {
        let mut families = wish.families.iter();
        families.position(|is_ipv6| at.is_ipv6() == *is_ipv6)
    };
    held.retain(|at| place(at).is_some());
    held.sort_by_key(|at| (place(at), *at));
    Ok((held, lack))
}

/// Assigns an address of a family: the requested one, the one of the status, or any of the pools.
async fn one(
    ipam: &Ipam<'_>,
    job: &Job,
    wish: &Wish,
    pools: &Pools,
    is_ipv6: bool,
) -> Result<IpAddr, IpamError> {
    let taker = taker(job);
    let mut status = job.balancer.status.iter();
    let status = status.find(|at| at.is_ipv6() == is_ipv6).copied();
    if let Some(address) = status.or_else(|| wish.address(is_ipv6)) {
        let usable: Vec<Pool> = usable(pools).map(|(_, pool)| pool).collect();
        let request = AddressRequest {
            host: OWNER,
            taker: &taker,
            address,
            pools: &usable,
        };
        return ipam
            .assign_address(&request)
            .await
            .map(|given| given.address);
    }
    let [v4, v6] = &wish.pools;
    let named = if is_ipv6 { v6 } else { v4 };
    let usable = usable(pools).filter(|(named_pool, pool)| {
        pool.cidr.addr().is_ipv6() == is_ipv6
            && match named {
                None => matches!(named_pool.spec.assignment_mode.as_str(), "" | "Automatic"),
                Some(words) => {
                    let range = pool.cidr.to_string();
                    words
                        .iter()
                        .any(|word| *word == named_pool.name || *word == range)
                }
            }
    });
    let usable: Vec<Pool> = usable.map(|(_, pool)| pool).collect();
    let request = Request {
        host: OWNER,
        taker: &taker,
        count: 1,
        pools: &usable,
        reserved: &pools.reserved,
        blocks_max: None,
    };
    let given = ipam.assign(&request).await?;
    let mut given = given.into_iter();
    let used_up = IpamError::UsedUp {
        assigned: 0,
        wanted: 1,
    };
    given.next().map(|given| given.address).ok_or(used_up)
}

/// Returns the enabled pools of load balancers.
fn usable(pools: &Pools) -> impl Iterator<Item = (&NamedPool, Pool)> {
    let all = pools.all.iter().filter(|pool| !pool.spec.disabled);
    let all = all.filter(|pool| pool.spec.allowed_uses.iter().any(|one| one == USE));
    all.filter_map(|pool| Some((pool, Pool::of(&pool.spec)?)))
}

fn pool_of(pools: &Pools, address: IpAddr) -> Option<Pool> {
    let mut pools = usable(pools).map(|(_, pool)| pool);
    pools.find(|pool| pool.cidr.contains(&address))
}

/// Returns the handle and attributes of the addresses of a service, as Calico has them.
fn taker(job: &Job) -> Taker {
    let text = |text: &str| text.to_owned();
    Taker {
        handle: job.balancer.handle.clone(),
        attributes: BTreeMap::from([
            (text("namespace"), job.service.namespace.clone()),
            (text("service"), job.service.name.clone()),
            (text("timestamp"), timestamp()),
            (text("type"), text(USE)),
        ]),
    }
}

/// Writes the addresses into the status. The UID makes sure that the service is not a new one.
async fn write_status(access: Access, job: &Job, addresses: &[IpAddr]) -> Result<(), Failure> {
    let ServiceName { namespace, name } = &job.service;
    let path = format!("/api/v1/namespaces/{namespace}/services/{name}/status");
    let ingress = addresses.iter().map(|at| json!({"ip": at}));
    let patch = json!({"metadata": {"uid": job.balancer.uid},
        "status": {"loadBalancer": {"ingress": ingress.collect::<Vec<_>>()}}});
    Server::new(access).patch(&path, &patch).await.map(drop)
}

/// Reports a reason as an Event of the service.
pub(crate) async fn report(
    access: Access,
    service: &ServiceName,
    uid: &str,
    word: &str,
    reason: &str,
) -> Result<(), Failure> {
    let ServiceName { namespace, name } = service;
    let time = calico_model::rfc3339_utc(now_s());
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"namespace": namespace, "generateName": format!("{}.", cut(name))},
        "involvedObject": {"kind": "Service", "apiVersion": "v1", "namespace": namespace,
            "name": name, "uid": uid},
        "type": "Warning", "reason": word, "message": reason,
        "source": {"component": DAEMON},
        "reportingComponent": DAEMON,
        "firstTimestamp": time, "lastTimestamp": time, "count": 1,
    });
    let path = format!("/api/v1/namespaces/{namespace}/events");
    Server::new(access).create(&path, &event).await.map(drop)
}

/// Returns the beginning of a name: an Event has a name of at most 253 characters.
fn cut(name: &str) -> &str {
    const MOST: usize = 200;
    name.get(..MOST).unwrap_or(name)
}

/// Returns releases of the addresses of load balancers whose services are not among these handles.
pub(crate) async fn orphans(
    store: Arc<dyn Store>,
    handles: BTreeSet<String>,
) -> Result<Vec<Release>, IpamError> {
    let ipam = Ipam::new(&*store).of_virtual_owner();
    let owner = Some(AffinityOwner::Virtual(OWNER.to_owned()));
    let mut all = Vec::new();
    for (_, block) in ipam.blocks().await? {
        let Some(block) = block.filter(|block| block.owner() == owner) else {
            continue;
        };
        let holders = block.holders();
        let orphans = holders.filter(|holder| {
            let handle = holder.handle.as_ref();
            handle.is_some_and(|handle| handle.starts_with("lb-") && !handles.contains(handle))
        });
        all.extend(orphans.map(|holder| holder.release()));
    }
    Ok(all)
}

/// Releases addresses.
pub(crate) async fn release(
    store: Arc<dyn Store>,
    releases: Vec<Release>,
) -> Result<(), IpamError> {
    let ipam = Ipam::new(&*store).of_virtual_owner();
    ipam.release(&releases).await.map(drop)
}

/// Returns the Unix time in seconds.
fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Returns the time as Calico writes it: `2026-03-04 10:21:00 +0000 UTC`.
fn timestamp() -> String {
    let text = calico_model::rfc3339_utc(now_s());
    text.replace('T', " ").replace('Z', " +0000 UTC")
}
