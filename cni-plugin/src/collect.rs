//! GC: removes objects on this host that belong to no attachment of a network any more.
//!
//! Three kinds of objects can be left over. Each identifies its attachment: endpoints by an
//! annotation, interfaces by their alias, addresses by the attributes of their allocation. An
//! interface without alias and without endpoint that was never brought up was left by an
//! interrupted ADD.
//!
//! An object that looks left over may belong to an ADD in progress, which is not in the runtime's
//! list yet. So an attachment that another process has locked is left to the next GC. Under the
//! lock of an attachment, interfaces and addresses that have an endpoint by then are not left over.

use std::collections::{BTreeMap, BTreeSet};

use calico_model::{AllocationBlock, IpamKey, Kind};
use calico_store::resources::Item;
use calico_store::{KeyRange, Store as _};
use tokio::time::sleep;

use crate::config::{Attachment, Config};
use crate::endpoint::{self, NETWORK_ANNOTATION, is_of};
use crate::failure::{Code, Failure};
use crate::identity::{Identity, alias, attachment_of, prefix};
use crate::ipam::{
    CONTAINER, INTERFACE, NAMESPACE, NETWORK, NODE, POD, delegate, give_handle_back,
};
use crate::limits::HALF_MADE;
use crate::link::{Link, Links};
use crate::lock;
use crate::request::Request;
use crate::site::{Site, text};

/// Attachments that still exist.
type Valid = BTreeSet<Attachment>;

/// Removes the left-over objects of a network on this host.
pub(crate) async fn collect(request: &Request) -> Result<(), Failure> {
    let config = Config::read(&request.config)?;
    let valid = valid(&config)?;
    let site = Site::open(&config).await?;
    let host = Links::here()?;
    for item in endpoints(&site).await? {
        let network = &item.value["metadata"]["annotations"][NETWORK_ANNOTATION];
        if network.as_str() == Some(&config.network) && !valid.contains(&attachment(&item)) {
            end(&site, &host, &item).await?;
        }
    }
    delete_links(&site, &host, &valid).await?;
    match &config.ipam.delegate {
        Some(plugin) => delegate(plugin, request).await.map(drop),
        None => give_back(&site, &valid).await,
    }
}

/// Removes left-over addresses only, for other plugins.
pub(crate) async fn collect_addresses(request: &Request) -> Result<(), Failure> {
    let config = Config::read(&request.config)?;
    let valid = valid(&config)?;
    give_back(&Site::open(&config).await?, &valid).await
}

fn valid(config: &Config) -> Result<Valid, Failure> {
    let valid = config.valid.as_ref();
    let valid =
        valid.ok_or_else(|| Failure::new(Code::Config, "cni.dev/valid-attachments: is missing"))?;
    Ok(valid.iter().cloned().collect())
}

/// Returns the endpoints of this node.
async fn endpoints(site: &Site<'_>) -> Result<Vec<Item>, Failure> {
    let all = site.resources.list(Kind::WorkloadEndpoint, None).await?;
    let items = all.items.into_iter();
    Ok(items
        .filter(|item| text(item, "node") == site.config.node)
        .collect())
}

fn attachment(item: &Item) -> Attachment {
    Attachment {
        container_id: text(item, "containerID").to_owned(),
        ifname: text(item, "endpoint").to_owned(),
    }
}

/// Removes an attachment, unless another process has locked it, or has written its endpoint since
/// it was read.
async fn end(site: &Site<'_>, host: &Links, item: &Item) -> Result<(), Failure> {
    let name = text(item, "interfaceName");
    let Some(_alone) = lock::attachment_at_rest(name)? else {
        return Ok(());
    };
    if !endpoint::delete(site, item).await? {
        return Ok(());
    }
    let Attachment {
        container_id,
        ifname,
    } = attachment(item);
    let its = alias(&site.config.network, &container_id, &ifname);
    match host.find(name).await? {
        Some(link) if link.is_veth && link.alias == its => host.delete(&link).await,
        _ => Ok(()),
    }
}

/// Deletes interfaces without an endpoint.
async fn delete_links(site: &Site<'_>, host: &Links, valid: &Valid) -> Result<(), Failure> {
    let mut left = host.beginning(&prefix()?).await?;
    left.retain(|link| is_left_over(link, &site.config.network, valid));
    let mut locks = Vec::new();
    let mut at_rest = Vec::new();
    for link in left {
        if let Some(lock) = lock::attachment_at_rest(&link.name)? {
            locks.push(lock);
            at_rest.push(link);
        }
    }
    let left = at_rest;
    if left.iter().any(|link| link.alias.is_empty()) {
        sleep(HALF_MADE).await;
    }
    let endpoints = match left.is_empty() {
        true => Vec::new(),
        false => endpoints(site).await?,
    };
    for link in left {
        let is_named = endpoints
            .iter()
            .any(|item| text(item, "interfaceName") == link.name);
        // A new interface with the same name has another index.
        if !is_named && host.find(&link.name).await?.as_ref() == Some(&link) {
            host.delete(&link).await?;
        }
    }
    Ok(())
}

fn is_left_over(link: &Link, network: &str, valid: &Valid) -> bool {
    let has_no_owner = match attachment_of(&link.alias, network) {
        Some(attachment) => !valid.contains(&attachment),
        None => link.alias.is_empty() && !link.up,
    };
    link.is_veth && has_no_owner
}

/// Releases the addresses of this node's attachments that no longer exist.
async fn give_back(site: &Site<'_>, valid: &Valid) -> Result<(), Failure> {
    let blocks = site.store.list(KeyRange::prefix(IpamKey::BLOCKS)).await?;
    let mut gone = BTreeMap::new();
    // An unreadable block is skipped; checks of the blocks report it.
    for block in blocks
        .items
        .iter()
        .filter_map(|item| AllocationBlock::parse(&item.value).ok())
    {
        for attribute in block.attributes {
            let of = |key: &str| attribute.active_owner.get(key).cloned();
            let is = |key: &str, value: &str| of(key).is_some_and(|is| is == value);
            if !is(NODE, &site.config.node) || !is(NETWORK, &site.config.network) {
                continue;
            }
            if let (Some(container_id), Some(ifname), Some(handle)) =
                (of(CONTAINER), of(INTERFACE), attribute.handle_id.clone())
            {
                let attachment = Attachment {
                    container_id,
                    ifname,
                };
                if !valid.contains(&attachment) {
                    let pod = [NAMESPACE, POD].map(|key| of(key).unwrap_or_default());
                    gone.insert(handle, (attachment, pod));
                }
            }
        }
    }
    for (handle, (attachment, [namespace, pod])) in gone {
        let identity = Identity::new(attachment, namespace, pod, site.config)?;
        let Some(_alone) = lock::attachment_at_rest(&identity.interface)? else {
            continue;
        };
        let found = endpoint::find(site, &identity).await?;
        if found.is_some_and(|item| is_of(&item, &identity.container_id)) {
            continue;
        }
        let _all_alone = lock::ipam().await?;
        give_handle_back(site, &handle).await?;
    }
    Ok(())
}
