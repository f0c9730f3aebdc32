//! Metrics of kernel routes as degrees of preference, and back.

/// The greatest metric, and what a metric and the LOCAL_PREF that is made of it add up to.
const SUM: u32 = 2_147_483_647;

/// What is less than this is nobody's metric: neighbours that make no LOCAL_PREF of metrics have
/// some hundreds, and 0 is said by who is about to go (RFC 8326).
pub(crate) const DEGREE_MIN: u32 = 1 << 30;

/// The greatest metric that a LOCAL_PREF can say.
pub const METRIC_MAX: u32 = SUM - DEGREE_MIN;

/// The metrics of routes to workloads that are where they belong; one that arrives from elsewhere
/// has a better one for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priorities {
    /// Of IPv4 routes.
    pub v4: u32,
    /// Of IPv6 routes.
    pub v6: u32,
}

impl Priorities {
    /// Of one family's routes.
    pub const fn normal(self, ipv6: bool) -> u32 {
        if ipv6 { self.v6 } else { self.v4 }
    }
}

/// LOCAL_PREF of a route with this metric, as the nodes of Calico 3.32 have it.
pub const fn degree_of(metric: u32) -> u32 {
    SUM.saturating_sub(metric)
}

/// The metric that a LOCAL_PREF was made of, if it was.
pub fn metric_of(degree: u32) -> Option<u32> {
    (DEGREE_MIN..SUM)
        .contains(&degree)
        .then(|| SUM.saturating_sub(degree))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_degree_gives_its_metric_back_and_others_none() {
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
