//! A whole fabric in one process from one seed: the daemons' own cores between a simulated
//! network, simulated kernels and a simulated store, under one virtual clock.
//!
//! What runs is what ships: [`bgp_speaker::Speaker`] with the configuration that the daemons read
//! from their files, `cambric_bgp_client::Node`, Felix's agent, the store's [`etcd_lite::Core`] and
//! [`calico_store::Mirror`], and [`fib_sync::memory::Kernel`]. What is simulated is what lies between
//! them: streams that cut, delay, stall and break, hosts that crash, and time.
//!
//! * [`World`]: the machines, and the agenda of what happens next.
//! * [`Net`]: streams of octets between machines.
//! * [`Options`]: what a seed draws: how large the fabric is, and what goes wrong in it.
//! * [`scenario`]: a phase of chaos, then a phase of calm in which all must become right.
//! * [`oracle`]: what right means, one file each.

mod agenda;
mod bgp;
mod chance;
pub mod demo;
mod felix;
mod host;
mod life;
pub mod limits;
mod log;
mod machine;
mod net;
mod options;
pub mod oracle;
mod plants;
pub mod scenario;
mod store;
mod world;

pub use agenda::Daemon;
pub use chance::Chance;
pub use life::End;
pub use log::Violation;
pub use net::{Net, Weather};
pub use options::Options;
pub use plants::{FibWrap, Plants, SpeakerPlant, WireTap};
pub use scenario::{Failure, Outcome, converge, run};
pub use world::{SetupError, World};
