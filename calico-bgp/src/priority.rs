//! Conversion between metrics of kernel routes and degrees of preference.

/// The greatest metric, and the sum of a metric and its LOCAL_PREF.
const SUM: u32 = 2_147_483_647;

/// The lowest LOCAL_PREF that is a metric. Neighbors that do not derive LOCAL_PREF from metrics
/// send some hundreds, and a neighbor that is about to shut down sends 0 (RFC 8326).
pub(crate) const DEGREE_MIN: u32 = 1 << 30;

/// The greatest metric that a LOCAL_PREF can represent.
pub const METRIC_MAX: u32 = SUM - DEGREE_MIN;

/// The metrics of routes to settled workloads; a workload that has just arrived has a better one
/// for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priorities {
    /// Metric of IPv4 routes.
    pub v4: u32,
    /// Metric of IPv6 routes.
    pub v6: u32,
}

impl Priorities {
    /// Returns the metric of one family's routes.
    pub const fn normal(self, ipv6: bool) -> u32 {
        if ipv6 { self.v6 } else { self.v4 }
    }
}

/// Returns the LOCAL_PREF of a route with this metric, as the nodes of Calico 3.32 derive it.
pub const fn degree_of(metric: u32) -> u32 {
    SUM.saturating_sub(metric)
}

/// Returns the metric from which a LOCAL_PREF was derived, if it was.
pub fn metric_of(degree: u32) -> Option<u32> {
    (DEGREE_MIN..SUM)
        .contains(&degree)
        .then(|| SUM.saturating_sub(degree))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_pref_converts_to_its_metric_and_back() {
        for metric in [1, 512, 1024, 65_536, SUM - DEGREE_MIN] {
            assert_eq!(metric_of(degree_of(metric)), Some(metric));
        }
        assert_eq!(degree_of(1024), 2_147_482_623);
        for degree in [0, 100, DEGREE_MIN - 1, SUM, SUM + 1, u32::MAX] {
            assert_eq!(metric_of(degree), None, "{degree}");
        }
        assert_eq!(degree_of(u32::MAX), 0);
    }
}
