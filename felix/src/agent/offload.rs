//! The offload of connections: the interfaces between which the kernel forwards the packets of
//! established connections without the packet filter.
//!
//! Offloaded connections return to the packet filter after each of its changes, because the table is
//! written again. So a change that closes an endpoint also ends its offloaded connections.

mod sync;

use fib_sync::Instant;

use super::core::Agent;
use crate::calc::Endpoint;
use crate::limits::OFFLOAD_INTERFACES_MAX;

use sync::Wanted;

pub(super) use sync::OffloadSync;

impl Agent {
    /// Brings the table of offloaded connections towards its desired state.
    pub(super) fn turn_offload(&mut self, now: Instant) {
        let desired = self.calculator.desired();
        let is_cutting = self.config.cut_mark.is_some();
        let offload = desired.settings.offload.as_ref();
        let refused = offload.filter(|_| is_cutting).map(|_| {
            "cutting.enabled is true: packets of offloaded connections cannot be dropped".to_owned()
        });
        let offload = offload.filter(|_| !is_cutting);
        let is_own = |name: &str| desired.interfaces.get(name).is_some_and(is_unlimited);
        let is_uplink = |name: &str| {
            let pattern = offload.and_then(|offload| offload.uplinks.as_ref());
            pattern.is_some_and(|pattern| pattern.matches(name))
                && !desired.settings.is_workload_interface(name)
        };
        let is_eligible = |name: &str| offload.is_some() && (is_own(name) || is_uplink(name));
        let index = |name: &str| Some((name.to_owned(), self.links.named(name)?.index));
        // Uplinks come first: most offloaded connections pass through one.
        let uplinks = self.links.names().filter(|name| is_uplink(name));
        let own = desired.interfaces.keys().map(String::as_str);
        let own = own.filter(|name| is_eligible(name) && !is_uplink(name));
        let wanted = Wanted {
            present: uplinks.chain(own).filter_map(index).collect(),
            commits: self.rules.commits(),
        };
        let left_out = self
            .offload
            .turn(now, &wanted, is_eligible, &mut self.orders);
        self.offload.refused = refused.or_else(|| {
            (left_out > 0).then(|| {
                format!(
                    "the kernel supports {OFFLOAD_INTERFACES_MAX} interfaces: {left_out} others are not \
                     offloaded"
                )
            })
        });
    }

    /// Returns why connections are not offloaded although it is requested.
    pub(crate) fn offload_problem(&self) -> Option<&str> {
        self.offload.problem()
    }

    /// Returns when the offload is written next without an event.
    pub(super) fn offload_timeout(&self) -> Option<Instant> {
        self.offload.timeout()
    }
}

/// Returns whether no packet of an endpoint's established connections needs the packet filter: none is
/// counted by a rate, and none gets a DSCP. Endpoints with other limits are treated alike.
fn is_unlimited(endpoint: &Endpoint) -> bool {
    endpoint.qos == Default::default() && endpoint.bandwidth.is_unlimited()
}
