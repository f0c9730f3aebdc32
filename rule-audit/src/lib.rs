//! Compares the packet filter that the kernel has with the policies of the datastore.
//!
//! Two readers that share no code with Felix make programs of the same form: [`evaluator`] from the
//! stored JSON, [`ruleset`] from the kernel's listing. [`audit()`] compares them over all packets. Its
//! result is equal, or a packet about which they decide differently, with the rule on each side. A
//! field or expression that is not known makes the result "unknown", never equal.
//!
//! The table of the host guard is compared, too, with the ports and users of the BGP daemons.
//!
//! Not compared: the guard except for control ports; budgets; loops of services; the DSCP; fragments, which
//! the kernel reassembles before; ICMP in IPv6 packets and ICMPv6 in IPv4 packets, if rules distinguish
//! protocols; segments without a user at the host guard.

pub mod audit;
pub mod evaluator;
mod family;
pub mod limits;
pub mod packet;
pub mod ranges;
pub mod ruleset;
pub mod space;

pub use audit::{Finding, Report, Results, Subject, audit, audit_touched};
pub use evaluator::{Fabric, Settings, Stored};
pub use ruleset::{Listing, ListingError, Touched};
