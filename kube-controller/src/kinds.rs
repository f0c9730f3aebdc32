//! The kinds of objects that the controller reads.

use std::fmt;

use calico_kubernetes::{
    ACCOUNT_PREFIX, ADMIN_PREFIX, BASELINE_PREFIX, NAMESPACE_PREFIX, POLICY_PREFIX, is_owned,
};
use calico_model::Kind;
use kube_client::Unread;

use crate::target::Target;

/// A kind of objects in the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    /// Namespaces.
    Namespace,
    /// Service accounts.
    ServiceAccount,
    /// Policies of a namespace.
    NetworkPolicy,
    /// Policies of the cluster, which not every server has.
    ClusterNetworkPolicy,
    /// Nodes.
    Node,
    /// Pods.
    Pod,
    /// Services.
    Service,
    /// The endpoints of services.
    EndpointSlice,
}

/// The kinds of resources with names that belong to the controller, by the prefix of these names.
const OWNED: [(Kind, &str, Watched); 5] = [
    (Kind::Profile, NAMESPACE_PREFIX, Watched::Namespace),
    (Kind::Profile, ACCOUNT_PREFIX, Watched::ServiceAccount),
    (Kind::NetworkPolicy, POLICY_PREFIX, Watched::NetworkPolicy),
    (
        Kind::GlobalNetworkPolicy,
        ADMIN_PREFIX,
        Watched::ClusterNetworkPolicy,
    ),
    (
        Kind::GlobalNetworkPolicy,
        BASELINE_PREFIX,
        Watched::ClusterNetworkPolicy,
    ),
];

/// No conversion reads these. They are most of an object: a Node has the images of its containers.
const METADATA: Unread = Unread::within(
    "metadata",
    &[
        Unread::field("managedFields"),
        Unread::field("ownerReferences"),
    ],
);
const CONTAINER: &[Unread] = &[
    Unread::field("args"),
    Unread::field("command"),
    Unread::field("env"),
    Unread::field("envFrom"),
    Unread::field("lifecycle"),
    Unread::field("livenessProbe"),
    Unread::field("readinessProbe"),
    Unread::field("resources"),
    Unread::field("securityContext"),
    Unread::field("startupProbe"),
    Unread::field("volumeMounts"),
];
static UNREAD: &[Unread] = &[METADATA];
static UNREAD_OF_PODS: &[Unread] = &[
    METADATA,
    Unread::within(
        "spec",
        &[
            Unread::field("affinity"),
            Unread::field("ephemeralContainers"),
            Unread::field("securityContext"),
            Unread::field("tolerations"),
            Unread::field("topologySpreadConstraints"),
            Unread::field("volumes"),
            Unread::within("containers", CONTAINER),
            Unread::within("initContainers", CONTAINER),
        ],
    ),
    Unread::within(
        "status",
        &[
            Unread::field("conditions"),
            Unread::field("containerStatuses"),
            Unread::field("ephemeralContainerStatuses"),
            Unread::field("initContainerStatuses"),
        ],
    ),
];
static UNREAD_OF_NODES: &[Unread] = &[
    METADATA,
    Unread::within(
        "status",
        &[
            Unread::field("allocatable"),
            Unread::field("capacity"),
            Unread::field("conditions"),
            Unread::field("images"),
            Unread::field("nodeInfo"),
            Unread::field("volumesAttached"),
            Unread::field("volumesInUse"),
        ],
    ),
];

impl Watched {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Namespace,
        Self::ServiceAccount,
        Self::NetworkPolicy,
        Self::ClusterNetworkPolicy,
        Self::Node,
        Self::Pod,
        Self::Service,
        Self::EndpointSlice,
    ];

    /// Returns its name, as in the field `kind` of an object.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::ServiceAccount => "ServiceAccount",
            Self::NetworkPolicy => "NetworkPolicy",
            Self::ClusterNetworkPolicy => "ClusterNetworkPolicy",
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
        }
    }

    /// Returns the path of the list of all its objects.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Namespace => "/api/v1/namespaces",
            Self::ServiceAccount => "/api/v1/serviceaccounts",
            Self::NetworkPolicy => "/apis/networking.k8s.io/v1/networkpolicies",
            Self::ClusterNetworkPolicy => {
                "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies"
            }
            Self::Node => "/api/v1/nodes",
            Self::Pod => "/api/v1/pods",
            Self::Service => "/api/v1/services",
            Self::EndpointSlice => "/apis/discovery.k8s.io/v1/endpointslices",
        }
    }

    /// Returns the fields of its objects that no conversion reads.
    pub const fn unread(self) -> &'static [Unread] {
        match self {
            Self::Pod => UNREAD_OF_PODS,
            Self::Node => UNREAD_OF_NODES,
            _ => UNREAD,
        }
    }

    /// Returns whether a server may lack the kind.
    pub const fn is_optional(self) -> bool {
        matches!(self, Self::ClusterNetworkPolicy)
    }

    /// Returns whether its objects have a namespace.
    pub const fn is_namespaced(self) -> bool {
        matches!(
            self,
            Self::ServiceAccount
                | Self::NetworkPolicy
                | Self::Pod
                | Self::Service
                | Self::EndpointSlice
        )
    }

    /// Returns the kind of the objects that such a resource belongs to; `None` for a resource of
    /// another writer.
    pub fn owner_of(key: &Target) -> Option<Self> {
        let key = match key {
            Target::Routes(_) => return Some(Self::Node),
            Target::Slice(_) => return Some(Self::EndpointSlice),
            Target::Resource(key) => key,
        };
        let owns = |(kind, prefix, _): &&(Kind, &str, Self)| {
            key.kind() == *kind && is_owned(prefix, key.name())
        };
        OWNED.iter().find(owns).map(|(_, _, watched)| *watched)
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use calico_model::ResourceKey;
    use kube_client::parse;
    use serde_json::{Value, json};

    use super::*;
    use crate::object::Object;

    #[test]
    fn resources_of_other_writers_have_no_owner() {
        let owner = |kind, namespace, name| {
            let key = ResourceKey::new(kind, namespace, name).expect("a key");
            Watched::owner_of(&key.into())
        };
        let namespace = Some("prod");
        for (kind, namespace, name, wanted) in [
            (Kind::Profile, None, "kns.prod", Some(Watched::Namespace)),
            (
                Kind::Profile,
                None,
                "ksa.prod.web",
                Some(Watched::ServiceAccount),
            ),
            (Kind::Profile, None, "openstack-sg-1", None),
            (
                Kind::NetworkPolicy,
                namespace,
                "knp.default.web",
                Some(Watched::NetworkPolicy),
            ),
            (Kind::NetworkPolicy, namespace, "web", None),
            (
                Kind::GlobalNetworkPolicy,
                None,
                "kcnp.kube-admin.x",
                Some(Watched::ClusterNetworkPolicy),
            ),
            (Kind::GlobalNetworkPolicy, None, "knp.default.web", None),
            (Kind::Node, None, "kns.prod", None),
        ] {
            assert_eq!(owner(kind, namespace, name), wanted, "{name}");
        }
    }
    #[test]
    fn objects_are_the_same_without_the_fields_that_are_not_read() {
        let many = json!({"any": [1, {"f:x": {}}]});
        let metadata = json!({"name": "web", "namespace": "prod", "uid": "u", "generateName": "w",
            "labels": {"env": "x", "conditions": "y", "resources": "z"},
            "annotations": {"volumes": "a", "cni.projectcalico.org/containerID": "c"},
            "managedFields": many, "ownerReferences": many});
        let container = json!({"name": "c", "image": "i", "args": many, "command": many, "env": many,
            "envFrom": many, "lifecycle": many, "livenessProbe": many, "readinessProbe": many,
            "resources": many, "securityContext": many, "startupProbe": many, "volumeMounts": many,
            "ports": [{"name": "http", "containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]});
        let pod = json!({"metadata": metadata, "spec": {"nodeName": "n", "serviceAccountName": "s",
                "affinity": many, "ephemeralContainers": many, "securityContext": many,
                "tolerations": many, "topologySpreadConstraints": many, "volumes": many,
                "containers": [container], "initContainers": [container]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": many, "containerStatuses": many, "ephemeralContainerStatuses": many,
                "initContainerStatuses": many}});
        let node = json!({"metadata": metadata, "spec": {"podCIDRs": ["10.1.0.0/24"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
                "allocatable": many, "capacity": many, "conditions": many, "images": many,
                "nodeInfo": many, "volumesAttached": many, "volumesInUse": many}});
        let namespace = json!({"metadata": metadata});
        for (watched, object) in [
            (Watched::Pod, pod),
            (Watched::Node, node),
            (Watched::Namespace, namespace),
        ] {
            let octets = json!({"type": "ADDED", "object": object}).to_string();
            let event = parse(octets.as_bytes(), "object", watched.unread());
            let read: Value = event.expect("an event")["object"].take();
            assert!(!read.to_string().contains("f:x"), "{read}");
            let found = Object::new(watched, &read);
            assert!(found.wanted().is_some(), "{found:?}");
            assert_eq!(found, Object::new(watched, &object));
        }
    }
}
