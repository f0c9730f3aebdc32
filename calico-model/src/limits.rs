//! Every limit of the data model.

/// Longest name of a resource, in octets (a DNS subdomain).
pub const NAME_OCTETS_MAX: usize = 253;

/// Maximum length of the name of a port, as in Calico.
pub(crate) const PORT_NAME_OCTETS_MAX: usize = 128;

/// Longest value of a label, and longest name part of its key, in octets.
pub const LABEL_VALUE_OCTETS_MAX: usize = 63;

/// Longest name of a network interface, in octets (`IFNAMSIZ` less the terminating zero).
pub const INTERFACE_NAME_OCTETS_MAX: usize = 15;

/// The default weight of a reflector.
pub const REFLECTOR_WEIGHT_DEFAULT: u32 = 100;

/// Longest label in a selector, in octets.
pub const LABEL_OCTETS_MAX: usize = 512;

/// Maximum nesting of parentheses in a selector.
pub const SELECTOR_DEPTH_MAX: usize = 64;

/// Longest selector of a BGP peer, in octets.
pub const SELECTOR_OCTETS_MAX: usize = 1024;

/// Maximum number of names for communities in one BGP configuration.
pub const COMMUNITIES_MAX: usize = 500;

/// Maximum number of prefix advertisements in one BGP configuration.
pub const PREFIX_ADVERTISEMENTS_MAX: usize = 500;

/// Maximum number of entries for interfaces in one configuration of BFD.
pub const BFD_INTERFACES_MAX: usize = 64;

/// Longest interval between packets of BFD, in milliseconds.
pub const BFD_INTERVAL_MS_MAX: u32 = 60_000;

/// Calico's default of the interval between received packets of BFD, in milliseconds.
pub(crate) const BFD_RECEIVE_MS: u32 = 10;

/// Calico's default of the interval between sent packets of BFD, in milliseconds.
pub(crate) const BFD_SEND_MS: u32 = 100;

/// Calico's default of the interval between sent packets of a session that is not up, in milliseconds.
pub(crate) const BFD_IDLE_MS: u32 = 60_000;

/// Calico's default of the packets of BFD that may be missing.
pub(crate) const BFD_MULTIPLIER: u8 = 5;

/// Maximum number of operations in one rule of a BGP filter.
pub const FILTER_OPERATIONS_MAX: usize = 10;

/// Maximum number of AS numbers that one operation of a BGP filter prepends.
pub const AS_PATH_PREPENDS_MAX: usize = 10;

/// Highest metric of a route to a workload: LOCAL_PREF is 2147483647 less the metric.
pub const ROUTE_PRIORITY_MAX: u32 = 2_147_483_646;

/// Highest configurable number of blocks of a host.
pub const HOST_BLOCKS_MAX: u32 = 1_000_000;

/// Longest time until a released address can be assigned again, in seconds.
pub const COOL_DOWN_S_MAX: u32 = 1_200;
