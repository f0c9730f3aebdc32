//! DEL: removes everything that ADD created, however far it came.

use calico_store::resources::Item;

use crate::config::Config;
use crate::endpoint::{self, is_of};
use crate::failure::Failure;
use crate::identity::Identity;
use crate::ipam;
use crate::link::Links;
use crate::lock;
use crate::request::Request;
use crate::site::{Site, text};

/// Disconnects a container. Objects that no longer exist are not an error.
pub(crate) async fn del(request: &Request) -> Result<(), Failure> {
    let config = Config::for_removal(&request.config)?;
    let identity = Identity::of(request, &config)?;
    let site = Site::open(&config).await?;
    let _alone = lock::attachment(&identity.interface).await?;
    remove(&site, request, &identity).await
}

/// Removes an attachment: first its endpoint, so that no more traffic is routed to it, then its
/// interface, and then its addresses, which other workloads may get from then on.
pub(crate) async fn remove(
    site: &Site<'_>,
    request: &Request,
    identity: &Identity,
) -> Result<(), Failure> {
    let found = endpoint::find(site, identity).await;
    // The interface can be removed while the datastore is unreachable.
    let unplugged = unplug(site, identity, found.as_ref()).await;
    if let Some(item) = found?.filter(|item| is_of(item, &identity.container_id)) {
        endpoint::delete(site, &item).await?;
    }
    unplugged?;
    ipam::give_back(site, request, identity).await
}

/// Deletes the interface on the host, and thereby the container's, if it belongs to this
/// attachment.
async fn unplug(
    site: &Site<'_>,
    identity: &Identity,
    found: Result<&Option<Item>, &Failure>,
) -> Result<(), Failure> {
    let host = Links::here()?;
    let item = found.map(Option::as_ref);
    let own = item.unwrap_or_default();
    let own = own.filter(|item| is_of(item, &identity.container_id));
    let name = own.map_or(identity.interface.as_str(), |item| {
        text(item, "interfaceName")
    });
    let Some(link) = host.find(name).await? else {
        return Ok(());
    };
    let ours = link.alias == identity.alias(&site.config.network);
    // An interface without an alias was left incomplete, or belongs to another plugin, perhaps to
    // the pod's new sandbox. The endpoint decides, and only an answer of the datastore proves that
    // there is no endpoint.
    let is_unowned = link.alias.is_empty() && (own.is_some() || matches!(item, Ok(None)));
    if link.is_veth && (ours || is_unowned) {
        host.delete(&link).await?;
    }
    Ok(())
}
