//! Every limit of the conversion.

/// Maximum number of reports about one object; the last one has the number of further ones.
pub const REPORTS_MAX: usize = 64;

/// Maximum length of a value that a report quotes, in octets.
pub const QUOTED_OCTETS_MAX: usize = 80;

/// Longest name of a port, in octets (RFC 6335 §5.1).
pub const PORT_NAME_OCTETS_MAX: usize = 15;

/// Maximum number of values in the list of an annotation.
pub const ANNOTATION_VALUES_MAX: usize = 256;

/// Highest priority number of a ClusterNetworkPolicy.
pub const PRIORITY_MAX: u64 = 1000;

/// Maximum length of the rules of one direction of a policy as JSON, in octets. etcd accepts requests of
/// 1.5 MiB, and a policy that is not stored leaves its pods open.
pub const RULES_OCTETS_MAX: usize = 640 << 10;

/// Maximum length of a selector, in octets.
pub const SELECTOR_OCTETS_MAX: usize = 64 << 10;

/// Maximum number of addresses of one sort of a service.
pub const SERVICE_ADDRESSES_MAX: usize = 64;

/// Maximum number of communities of the routes of a service.
pub const COMMUNITIES_MAX: usize = 32;

/// Maximum number of BGPPeers that receive the routes of a service.
pub const PEERS_MAX: usize = 64;
