//! STATUS: reports whether a container could be added now.

use std::time::Duration;

use calico_ipam::Ipam;
use calico_model::{GoDuration, Kind, Region, StatusKey};
use calico_store::Store as _;
use daemon_common::paths;
use serde_json::Value;

use crate::config::Config;
use crate::failure::{Code, Failure};
use crate::ipam::{delegate, node_labels, pool};
use crate::request::Request;
use crate::site::{Site, key};

/// Fails with the reason if no container could be added.
pub(crate) async fn status(request: &Request) -> Result<(), Failure> {
    let config = Config::read(&request.config)?;
    let site = Site::open(&config).await?;
    unavailable(site.ready().await)?;
    unavailable(felix(&site).await)?;
    match &config.ipam.delegate {
        Some(plugin) => delegate(plugin, request).await.map(drop),
        None => unavailable(pools(&site).await),
    }
}

/// Checks address management only.
pub(crate) async fn status_of_addresses(request: &Request) -> Result<(), Failure> {
    let config = Config::read(&request.config)?;
    let site = Site::open(&config).await?;
    unavailable(site.ready().await)?;
    unavailable(pools(&site).await)
}

fn unavailable(found: Result<(), Failure>) -> Result<(), Failure> {
    found.map_err(|failure| Failure {
        code: Code::Unavailable as u16,
        ..failure
    })
}

/// Checks that there is a pool for each required family.
async fn pools(site: &Site<'_>) -> Result<(), Failure> {
    let ipam = Ipam::new(&site.store);
    let (pools, labels) = tokio::join!(ipam.pools(), node_labels(site));
    let (pools, labels) = (pools?, labels?);
    let config = &site.config.ipam;
    for (wanted, ipv6, words) in [
        (config.ipv4, false, &config.ipv4_pools),
        (config.ipv6, true, &config.ipv6_pools),
    ] {
        for word in words.iter().filter(|_| wanted) {
            pool(&pools, word, ipv6)?;
        }
        // Namespace selectors are not evaluated, because STATUS concerns no namespace: it is enough
        // that some namespace has a pool.
        let mut specs = pools.all.clone();
        specs
            .iter_mut()
            .for_each(|pool| pool.spec.namespace_selector = None);
        let any = ::calico_ipam::Pools {
            all: specs,
            ..::calico_ipam::Pools::default()
        };
        if wanted && words.is_empty() && any.for_workload(ipv6, &labels, None).is_empty() {
            let family = if ipv6 { "IPv6" } else { "IPv4" };
            let message = format!("no {family} pool is for node {}", site.config.node);
            return Err(Failure::new(Code::NoAddress, message));
        }
    }
    Ok(())
}

/// Checks that Felix has recently reported its liveness, or answers a request. Of its settings only
/// those of the datastore are known here, not those of its environment and its file: those may have
/// turned off a report that is missing here, or name another region.
async fn felix(site: &Site<'_>) -> Result<(), Failure> {
    let node = &site.config.node;
    let settings = [
        key(Kind::FelixConfiguration, None, &format!("node.{node}"))?,
        key(Kind::FelixConfiguration, None, "default")?,
    ];
    let (own, all) = tokio::join!(site.find(&settings[0]), site.find(&settings[1]));
    let found = [own?, all?];
    let given = |field: &str| -> Option<Value> {
        let mut specs = found
            .iter()
            .flatten()
            .map(|item| &item.value["spec"][field]);
        specs.find(|value| !value.is_null()).cloned()
    };
    let interval = given("reportingInterval").and_then(|value| serde_json::from_value(value).ok());
    if interval.is_some_and(|GoDuration(interval)| interval == Duration::ZERO) {
        return Ok(());
    }
    let region = given("openstackRegion").and_then(|value| value.as_str().map(str::to_owned));
    let region = Region::new(&region.unwrap_or_default())
        .map_err(|error| Failure::new(Code::Store, format!("openstackRegion: {error}")))?;
    let alive = StatusKey::Host {
        region,
        host: node.clone(),
    };
    if site.store.get(alive.to_string().into()).await?.is_some() {
        return Ok(());
    }
    let asked =
        daemon_common::client::call(paths::control("felix"), &daemon_common::Command::Status {})
            .await;
    asked.map(drop).map_err(|error| {
        let message = format!("Felix on {node} has not reported lately that it lives");
        let details = format!("there is no {alive} in the store; {error}");
        Failure::new(Code::Unavailable, message).details(details)
    })
}
