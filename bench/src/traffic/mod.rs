//! Packets of workloads: flows that send all the time, the packets that arrive, rates, and floods.

mod attack;
mod capture;
mod flows;
mod opener;
mod pace;
pub mod probes;
pub mod rates;
pub mod sink;

pub use attack::{Attack, Flooding};
pub use capture::{Capture, Seen};
pub use flows::{Flows, Protocol, Sender};
pub use opener::Opener;
pub use probes::Probes;
