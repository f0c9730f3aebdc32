//! The data model that the suite shares with Calico: the keys in the datastore, and the format of
//! their values.
//!
//! - [`Key`] parses and writes keys: resources, status keys, those of address management; all
//!   others are kept unchanged.
//! - [`Resource`] is the envelope of a resource around its spec ([`NodeSpec`],
//!   [`WorkloadEndpointSpec`], [`BgpPeerSpec`], …). Reading is tolerant: unknown fields are kept
//!   and written back. Writing is strict: [`Resource::encode`] rejects violations of the model, and
//!   each [`Invalid`] names its field.
//! - [`Selector`] parses and evaluates selectors.
//! - [`IpamKey`] with [`AllocationBlock`], [`BlockAffinity`] and [`IpamHandle`] are the data of
//!   address management.
//! - [`StatusKey`] with [`HostStatus`] and [`EndpointStatus`] are the agent's reports, and
//!   [`EndpointFile`] is its status file for plugins.
//! - [`FabricKey`] with [`Registration`] are the data of Cambric's daemons in addition to Calico's
//!   keys.
//! - [`ServiceRoutesKey`] with [`ServiceRoutes`] are the routes of services that a node announces.
//!
//! ```
//! use calico_model::{Key, NodeSpec, Resource};
//!
//! let key: Key = "/calico/resources/v3/projectcalico.org/nodes/node1".parse()?;
//! let value = br#"{"kind": "Node", "apiVersion": "projectcalico.org/v3",
//!     "metadata": {"name": "node1", "labels": {"rack": "r1"}},
//!     "spec": {"bgp": {"ipv4Address": "10.0.0.11/24"}}}"#;
//! let mut node: Resource<NodeSpec> = Resource::parse(value)?;
//! assert!(matches!(key, Key::Resource(key) if key == node.key()?));
//!
//! let selector: calico_model::Selector = "rack in {'r1', 'r2'}".parse()?;
//! assert!(selector.matches(&node.metadata.labels));
//!
//! let bgp = node.spec.bgp.as_mut().expect("a BGP configuration");
//! bgp.ipv4_address = Some("10.0.0.12/24".parse()?);
//! assert!(node.encode().is_ok());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here does I/O, reads a clock or draws a random number.

mod announcement;
mod endpoint_file;
mod fabric;
mod ipam;
mod key;
mod lenient;
mod limits;
mod parse_error;
mod resource;
mod schema;
mod secret;
mod selector;
mod service;
mod status;
mod validate;
mod value;

pub use announcement::{
    ANNOUNCEMENTS_PREFIX, ServiceRoute, ServiceRoutes, ServiceRoutesKey, ServiceRoutesKeyError,
};
pub use endpoint_file::EndpointFile;
pub use fabric::{
    ClusterClaim, DrainReport, DrainRequest, DrainStage, FABRIC_PREFIX, FabricKey, FabricKeyError,
    FabricValueError, ReflectorState, Registration,
};
pub use ipam::block::{AllocationAttribute, AllocationBlock, Ordinal};
pub use ipam::{
    AffinityOwner, AffinityState, BlockAffinity, IPAM_PREFIX, IpamConfig, IpamHandle, IpamKey,
    IpamKeyError,
};
pub use key::endpoint_name::{EndpointName, EndpointNameError};
pub use key::error::KeyError;
pub use key::kind::{Kind, Scope};
pub use key::{Key, RESOURCES_PREFIX, ResourceKey};
pub use limits::{
    AS_PATH_PREPENDS_MAX, BFD_INTERFACES_MAX, BFD_INTERVAL_MS_MAX, COMMUNITIES_MAX,
    COOL_DOWN_S_MAX, FILTER_OPERATIONS_MAX, HOST_BLOCKS_MAX, INTERFACE_NAME_OCTETS_MAX,
    LABEL_OCTETS_MAX, LABEL_VALUE_OCTETS_MAX, NAME_OCTETS_MAX, PREFIX_ADVERTISEMENTS_MAX,
    REFLECTOR_WEIGHT_DEFAULT, ROUTE_PRIORITY_MAX, SELECTOR_DEPTH_MAX, SELECTOR_OCTETS_MAX,
};
pub use parse_error::ParseError;
pub use resource::bfd_configuration::{BfdConfigurationSpec, BfdInterface};
pub use resource::bgp_configuration::{
    BGP_PORT, BgpConfigurationSpec, BindMode, CidrBlock, ClusterRoutes, DEFAULT_AS_NUMBER,
    DEFAULT_CONFIGURATION, DEFAULT_ROUTE_PRIORITY, LoadBalancerAggregation, NamedCommunity,
    PrefixAdvertisement,
};
pub use resource::bgp_filter::{
    BgpFilterRule, BgpFilterSpec, CommunityMatch, FilterAction, FilterOperation, MatchOperator,
    PeerType, PrefixLength, RouteSource,
};
pub use resource::bgp_peer::{
    BgpPassword, BgpPeerSpec, FailureDetectionMode, NextHopMode, ReversePeering, SecretKeyRef,
    SourceAddress,
};
pub use resource::cluster_information::ClusterInformationSpec;
pub use resource::felix_configuration::{EndpointToHostAction, FelixConfigurationSpec};
pub use resource::ip_pool::{EncapsulationMode, IpPoolSpec};
pub use resource::ip_reservation::IpReservationSpec;
pub use resource::ipam_configuration::{AddressPersistence, IpamConfigurationSpec};
pub use resource::network_policy::{
    GlobalNetworkPolicySpec, NetworkPolicySpec, PolicySpec, PolicyType, TierSpec,
};
pub use resource::network_set::{HostEndpointSpec, NetworkSetSpec};
pub use resource::node::{
    NodeAddress, NodeBgp, NodeInterface, NodeSpec, NodeWireguard, OrchRef, cluster_id,
};
pub use resource::policy::DEFAULT_TIER;
pub use resource::profile::{DEFAULT_ALLOW_PROFILE, ProfileSpec};
pub use resource::qos_controls::{Dscp, QosControls};
pub use resource::rule::{
    Action, EntityRule, IcmpMatch, Port, Protocol, Rule, ServiceAccountMatch, ServiceMatch,
};
pub use resource::shown::shown;
pub use resource::strict::{encode_over, encode_strict};
pub use resource::workload_endpoint::{EndpointPort, IpNat, WorkloadEndpointSpec};
pub use resource::{API_VERSION, EncodeError, Metadata, RawSpec, Resource, Spec};
pub use schema::{
    Declared, Program, Severity, Standing, UnsupportedField, declared, is_public_field,
    known_fields, unsupported_fields, unsupported_in_rule,
};
pub use secret::{is_secretive, without_values};
pub use selector::{Selector, SelectorError};
pub use service::{
    EndpointSlice, InvalidPart, SERVICES_PREFIX, ServiceName, SliceEndpoint, SliceKey,
    SliceKeyError, SlicePort,
};
pub use status::{EndpointState, EndpointStatus, HostStatus, Region, StatusKey};
pub use validate::{Invalid, Problem, is_resource_name};
pub use value::asn::AsNumber;
pub use value::community::CommunityValue;
pub use value::duration::GoDuration;
pub use value::mac::Mac;
pub use value::network::Network;
pub use value::peer_address::PeerAddress;
pub use value::timestamp::rfc3339_utc;
pub use value::uid::uid_from_random;
