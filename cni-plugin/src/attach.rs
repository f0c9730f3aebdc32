//! ADD: creates an interface, addresses and an endpoint, then waits until Felix has set the
//! endpoint up.

use std::net::IpAddr;

use calico_model::Mac;
use calico_store::resources::Item;
use ipnet::IpNet;
use serde_json::Value;

use crate::answer::{Answer, Interface, Ip};
use crate::api;
use crate::config::Config;
use crate::detach;
use crate::endpoint::{self, Endpoint, is_of};
use crate::facts::Facts;
use crate::failure::{Code, Failure};
use crate::felix::Expected;
use crate::identity::Identity;
use crate::ipam;
use crate::link::{self, HOST_MAC, Inside, Link, Links, Netns, Pair, Wanted};
use crate::lock;
use crate::request::Request;
use crate::site::Site;

/// Connects a container and returns the result in the configuration's version. A container that is
/// already connected gets the same result again. A failed ADD removes everything that it created,
/// and leaves an earlier connection unchanged.
pub(crate) async fn add(request: &Request) -> Result<Value, Failure> {
    let config = Config::read(&request.config)?;
    let identity = Identity::of(request, &config)?;
    let netns = Netns::must_open(request.netns.as_deref())?;
    let (facts, site, prepared) = tokio::join!(
        Facts::of(request, &config, &identity),
        Site::open(&config),
        api::with_pod_networks(request, &config),
    );
    let (facts, site, prepared) = (facts?, site?, prepared?);
    let request = prepared.as_ref().unwrap_or(request);
    let _alone = lock::attachment(&identity.interface).await?;
    let attaching = Attaching {
        site: &site,
        request,
        identity: &identity,
        facts: &facts,
        netns: &netns,
    };
    let host = Links::here()?;
    // Nothing has been created yet that a failure would have to remove.
    let left = match attaching.look(&host).await? {
        Before::Connected(answer) => return answer.write(config.version),
        Before::Left(left) => left,
    };
    match attaching.attach(&host, left).await {
        Ok(answer) => answer.write(config.version),
        Err(failure) => {
            // DEL, which the runtime calls next, removes whatever cannot be removed now.
            let _ = detach::remove(&site, request, &identity).await;
            Err(failure)
        }
    }
}

struct Attaching<'a> {
    site: &'a Site<'a>,
    request: &'a Request,
    identity: &'a Identity,
    facts: &'a Facts,
    netns: &'a Netns,
}

/// The state before any change.
enum Before {
    /// The attachment is complete: the result of the ADD that created it.
    Connected(Answer),
    Left(Left),
}

/// Existing objects with the names of the attachment, to be replaced.
struct Left {
    item: Option<Item>,
    link: Option<Link>,
}

impl Attaching<'_> {
    /// Reads the existing objects; creates only profiles.
    async fn look(&self, host: &Links) -> Result<Before, Failure> {
        let (site, identity) = (self.site, self.identity);
        let (ready, found, link, profiles) = tokio::join!(
            site.ready(),
            endpoint::find(site, identity),
            host.find(&identity.interface),
            endpoint::make_profiles(site, identity, self.facts),
        );
        ready?;
        profiles?;
        let (item, link) = (found?, link?);
        if let (Some(item), Some(link)) = (&item, &link)
            && let Some(answer) = self.again(item, link).await?
        {
            return Ok(Before::Connected(answer));
        }
        if let Some(link) = &link {
            self.may_replace(link)?;
        }
        Ok(Before::Left(Left { item, link }))
    }

    async fn attach(&self, host: &Links, left: Left) -> Result<Answer, Failure> {
        let (site, identity) = (self.site, self.identity);
        if let Some(link) = left.link {
            host.delete(&link).await?;
        }
        let taken = ipam::take(site, self.request, identity, self.facts).await?;
        let addresses: Vec<IpAddr> = taken.ips.iter().map(|ip| ip.address.addr()).collect();
        let routes = routes(site.config, &taken);
        let inside = self.plug(host, &addresses, &routes).await?;
        let endpoint = Endpoint {
            identity,
            facts: self.facts,
            mac: inside.mac,
            addresses: &addresses,
            taken: &taken,
        };
        endpoint.write(site, left.item.as_ref()).await?;
        self.set_up(inside, &addresses).await?;
        Ok(self.answer(inside.mac, &addresses, taken))
    }

    /// Returns the result of an ADD that was completed before, if nothing has changed since.
    async fn again(&self, item: &Item, link: &Link) -> Result<Option<Answer>, Failure> {
        let identity = self.identity;
        let is_its = is_of(item, &identity.container_id)
            && link.alias == identity.alias(&self.site.config.network);
        let Some(addresses) = addresses_of(item).filter(|_| is_its) else {
            return Ok(None);
        };
        let taken = endpoint::taken(item)?;
        let routes = routes(self.site.config, &taken);
        let wanted = self.wanted(&addresses, &routes);
        if !link::faults(self.netns, &wanted).await?.is_empty() {
            return Ok(None);
        }
        let mac = item.value["spec"]["mac"]
            .as_str()
            .and_then(|mac| mac.parse().ok());
        let peer = Some(link.index);
        self.set_up(Inside { mac, peer }, &addresses).await?;
        Ok(Some(self.answer(mac, &addresses, taken)))
    }

    /// Checks that an existing interface with the wanted name may be replaced: it was left by an
    /// earlier ADD, or by an earlier container of the same pod. An interface of another attachment
    /// is never replaced.
    fn may_replace(&self, link: &Link) -> Result<(), Failure> {
        let ours = self.identity.alias(&self.site.config.network);
        let is_pod = !self.identity.pod.is_empty();
        if is_pod || link.alias.is_empty() || link.alias == ours {
            return Ok(());
        }
        let message = format!(
            "interface {} is there already, and is that of {}",
            link.name, link.alias
        );
        Err(Failure::new(Code::Kernel, message))
    }

    fn wanted<'w>(&'w self, addresses: &'w [IpAddr], routes: &'w [IpNet]) -> Wanted<'w> {
        Wanted {
            ifname: &self.identity.ifname,
            addresses,
            routes,
            forwards: self.site.config.forwards,
        }
    }

    /// Creates the pair of interfaces.
    async fn plug(
        &self,
        host: &Links,
        addresses: &[IpAddr],
        routes: &[IpNet],
    ) -> Result<Inside, Failure> {
        let (config, identity) = (self.site.config, self.identity);
        let pair = Pair {
            interface: &identity.interface,
            alias: &identity.alias(&config.network),
            ifname: &identity.ifname,
            mac: self.facts.mac,
            mtu: config.mtu,
            queues: config.queues,
            ipv6: addresses.iter().any(IpAddr::is_ipv6),
        };
        link::make(host, self.netns, &pair).await?;
        link::configure(self.netns, &self.wanted(addresses, routes)).await
    }

    /// Waits for Felix, at most for the configured time.
    async fn set_up(&self, inside: Inside, addresses: &[IpAddr]) -> Result<(), Failure> {
        let Some(limit) = self.site.config.felix else {
            return Ok(());
        };
        let expected = Expected {
            directory: &self.site.config.status_dir,
            file: &self.identity.status_file(),
            interface: &self.identity.interface,
            index: inside.peer,
            container_id: &self.identity.container_id,
            mac: inside.mac,
            addresses,
        };
        expected.wait(limit).await
    }

    fn answer(&self, mac: Option<Mac>, addresses: &[IpAddr], taken: Answer) -> Answer {
        let ips = addresses.iter().map(|address| Ip {
            address: (*address).into(),
            gateway: None,
            interface: Some(1),
        });
        Answer {
            interfaces: vec![
                Interface {
                    name: self.identity.interface.clone(),
                    mac: HOST_MAC.to_string(),
                    sandbox: String::new(),
                },
                Interface {
                    name: self.identity.ifname.clone(),
                    mac: mac.map(|mac| mac.to_string()).unwrap_or_default(),
                    sandbox: self.netns.path().display().to_string(),
                },
            ],
            ips: ips.collect(),
            ..taken
        }
    }
}

/// Returns the addresses of a stored endpoint.
pub(crate) fn addresses_of(item: &Item) -> Option<Vec<IpAddr>> {
    let networks: Vec<calico_model::Network> =
        serde_json::from_value(item.value["spec"]["ipNetworks"].clone()).ok()?;
    Some(
        networks
            .iter()
            .map(calico_model::Network::address)
            .collect(),
    )
}

/// Returns the routes of a container: default routes, unless the configuration disables them, and
/// the routes named by the configuration or by address management.
pub(crate) fn routes(config: &Config, taken: &Answer) -> Vec<IpNet> {
    let mut routes: Vec<IpNet> = Vec::new();
    if config.default_routes {
        for everywhere in ["0.0.0.0/0", "::/0"] {
            routes.extend(everywhere.parse::<IpNet>());
        }
    }
    // A gateway of these routes is ignored, because the container cannot reach it: all its traffic
    // goes to the host.
    for route in config.ipam.routes.iter().chain(&taken.routes) {
        if !routes.contains(&route.dst) {
            routes.push(route.dst);
        }
    }
    routes
}
