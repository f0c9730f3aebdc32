//! Limits of an audit. A listing or a datastore beyond them has the result "unknown".

/// Maximum length of a listing of the kernel's rules, in octets.
pub const LISTING_OCTETS_MAX: usize = 256 << 20;

/// Maximum number of addresses with their ports in one slice of a service, as in Felix.
pub const SLICE_MEMBERS_MAX: usize = 100_000;

/// Maximum number of names of changed objects: beyond it, everything is compared.
pub const TOUCHED_MAX: usize = 4096;

/// Maximum nesting of chains. The kernel rejects more than 16 jumps.
pub const JUMPS_MAX: usize = 16;

/// Maximum nesting of a selector: parentheses and negations.
pub const SELECTOR_DEPTH_MAX: usize = 64;

/// Maximum number of classes of packets that one comparison evaluates.
pub const CLASSES_MAX: usize = 4_000_000;

/// Number of partitions of values that one comparison may leave for the next one.
pub const CLASSES_KEPT: usize = 1 << 16;

/// Number of programs that comparisons may leave for the next one.
pub const PROGRAMS_KEPT: usize = 10_000;

/// Maximum number of programs in one comparison, also those that remain after some fields are fixed.
pub const PROGRAMS_MAX: usize = 2_000_000;
