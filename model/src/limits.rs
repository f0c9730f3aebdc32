//! Every limit of the data model.

/// Longest name of a resource, in octets (a DNS subdomain).
pub const NAME_OCTETS_MAX: usize = 253;

/// Longest value of a label, and longest name part of its key, in octets.
pub const LABEL_VALUE_OCTETS_MAX: usize = 63;

/// Longest name of a network interface, in octets (`IFNAMSIZ` less the terminating zero).
pub const INTERFACE_NAME_OCTETS_MAX: usize = 15;

/// The weight of a reflector that names none.
pub const REFLECTOR_WEIGHT_DEFAULT: u32 = 100;
