//! Computes a host's desired state from stored values: pure, and independent of the order in which
//! the values arrived.

mod assignments;
mod automatic;
mod bandwidth;
mod calculator;
mod configuration;
mod context;
mod desired;
mod endpoint;
mod fabric;
mod failsafe;
mod fields;
mod figures;
mod host;
mod hosts;
mod kubernetes;
mod listening;
mod lookup;
mod mark;
mod members;
mod named;
mod offload;
mod overlay;
mod passage;
mod pattern;
mod policy;
#[cfg(test)]
mod policy_tests;
mod pools;
mod profile;
mod read;
mod recompute;
mod routing;
mod settings;
mod staged;
mod stored_settings;
#[cfg(test)]
mod tests;
mod types;
mod unsupported;

pub use bandwidth::{Bandwidth, Bucket, Peak};
pub(crate) use bandwidth::{SHAPERS, shaper_name};
pub use calculator::{Calculator, KINDS};
pub use desired::{Desired, Placement, Recomputed};
pub use fabric::BgpPorts;
pub use listening::Listening;
pub(crate) use listening::MAIN_LOOP;
pub(crate) use lookup::{AppliedList, ListOwner, RemoteEndpoint};
pub(crate) use named::is_gateway;
pub use overlay::{
    DeviceState, IpipDevice, IpipState, Overlay, OverlayTouched, TunnelDevice, TunnelEnd, Way,
};
pub use pattern::Pattern;
pub(crate) use read::interface_prefixes;
pub use routing::Routing;
pub(crate) use settings::fault;
pub use settings::{INTERFACE_PREFIXES, Settings};
pub(crate) use staged::Trial;
pub use types::{Endpoint, EndpointId, Problem, is_interface_name};
