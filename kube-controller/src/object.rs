//! An object of the API server, as far as the controller uses it.

use std::fmt;

use calico_kubernetes::{
    Converted, KubeNode, KubeService, KubeSlice, Outcome, PodEndpoint, Report, account_profile,
    balanced_service, balanced_slice, cluster_network_policy, cluster_policy_names, namespace,
    namespace_profile, network_policy, node, pod, policy_name, service_account,
};
use calico_model::{
    GlobalNetworkPolicySpec, Kind, NetworkPolicySpec, ProfileSpec, Resource, ResourceKey,
    ServiceName, SliceKey, is_resource_name,
};
use serde_json::Value;

use crate::kinds::Watched;
use crate::target::Target;

/// The label of a slice with the name of its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Namespace and name of an object of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId {
    /// Its namespace; empty for kinds without namespaces.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.is_empty() {
            true => f.write_str(&self.name),
            false => write!(f, "{}/{}", self.namespace, self.name),
        }
    }
}

/// The data of an object for the datastore.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// The profile of a namespace or a service account.
    Profile(Box<Resource<ProfileSpec>>),
    /// The policy of a NetworkPolicy.
    Policy(Box<Resource<NetworkPolicySpec>>),
    /// The policy of a ClusterNetworkPolicy.
    GlobalPolicy(Box<Resource<GlobalNetworkPolicySpec>>),
    /// The labels and ports of a pod's endpoint.
    Endpoint(Box<PodEndpoint>),
    /// The labels of a node.
    Node(KubeNode),
    /// A service.
    Service(Box<KubeService>),
    /// Endpoints of a service.
    Slice(Box<KubeSlice>),
}

/// An object.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its name.
    pub id: ObjectId,
    /// The UID that the server gave it.
    pub uid: String,
    /// For a slice, also an unreadable one: its service.
    pub service: Option<ServiceName>,
    /// The resource, if there is one.
    pub outcome: Outcome<Wanted>,
    /// The parts that are not converted.
    pub reports: Vec<Report>,
}

impl Object {
    /// Converts an object of the API server.
    pub fn new(watched: Watched, value: &Value) -> Self {
        let text = |field: &str| {
            let text = value["metadata"][field].as_str();
            text.unwrap_or_default().to_owned()
        };
        let profile = |profile| Wanted::Profile(Box::new(profile));
        let (outcome, reports) = match watched {
            Watched::Namespace => split(namespace(value), profile),
            Watched::ServiceAccount => split(service_account(value), profile),
            Watched::NetworkPolicy => split(network_policy(value), |policy| {
                Wanted::Policy(Box::new(policy))
            }),
            Watched::ClusterNetworkPolicy => split(cluster_network_policy(value), |policy| {
                Wanted::GlobalPolicy(Box::new(policy))
            }),
            Watched::Pod => split(pod(value), |pod| Wanted::Endpoint(Box::new(pod))),
            Watched::Node => split(node(value), Wanted::Node),
            Watched::Service => split(balanced_service(value), |service| {
                Wanted::Service(Box::new(service))
            }),
            Watched::EndpointSlice => split(balanced_slice(value), |slice| {
                Wanted::Slice(Box::new(slice))
            }),
        };
        let namespace = match watched.is_namespaced() {
            true => text("namespace"),
            false => String::new(),
        };
        let name = text("name");
        let service = value["metadata"]["labels"][SERVICE_NAME].as_str();
        let service = service.filter(|name| {
            watched == Watched::EndpointSlice
                && is_resource_name(name)
                && is_resource_name(&namespace)
        });
        let service = service.map(|name| ServiceName {
            namespace: namespace.clone(),
            name: name.to_owned(),
        });
        Self {
            id: ObjectId { namespace, name },
            uid: text("uid"),
            service,
            outcome,
            reports,
        }
    }

    /// Returns the keys that depend on it alone. Endpoints and Nodes belong to other writers.
    pub fn keys(&self, watched: Watched) -> Vec<Target> {
        if let Some(service) = &self.service {
            let slice = SliceKey {
                service: service.clone(),
                slice: self.id.name.clone(),
            };
            let is_name = is_resource_name(&slice.slice);
            return is_name
                .then_some(Target::Slice(slice))
                .into_iter()
                .collect();
        }
        let keys = self.id.keys(watched).into_iter();
        keys.map(Target::Resource).collect()
    }

    /// Returns the resource to write.
    pub const fn wanted(&self) -> Option<&Wanted> {
        match &self.outcome {
            Outcome::Resource(wanted) => Some(wanted),
            Outcome::Absent | Outcome::Unreadable => None,
        }
    }
}

impl ObjectId {
    /// Returns the keys of resources that such an object can have.
    fn keys(&self, watched: Watched) -> Vec<ResourceKey> {
        let (namespace, name) = (&self.namespace, &self.name);
        let names = match watched {
            Watched::Namespace => vec![(Kind::Profile, namespace_profile(name))],
            Watched::ServiceAccount => vec![(Kind::Profile, account_profile(namespace, name))],
            Watched::NetworkPolicy => vec![(Kind::NetworkPolicy, policy_name(name))],
            Watched::ClusterNetworkPolicy => {
                let names = cluster_policy_names(name).into_iter();
                names
                    .map(|name| (Kind::GlobalNetworkPolicy, name))
                    .collect()
            }
            Watched::Node | Watched::Pod | Watched::Service | Watched::EndpointSlice => Vec::new(),
        };
        let key = |(kind, name): (Kind, String)| {
            let namespace = (kind == Kind::NetworkPolicy).then_some(namespace.as_str());
            ResourceKey::new(kind, namespace, &name).ok()
        };
        // An invalid name has no key: nothing was stored for it.
        names.into_iter().filter_map(key).collect()
    }
}

fn split<T>(
    converted: Converted<T>,
    wanted: impl FnOnce(T) -> Wanted,
) -> (Outcome<Wanted>, Vec<Report>) {
    let outcome = match converted.outcome {
        Outcome::Resource(resource) => Outcome::Resource(wanted(resource)),
        Outcome::Absent => Outcome::Absent,
        Outcome::Unreadable => Outcome::Unreadable,
    };
    (outcome, converted.reports)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_those_of_the_converted_resources() {
        let metadata = json!({"name": "web", "namespace": "prod"});
        for watched in [
            Watched::Namespace,
            Watched::ServiceAccount,
            Watched::NetworkPolicy,
        ] {
            let object = Object::new(watched, &json!({"metadata": metadata}));
            let key = match object.wanted() {
                Some(Wanted::Profile(profile)) => profile.key(),
                Some(Wanted::Policy(policy)) => policy.key(),
                other => panic!("{other:?}"),
            };
            assert_eq!(object.keys(watched), [key.expect("a key").into()]);
        }
        let rule = json!({"action": "Deny", "from": [{"namespaces": {}}]});
        for tier in ["Admin", "Baseline"] {
            let value = json!({"metadata": metadata, "spec": {
                "tier": tier, "priority": 1, "subject": {"namespaces": {}}, "ingress": [rule]}});
            let object = Object::new(Watched::ClusterNetworkPolicy, &value);
            let Some(Wanted::GlobalPolicy(policy)) = object.wanted() else {
                panic!("{object:?}");
            };
            let keys = object.keys(Watched::ClusterNetworkPolicy);
            assert!(
                keys.contains(&policy.key().expect("a key").into()),
                "{keys:?}"
            );
        }
    }

    #[test]
    fn object_without_a_name_has_no_keys() {
        for watched in Watched::ALL {
            let object = Object::new(watched, &json!({"metadata": {"name": "a/b"}}));
            assert_eq!(object.outcome, Outcome::Unreadable, "{watched}");
            assert!(object.keys(watched).is_empty(), "{watched}");
        }
    }
}
