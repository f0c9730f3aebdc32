//! BFDConfiguration: the timers of BFD by interface, for selected nodes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Metadata, Spec};
use crate::key::kind::Kind;
use crate::lenient::{Unknown, empty_as_none, or_default};
use crate::limits::{
    BFD_IDLE_MS, BFD_INTERFACES_MAX, BFD_INTERVAL_MS_MAX, BFD_MULTIPLIER, BFD_RECEIVE_MS,
    BFD_SEND_MS, INTERFACE_NAME_OCTETS_MAX, SELECTOR_OCTETS_MAX,
};
use crate::selector::Selector;
use crate::validate::{Faults, Invalid, Problem};
use crate::value::duration::GoDuration;

/// Spec of the timers of BFD.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BfdConfigurationSpec {
    /// The nodes; all nodes without it.
    #[serde(
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub node_selector: Option<Selector>,
    /// The timers by interface. The first entry that matches an interface has precedence.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub interfaces: Vec<BfdInterface>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The timers of BFD on matching interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BfdInterface {
    /// The name of an interface, the beginning of names before a final `*`, or `*` for all.
    #[serde(default, deserialize_with = "or_default")]
    pub match_pattern: String,
    /// The shortest interval between received packets; see [`Self::receive_ms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_recv_interval: Option<GoDuration>,
    /// The shortest interval between sent packets; see [`Self::send_ms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_send_interval: Option<GoDuration>,
    /// The interval between sent packets of a session that is not up; see [`Self::idle_ms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_send_interval: Option<GoDuration>,
    /// How many packets may be missing; see [`Self::packets`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multiplier: Option<i64>,
    /// Unknown fields, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl BfdInterface {
    /// Returns the shortest interval between received packets, in milliseconds.
    pub fn receive_ms(&self) -> u32 {
        milliseconds(self.minimum_recv_interval, BFD_RECEIVE_MS)
    }

    /// Returns the shortest interval between sent packets, in milliseconds.
    pub fn send_ms(&self) -> u32 {
        milliseconds(self.minimum_send_interval, BFD_SEND_MS)
    }

    /// Returns the interval between sent packets of a session that is not up, in milliseconds.
    pub fn idle_ms(&self) -> u32 {
        milliseconds(self.idle_send_interval, BFD_IDLE_MS)
    }

    /// Returns how many packets may be missing. A stored 0 is the default, as in Calico.
    pub fn packets(&self) -> u8 {
        let given = self.multiplier.filter(|given| *given != 0);
        given.map_or(BFD_MULTIPLIER, |given| {
            u8::try_from(given).unwrap_or(u8::MAX)
        })
    }

    fn validate(&self, at: &str, faults: &mut Faults) {
        let field = format!("{at}.matchPattern");
        faults.required(&field, &self.match_pattern);
        let name = self.match_pattern.strip_suffix('*');
        let name = name.unwrap_or(&self.match_pattern);
        faults.at_most(&field, name.len(), INTERFACE_NAME_OCTETS_MAX);
        if name.contains(['*', '/']) || name.contains(char::is_whitespace) {
            let found = self.match_pattern.clone();
            let expected =
                "the name of an interface, the beginning of names with a final \"*\", or \"*\"";
            faults.push(field, Problem::Form { found, expected });
        }
        for (name, given) in [
            ("minimumRecvInterval", self.minimum_recv_interval),
            ("minimumSendInterval", self.minimum_send_interval),
            ("idleSendInterval", self.idle_send_interval),
        ] {
            let Some(given) = given.filter(|given| !is_interval(given.0)) else {
                continue;
            };
            faults.range(
                format!("{at}.{name}"),
                given,
                "a whole number of milliseconds from 1ms to 1m0s",
            );
        }
        if let Some(given) = self.multiplier.filter(|given| !(0..=255).contains(given)) {
            faults.range(
                format!("{at}.multiplier"),
                given,
                "a number of packets from 1 to 255, or 0 for the default",
            );
        }
    }
}

fn milliseconds(given: Option<GoDuration>, default: u32) -> u32 {
    given.map_or(default, |given| {
        u32::try_from(given.0.as_millis()).unwrap_or(BFD_INTERVAL_MS_MAX)
    })
}

fn is_interval(given: Duration) -> bool {
    let milliseconds = given.as_millis();
    let is_whole = given == Duration::from_millis(u64::try_from(milliseconds).unwrap_or(u64::MAX));
    is_whole && (1..=u128::from(BFD_INTERVAL_MS_MAX)).contains(&milliseconds)
}

impl Spec for BfdConfigurationSpec {
    const KIND: Option<Kind> = Some(Kind::BfdConfiguration);

    fn validate(&self, _: &Metadata) -> Vec<Invalid> {
        let mut faults = Faults::default();
        let selector = self.node_selector.as_ref();
        let octets = selector.map_or(0, |selector| selector.text().len());
        faults.at_most("spec.nodeSelector", octets, SELECTOR_OCTETS_MAX);
        let count = self.interfaces.len();
        faults.at_most("spec.interfaces", count, BFD_INTERFACES_MAX);
        for (at, interface) in self.interfaces.iter().enumerate() {
            interface.validate(&format!("spec.interfaces[{at}]"), &mut faults);
        }
        faults.0
    }
}
