//! The vocabulary of the control socket.

use std::fmt::Display;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;

use crate::report::{
    BfdSessions, Cleared, Drain, EndpointRules, Endpoints, EventPage, Fib, Flows, Limits, LogState,
    Malformed, Neighbors, PacketVerdict, Preview, Readiness, Refreshed, Reloaded, Routes, Rules,
    Settings, Status,
};

/// One request: a line of JSON, `{"command":"routes","prefix":"10.65.0.0/26"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Command {
    /// Identity and state of the daemon.
    Status {},
    /// BGP neighbors and their sessions.
    Neighbors {},
    /// BGP routes, a page of them.
    Routes {
        /// Only this prefix.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prefix: Option<IpNet>,
        /// Also the paths that lost, each with the step of the decision where it did. Without
        /// it, the chosen paths alone.
        #[serde(default)]
        why: bool,
        /// Only this family: `ipv4-unicast`, …
        #[serde(default, skip_serializing_if = "Option::is_none")]
        family: Option<String>,
        /// `next` of the page before; absent for the first page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
    /// The BGP route of the longest prefix with an address that has a path in use.
    Lookup {
        /// The address.
        address: IpAddr,
        /// Also the paths that lost, as in `Routes`.
        #[serde(default)]
        why: bool,
    },
    /// The kernel routes that the daemon owns, wants or imports.
    Fib {},
    /// The workload endpoints of this host.
    Endpoints {},
    /// The policies and profiles that apply to an endpoint of this host, in order.
    EndpointRules {
        /// Its name.
        endpoint: String,
    },
    /// The verdict of the packet filter on a packet.
    Packet(PacketQuery),
    /// The packet filter rules that the daemon keeps.
    Rules {},
    /// Rows of the flow log.
    Flows(FlowQuery),
    /// The effect that a staged policy would have.
    Preview {
        /// Its name.
        policy: String,
    },
    /// The last malformed messages of BGP neighbors.
    Malformed {},
    /// The limits of the daemon.
    Limits {},
    /// The effective configuration, with the source of each neighbor.
    Config {},
    /// The sessions of BFD.
    Bfd {},
    /// Events of the history.
    Events(EventQuery),
    /// The level of the log, and the neighbors that are debugged.
    Log {},
    /// Sets the level of the log for a while.
    SetLog(LogRequest),
    /// Logs all events of a neighbor for a while.
    Debug(DebugRequest),
    /// Requests a neighbor's routes again.
    Refresh {
        /// Its name or address.
        neighbor: String,
        /// This family only; absent for all of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        family: Option<String>,
    },
    /// Resets the session with a neighbor.
    Clear {
        /// Its name or address.
        neighbor: String,
    },
    /// Reads the configuration file again and applies it, as SIGHUP does.
    Reload {},
    /// The conditions that a daemon of a host lacks for being ready.
    Readiness {},
    /// The drain of this node.
    Drain {
        /// Begins or ends it; absent to query it only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on: Option<bool>,
        /// The request ends with the daemon: it is not stored for the next one.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        until_stop: bool,
    },
}

/// The requested events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventQuery {
    /// Only events of this name, or with this name before a dot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only events of routes to this prefix and to those inside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<IpNet>,
    /// Only events after this number: `next` of the page before.
    #[serde(deserialize_with = "number", skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Only events since this time, in milliseconds of Unix time.
    #[serde(deserialize_with = "number", skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// If there is no such event yet, wait for one for a limited time.
    pub wait: bool,
    /// Further events of this watch: `watch` of the page before.
    #[serde(deserialize_with = "number", skip_serializing_if = "Option::is_none")]
    pub watch: Option<u64>,
}

/// The first packet of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PacketQuery {
    /// The sender: the name of an endpoint, or an address.
    pub from: String,
    /// The receiver: the name of an endpoint, or an address.
    pub to: String,
    /// The name or number of the protocol.
    pub protocol: String,
    /// The destination port.
    #[serde(deserialize_with = "number", skip_serializing_if = "Option::is_none")]
    pub port: Option<u64>,
    /// The source address, if it is not the first one of the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_ip: Option<IpAddr>,
    /// The source port; if it is missing, any.
    #[serde(deserialize_with = "number", skip_serializing_if = "Option::is_none")]
    pub from_port: Option<u64>,
}

/// The requested rows of the flow log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlowQuery {
    /// Only flows from or to this endpoint, node, network set or address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Only flows about which this policy or profile has decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Only allowed flows, or only denied ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<bool>,
    /// Only rows that have changed after this number: `next` of the page before.
    #[serde(deserialize_with = "number", skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

/// A level of the log for a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogRequest {
    /// A level or directives, as in the file; without it the configured ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// For so many seconds.
    #[serde(deserialize_with = "number", skip_serializing_if = "Option::is_none")]
    pub for_s: Option<u64>,
}

/// A neighbor to debug.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DebugRequest {
    /// Its name or address.
    pub neighbor: String,
    /// For so many seconds; 0 to end it.
    #[serde(deserialize_with = "number", skip_serializing_if = "Option::is_none")]
    pub for_s: Option<u64>,
}

/// Reads a number of a command. With numbers of any length (`arbitrary_precision`), serde's tagged
/// enums pass a number on as a map, which only [`Number`] reads.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let number = Option::<Number>::deserialize(from)?;
    let read = |number: Number| number.as_u64();
    let wrong = || D::Error::custom("not a whole number");
    number
        .map(|number| read(number).ok_or_else(wrong))
        .transpose()
}

impl Command {
    /// The word of the command, as on the command line.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Status {} => "status",
            Self::Neighbors {} => "neighbors",
            Self::Routes { .. } => "routes",
            Self::Lookup { .. } => "lookup",
            Self::Fib {} => "fib",
            Self::Endpoints {} => "endpoints",
            Self::EndpointRules { .. } => "endpoint-rules",
            Self::Packet(_) => "packet",
            Self::Rules {} => "rules",
            Self::Flows(_) => "flows",
            Self::Preview { .. } => "preview",
            Self::Malformed {} => "malformed",
            Self::Limits {} => "limits",
            Self::Config {} => "config",
            Self::Bfd {} => "bfd",
            Self::Events(_) => "events",
            Self::Log {} => "log",
            Self::SetLog(_) => "set-log",
            Self::Debug(_) => "debug",
            Self::Refresh { .. } => "refresh",
            Self::Clear { .. } => "clear",
            Self::Reload {} => "reload",
            Self::Readiness {} => "readiness",
            Self::Drain { .. } => "drain",
        }
    }
}

/// One reply: a line of JSON, `{"status":{…}}` or `{"error":{"message":"…"}}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Answers [`Command::Status`].
    Status(Status),
    /// Answers [`Command::Neighbors`].
    Neighbors(Neighbors),
    /// Answers [`Command::Routes`] and [`Command::Lookup`].
    Routes(Routes),
    /// Answers [`Command::Fib`].
    Fib(Fib),
    /// Answers [`Command::Endpoints`].
    Endpoints(Endpoints),
    /// Answers [`Command::EndpointRules`].
    EndpointRules(Vec<EndpointRules>),
    /// Answers [`Command::Packet`].
    Packet(PacketVerdict),
    /// Answers [`Command::Rules`].
    Rules(Rules),
    /// Answers [`Command::Flows`].
    Flows(Flows),
    /// Answers [`Command::Preview`].
    Preview(Preview),
    /// Answers [`Command::Malformed`].
    Malformed(Malformed),
    /// Answers [`Command::Limits`].
    Limits(Limits),
    /// Answers [`Command::Config`].
    Config(Settings),
    /// Answers [`Command::Bfd`].
    Bfd(BfdSessions),
    /// Answers [`Command::Events`].
    Events(EventPage),
    /// Answers [`Command::Log`], [`Command::SetLog`] and [`Command::Debug`].
    Log(LogState),
    /// Answers [`Command::Refresh`].
    Refresh(Refreshed),
    /// Answers [`Command::Clear`].
    Clear(Cleared),
    /// Answers [`Command::Reload`].
    Reload(Reloaded),
    /// Answers [`Command::Readiness`].
    Readiness(Readiness),
    /// Answers [`Command::Drain`].
    Drain(Drain),
    /// The daemon cannot answer.
    Error {
        /// The reason, and the remedy.
        message: String,
    },
}

impl Reply {
    /// An error reply.
    pub fn error(message: impl Into<String>) -> Self {
        Self::Error {
            message: message.into(),
        }
    }

    /// Returns the reply to a reload of this file: the error of the reload, if it has one.
    pub fn reloaded(config: impl Display, error: Option<String>) -> Self {
        match error {
            Some(message) => Self::Error { message },
            None => Self::Reload(Reloaded {
                config: config.to_string(),
            }),
        }
    }

    /// Returns the reply to a command that a daemon does not support.
    pub fn not_here(daemon: &str, command: &Command) -> Self {
        Self::error(format!("{daemon} does not answer '{}'", command.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_query_is_written_and_read() {
        let query = EventQuery {
            name: Some("session".to_owned()),
            after: Some(7),
            since_ms: Some(1_700_000_000_000),
            prefix: Some("10.0.0.0/8".parse().expect("a prefix")),
            watch: Some(3),
            wait: true,
        };
        let written = serde_json::to_string(&Command::Events(query.clone())).expect("written");
        let read: Command = serde_json::from_str(&written).expect("read");
        assert_eq!(read, Command::Events(query));
        let short: Command = serde_json::from_str(r#"{"command":"events"}"#).expect("read");
        assert_eq!(short, Command::Events(EventQuery::default()));
        for wrong in [r#""after":-1"#, r#""after":"7""#, r#""behind":7"#] {
            let text = format!(r#"{{"command":"events",{wrong}}}"#);
            assert!(serde_json::from_str::<Command>(&text).is_err(), "{wrong}");
        }
    }
}
