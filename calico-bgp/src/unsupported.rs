//! Unsupported fields of the datastore, which are reported to the operator.

use bgp_speaker::SpeakerConfig;
use calico_model::{
    BgpConfigurationSpec, BgpPeerSpec, CidrBlock, DEFAULT_CONFIGURATION, Kind,
    LoadBalancerAggregation, Program, ServiceRoute, ServiceRoutesKey, unsupported_fields,
};
use rib::Role;
use serde::Serialize;

use crate::bfd;
use crate::duties::is_range;
use crate::explicit;
use crate::fault::Fault;
use crate::fields;
use crate::own::{Own, key_of};

/// Returns a fault for every unsupported field of the node's settings and BGPPeers.
pub(crate) fn unsupported(own: &Own<'_>) -> Vec<Fault> {
    let of_node = format!("node.{}", own.host.name);
    let all = [
        (DEFAULT_CONFIGURATION, Some(own.cluster)),
        (of_node.as_str(), own.settings),
    ];
    let all = all.iter().filter_map(|(name, spec)| Some((name, (*spec)?)));
    let mut faults = Vec::new();
    for (name, spec) in all {
        let mut report = |field: String, reason: &str| {
            let key = key_of(Kind::BgpConfiguration, name);
            faults.push(Fault::new(key, field, reason));
        };
        communities(own, spec, &mut report);
        declared(Kind::BgpConfiguration, spec, &mut report);
        // A reflector reflects announcements of others.
        if own.cluster_id.is_none() && own.view.service_routes.is_none() {
            services(spec, &mut report);
        }
    }
    for (name, spec) in bfd::selected(own) {
        declared(Kind::BfdConfiguration, spec, &mut |field, reason| {
            let key = key_of(Kind::BfdConfiguration, name);
            faults.push(Fault::new(key, field, reason));
        });
    }
    faults.extend(peers_of_services(own));
    let speaker = SpeakerConfig::new(own.asn, own.router_id);
    let peer = speaker.neighbor(own.router_id.0.into(), Role::External);
    for (name, stored) in explicit::of_node_itself(own) {
        let key = || key_of(Kind::BgpPeer, name);
        let annotations = fields::faults(stored, &peer).into_iter();
        faults.extend(annotations.map(|(field, reason)| Fault::new(key(), field, reason)));
        peering(&stored.spec, &mut |field, reason| {
            faults.push(Fault::new(key(), field, reason));
        });
    }
    faults
}

/// Reports a name in the routes of services that no BGPPeer has: no peer receives these routes.
fn peers_of_services(own: &Own<'_>) -> Option<Fault> {
    let routes = own.view.service_routes.iter();
    let mut routes = routes.flat_map(|routes| &routes.routes);
    let missing = |route: &ServiceRoute| {
        let mut peers = route.peers.iter();
        let name = peers.find(|name| !own.view.peers.contains_key(*name))?;
        Some(format!(
            "{}: the annotation cambric.io/bgp-peers of {} has the name {name}, and there is no such \
             BGPPeer",
            route.address,
            route.services.join(", ")
        ))
    };
    let reason = routes.find_map(missing)?;
    let key = ServiceRoutesKey::of(&own.host.name);
    Some(Fault::new(key.to_string(), "routes", reason))
}

/// Reports undefined community names.
fn communities(own: &Own<'_>, spec: &BgpConfigurationSpec, report: &mut impl FnMut(String, &str)) {
    for (at, entry) in spec.prefix_advertisements.iter().enumerate() {
        for unknown in spec.communities_of(entry, own.cluster) {
            if let Err(unknown) = unknown {
                let field = format!("spec.prefixAdvertisements[{at}].communities");
                report(
                    field,
                    &format!("there is no community with the name \"{unknown}\""),
                );
            }
        }
    }
}

/// Reports unknown fields, and those that the schema declares as unsupported.
fn declared(kind: Kind, spec: &impl Serialize, report: &mut impl FnMut(String, &str)) {
    let Ok(spec) = serde_json::to_value(spec) else {
        return;
    };
    for one in unsupported_fields(kind, &serde_json::json!({ "spec": spec })) {
        if one.due == Some(Program::Bgp) {
            report(one.field, &one.reason);
        }
    }
}

fn services(spec: &BgpConfigurationSpec, report: &mut impl FnMut(String, &str)) {
    let ranges = [
        ("serviceClusterIPs", &spec.service_cluster_ips),
        ("serviceExternalIPs", &spec.service_external_ips),
        ("serviceLoadBalancerIPs", &spec.service_load_balancer_ips),
    ];
    for (list, ranges) in ranges {
        let is_single = |range: &CidrBlock| !is_range(&range.cidr.0);
        if let Some(at) = ranges.iter().position(is_single) {
            let reason = "not advertised: the controller of Kubernetes has written no addresses of \
                services for this node";
            report(format!("spec.{list}[{at}]"), reason);
        }
    }
    let apart = spec.service_load_balancer_aggregation == Some(LoadBalancerAggregation::Disabled);
    if apart && !spec.service_load_balancer_ips.is_empty() {
        let reason = "not advertised: the controller of Kubernetes has written no addresses of \
            services for this node";
        report("spec.serviceLoadBalancerAggregation".to_owned(), reason);
    }
}

fn peering(spec: &BgpPeerSpec, report: &mut impl FnMut(String, &str)) {
    if spec.peer_selector.is_some() && spec.local_as().is_some() {
        let reason = "counts with spec.peerIP only: sessions between nodes are of their own ASes";
        report("spec.localASNumber".to_owned(), reason);
    }
    declared(Kind::BgpPeer, spec, report);
}
