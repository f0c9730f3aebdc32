//! GC: what belongs to no attachment of a network any more goes.
//!
//! Three things can be left over, each of which tells whose it is: endpoints by an annotation,
//! interfaces by their alias, addresses by the attributes of their allocation. An interface that has
//! neither alias nor endpoint and was never brought up is one whose making was cut short.

use std::collections::BTreeSet;

use datastore::resources::Item;
use datastore::{KeyRange, Store as _};
use model::{AllocationBlock, IpamKey, Kind};

use crate::config::{Attachment, Config};
use crate::endpoint::{self, NETWORK_ANNOTATION};
use crate::failure::{Code, Failure};
use crate::identity::{alias_prefix, prefix};
use crate::ipam::{CONTAINER, INTERFACE, NETWORK, NODE, delegate, give_handle_back};
use crate::link::{Link, Links};
use crate::lock;
use crate::request::Request;
use crate::site::{Site, text};

/// Attachments that are still there.
type Valid = BTreeSet<Attachment>;

/// Removes what is left over of a network on this host.
pub(crate) async fn collect(request: &Request) -> Result<(), Failure> {
    let config = Config::read(&request.config)?;
    let valid = valid(&config)?;
    let site = Site::open(&config).await?;
    let endpoints = site
        .resources
        .list(Kind::WorkloadEndpoint, None)
        .await?
        .items;
    let (own, others): (Vec<Item>, Vec<Item>) = endpoints
        .into_iter()
        .partition(|item| is_ours(item, &config));
    let (kept, gone): (Vec<Item>, Vec<Item>) = own
        .into_iter()
        .partition(|item| valid.contains(&attachment(item)));
    for item in &gone {
        let _alone = lock::attachment(item.key.name()).await?;
        endpoint::delete(&site, item).await?;
    }
    let named: BTreeSet<&str> = kept
        .iter()
        .chain(&others)
        .map(|item| text(item, "interfaceName"))
        .collect();
    let gone: BTreeSet<&str> = gone
        .iter()
        .map(|item| text(item, "interfaceName"))
        .collect();
    let host = Links::here()?;
    for link in host.beginning(&prefix()?).await? {
        if is_left_over(&link, &config, &valid, &named, &gone) {
            host.delete(&link).await?;
        }
    }
    match &config.ipam.delegate {
        Some(plugin) => delegate(plugin, request).await.map(drop),
        None => give_back(&site, &valid).await,
    }
}

/// The same of addresses alone, for other plugins.
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

fn is_ours(item: &Item, config: &Config) -> bool {
    text(item, "node") == config.node
        && item.value["metadata"]["annotations"][NETWORK_ANNOTATION].as_str()
            == Some(&config.network)
}

fn attachment(item: &Item) -> Attachment {
    Attachment {
        container_id: text(item, "containerID").to_owned(),
        ifname: text(item, "endpoint").to_owned(),
    }
}

fn is_left_over(
    link: &Link,
    config: &Config,
    valid: &Valid,
    named: &BTreeSet<&str>,
    gone: &BTreeSet<&str>,
) -> bool {
    let name = link.name.as_str();
    if !link.is_veth || named.contains(name) {
        return false;
    }
    if gone.contains(name) {
        return true;
    }
    match link
        .alias
        .strip_prefix(&alias_prefix(&config.network))
        .and_then(|of| of.split_once('/'))
    {
        Some((container_id, ifname)) => !valid.contains(&Attachment {
            container_id: container_id.to_owned(),
            ifname: ifname.to_owned(),
        }),
        None => link.alias.is_empty() && !link.up,
    }
}

/// Gives back the addresses of this node's attachments that are gone.
async fn give_back(site: &Site<'_>, valid: &Valid) -> Result<(), Failure> {
    let _alone = lock::ipam().await?;
    let blocks = site.store.list(KeyRange::prefix(IpamKey::BLOCKS)).await?;
    let mut handles = BTreeSet::new();
    // A block that cannot be read is the business of those who check them.
    for block in blocks
        .items
        .iter()
        .filter_map(|item| AllocationBlock::parse(&item.value).ok())
    {
        for attribute in block.attributes {
            let is = |key: &str, value: &str| {
                attribute
                    .active_owner
                    .get(key)
                    .is_some_and(|is| is == value)
            };
            let of = |key: &str| attribute.active_owner.get(key).cloned();
            if !is(NODE, &site.config.node) || !is(NETWORK, &site.config.network) {
                continue;
            }
            if let (Some(container_id), Some(ifname), Some(handle)) =
                (of(CONTAINER), of(INTERFACE), attribute.handle_id)
                && !valid.contains(&Attachment {
                    container_id,
                    ifname,
                })
            {
                handles.insert(handle);
            }
        }
    }
    for handle in handles {
        give_handle_back(site, &handle).await?;
    }
    Ok(())
}
