//! The limits of the bandwidth of an endpoint, from its `qosControls`.

use calico_model::QosControls;
use sha1::{Digest, Sha1};

use crate::limits::BANDWIDTH_BURST_OCTETS;

/// Bits of an octet.
const BITS: u64 = 8;

/// The limits of both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// Of traffic to the workload.
    pub ingress: Option<Bucket>,
    /// Of traffic from the workload.
    pub egress: Option<Bucket>,
}

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Octets in a second, not zero.
    pub rate: u64,
    /// Octets at once.
    pub burst: u32,
    /// The limit of the burst; without it, a burst has the speed of the interface.
    pub peak: Option<Peak>,
}

/// The rate of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Octets in a second, more than the rate.
    pub rate: u64,
    /// Octets at once; an interface's MTU and header at least.
    pub burst: u32,
}

impl Bandwidth {
    /// Returns whether it limits nothing.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// Returns valid limits, and the fields that have no effect without another one, with the reason.
    pub(super) fn of(given: &QosControls) -> (Self, Vec<(&'static str, &'static str)>) {
        let limits = Self {
            ingress: bucket(
                given.ingress_bandwidth,
                given.ingress_burst,
                given.ingress_peakrate,
                given.ingress_minburst,
            ),
            egress: bucket(
                given.egress_bandwidth,
                given.egress_burst,
                given.egress_peakrate,
                given.egress_minburst,
            ),
        };
        (limits, idle(given))
    }
}

fn bucket(rate: u64, burst: u64, peakrate: u64, minburst: u64) -> Option<Bucket> {
    let octets = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    let burst = match burst {
        0 => BANDWIDTH_BURST_OCTETS,
        bits => octets(bits / BITS),
    };
    let peak = Peak {
        rate: peakrate / BITS,
        burst: octets(minburst),
    };
    let bucket = Bucket {
        rate: rate / BITS,
        burst,
        peak: (peak.rate > 0).then_some(peak),
    };
    (bucket.rate > 0).then_some(bucket)
}

const NO_BANDWIDTH: &str = "it has no effect without a bandwidth";
const NO_PEAKRATE: &str = "it has no effect without a peak rate";

fn idle(given: &QosControls) -> Vec<(&'static str, &'static str)> {
    let (ingress, egress) = (given.ingress_bandwidth, given.egress_bandwidth);
    [
        (
            "spec.qosControls.ingressBurst",
            given.ingress_burst,
            ingress,
            NO_BANDWIDTH,
        ),
        (
            "spec.qosControls.ingressPeakrate",
            given.ingress_peakrate,
            ingress,
            NO_BANDWIDTH,
        ),
        (
            "spec.qosControls.ingressMinburst",
            given.ingress_minburst,
            given.ingress_peakrate,
            NO_PEAKRATE,
        ),
        (
            "spec.qosControls.egressBurst",
            given.egress_burst,
            egress,
            NO_BANDWIDTH,
        ),
        (
            "spec.qosControls.egressPeakrate",
            given.egress_peakrate,
            egress,
            NO_BANDWIDTH,
        ),
        (
            "spec.qosControls.egressMinburst",
            given.egress_minburst,
            given.egress_peakrate,
            NO_PEAKRATE,
        ),
    ]
    .into_iter()
    .filter(|(_, value, needed, _)| *value > 0 && *needed == 0)
    .map(|(field, _, _, reason)| (field, reason))
    .collect()
}

/// The beginning of the names of devices that limit traffic from workloads.
pub(crate) const SHAPERS: &str = "bwcab";
/// Octets of the hash in such a name: with the beginning, the longest name of an interface.
const SHAPER_HASH_OCTETS: usize = 5;

/// Returns the name of the device that limits the traffic from the workload of an interface.
pub(crate) fn shaper_name(interface: &str) -> String {
    let hash = Sha1::digest(interface);
    let octets = hash.iter().take(SHAPER_HASH_OCTETS);
    octets.fold(SHAPERS.to_owned(), |name, octet| {
        format!("{name}{octet:02x}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::INTERFACE_NAME_OCTETS_MAX;

    #[test]
    fn name_of_a_device_has_the_length_of_an_interface_name() {
        // The digest comes from sha1sum.
        assert_eq!(shaper_name("cali1"), "bwcab68000bb8fd");
        assert_eq!(shaper_name("tap").len(), INTERFACE_NAME_OCTETS_MAX);
    }
}
