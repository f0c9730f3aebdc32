//! Kubernetes objects as Calico resources, without I/O.
//!
//! Each function reads an object in the JSON of the API server. It returns the resource as Calico's
//! controllers write it with etcd, and a list of [`Report`]s: the object, the field and the reason of
//! each part that is not converted as it is. An invalid part never opens anything: it is left out of
//! rules that allow, and closes rules that deny. No value makes a function panic.
//!
//! | object | resource |
//! |---|---|
//! | Namespace | [`namespace`]: the profile `kns.<name>` |
//! | ServiceAccount | [`service_account`]: the profile `ksa.<namespace>.<name>` |
//! | NetworkPolicy | [`network_policy`]: the policy `knp.default.<name>` |
//! | ClusterNetworkPolicy | [`cluster_network_policy`]: a global policy in one of the [`tiers`] |
//! | Pod | [`pod`]: the data of its endpoint; [`address_request`]: its annotations |
//! | Node | [`node`]: labels and addresses of a node |
//! | Service, EndpointSlice | [`service_members`], [`endpoint_slice`]: the members of `services` |
//! | Service, EndpointSlice | [`balanced_service`], [`balanced_slice`], [`announced`]: the nodes with routes to a service |
//!
//! ```
//! use serde_json::json;
//!
//! let found = calico_kubernetes::network_policy(&json!({
//!     "metadata": {"name": "web", "namespace": "prod"},
//!     "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}, {"port": 0}]}]}}));
//! assert_eq!(found.reports[0].field, "spec.ingress[0].ports[1].port");
//! let policy = found.resource().expect("a policy");
//! assert_eq!(policy.metadata.name, "knp.default.web");
//! assert_eq!(policy.spec.ingress.len(), 1);
//! ```

mod announce;
mod balanced;
mod balancer;
mod cluster_policy;
mod limits;
mod name;
mod network;
mod node;
mod object;
mod pod;
mod policy;
mod port;
mod profile;
mod report;
mod request;
mod rule;
mod selector;
mod service;

pub use announce::{Announced, Placed, Reason, ServiceRanges, Sort, announced};
pub use balanced::{
    COMMUNITIES_ANNOTATION, KubeEndpoint, KubeService, KubeSlice, MED_ANNOTATION, PEERS_ANNOTATION,
    Readiness, RouteAttributes, TrafficPolicy, balanced_service, balanced_slice,
};
pub use balancer::{Balancer, Wish};
pub use cluster_policy::{ADMIN_TIER, BASELINE_TIER, cluster_network_policy, tiers};
pub use limits::{
    ANNOTATION_VALUES_MAX, COMMUNITIES_MAX, PEERS_MAX, PORT_NAME_OCTETS_MAX, PRIORITY_MAX,
    QUOTED_OCTETS_MAX, REPORTS_MAX, RULES_OCTETS_MAX, SELECTOR_OCTETS_MAX, SERVICE_ADDRESSES_MAX,
};
pub use name::{
    ACCOUNT_PREFIX, ADMIN_PREFIX, BASELINE_PREFIX, HOST_ENDPOINT_SUFFIX, NAMESPACE_PREFIX,
    POLICY_PREFIX, account_profile, cluster_policy_names, host_endpoint_name, is_owned,
    namespace_profile, policy_name,
};
pub use node::{KubeNode, node};
pub use pod::{PodEndpoint, pod};
pub use policy::{NAME_ANNOTATION, network_policy};
pub use profile::{ACCOUNT_LABELS, NAMESPACE_LABELS, namespace, service_account};
pub use report::{Converted, ObjectName, Outcome, Report};
pub use request::{AddressRequest, address_request};
pub use service::{Members, endpoint_slice, service_members};
