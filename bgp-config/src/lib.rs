//! Configuration files of the BGP daemons, as speaker configuration.
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
mod duplicates;
mod file;
mod host;
pub mod limits;
mod machine;
mod neighbor;
pub mod page;
mod section;
mod session_keys;
#[cfg(test)]
mod tests;
pub mod value;

pub use check::{Intent, Origin};
pub use daemon_common::config::{Problem, Problems, Report, Source};
pub use file::{BgpFile, GuardSection, NoKernel, NoStore, SecretsSection, listen_default};
pub use host::Host;
pub use rib::{NextHops, OriginMode};
pub use section::{Section, is_shown};
pub use session_keys::SessionKeys;
