//! The criteria of readiness that are about the kernel.

use std::collections::BTreeSet;
use std::net::IpAddr;

use bgp_daemon::Criterion;
use bgp_io::Speaker;
use bgp_io::bgp_fsm::State;
use fib_sync::Instant;
use fib_sync::watch::Resolution;
use kernel_events::marker;

use super::Node;
use crate::limits::INSTALLED_LOOK_EVERY;

impl Node {
    /// Returns the criteria of the kernel: packets can follow the routes of this host and its neighbors.
    pub fn criteria(&self, speaker: &Speaker) -> Vec<Criterion> {
        let mut all = vec![
            Criterion::new("kernel-routes", self.missing_routes()),
            Criterion::new("own-next-hops", self.foreign_next_hops(speaker)),
            Criterion::new("next-hops", self.unreachable_next_hops()),
        ];
        if self.config().awaits_felix() {
            all.push(Criterion::new("felix", self.missing_felix()));
        }
        all
    }

    /// Records that all wanted routes were in the kernel. From then on only refused ones count: a change
    /// on its way to the kernel is no failure.
    pub(super) fn note_installed(&mut self, now: Instant) {
        // The check may read all routes.
        if !self.was_installed && self.installed_look_at <= now {
            self.installed_look_at = now + INSTALLED_LOOK_EVERY;
            self.was_installed = self.watcher().is_certain() && self.reconciler().in_sync();
        }
    }

    /// Returns whether the kernel's tables have been read.
    fn is_read(&self) -> bool {
        !self.summary().void && self.watcher().is_certain()
    }

    fn missing_routes(&self) -> Option<String> {
        let sum = self.summary();
        if !self.config().install {
            return Some("kernel.install is false: a shadow run installs nothing".to_owned());
        }
        if !self.was_installed && !self.is_read() {
            return Some("the routes of the kernel have not been read".to_owned());
        }
        if sum.failed + sum.conflicts > 0 {
            let count = sum.failed + sum.conflicts;
            return Some(format!(
                "the kernel does not accept {count} routes: see show fib"
            ));
        }
        if self.was_installed {
            return None;
        }
        let (pending, wanted, strays) = (sum.pending, sum.wanted, sum.strays);
        if pending > 0 {
            return Some(format!(
                "{pending} of {wanted} routes are not in the kernel yet"
            ));
        }
        // Packets that follow these may be lost: their workloads may have left in the meantime.
        (strays > 0).then(|| format!("{strays} routes of the former run are not confirmed yet"))
    }

    /// Returns a next hop that neighbors receive for this host and that is not its address.
    fn foreign_next_hops(&self, speaker: &Speaker) -> Option<String> {
        let config = speaker.config();
        let own = [
            config.own_next_hop_v4.map(IpAddr::V4),
            config.own_next_hop_v6.map(IpAddr::V6),
        ];
        let up = speaker
            .peers()
            .filter(|peer| peer.session.state() == State::Established);
        let local = up.filter_map(|peer| peer.config.local);
        let own: BTreeSet<IpAddr> = own.into_iter().flatten().chain(local).collect();
        let foreign = own.into_iter().filter(|at| !self.watcher().is_own(*at));
        let foreign: Vec<String> = foreign.map(|at| at.to_string()).collect();
        (!foreign.is_empty()).then(|| {
            let foreign = foreign.join(", ");
            format!("no interface of this host has the address {foreign}, which is a next hop of its routes")
        })
    }

    fn unreachable_next_hops(&self) -> Option<String> {
        let mut count = 0;
        let mut first = None;
        for (address, resolution) in self.watcher().resolutions() {
            match resolution {
                Resolution::Reachable { .. } => return None,
                Resolution::Unreachable(why) => {
                    first = first.or(Some((address, why)));
                    count += 1;
                }
            }
        }
        let (address, why) = first?;
        Some(format!(
            "none of {count} next hops is reachable, such as {address}: {why}"
        ))
    }

    fn missing_felix(&self) -> Option<String> {
        let shown = self.watcher().foreign_routes(marker::key()).next();
        shown.is_none().then(|| {
            let table = marker::TABLE;
            format!("Felix has not programmed this host: it has no route in table {table}")
        })
    }
}
