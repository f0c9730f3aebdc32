//! What the operator wants, as speaker configuration; what the speaker does, as reports.
//!
//! It is wanted in a file, or in the resources of a store that a file names ([`store`]).
//!
//! Pure: a TOML text goes in, a [`bgp_speaker::SpeakerConfig`] or a report of every mistake comes
//! out. Both BGP daemons share these sections; a daemon's own section (`[kernel]` of the BGP
//! client) is the type parameter of [`BgpFile`].
//!
//! ```
//! use bgp_config::{BgpFile, NoKernel, Source};
//!
//! let source = Source::new(
//!     "rr.toml",
//!     r#"
//!     asn = 64512
//!     router_id = "10.0.0.1"
//!     [[neighbor_range]]
//!     prefix = "10.0.0.0/24"
//!     asn = 64512
//!     limit = 100
//!     route_reflector_client = true
//!     "#,
//! );
//! let (file, intent) = BgpFile::<NoKernel>::read(&source, bgp_config::NextHops::AssumeReachable)?;
//! assert_eq!(file.log.get_ref(), "info");
//! assert_eq!(intent.speaker.ranges.len(), 1);
//! # Ok::<(), bgp_config::Report>(())
//! ```

pub mod changes;
mod check;
mod file;
pub mod limits;
mod machine;
mod neighbor;
pub mod page;
pub mod placement;
pub mod report;
mod section;
pub mod store;
#[cfg(test)]
mod tests;
pub mod value;

pub use check::{Intent, Origin};
pub use daemon_common::config::{Problem, Problems, Report, Source};
pub use file::{BgpFile, GuardSection, NoKernel, NoStore, SecretsSection};
pub use rib::NextHops;
pub use section::{Section, is_shown};
