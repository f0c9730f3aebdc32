//! `show status`.

use jiff::Zoned;

use super::lines::Lines;
use super::{VERSION, ago};
use crate::report::Status;

/// Writes the complete answer.
pub(super) fn write(out: &mut Lines, status: &Status, now: &Zoned) {
    let router_id = status.facts.iter().find(|fact| fact.name == "router id");
    let router_id = router_id.map_or("0.0.0.0", |fact| &fact.value);
    let at = |seconds| ago(now, seconds).strftime("%F %T").to_string();
    out.line(1000, format_args!("BIRD {VERSION}"));
    out.line(1011, format_args!("Router ID is {router_id}"));
    out.line(1011, format_args!("Current server time is {}", at(0)));
    let read = status.configured_s.unwrap_or(status.uptime_s);
    let (boot, read) = (at(status.uptime_s), at(read));
    out.line(1011, format_args!("Last reboot on {boot}"));
    out.line(1011, format_args!("Last reconfiguration on {read}"));
    if status.restarting {
        out.line(24, "Graceful restart recovery in progress");
    }
    out.end(13, "Daemon is up and running");
}
