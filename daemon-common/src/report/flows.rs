//! The flow log of a host.

use serde::{Deserialize, Serialize};

use super::RuleOwner;

/// A page of the flow log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flows {
    /// Whether flows are collected.
    pub enabled: bool,
    /// Why they are not, or what is unknown about them.
    pub problem: Option<String>,
    /// Since when, in milliseconds of Unix time.
    pub since_ms: u64,
    /// Counts since the start of the daemon.
    pub figures: FlowFigures,
    /// The rows, in the order of their last change.
    pub flows: Vec<FlowRow>,
    /// The number after which the next page begins.
    pub next: u64,
    /// Whether more rows follow now.
    pub more: bool,
}

/// Flows with the same ends, protocol, port, verdict and deciding rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowRow {
    /// The number of the last change of this row; a later change has a higher one.
    pub number: u64,
    /// The client.
    pub source: FlowEnd,
    /// The server, after the translation of the destination.
    pub destination: FlowEnd,
    /// The name of the protocol, or its number.
    pub protocol: String,
    /// The destination port of a protocol with ports.
    pub port: Option<u16>,
    /// `egress`: rules for the source decided; `ingress`: rules for the destination.
    pub direction: String,
    /// Whether the rules allow it.
    pub allowed: bool,
    /// The deciding policy or profile.
    pub by: RuleOwner,
    /// The number of flows.
    pub flows: u64,
    /// The flows of which the packets are counted: those that have ended, and denied ones.
    pub counted: u64,
    /// Packets of counted flows, of both directions; absent if none is counted.
    pub packets: Option<u64>,
    /// Bytes of counted flows, of both directions; absent if none is counted.
    pub bytes: Option<u64>,
    /// The time of the first flow, in milliseconds of Unix time.
    pub first_ms: u64,
    /// The time of the last change.
    pub last_ms: u64,
}

/// An end of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowEnd {
    /// `endpoint`, `node`, `network set`, `address` or `public`.
    pub kind: String,
    /// Its name: `namespace/name` of an endpoint, an address, …
    pub name: String,
}

/// Counts of the flow log since the start of the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowFigures {
    /// Whether flows are collected.
    pub enabled: bool,
    /// Records of packets that the kernel has delivered.
    pub records: u64,
    /// Records that were lost, because the daemon did not read them in time.
    pub lost: u64,
    /// How often the kernel discarded records.
    pub overruns: u64,
    /// How often the kernel discarded ends of connections: the packets of some flows are unknown.
    pub ends_overruns: u64,
    /// Packets without a record: their input interface was beyond the limit of records.
    pub unsent: u64,
    /// Records of rules of other programs.
    pub foreign: u64,
    /// Rows of the table.
    pub rows: u64,
    /// Rows that were removed to make room.
    pub rows_removed: u64,
}
