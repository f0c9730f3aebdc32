use serde_json::{Value as Json, json};

use super::*;
use crate::limits::{ROUTES_OF_NAMESPACE_MAX, ROUTES_OF_NODE_MAX};
use crate::object::Object;

/// The objects and the datastore of two nodes with services, and the routes that follow.
struct World {
    objects: Objects,
    stored: Stored,
    routes: Routes,
}

impl World {
    /// Two nodes; the name of the second one differs in the API server.
    fn new() -> Self {
        let mut world = Self {
            objects: Objects::default(),
            stored: Stored::default(),
            routes: Routes::default(),
        };
        let node = |name: &str| json!({"metadata": {"name": name, "labels": {}}});
        world.list(Watched::Node, &[node("n1"), node("kube2")]);
        world.list(Watched::Pod, &[]);
        world.set_node("n1", json!({"metadata": {"name": "n1"}, "spec": {}}));
        let spec = json!({"orchRefs": [{"orchestrator": "k8s", "nodeName": "kube2"}]});
        world.set_node("n2", json!({"metadata": {"name": "n2"}, "spec": spec}));
        world.set_ranges("203.0.113.7/32");
        world
    }

    fn set_node(&mut self, name: &str, value: Json) {
        self.routes
            .set_node(name, Some(value.to_string().as_bytes()));
    }

    fn set_ranges(&mut self, external: &str) {
        let value = json!({"metadata": {"name": "default"}, "spec": {
            "serviceExternalIPs": [{"cidr": external}]}});
        self.routes.set_ranges(Some(value.to_string().as_bytes()));
    }

    fn list(&mut self, watched: Watched, all: &[Json]) {
        let all = all.iter().map(|value| Object::new(watched, value));
        let touched = self.objects.set_all(watched, all.collect());
        self.touch(touched);
    }

    fn touch(&mut self, touched: crate::objects::Touched) {
        touched
            .services
            .into_iter()
            .for_each(|name| self.routes.touch_service(name));
        touched
            .pods
            .iter()
            .for_each(|pod| self.routes.touch_pod(pod));
        if touched.nodes {
            self.routes.touch_all();
        }
    }

    fn set(&mut self, watched: Watched, value: Json) {
        let touched = self.objects.set(watched, Object::new(watched, &value));
        self.touch(touched);
    }

    fn compute(&mut self) -> Vec<String> {
        let touched = self.routes.compute(&self.objects, &self.stored);
        touched.into_iter().collect()
    }

    /// Returns the key of a node after a write, if there is one to write.
    fn written(&self, node: &str, found: Option<&Value>, is_held: bool) -> Option<ServiceRoutes> {
        let key = ServiceRoutesKey::of(node);
        match self.routes.plan(&key, found, &self.objects, is_held) {
            Change::Put { octets, .. } => Some(ServiceRoutes::parse(&octets).expect("routes")),
            _ => None,
        }
    }

    /// Returns the services of each address of a node.
    fn of(&self, node: &str) -> Vec<(String, String)> {
        let routes = self.written(node, None, false).unwrap_or_default().routes;
        let routes = routes.into_iter();
        let texts = routes.map(|route| (route.address.to_string(), route.services.join(" ")));
        texts.collect()
    }
}

fn service(name: &str, policy: &str) -> Json {
    json!({"metadata": {"name": name, "namespace": "prod", "annotations": {}},
        "spec": {"externalIPs": ["203.0.113.7"], "externalTrafficPolicy": policy}})
}

fn slice(service: &str, endpoints: Json) -> Json {
    json!({"metadata": {"name": format!("{service}-1"), "namespace": "prod",
            "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "endpoints": endpoints})
}

fn endpoint(node: &str, pod: &str) -> Json {
    json!({"addresses": ["10.65.0.7"], "nodeName": node,
        "targetRef": {"kind": "Pod", "namespace": "prod", "name": pod}})
}

fn pod(name: &str, node: &str) -> Json {
    json!({"metadata": {"name": name, "namespace": "prod"}, "spec": {"nodeName": node}})
}

const ADDRESS: &str = "203.0.113.7";

fn one(services: &str) -> Vec<(String, String)> {
    vec![(ADDRESS.to_owned(), services.to_owned())]
}

#[test]
fn nothing_is_computed_before_all_lists_are_complete() {
    let mut world = World::new();
    world.list(Watched::Service, &[service("web", "Cluster")]);
    assert_eq!(world.compute(), Vec::<String>::new());
    assert!(world.routes.is_due());
    assert_eq!(world.written("n1", None, false), None);
    world.list(
        Watched::EndpointSlice,
        &[slice("web", json!([endpoint("n1", "a")]))],
    );
    assert_eq!(world.compute(), ["n1", "n2"]);
    assert_eq!(world.of("n1"), one("prod/web"));
    assert_eq!(world.of("n2"), one("prod/web"));
}

/// Returns a world with these services and slices.
fn world(services: &[Json], slices: &[Json]) -> World {
    let mut world = World::new();
    world.list(Watched::Service, services);
    world.list(Watched::EndpointSlice, slices);
    world.compute();
    world
}

#[test]
fn node_is_found_by_its_reference() {
    let endpoints = json!([endpoint("kube2", "a")]);
    let world = world(&[service("web", "Local")], &[slice("web", endpoints)]);
    assert_eq!(world.of("n1"), []);
    assert_eq!(world.of("n2"), one("prod/web"));
}

#[test]
fn shared_address_stays_until_its_last_service() {
    let mut world = world(
        &[service("a", "Local"), service("b", "Local")],
        &[
            slice("a", json!([endpoint("n1", "a")])),
            slice("b", json!([endpoint("n1", "b")])),
        ],
    );
    assert_eq!(world.of("n1"), one("prod/a prod/b"));
    world.set(Watched::EndpointSlice, slice("a", json!([])));
    assert_eq!(world.compute(), ["n1"]);
    assert_eq!(world.of("n1"), one("prod/b"));
    world.set(Watched::EndpointSlice, slice("b", json!([])));
    assert_eq!(world.compute(), ["n1"]);
    assert_eq!(world.of("n1"), []);
}

#[test]
fn deleted_slice_withdraws_the_route() {
    let mut world = world(
        &[service("web", "Local")],
        &[slice("web", json!([endpoint("n1", "a")]))],
    );
    let id = ObjectId {
        namespace: "prod".into(),
        name: "web-1".into(),
    };
    let touched = world.objects.remove(Watched::EndpointSlice, &id);
    world.touch(touched);
    assert_eq!(world.compute(), ["n1"]);
    assert_eq!(world.of("n1"), []);
}

#[test]
fn local_endpoint_counts_while_felix_reports_it() {
    let endpoints = json!([endpoint("n1", "a"), endpoint("kube2", "host")]);
    let mut world = world(&[service("web", "Local")], &[slice("web", endpoints)]);
    world.list(Watched::Pod, &[pod("a", "n1")]);
    world.compute();
    // Felix reports nothing about any endpoint.
    assert_eq!(world.of("n1"), one("prod/web"));
    let key = |pod: &str| {
        format!("/calico/felix/v2/no-region/host/n1/workload/k8s/prod%2f{pod}/endpoint/eth0")
    };
    let report = |world: &mut World, pod: &str, status: &str| {
        let octets = format!(r#"{{"status":"{status}"}}"#).into();
        let value = Value {
            octets,
            revision: Revision(1),
        };
        world.stored.set(key(pod).as_bytes(), Some(value));
        world.routes.touch_all();
        world.compute();
    };
    report(&mut world, "other", "up");
    assert_eq!(world.of("n1"), [], "Felix reports, and not this endpoint");
    report(&mut world, "a", "up");
    assert_eq!(world.of("n1"), one("prod/web"));
    report(&mut world, "a", "error");
    assert_eq!(world.of("n1"), []);
    // A pod in the network of the host has no endpoint.
    let mut on_host = pod("a", "n1");
    on_host["spec"]["hostNetwork"] = json!(true);
    world.set(Watched::Pod, on_host);
    world.compute();
    assert_eq!(world.of("n1"), one("prod/web"));
}

#[test]
fn excluded_node_announces_nothing() {
    let mut world = world(
        &[service("web", "Cluster")],
        &[slice("web", json!([endpoint("n1", "a")]))],
    );
    let mut node = json!({"metadata": {"name": "n1", "labels": {EXCLUDED_LABEL: "true"}}});
    world.set(Watched::Node, node.clone());
    assert_eq!(world.compute(), ["n1", "n2"]);
    assert_eq!(world.of("n1"), []);
    assert_eq!(world.of("n2"), one("prod/web"));
    node["metadata"]["labels"] = json!({EXCLUDED_LABEL: "false"});
    world.set(Watched::Node, node);
    world.compute();
    assert_eq!(world.of("n1"), one("prod/web"));
}

#[test]
fn attributes_of_shared_addresses_are_joined() {
    let annotated = |name: &str, annotations: Json| {
        let mut value = service(name, "Cluster");
        value["metadata"]["annotations"] = annotations;
        value
    };
    let mut world = world(
        &[
            annotated(
                "a",
                json!({"cambric.io/bgp-med": "7", "cambric.io/bgp-peers": "rack1",
                "cambric.io/bgp-communities": "64512:1"}),
            ),
            annotated(
                "b",
                json!({"cambric.io/bgp-med": "5", "cambric.io/bgp-peers": "rack2",
                "cambric.io/bgp-communities": "64512:2"}),
            ),
        ],
        &[
            slice("a", json!([endpoint("n1", "a")])),
            slice("b", json!([endpoint("n1", "b")])),
        ],
    );
    let route = |world: &World| {
        let routes = world.written("n1", None, false).expect("routes");
        routes.routes.into_iter().next().expect("a route")
    };
    let found = route(&world);
    assert_eq!(found.communities.len(), 2);
    assert_eq!(found.med, Some(5));
    assert_eq!(found.peers.len(), 2);
    // A service for all peers restricts none.
    world.set(Watched::Service, service("b", "Cluster"));
    assert_eq!(world.compute(), ["n1", "n2"]);
    assert!(route(&world).peers.is_empty());
    assert_eq!(route(&world).med, Some(7));
}

#[test]
fn routes_of_lost_services_stay_while_deletions_are_held() {
    let mut world = world(
        &[service("web", "Local")],
        &[slice("web", json!([endpoint("n1", "a")]))],
    );
    let octets = world.written("n1", None, false).expect("routes").encode();
    let found = Value {
        octets: octets.into(),
        revision: Revision(3),
    };
    assert_eq!(world.written("n1", Some(&found), true), None);
    world.list(Watched::EndpointSlice, &[]);
    world.compute();
    assert_eq!(world.written("n1", Some(&found), true), None, "no slices");
    world.list(Watched::Service, &[]);
    world.compute();
    assert_eq!(world.written("n1", Some(&found), true), None, "no service");
    let written = world.written("n1", Some(&found), false);
    assert_eq!(written, Some(ServiceRoutes::default()));
    // A service with a slice is known: it has no ready endpoint.
    world.list(Watched::Service, &[service("web", "Local")]);
    world.list(Watched::EndpointSlice, &[slice("web", json!([]))]);
    world.compute();
    let written = world.written("n1", Some(&found), true);
    assert_eq!(written, Some(ServiceRoutes::default()));
}

#[test]
fn key_of_a_removed_node_is_deleted() {
    let mut world = world(&[service("web", "Cluster")], &[]);
    let found = Value {
        octets: ServiceRoutes::default().encode().into(),
        revision: Revision(3),
    };
    let key = ServiceRoutesKey::of("n2");
    let plan = |world: &World| world.routes.plan(&key, Some(&found), &world.objects, false);
    assert_eq!(plan(&world), Change::Nothing);
    world.list(
        Watched::Node,
        &[json!({"metadata": {"name": "n1", "labels": {}}})],
    );
    assert_eq!(world.compute(), ["n1", "n2"]);
    assert_eq!(plan(&world), Change::Delete { was: Revision(3) });
    // Without ranges and a key, none is written.
    world.routes.set_ranges(None);
    world.compute();
    assert_eq!(world.written("n1", None, false), None);
}

// Promise (Kubernetes): The Services of one namespace, however many, do not displace the routes of other
// namespaces within their share.
#[test]
fn namespace_does_not_displace_the_routes_of_others() {
    let mut world = World::new();
    let (mut services, mut slices) = (Vec::new(), Vec::new());
    let mut add =
        |namespace: &str, count: usize, third: usize, policy: &str, annotations: &Json| {
            for at in 0..count {
                let name = format!("s{at}");
                let (mut one, mut of_one) = (
                    service(&name, policy),
                    slice(&name, json!([endpoint("n1", "a")])),
                );
                let address = format!("203.{third}.{}.{}", at / 250, at % 250 + 1);
                one["spec"]["externalIPs"] = json!([address]);
                one["metadata"]["annotations"] = annotations.clone();
                for value in [&mut one, &mut of_one] {
                    value["metadata"]["namespace"] = namespace.into();
                }
                services.push(one);
                slices.push(of_one);
            }
        };
    // Lower addresses than the others, and routes on all nodes by an annotation.
    let med = json!({"cambric.io/bgp-med": "7"});
    add("attacker", ROUTES_OF_NODE_MAX, 0, "Cluster", &med);
    add("large", ROUTES_OF_NAMESPACE_MAX + 3, 1, "Local", &json!({}));
    add("prod", 300, 2, "Local", &json!({}));
    world.set_ranges("203.0.0.0/8");
    world.list(Watched::Service, &services);
    world.list(Watched::EndpointSlice, &slices);
    world.compute();
    let of = |world: &World, node: &str, namespace: &str| {
        let start = format!("{namespace}/");
        let routes = world.of(node).into_iter();
        let own = routes.filter(|(_, services)| services.starts_with(&start));
        own.count()
    };
    for (namespace, on_1, on_2) in [
        ("attacker", ROUTES_OF_NAMESPACE_MAX, ROUTES_OF_NAMESPACE_MAX),
        ("large", ROUTES_OF_NAMESPACE_MAX, 0),
        ("prod", 300, 0),
    ] {
        assert_eq!(of(&world, "n1", namespace), on_1, "{namespace}");
        assert_eq!(of(&world, "n2", namespace), on_2, "{namespace}");
    }
    let further = ROUTES_OF_NODE_MAX - ROUTES_OF_NAMESPACE_MAX;
    assert_eq!(world.routes.look_beyond().len(), further + 3);
    let beyond: Vec<_> = world.routes.beyond().collect();
    assert_eq!(beyond, [("n1", further + 3), ("n2", further)]);
    let name = |namespace: &str, at: usize| ServiceName {
        namespace: namespace.to_owned(),
        name: format!("s{at}"),
    };
    assert!(
        world
            .routes
            .is_left_out(&name("large", ROUTES_OF_NAMESPACE_MAX))
    );
    assert!(!world.routes.is_left_out(&name("large", 0)));
    assert!(!world.routes.is_left_out(&name("prod", 0)));
    // With fewer, each has its route again, and the change is returned.
    world.list(Watched::Service, &services[ROUTES_OF_NODE_MAX + 3..]);
    world.compute();
    assert_eq!(world.of("n1").len(), ROUTES_OF_NAMESPACE_MAX + 300);
    assert_eq!(world.routes.look_beyond().len(), further + 3);
    assert_eq!(world.routes.beyond().next(), None);
}
