//! The part of BIRD's control socket that the tools around Calico use: `calicoctl node status`, the
//! readiness and liveness probes, the reporter of CalicoNodeStatus, and `birdc` itself.
//!
//! It is another front end of the daemon: each query becomes commands of the daemon's own control
//! socket, and the reports become BIRD's numbered lines. Nothing can be changed through it. The
//! lines are those of BIRD 1, for which Calico's parsers were written.

mod ask;
mod lines;
mod protocols;
mod routes;
mod serve;
mod status;
#[cfg(test)]
mod tests;
mod view;

use std::net::IpAddr;

use jiff::{SignedDuration, Zoned};

pub(crate) use serve::serve;
pub use view::View;

/// The version in the greeting: readers look for `BIRD v`.
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"), "+cambric");

/// Returns the name of a neighbor as a protocol. Tools look for Calico's `Mesh_`, `Global_` and
/// `Node_`, and support no other name. A neighbor without such a name is specific to this node; a
/// reflector of the fabric is global.
fn protocol_name(name: &str, address: IpAddr, dynamic: bool) -> String {
    if dynamic || name.parse() == Ok(address) {
        return format!("Node_{address}").replace(['.', ':'], "_");
    }
    let symbol = |c: char| match c {
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    let (kind, rest) = match name.strip_prefix("Reflector_") {
        Some(address) => ("Global_", address),
        None => ("", name),
    };
    kind.chars().chain(rest.chars().map(symbol)).collect()
}

/// When something was, the way BIRD 1 shortens it: the time of a day, or the day.
pub fn since(now: &Zoned, seconds_ago: u64) -> String {
    /// Beyond this age the date is shown.
    const DAY: u64 = 20 * 3600;
    let format = if seconds_ago < DAY { "%T" } else { "%F" };
    ago(now, seconds_ago).strftime(format).to_string()
}

fn ago(now: &Zoned, seconds: u64) -> Zoned {
    let seconds = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
    now.checked_sub(seconds).unwrap_or_else(|_| now.clone())
}
