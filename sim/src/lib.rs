//! A whole fabric in one process from one seed: the daemons' own cores between a simulated network,
//! simulated kernels and a simulated datastore, with one virtual clock.
//!
//! The code under test is that of the programs: [`bgp_speaker::Speaker`] with the configuration
//! that the daemons read from their files, `cambric_bgp_client::Node`, Felix's agent, the
//! datastore's [`etcd_lite::Core`] and [`calico_store::Mirror`], and [`fib_sync::memory::Kernel`].
//! Simulated is the environment between them: streams that are cut, delayed, stalled and reset,
//! hosts that crash, and time.
//!
//! * [`World`]: the machines, and the agenda of future events.
//! * [`Net`]: streams of octets between machines.
//! * [`Options`]: the size of the fabric and the faults that a seed draws.
//! * [`scenario`]: a chaos phase, then a calm phase in which the state must become correct.
//! * [`oracle`]: the definitions of correctness, one file each.

mod agenda;
mod bfd;
mod bgp;
mod chance;
pub mod demo;
mod felix;
mod filter;
mod host;
mod life;
pub mod limits;
mod listing;
mod log;
mod machine;
mod net;
mod options;
pub mod oracle;
mod origins;
mod paths;
mod plants;
mod policies;
mod reported;
mod reported_routes;
pub mod scenario;
mod split;
mod store;
mod table;
mod tamper;
mod time;
mod views;
mod world;

pub use agenda::Daemon;
pub use chance::Chance;
pub use life::End;
pub use listing::listed;
pub use log::Violation;
pub use net::{Net, Weather};
pub use options::Options;
pub use plants::{
    Comparison, ConfigPlant, EventPlant, FibWrap, PathPlant, Plants, RouteEventPlant, RulesPlant,
    SpeakerPlant, UpdatePlant, WireTap,
};
pub use scenario::{Failure, Handovers, Outcome, Trouble, converge, handovers, run, troubled};
pub use world::{SetupError, World};
