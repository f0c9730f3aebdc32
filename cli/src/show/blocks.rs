//! Reports about one object, one fact per line.

use std::fmt::Write;

use daemon_common::report::{Neighbor, NeighborFamily, Status};

use super::cells::{clean, duration, last_error, or_dash};

/// Returns whether `name` names this neighbor.
pub(super) fn is_called(neighbor: &Neighbor, name: &str) -> bool {
    neighbor.name == name
        || neighbor
            .address
            .is_some_and(|address| address.to_string() == name)
}

/// Returns all facts about one neighbor.
pub(super) fn neighbor(neighbor: &Neighbor) -> String {
    let mut block = Block::titled(&format!(
        "{} ({}), AS {}, {}",
        clean(&neighbor.name),
        or_dash(neighbor.address),
        neighbor.asn,
        neighbor.role
    ));
    let since = neighbor
        .since_s
        .map(|seconds| format!(" since {}", duration(seconds)));
    let state = format!("{}{}", neighbor.state, since.unwrap_or_default());
    block.fact("state", &state);
    block.fact("last error", &or_dash(last_error(neighbor)));
    block.fact("last down", &or_dash(neighbor.last_down.as_ref()));
    block.fact("flaps", &neighbor.flaps.to_string());
    block.fact("held", &neighbor.held.to_string());
    block.fact("router id", &or_dash(neighbor.router_id));
    block.fact("hostname", &or_dash(neighbor.hostname.as_ref()));
    let ends = format!(
        "{} to {}",
        or_dash(neighbor.local),
        or_dash(neighbor.remote)
    );
    block.fact("connection", &ends);
    block.fact(
        "hold time",
        &or_dash(neighbor.hold_time_s.map(|seconds| format!("{seconds}s"))),
    );
    if let Some(bfd) = &neighbor.bfd {
        block.fact("BFD session", &clean(bfd));
    }
    for key in &neighbor.keys {
        block.fact(&key.name, &clean(&key.value));
    }
    block.fact("import", &neighbor.import);
    block.fact("export", &neighbor.export);
    let messages = format!("{} in, {} out", neighbor.messages_in, neighbor.messages_out);
    block.fact("messages", &messages);
    block.fact(
        "updates",
        &format!("{} in, {} out", neighbor.updates_in, neighbor.updates_out),
    );
    let mut memory = format!(
        "{} bytes of received routes, {} waiting to be sent",
        neighbor.octets_received, neighbor.octets_queued
    );
    if neighbor.rejected_for_memory {
        memory.push_str("; new paths are rejected (memory_max)");
    }
    block.fact("memory", &memory);
    block.fact("faults", &neighbor.faults.to_string());
    for counters in &neighbor.families {
        block.fact(&counters.family, &family(counters));
    }
    for capability in &neighbor.capabilities {
        block.fact("capability", &clean(capability));
    }
    block.text
}

fn family(counters: &NeighborFamily) -> String {
    let mut text = format!(
        "{} paths, {} accepted",
        counters.received, counters.accepted
    );
    if let Some(limit) = counters.limit {
        text = format!("{text}, limit {limit}");
    }
    if counters.limited > 0 {
        text = format!("{text}, {} rejected", counters.limited);
    }
    if counters.ineligible > 0 {
        text = format!("{text}, {} of them unusable", counters.ineligible);
    }
    if let (Some(sent), Some(limit)) = (counters.sent, counters.sent_limit) {
        text = format!("{text}, {sent} sent, limit {limit}");
    }
    if counters.is_suppressing {
        text = format!("{text}: further paths are suppressed");
    }
    match (&counters.add_path, &counters.add_path_send) {
        (Some(mode), Some(sent)) => format!("{text}, add-path {mode} ({sent})"),
        (Some(mode), None) => format!("{text}, add-path {mode}"),
        (None, _) => text,
    }
}

/// Returns the status of a daemon.
pub(super) fn status(status: &Status) -> String {
    let mut block = Block::titled(&format!("{} {}", status.daemon, status.version));
    let state = match (status.ready, status.waiting_for.as_slice()) {
        (true, _) => "ready".to_owned(),
        (false, []) => "not ready".to_owned(),
        (false, waiting) => format!("not ready: {}", clean(&waiting.join("; "))),
    };
    block.fact("state", &state);
    for missing in status.readiness.iter().flat_map(|ready| &ready.missing) {
        block.fact("does not forward yet", &clean(missing));
    }
    block.fact(
        "running",
        &format!("{}, pid {}", duration(status.uptime_s), status.pid),
    );
    block.fact(
        "memory",
        &or_dash(status.resident_kib.map(|kib| format!("{kib} KiB"))),
    );
    block.fact("config", &status.config);
    if let Some(seconds) = status.configured_s {
        block.fact("last change", &format!("{} ago", duration(seconds)));
    }
    for fact in &status.facts {
        block.fact(&fact.name, &clean(&fact.value));
    }
    for note in &status.notes {
        block.fact("note", &clean(note));
    }
    if let Some(error) = &status.config_error {
        block.fact("config error", "the last valid values stay in effect");
        block.text.push_str(error.trim_end());
        block.text.push('\n');
    }
    block.text
}

/// A title with facts below it.
pub(super) struct Block {
    pub(super) text: String,
}

impl Block {
    pub(super) fn titled(title: &str) -> Self {
        Self {
            text: format!("{title}\n"),
        }
    }

    pub(super) fn fact(&mut self, name: &str, value: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "  {name:<14} {value}");
    }
}
