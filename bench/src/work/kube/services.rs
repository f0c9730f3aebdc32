//! Services of a fabric: from the start of the controller, or from a ready endpoint, to the routes in the
//! kernel of a router.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Instant;

use anyhow::{Context, Result};
use calico_model::RESOURCES_PREFIX;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{POD, Place, Size, endpoint};
use crate::fabric::{self, Ground, Origins, milliseconds};
use crate::limits::{FABRIC_WITHIN, PAUSE, SETTLED};
use crate::stage::{Measures, quantiles};

/// The node with an endpoint of each service, and the router.
const NODE: usize = 0;
const ROUTER: usize = 1;

/// The endpoints of a service.
const ENDPOINTS: usize = 10;

/// The range of the addresses, and the first two octets of them.
const RANGE: &str = "198.18.0.0/16";
const ADDRESSES: [u8; 2] = [198, 18];

/// Measures all routes at the start of the controller, and one new route for each of the last services.
pub(super) fn services(size: &Size) -> Result<Measures> {
    fabric::apart(async |lab| {
        let mut ground = Ground::raise_with(lab, 2, Some(Origins::Off)).await?;
        let measured = measure(&mut ground, size).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, size: &Size) -> Result<Measures> {
    let settings = json!({"metadata": {"name": "default"}, "spec": {
        "asNumber": ground.fabric.plan.asn, "nodeToNodeMeshEnabled": false,
        "serviceExternalIPs": [{"cidr": RANGE}]}});
    let key = format!("{RESOURCES_PREFIX}bgpconfigurations/default");
    let value = settings.to_string().into_bytes();
    fabric::put(&*ground.etcd.store, key, value).await?;
    ground.make_router(ROUTER).await?;
    ground.first(NODE, ROUTER).await?;

    let cluster = ground.cluster()?;
    let server = &cluster.server;
    let own = ground.fabric.node(NODE)?.plan.name.clone();
    for node in (0..ENDPOINTS).map(|at| node(at, &own)) {
        server.apply(json!({"kind": "Node", "metadata": {"name": node}}));
    }
    let mut endpoints = Vec::new();
    let pod: Value = serde_json::from_str(POD)?;
    for number in 0..size.services {
        for at in 0..ENDPOINTS {
            let place = place(number, at, &own);
            // That of the own node has no interface there.
            if at > 0 {
                endpoints.push(endpoint(number * ENDPOINTS + at, &place)?);
            }
            server.apply(place.pod(pod.clone()));
        }
    }
    fabric::fill(&*ground.etcd.store, endpoints).await?;
    // The last ones have no ready endpoint before they are measured.
    let first_measured = size.services.saturating_sub(size.changes);
    for number in 0..size.services {
        server.apply(service(number));
        server.apply(slice(number, &own, number < first_measured));
    }
    let mut kernel = ground.listen(ROUTER)?;
    let began = Instant::now();
    ground.start_controller(NODE)?;
    let all: BTreeSet<_> = (0..first_measured).map(address).collect();
    kernel.all(all, FABRIC_WITHIN).await?;
    let all_s = began.elapsed().as_secs_f64();
    ground.controlled(NODE).await?;
    sleep(SETTLED).await;

    let mut times = vec![];
    for number in first_measured..size.services {
        sleep(PAUSE).await;
        let began = Instant::now();
        server.apply(slice(number, &own, true));
        let news = kernel.until(address(number), FABRIC_WITHIN).await;
        let news = news.with_context(|| format!("the route of service {number}"))?;
        times.push(milliseconds(began, &news));
    }
    ground.fabric.check()?;
    let [p50, p99] = quantiles(times, [0.5, 0.99])?;
    let measures = [
        ("kube_services_s", all_s),
        ("kube_route_p50_ms", p50),
        ("kube_route_p99_ms", p99),
    ];
    Ok(measures.into_iter().collect())
}

fn address(number: usize) -> Ipv4Addr {
    let [a, b] = ADDRESSES;
    let [.., c, d] = (number + 1).to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

/// Returns the node of an endpoint.
fn node(at: usize, own: &str) -> String {
    match at {
        0 => own.to_owned(),
        at => format!("n{at}"),
    }
}

fn place(number: usize, at: usize, own: &str) -> Place {
    Place {
        name: format!("s{number}-{at}"),
        namespace: "default".to_owned(),
        node: node(at, own),
    }
}

fn service(number: usize) -> Value {
    json!({"kind": "Service", "metadata": {"name": format!("s{number}"), "namespace": "default"},
        "spec": {"type": "NodePort", "clusterIPs": ["10.96.0.10"], "externalIPs": [address(number)],
            "externalTrafficPolicy": "Local",
            "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]}})
}

/// Returns the endpoints of a service.
fn slice(number: usize, own: &str, is_ready: bool) -> Value {
    let endpoint = |at| {
        let place = place(number, at, own);
        let target = json!({"kind": "Pod", "namespace": place.namespace, "name": place.name});
        let address = fabric::address(u32::try_from(number * ENDPOINTS + at).unwrap_or(0) + 1_000);
        json!({"addresses": [address], "nodeName": place.node, "targetRef": target,
            "conditions": {"ready": is_ready, "serving": is_ready, "terminating": false}})
    };
    json!({"kind": "EndpointSlice", "metadata": {"name": format!("s{number}-1"),
            "namespace": "default", "labels": {"kubernetes.io/service-name": format!("s{number}")}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": (0..ENDPOINTS).map(endpoint).collect::<Vec<_>>()})
}
