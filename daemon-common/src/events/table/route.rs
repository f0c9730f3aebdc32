//! Events of routes, of the kernel and of the host guard.

/// Appends these rows to `$rows`, and passes them to the first one of the macros in parentheses.
macro_rules! route_events {
    (($next:ident $($later:ident)*) $($rows:tt)*) => { $next! { ($($later)*) $($rows)*
        #[doc = "Another path is the best one of its prefix, or its attributes changed (Loc-RIB). `neighbor` advertised it, `local` for a route of this host; `paths` counts the paths in use. `next_best_lost` is the reason why the second-best path lost, in the words of `cambric show routes --why`, for prefixes of up to 1024 paths. Families without IP prefixes have `nlri` instead of `prefix`. Changes in quick succession are reported once, with the last state."]
        RouteChosen "route.chosen" DEBUG [OnDemand] "best path chosen" {
            prefix: Option<IpNet>, nlri: Option<Text>, family: Text, neighbor: Text,
            address: Option<IpAddr>, next_hop: Option<Text>, paths: u64, next_best_lost: Option<Text>,
        }
        #[doc = "A prefix has no best path any more: the last one was withdrawn or is unusable."]
        RouteWithdrawn "route.withdrawn" DEBUG [OnDemand] "best path withdrawn" {
            prefix: Option<IpNet>, nlri: Option<Text>, family: Text,
        }
        #[doc = "The import policy of a neighbor rejected a path. `policy` has the filter and its rule; it is missing where a neighbor has no filter and all its paths are rejected (RFC 8212)."]
        RouteFiltered "route.filtered" DEBUG [OnDemand] "import policy rejected the path" {
            prefix: Option<IpNet>, nlri: Option<Text>, family: Text, neighbor: Text,
            address: Option<IpAddr>, path_id: Option<u64>, policy: Option<Text>,
        }
        #[doc = "The export policy of neighbors rejected a path: it is not advertised to them. `neighbor` is the neighbor that announced it, `local` for a route of this host. `to` has the neighbors that share the policy, as far as there is room, and `to_count` their number. `policy` is as in `route.filtered`. A policy is evaluated when the path changes, and again for all routes when a neighbor receives its initial table transfer."]
        RouteExportFiltered "route.export_filtered" DEBUG [OnDemand] "export policy rejected the path" {
            prefix: Option<IpNet>, nlri: Option<Text>, family: Text, neighbor: Text,
            address: Option<IpAddr>, path_id: Option<u64>, to: Text, to_count: u64,
            policy: Option<Text>,
        }
        #[doc = "No record of the datastore confirms a route that a neighbor advertised 5 s ago (`origin_validation`). `node` is the node of the neighbor, or the name of a neighbor that is no node; `reason` has the record of another owner, or `no record of the node`. In the `mode` `warn` the route stays in use, in `enforce` it is not used."]
        RouteUnconfirmed "route.unconfirmed" WARN [Each] "no record of the datastore confirms the route" {
            prefix: IpNet, family: Text, neighbor: Text, address: Option<IpAddr>, node: Text,
            next_hop: Option<Text>, reason: Text, mode: Text,
        }
        #[doc = "There were too many changes to report each of them: at most `count` route events are missing here."]
        RouteMissed "route.missed" DEBUG [OnDemand] "route events are missing" {
            count: u64,
        }
        #[doc = "The kernel acknowledged a route of the BGP client or of Felix."]
        RouteInstalled "route.installed" DEBUG [OnDemand] "route is in the kernel" {
            prefix: IpNet, table: u64, metric: u64, gateways: Text,
        }
        #[doc = "The kernel rejected a route of the BGP client or of Felix; it is tried again."]
        RouteRefused "route.refused" WARN [Each] "kernel refused the route" {
            prefix: IpNet, table: u64, metric: u64, reason: Text, errno: u64,
        }
        #[doc = "A kernel route is being deleted. `cause` is `withdrawn`, `stray`, `rewrite` or `gateway-failed`. A watch gets the event when the kernel has deleted the route."]
        RouteDeleted "route.deleted" INFO [Each] "deleting kernel route" {
            prefix: IpNet, table: u64, metric: u64, gateways: Text, cause: Text,
        }
        #[doc = "Further kernel routes were deleted within the last `within_s` seconds."]
        RouteDeletedMore "route.deleted_more" INFO "deleted more kernel routes" {
            count: u64, within_s: u64,
        }
        #[doc = "A foreign kernel route has this daemon's protocol, but a table or metric that this daemon does not write; it is not changed."]
        RouteForeign "route.foreign" WARN "foreign kernel route with this daemon's protocol is left alone" {
            prefix: IpNet, table: u64, metric: u64, protocol: u64,
        }
        #[doc = "The daemon cannot verify that no other program writes kernel routes with its protocol."]
        RouteProtocolUnclaimed "route.protocol_unclaimed" WARN "a second program with the protocol of kernel routes would not be noticed" {
            protocol: u64, reason: Text,
        }
        #[doc = "There are more such foreign routes; `cambric show fib` lists them."]
        RouteForeignMore "route.foreign_more" WARN "more foreign kernel routes with this daemon's protocol are left alone" {
        }
        #[doc = "Notifications of the kernel were lost; its routes are read again."]
        KernelOverrun "kernel.overrun" WARN "kernel notifications were lost; reading the routes again" {
        }
        #[doc = "A routing table of the kernel changed while it was read; it is read again."]
        KernelReread "kernel.reread" INFO "kernel table changed while it was read; reading it again" {
            table: u64,
        }
        #[doc = "Addresses of this host's interfaces cannot be read; it is tried again."]
        KernelAddressesFailed "kernel.addresses_failed" WARN "interface addresses cannot be read; next hops are checked against the last ones" {
            reason: Text,
        }
        #[doc = "The netlink sockets have small receive buffers: after a burst of changes the tables may have to be read again."]
        KernelBuffersSmall "kernel.buffers_small" INFO "netlink receive buffers are small; CAP_NET_ADMIN enlarges them" {
        }
        #[doc = "The daemon stops and deletes its kernel routes, because of `on_exit = \"flush\"`."]
        KernelFlushing "kernel.flushing" INFO "deleting all kernel routes of this daemon" {
            protocol: u64,
        }
        #[doc = "The daemon stopped before all its kernel routes were deleted."]
        KernelFlushTimeout "kernel.flush_timeout" WARN "not all kernel routes were deleted in time" {
        }
        #[doc = "The kernel settings for forwarding cannot be made; it is tried again."]
        KernelForwardingFailed "kernel.forwarding_failed" WARN "this host does not forward; trying again" {
            reason: Text,
        }
        #[doc = "The kernel has no IPv6, but workloads have IPv6 addresses."]
        KernelIpv6Missing "kernel.ipv6_missing" WARN "the kernel has no IPv6; workloads get IPv4 only" {
        }
        #[doc = "Permanent neighbor entries cannot be listed; it is tried again."]
        KernelNeighborsFailed "kernel.neighbors_failed" WARN "neighbor entries cannot be read; trying again" {
            reason: Text,
        }
        #[doc = "The table that keeps other users of the host from BGP sessions is loaded. `status` has the result of the check, `cover` the ports and users of the table."]
        HostGuardLoaded "host_guard.loaded" INFO "host guard" {
            status: Text, cover: Text,
        }
        #[doc = "The table is missing or lacks something: any user of this host can open BGP sessions from its addresses."]
        HostGuardMissing "host_guard.missing" WARN "host guard is not in effect; run `cambric guard` as root" {
            reason: Text, cover: Text,
        }
        #[doc = "The table does not allow this daemon's user, so the kernel drops the daemon's own segments."]
        HostGuardBlocks "host_guard.blocks" WARN "host guard drops the daemon's own segments; run `cambric guard --user` as root" {
            user: u64, cover: Text,
        }
        #[doc = "The table does not cover all peers at a port other than 179; any user of this host can open connections to the others."]
        HostGuardIncomplete "host_guard.incomplete" WARN "host guard does not cover all peers" {
            reason: Text,
        }
        #[doc = "The daemon listens on an unprivileged port without the table: any user can listen there while the daemon is down."]
        HostGuardPortOpen "host_guard.port_open" WARN "BGP port is open to local users: host guard is not in effect" {
            port: u64,
        }
        #[doc = "Another program changed the table; it was loaded again."]
        HostGuardRepaired "host_guard.repaired" WARN "host guard was changed; loaded again" {
            reason: Text,
        }
        #[doc = "The table is disabled in the file, but this daemon's entries cannot be removed."]
        HostGuardStays "host_guard.stays" WARN "host guard is disabled, but its entries stay" {
            reason: Text,
        }
    } };
}
