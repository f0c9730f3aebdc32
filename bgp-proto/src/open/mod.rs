//! OPEN and the capabilities in it (RFC 4271 §4.2, RFC 5492, RFC 9072).

mod capability;
mod display;
mod encode;
mod grammar;
mod message;
#[cfg(test)]
mod tests;

pub use capability::{
    AddPathMode, BgpRole, Capability, CapabilityCode, ExtendedNextHopEntry, GracefulRestart,
    LongLivedEntry, OrfEntry, OrfMode,
};
pub use message::{Open, VERSION};
