//! A speaker's state as the reports of the control socket: pure, and shared by the BGP daemons.

mod events;
mod limits;
mod malformed;
mod neighbors;
mod routes;
mod settings;
mod status;
#[cfg(test)]
mod tests;

pub use events::event;
pub use limits::{full_ranges, limits, rejected_for_memory};
pub use malformed::malformed;
pub use neighbors::{excluded, find, neighbors, waiting};
pub use routes::{longest_match, routes};
pub use settings::settings;
pub use status::{facts, state, tables};
