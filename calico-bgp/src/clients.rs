//! The clients of a reflector: which ones it accepts, and for which of them it waits after a
//! restart.

use std::net::IpAddr;

use bgp_config::limits::BGP_PORT;
use bgp_proto::Prefix;
use bgp_speaker::RangeConfig;
use calico_model::Registration;
use ipnet::IpNet;
use rib::Role;

use crate::export::Policies;
use crate::own::Own;
use crate::peer::Want;
use crate::placement::{Candidate, choose};
use crate::reflectors;
use crate::view::Node;

/// Returns the clients that a reflector accepts: the addresses of all nodes that are not
/// reflectors.
pub(crate) fn of_reflector<'v>(own: &Own<'v>) -> Vec<Client<'v>> {
    if !own.host.reflects {
        return Vec::new();
    }
    let nodes = own.view.nodes.iter();
    let nodes = nodes.filter(|(name, node)| is_client(own, name, node));
    let contenders = contenders(own);
    let wants = nodes.flat_map(|(name, node)| {
        let addresses = node.addresses();
        let contenders = &contenders;
        addresses.filter_map(move |remote| {
            let local = own.node.address_beside(remote)?;
            let asn = own.asn_of(node);
            let want = reflectors::reflector_want(own, remote, BGP_PORT, asn, local, true);
            Some(Client {
                name,
                want: Want {
                    is_plain_node: true,
                    host: Some(node),
                    ..want
                },
                chooses_us: chooses_us(own, contenders, name, remote),
            })
        })
    });
    wants.collect()
}

/// A client of a reflector, at one of its addresses.
pub(crate) struct Client<'v> {
    /// The name of its node.
    name: &'v str,
    pub(crate) want: Want<'v>,
    /// Whether it chooses this reflector, as far as the datastore shows.
    chooses_us: bool,
}

/// Returns the reflectors among which clients choose once this reflector is registered. This
/// reflector is included even if it is drained: a client that has not seen the drain yet still
/// peers with it.
fn contenders<'v>(own: &Own<'v>) -> Vec<(&'v str, Registration)> {
    let ours = &*own.host.name;
    let others = own.view.fleet.eligible(false).into_iter();
    let others = others.filter(|(name, _)| *name != ours);
    let others = others.map(|(name, registration)| (name, registration.clone()));
    others
        .chain([(ours, reflectors::wish(own).registration)])
        .collect()
}

/// Returns whether the node at this address chooses this reflector, unless the node's own file sets
/// the number of its reflectors. A node without a connection to the datastore may choose otherwise;
/// then the reflectors that it peers with have its routes and advertise them to this one.
fn chooses_us(
    own: &Own<'_>,
    contenders: &[(&str, Registration)],
    client: &str,
    remote: IpAddr,
) -> bool {
    let beside = |registration: &Registration| {
        let mut addresses = registration.addresses();
        addresses.any(|address| address.is_ipv4() == remote.is_ipv4())
    };
    let reached = contenders
        .iter()
        .filter(|(_, registration)| beside(registration));
    let candidates = reached.map(|(name, registration)| Candidate {
        name,
        zone: &registration.zone,
        weight: registration.weight,
    });
    let count = reflectors::count_of(own.view, client, &mut Vec::new()); // Its host reports its faults.
    choose(client, candidates, count).contains(&&*own.host.name)
}

/// Returns a range of one address for a client. After a restart the speaker waits for the clients
/// that choose this reflector; it receives the routes of the other clients from the reflectors that
/// those choose.
pub(crate) fn range(client: Client<'_>, own: &Own<'_>, policies: &mut Policies<'_>) -> RangeConfig {
    let Client {
        name,
        want,
        chooses_us,
    } = client;
    let prefix = Prefix::from(IpNet::from(want.remote));
    let mut template = want.peer(own, policies);
    if template.role == Role::Internal {
        template.role = Role::Client;
    }
    let mut range = RangeConfig::new(prefix, 1, template);
    (range.name, range.awaited) = (name.to_owned(), chooses_us);
    range
}

fn is_client(own: &Own<'_>, name: &str, node: &Node) -> bool {
    !own.reflects(name, node) && name != own.host.name
}
