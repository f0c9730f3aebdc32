//! The limits of a workload's traffic.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::lenient::{Unknown, or_default};

/// The limits of a workload's traffic that Felix supports. Zero means no limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QosControls {
    /// Rate of traffic to the workload, bits in a second.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub ingress_bandwidth: u64,
    /// Traffic at once above this rate, bits.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub ingress_burst: u64,
    /// Rate of this burst, bits in a second.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub ingress_peakrate: u64,
    /// Traffic at once above the rate of the burst, bytes.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub ingress_minburst: u64,
    /// Rate of traffic from the workload, bits in a second.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub egress_bandwidth: u64,
    /// Traffic at once above this rate, bits.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub egress_burst: u64,
    /// Rate of this burst, bits in a second.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub egress_peakrate: u64,
    /// Traffic at once above the rate of the burst, bytes.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub egress_minburst: u64,
    /// Packets to the workload in a second.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub ingress_packet_rate: u64,
    /// Packets to the workload at once.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub ingress_packet_burst: u64,
    /// Packets from the workload in a second.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub egress_packet_rate: u64,
    /// Packets from the workload at once.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub egress_packet_burst: u64,
    /// TCP connections to the workload.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub ingress_max_connections: u64,
    /// TCP connections from the workload.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_zero"
    )]
    pub egress_max_connections: u64,
    /// The DSCP of packets that leave the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    /// Other limits, kept unchanged.
    #[serde(flatten)]
    pub unknown: Unknown,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde calls"
)]
const fn is_zero(limit: &u64) -> bool {
    *limit == 0
}

/// A differentiated services code point: a number or a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Dscp {
    /// By number.
    Number(i64),
    /// By name, or a number in quotes.
    Name(String),
}

/// Names of code points (RFC 2474, RFC 2597, RFC 3246).
const NAMES: [(&str, u8); 21] = [
    ("DF", 0),
    ("EF", 46),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS0", 0),
    ("CS1", 8),
    ("CS2", 16),
    ("CS3", 24),
    ("CS4", 32),
    ("CS5", 40),
    ("CS6", 48),
];

/// The highest code point.
const DSCP_MAX: u8 = 63;

impl Dscp {
    /// Returns the code point; `None` for an unknown name and for a number above 63. Names are
    /// accepted in any case.
    pub fn value(&self) -> Option<u8> {
        let value = match self {
            Self::Number(number) => u8::try_from(*number).ok()?,
            Self::Name(name) => {
                let name = name.trim();
                let known = NAMES
                    .iter()
                    .find(|(known, _)| known.eq_ignore_ascii_case(name));
                match known {
                    Some((_, value)) => *value,
                    None => name.parse().ok()?,
                }
            }
        };
        (value <= DSCP_MAX).then_some(value)
    }
}

/// Highest rate and burst of packets (as in Calico).
const PACKETS_MAX: u64 = 10_000;

/// Values of the limits of bandwidth (as in Calico): bits in a second, bits, bits in a second, bytes.
const BANDWIDTH: RangeInclusive<u64> = 1000..=1_000_000_000_000_000;
const BURST: RangeInclusive<u64> = 1000..=34_359_738_360;
const PEAKRATE: RangeInclusive<u64> = 1010..=1_010_000_000_000_000;
const MINBURST: RangeInclusive<u64> = 1000..=100_000_000;

impl QosControls {
    /// Returns the first field with an invalid value, and the valid values.
    pub fn invalid(&self) -> Option<(&'static str, String)> {
        let bandwidth = self.invalid_bandwidth();
        bandwidth
            .or_else(|| self.invalid_number())
            .or_else(|| self.invalid_dscp())
    }

    fn invalid_bandwidth(&self) -> Option<(&'static str, String)> {
        let fields = [
            ("ingressBandwidth", self.ingress_bandwidth, BANDWIDTH),
            ("ingressBurst", self.ingress_burst, BURST),
            ("ingressPeakrate", self.ingress_peakrate, PEAKRATE),
            ("ingressMinburst", self.ingress_minburst, MINBURST),
            ("egressBandwidth", self.egress_bandwidth, BANDWIDTH),
            ("egressBurst", self.egress_burst, BURST),
            ("egressPeakrate", self.egress_peakrate, PEAKRATE),
            ("egressMinburst", self.egress_minburst, MINBURST),
        ];
        let mut fields = fields.into_iter();
        let outside = fields.find(|(_, value, range)| *value != 0 && !range.contains(value));
        if let Some((field, value, range)) = outside {
            let (start, end) = range.into_inner();
            return Some((field, format!("{value} is not between {start} and {end}")));
        }
        // The kernel rejects a peak rate that is not above the rate, in whole bytes.
        let pairs = [
            (
                "ingressPeakrate",
                self.ingress_peakrate,
                self.ingress_bandwidth,
            ),
            (
                "egressPeakrate",
                self.egress_peakrate,
                self.egress_bandwidth,
            ),
        ];
        let mut pairs = pairs.into_iter();
        let low = pairs.find(|(_, peak, rate)| *peak != 0 && peak / 8 <= rate / 8)?;
        let (field, peak, rate) = low;
        Some((field, format!("{peak} is not above the bandwidth, {rate}")))
    }

    fn invalid_number(&self) -> Option<(&'static str, String)> {
        let limits = [
            ("ingressPacketRate", self.ingress_packet_rate, PACKETS_MAX),
            ("ingressPacketBurst", self.ingress_packet_burst, PACKETS_MAX),
            ("egressPacketRate", self.egress_packet_rate, PACKETS_MAX),
            ("egressPacketBurst", self.egress_packet_burst, PACKETS_MAX),
            (
                "ingressMaxConnections",
                self.ingress_max_connections,
                u32::MAX.into(),
            ),
            (
                "egressMaxConnections",
                self.egress_max_connections,
                u32::MAX.into(),
            ),
        ];
        let mut limits = limits.into_iter();
        let (field, value, max) = limits.find(|(_, value, max)| value > max)?;
        Some((field, format!("{value} is more than {max}")))
    }

    fn invalid_dscp(&self) -> Option<(&'static str, String)> {
        let dscp = self.dscp.as_ref()?;
        if dscp.value().is_some() {
            return None;
        }
        let given = match dscp {
            Dscp::Number(number) => number.to_string(),
            Dscp::Name(name) => format!("'{name}'"),
        };
        let reason = format!("{given} is neither a number from 0 to 63 nor a name such as AF41");
        Some(("dscp", reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(value: &Value) -> QosControls {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn code_points_have_numbers_and_names() {
        for (given, value) in [
            (json!(0), Some(0)),
            (json!(63), Some(63)),
            (json!(64), None),
            (json!(-1), None),
            (json!("ef"), Some(46)),
            (json!(" AF41 "), Some(34)),
            (json!("CS6"), Some(48)),
            (json!("20"), Some(20)),
            (json!("64"), None),
            (json!("AF44"), None),
        ] {
            let controls = read(&json!({ "dscp": given }));
            assert_eq!(controls.dscp.as_ref().unwrap().value(), value, "{given}");
            assert_eq!(controls.invalid().is_none(), value.is_some(), "{given}");
        }
    }

    #[test]
    fn limits_have_the_ranges_of_calico() {
        for (field, max) in [
            ("ingressPacketRate", 10_000_u64),
            ("ingressPacketBurst", 10_000),
            ("egressPacketRate", 10_000),
            ("egressPacketBurst", 10_000),
            ("ingressMaxConnections", 4_294_967_295),
            ("egressMaxConnections", 4_294_967_295),
        ] {
            let of = |value: u64| read(&Value::from_iter([(field, value)]));
            assert_eq!(of(max).invalid(), None);
            let (found, reason) = of(max + 1).invalid().unwrap();
            assert_eq!(
                (found, reason),
                (field, format!("{} is more than {max}", max + 1))
            );
        }
        for (field, range) in [
            ("ingressBandwidth", BANDWIDTH),
            ("ingressBurst", BURST),
            ("ingressMinburst", MINBURST),
            ("egressPeakrate", PEAKRATE),
        ] {
            let of = |value: u64| read(&Value::from_iter([(field, value)]));
            let (start, end) = range.clone().into_inner();
            for valid in [0, start, end] {
                assert_eq!(of(valid).invalid(), None, "{field} {valid}");
            }
            for invalid in [1, start - 1, end + 1] {
                let reason = format!("{invalid} is not between {start} and {end}");
                assert_eq!(of(invalid).invalid(), Some((field, reason)));
            }
        }
        let kept = json!({"egressBandwidth": 1000, "ingressPacketRate": 7, "later": 1});
        assert_eq!(serde_json::to_value(read(&kept)).unwrap(), kept);
    }

    #[test]
    fn peak_rate_is_above_the_rate_in_whole_bytes() {
        let of = |peak: u64| read(&json!({"egressBandwidth": 8000, "egressPeakrate": peak}));
        assert_eq!(of(8008).invalid(), None);
        for peak in [7999, 8000, 8007] {
            let reason = format!("{peak} is not above the bandwidth, 8000");
            assert_eq!(of(peak).invalid(), Some(("egressPeakrate", reason)));
        }
    }
}
