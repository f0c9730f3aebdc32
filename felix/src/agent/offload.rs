//! The offload of connections: the interfaces between which the kernel forwards the packets of
//! established connections without the packet filter.
//!
//! Offloaded connections return to the packet filter after each of its changes, because the table is
//! written again. So a change that closes an endpoint also ends its offloaded connections.

mod sync;

use std::collections::BTreeSet;

use fib_sync::Instant;

use super::core::Agent;
use crate::calc::Endpoint;
use crate::limits::OFFLOAD_INTERFACES_MAX;

use sync::Wanted;

pub(super) use sync::OffloadSync;

impl Agent {
    /// Brings the table of offloaded connections towards its desired state.
    pub(super) fn turn_offload(&mut self, now: Instant) {
        let (mut interfaces, others, refused) = self.offload_interfaces();
        // Uplinks come first: most offloaded connections pass through one.
        let left = OFFLOAD_INTERFACES_MAX.saturating_sub(interfaces.len());
        let others: Vec<String> = others.difference(&interfaces).cloned().collect();
        let too_many = interfaces.len() + others.len();
        let too_many = too_many.saturating_sub(OFFLOAD_INTERFACES_MAX);
        interfaces.extend(others.into_iter().take(left));
        // Without any interface, changes of the packet filter write nothing.
        let commits = match interfaces.is_empty() {
            true => 0,
            false => self.rules.commits(),
        };
        let refused = refused.or_else(|| {
            (too_many > 0).then(|| {
                format!(
                    "the kernel supports {OFFLOAD_INTERFACES_MAX} interfaces: {too_many} others are not \
                     offloaded"
                )
            })
        });
        while interfaces.len() > OFFLOAD_INTERFACES_MAX {
            interfaces.pop_last();
        }
        self.offload.refused = refused;
        let wanted = Wanted {
            interfaces,
            commits,
        };
        self.offload.turn(now, wanted, &mut self.orders);
    }

    /// Returns the uplinks, the interfaces of workloads, and why the request is refused.
    fn offload_interfaces(&self) -> (BTreeSet<String>, BTreeSet<String>, Option<String>) {
        let desired = self.calculator.desired();
        let Some(offload) = &desired.settings.offload else {
            return (BTreeSet::new(), BTreeSet::new(), None);
        };
        if self.config.cut_mark.is_some() {
            let reason =
                "cutting.enabled is true: packets of offloaded connections cannot be dropped";
            return (BTreeSet::new(), BTreeSet::new(), Some(reason.to_owned()));
        }
        let own = desired.interfaces.values();
        let own = own.filter(|endpoint| is_unlimited(endpoint));
        let own = own.map(|endpoint| endpoint.interface.as_str());
        let is_workload = |name: &str| desired.settings.is_workload_interface(name);
        let uplinks = self.links.names().filter(|name| {
            let pattern = offload.uplinks.as_ref();
            pattern.is_some_and(|pattern| pattern.matches(name)) && !is_workload(name)
        });
        let is_up = |name: &&str| self.links.up(name).is_some();
        let uplinks = uplinks.filter(is_up).map(str::to_owned).collect();
        let own = own.filter(is_up).map(str::to_owned).collect();
        (uplinks, own, None)
    }

    /// Returns why connections are not offloaded although it is requested.
    pub(crate) fn offload_problem(&self) -> Option<&str> {
        self.offload.problem()
    }

    /// Returns when the offload is written next without an event.
    pub(super) fn offload_timeout(&self) -> Option<Instant> {
        let is_due = self.offload.is_due();
        self.offload.timeout(is_due)
    }
}

/// Returns whether no packet of an endpoint's established connections needs the packet filter: none is
/// counted by a rate, and none gets a DSCP. Endpoints with other limits are treated alike.
fn is_unlimited(endpoint: &Endpoint) -> bool {
    endpoint.qos == Default::default() && endpoint.bandwidth.is_unlimited()
}
