//! Sessions of BFD.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The sessions of all clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BfdSessions {
    /// The sessions, by the address of the remote system.
    pub sessions: Vec<BfdSession>,
}

/// A session of one client.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BfdSession {
    /// The client: the name of its program.
    pub client: String,
    /// The address of the remote system.
    pub remote: Option<IpAddr>,
    /// The local address, if there is a path.
    pub local: Option<IpAddr>,
    /// `single` or `multi`; empty without a path.
    pub hops: String,
    /// `Up`, `Down`, `Init` or `AdminDown`; `none` without a path.
    pub state: String,
    /// The result for the client, in words.
    pub liveness: String,
    /// The reason for the last failure.
    pub diagnostic: String,
    /// The state in the last received packet.
    pub remote_state: String,
    /// The diagnostic in the last received packet.
    pub remote_diagnostic: String,
    /// The C bit of the last received packet: BFD of the remote system continues while its control plane
    /// restarts.
    pub remote_independent: bool,
    /// The local discriminator.
    pub local_discriminator: u32,
    /// The discriminator of the remote system, if it is known.
    pub remote_discriminator: Option<u32>,
    /// The interface of a path over a single hop.
    pub interface: Option<String>,
    /// The interval of sent packets that the client wants, in milliseconds.
    pub wanted_interval_ms: u32,
    /// The shortest interval of received packets that the client wants, in milliseconds.
    pub wanted_receive_ms: u32,
    /// The interval of sent packets, in milliseconds; absent if none are sent.
    pub interval_ms: Option<f64>,
    /// The detection time, in milliseconds; 0 while the remote system is unknown.
    pub detection_ms: f64,
    /// The type of the authentication and the number of keys; absent without authentication.
    pub authentication: Option<String>,
    /// Sent packets.
    pub sent: u64,
    /// Accepted packets.
    pub received: u64,
    /// Discarded packets.
    pub discarded: u64,
    /// How often the session came up.
    pub ups: u64,
    /// How often it went down.
    pub downs: u64,
    /// Why there is no session on the wanted path.
    pub problem: Option<String>,
    /// Seconds until the session ends, unless its client wants it again.
    pub expires_in_s: Option<u64>,
}

/// The numbers of BFD.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BfdFigures {
    /// Clients, with those that are away.
    pub clients: u64,
    /// Sessions of all clients.
    pub sessions: u64,
    /// Of these, sessions that are up.
    pub up: u64,
    /// Discarded packets.
    pub discarded: u64,
}
