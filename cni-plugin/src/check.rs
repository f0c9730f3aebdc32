//! CHECK: compares the attachment with the state after ADD.

use std::net::IpAddr;

use crate::answer::Answer;
use crate::attach::{addresses_of, routes};
use crate::config::Config;
use crate::endpoint::{self, is_of};
use crate::failure::{Code, Failure};
use crate::felix::{Expected, Word};
use crate::identity::Identity;
use crate::ipam;
use crate::link::{self, HOST_MAC, Link, Links, Netns, Wanted};
use crate::request::Request;
use crate::site::Site;

/// Fails, listing all changes, if the attachment differs from its state after ADD.
pub(crate) async fn check(request: &Request) -> Result<(), Failure> {
    let config = Config::read(&request.config)?;
    let identity = Identity::of(request, &config)?;
    let Some(previous) = &config.previous else {
        return Err(Failure::new(
            Code::Config,
            "prevResult: is missing: CHECK compares with it",
        ));
    };
    let netns = Netns::must_open(request.netns.as_deref())?;
    let site = Site::open(&config).await?;
    let outside = Links::here()?.find(&identity.interface).await?;
    let mut faults = host_faults(outside.as_ref(), &identity, &config);
    let (addresses, taken) = match endpoint_facts(&site, &identity).await? {
        Ok(facts) => facts,
        Err(fault) => {
            faults.push(fault);
            return outcome(faults);
        }
    };
    faults.extend(answer_faults(previous, &identity, &addresses));
    faults.extend(ipam::faults(&site, request, &identity, &addresses).await?);
    let wanted = Wanted {
        ifname: &identity.ifname,
        addresses: &addresses,
        routes: &routes(&config, &taken),
        forwards: config.forwards,
    };
    faults.extend(link::faults(&netns, &wanted).await?);
    let index = outside.map(|link| link.index);
    faults.extend(felix_fault(&config, &identity, index, previous, &addresses));
    outcome(faults)
}

fn outcome(faults: Vec<String>) -> Result<(), Failure> {
    let Some(first) = faults.first() else {
        return Ok(());
    };
    Err(Failure::new(Code::Changed, first.as_str()).details(faults.join("; ")))
}

fn host_faults(link: Option<&Link>, identity: &Identity, config: &Config) -> Vec<String> {
    let name = &identity.interface;
    let Some(link) = link else {
        return vec![format!("interface {name} is not on the host")];
    };
    let mut faults = Vec::new();
    if !link.up {
        faults.push(format!("interface {name} is down"));
    }
    if link.mac != Some(HOST_MAC) {
        faults.push(format!(
            "interface {name} has not the Ethernet address {HOST_MAC}"
        ));
    }
    if link.alias != identity.alias(&config.network) {
        faults.push(format!("interface {name} is that of \"{}\"", link.alias));
    }
    faults
}

/// Returns the addresses of the stored endpoint and its address management result, or the fault of
/// the endpoint.
async fn endpoint_facts(
    site: &Site<'_>,
    identity: &Identity,
) -> Result<Result<(Vec<IpAddr>, Answer), String>, Failure> {
    let name = &identity.name;
    let Some(item) = endpoint::find(site, identity).await? else {
        return Ok(Err(format!("endpoint {name} is not in the store")));
    };
    if !is_of(&item, &identity.container_id) {
        return Ok(Err(format!("endpoint {name} is that of another container")));
    }
    let taken = endpoint::taken(&item)?;
    Ok(addresses_of(&item)
        .map(|addresses| (addresses, taken))
        .ok_or_else(|| format!("endpoint {name} has no addresses")))
}

/// Returns the differences between the result that the runtime received and the present state.
fn answer_faults(previous: &Answer, identity: &Identity, addresses: &[IpAddr]) -> Vec<String> {
    let given: Vec<IpAddr> = previous.ips.iter().map(|ip| ip.address.addr()).collect();
    let lost = addresses.iter().filter(|address| !given.contains(address));
    let mut faults: Vec<String> = lost
        .map(|address| format!("{address} is not in prevResult"))
        .collect();
    let named = |name: &str| {
        previous
            .interfaces
            .iter()
            .any(|interface| interface.name == name)
    };
    for name in [&identity.interface, &identity.ifname] {
        if !named(name) {
            faults.push(format!("interface {name} is not in prevResult"));
        }
    }
    faults
}

fn felix_fault(
    config: &Config,
    identity: &Identity,
    index: Option<u32>,
    previous: &Answer,
    addresses: &[IpAddr],
) -> Option<String> {
    config.felix?;
    let inside = previous
        .interfaces
        .iter()
        .find(|interface| interface.name == identity.ifname);
    let expected = Expected {
        directory: &config.status_dir,
        file: &identity.status_file(),
        interface: &identity.interface,
        index,
        container_id: &identity.container_id,
        mac: inside.and_then(|interface| interface.mac.parse().ok()),
        addresses,
    };
    match expected.word() {
        Some(Word::Up) => None,
        Some(Word::Refused(reason)) => Some(format!("Felix refuses the endpoint: {reason}")),
        None => Some("Felix does not report the endpoint as up".to_owned()),
    }
}
