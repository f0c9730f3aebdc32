//! The settings of routes and of forwarding: `routeRefreshInterval`, `ipv4NormalRoutePriority`,
//! `deviceRouteSourceAddress`, `routeSyncDisabled`, `ipForwarding` and their relatives.

use std::net::IpAddr;
use std::time::Duration;

use calico_model::FelixConfigurationSpec;

use super::fields::{at, choice};
use crate::limits::{ENDPOINT_METRIC, ROUTE_METRIC_MAX, ROUTE_REFRESH, ROUTE_REFRESH_MIN};
use crate::render::Family;

/// The settings of routes and of forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routing {
    /// Interval of full reads of the routing table; zero: never.
    pub refresh: Duration,
    /// The metric of routes of each family.
    metrics: [u32; 2],
    /// The source address of the host's own packets to its workloads, for each family.
    sources: [Option<IpAddr>; 2],
    /// No route is read, written or removed: another program has all of them.
    pub is_off: bool,
    /// Felix lets the host forward packets.
    pub forwards: bool,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            refresh: ROUTE_REFRESH,
            metrics: [ENDPOINT_METRIC; 2],
            sources: [None; 2],
            is_off: false,
            forwards: true,
        }
    }
}

impl Routing {
    /// Returns the metric of routes of a family.
    pub const fn metric(&self, family: Family) -> u32 {
        let [v4, v6] = self.metrics;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }

    /// Returns the source address in routes of a family, if one is set.
    pub const fn source(&self, family: Family) -> Option<IpAddr> {
        let [v4, v6] = self.sources;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }
}

/// Returns the settings of a spec; or the field that is invalid, and why.
pub(super) fn routing(spec: &FelixConfigurationSpec) -> Result<Routing, (&'static str, String)> {
    let refresh = spec.route_refresh_interval.map(|refresh| refresh.0);
    let refresh = refresh.unwrap_or(ROUTE_REFRESH);
    if !refresh.is_zero() && refresh < ROUTE_REFRESH_MIN {
        let least = ROUTE_REFRESH_MIN.as_millis();
        let reason = format!("less than {least} ms; 0 means never");
        return Err(("spec.routeRefreshInterval", reason));
    }
    let at_forwarding = "spec.ipForwarding";
    let is_host_alone = choice(spec, "ipForwarding", ["Enabled", "Disabled"]);
    Ok(Routing {
        refresh,
        metrics: [
            metric(spec, "spec.ipv4NormalRoutePriority")?,
            metric(spec, "spec.ipv6NormalRoutePriority")?,
        ],
        sources: [
            source(spec, "spec.deviceRouteSourceAddress", Family::V4)?,
            source(spec, "spec.deviceRouteSourceAddressIPv6", Family::V6)?,
        ],
        is_off: at(spec, "spec.routeSyncDisabled")?.unwrap_or_default(),
        forwards: !is_host_alone.map_err(|reason| (at_forwarding, reason))?,
    })
}

fn metric(
    spec: &FelixConfigurationSpec,
    place: &'static str,
) -> Result<u32, (&'static str, String)> {
    match at(spec, place)? {
        None => Ok(ENDPOINT_METRIC),
        Some(metric) if (1..=ROUTE_METRIC_MAX).contains(&metric) => Ok(metric),
        Some(metric) => Err((
            place,
            format!("{metric} is not between 1 and {ROUTE_METRIC_MAX}"),
        )),
    }
}

fn source(
    spec: &FelixConfigurationSpec,
    place: &'static str,
    family: Family,
) -> Result<Option<IpAddr>, (&'static str, String)> {
    let text: Option<String> = at(spec, place)?;
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let address = text.parse::<IpAddr>().ok();
    let address = address.filter(|address| Family::of(*address) == family);
    let version = match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    };
    address
        .map(Some)
        .ok_or_else(|| (place, format!("'{text}' is not an {version} address")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value) -> Result<Routing, (&'static str, String)> {
        routing(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn missing_fields_have_built_in_values() {
        assert_eq!(read(json!({})), Ok(Routing::default()));
        let same = json!({"ipForwarding": "Enabled", "routeSyncDisabled": false,
            "deviceRouteSourceAddress": "", "routeRefreshInterval": "90s"});
        assert_eq!(read(same), Ok(Routing::default()));
    }

    #[test]
    fn fields_of_a_family_concern_this_family_only() {
        let routing = read(json!({"ipv4NormalRoutePriority": 1024,
            "deviceRouteSourceAddressIPv6": "fd00::1"}));
        let routing = routing.unwrap();
        assert_eq!(
            [Family::V4, Family::V6].map(|family| routing.metric(family)),
            [1024, ENDPOINT_METRIC]
        );
        assert_eq!(
            [Family::V4, Family::V6].map(|family| routing.source(family)),
            [None, Some("fd00::1".parse().unwrap())]
        );
    }

    #[test]
    fn invalid_values_are_rejected_by_name() {
        for (spec, field) in [
            (
                json!({"routeRefreshInterval": "1ms"}),
                "routeRefreshInterval",
            ),
            (
                json!({"ipv4NormalRoutePriority": 0}),
                "ipv4NormalRoutePriority",
            ),
            (
                json!({"ipv6NormalRoutePriority": 2_147_483_647}),
                "ipv6NormalRoutePriority",
            ),
            (
                json!({"ipv6NormalRoutePriority": "x"}),
                "ipv6NormalRoutePriority",
            ),
            (
                json!({"deviceRouteSourceAddress": "fd00::1"}),
                "deviceRouteSourceAddress",
            ),
            (
                json!({"deviceRouteSourceAddressIPv6": "10.0.0.1"}),
                "deviceRouteSourceAddressIPv6",
            ),
            (json!({"routeSyncDisabled": "yes"}), "routeSyncDisabled"),
            (json!({"ipForwarding": "On"}), "ipForwarding"),
        ] {
            let (at, _) = read(spec.clone()).unwrap_err();
            assert_eq!(at, format!("spec.{field}"), "{spec}");
        }
    }
}
