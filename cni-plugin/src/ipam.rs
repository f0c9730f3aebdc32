//! Address management of an attachment: this program's own, or that of another plugin.

mod delegate;
mod own;

use std::net::IpAddr;

pub(crate) use delegate::run as delegate;
pub(crate) use own::{
    CONTAINER, INTERFACE, NAMESPACE, NETWORK, NODE, POD, give_back as give_handle_back,
    node_labels, pool,
};

use serde_json::Value;

use crate::answer::Answer;
use crate::config::Config;
use crate::facts::Facts;
use crate::failure::{Code, Failure};
use crate::identity::Identity;
use crate::lock;
use crate::request::{Command, Request};
use crate::site::Site;

/// Assigns addresses to an attachment. The addresses of an earlier attempt are released first.
pub(crate) async fn take(
    site: &Site<'_>,
    request: &Request,
    identity: &Identity,
    facts: &Facts,
) -> Result<Answer, Failure> {
    let answer = match &site.config.ipam.delegate {
        Some(plugin) => {
            // If that fails, the ADD of the plugin returns the reason.
            let _ = delegate_del(plugin, request).await;
            Answer::read(&delegate(plugin, request).await?)?
        }
        None => own::take(site, request, identity, facts).await?,
    };
    if answer.ips.is_empty() {
        return Err(Failure::new(
            Code::NoAddress,
            "address management has given no address",
        ));
    }
    Ok(answer)
}

/// Releases all addresses of an attachment.
pub(crate) async fn give_back(
    site: &Site<'_>,
    request: &Request,
    identity: &Identity,
) -> Result<(), Failure> {
    match &site.config.ipam.delegate {
        Some(plugin) => delegate_del(plugin, request).await?,
        None => {
            let _alone = lock::ipam().await?;
            own::give_back(site, &identity.handle).await?;
        }
    }
    Ok(())
}

/// Runs DEL of another plugin, whatever the present command is.
async fn delegate_del(plugin: &str, request: &Request) -> Result<(), Failure> {
    let del = Request {
        command: Command::Del,
        ..request.clone()
    };
    delegate(plugin, &del).await.map(drop)
}

/// Returns the faults of the addresses of an attachment (CHECK).
pub(crate) async fn faults(
    site: &Site<'_>,
    request: &Request,
    identity: &Identity,
    addresses: &[IpAddr],
) -> Result<Vec<String>, Failure> {
    match &site.config.ipam.delegate {
        Some(plugin) => delegate(plugin, request).await.map(|_| Vec::new()),
        None => own::faults(site, &identity.handle, addresses).await,
    }
}

/// Runs ADD of the IPAM plugin: addresses only.
pub(crate) async fn add(request: &Request) -> Result<Value, Failure> {
    let config = Config::read(&request.config)?.with_own_ipam();
    let site = Site::open(&config).await?;
    site.ready().await?;
    let identity = Identity::of(request, &config)?;
    let facts = Facts::of(request, &config, &identity).await?;
    let mut answer = take(&site, request, &identity, &facts).await?;
    answer.routes.clone_from(&config.ipam.routes);
    answer.write(config.version)
}

/// Runs DEL of the IPAM plugin.
pub(crate) async fn del(request: &Request) -> Result<(), Failure> {
    let config = Config::for_removal(&request.config)?.with_own_ipam();
    let site = Site::open(&config).await?;
    give_back(&site, request, &Identity::of(request, &config)?).await
}

/// Runs CHECK of the IPAM plugin.
pub(crate) async fn check(request: &Request) -> Result<(), Failure> {
    let config = Config::read(&request.config)?.with_own_ipam();
    let Some(previous) = &config.previous else {
        return Err(Failure::new(
            Code::Config,
            "prevResult: is missing: CHECK compares with it",
        ));
    };
    let site = Site::open(&config).await?;
    let identity = Identity::of(request, &config)?;
    // Other plugins may have added addresses.
    let addresses: Vec<IpAddr> = previous.ips.iter().map(|ip| ip.address.addr()).collect();
    let lost = own::faults(&site, &identity.handle, &addresses).await?;
    if lost.len() < addresses.len() {
        return Ok(());
    }
    let message = format!("handle {} has no address of prevResult", identity.handle);
    Err(Failure::new(Code::Changed, message).details(lost.join("; ")))
}
