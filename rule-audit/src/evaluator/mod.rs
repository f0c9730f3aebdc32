//! The policies of the datastore, as programs: an evaluation of Calico's stored JSON that shares no
//! code with Felix.
//!
//! The semantics are those of Calico's documentation, and of the operators' page of Felix where the
//! two differ. A field without a known meaning makes the outcome unknown.

mod cut;
mod endpoints;
mod fabric;
mod failsafe;
mod guard;
mod host_guard;
mod hosts;
mod located;
mod members;
mod nodes;
mod passage;
mod policies;
mod pools;
mod ports;
mod rules;
mod selector;
mod services;
mod settings;
mod slices;
mod stored;
#[cfg(test)]
mod tests;
mod translation;
mod tunnels;
mod values;

pub use cut::Cut;
pub use endpoints::Endpoint;
pub use fabric::Fabric;
pub use failsafe::{Failsafe, FailsafePort};
pub use guard::{Control, Guard};
pub use host_guard::HostGuard;
pub(crate) use host_guard::{CHAIN as HOST_GUARD_CHAIN, TABLE as HOST_GUARD};
pub use hosts::HostHook;
pub use policies::Direction;
pub use ports::Port;
pub use selector::{Selector, SelectorError};
pub use services::{Hook, Spec};
pub use settings::{Settings, Socket};
pub use slices::SERVICES;
pub use stored::{REFLECTORS, Stored};
pub use translation::Translation;
