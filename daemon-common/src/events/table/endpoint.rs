//! Events of workload endpoints, their interfaces and rules.

/// Appends these rows to `$rows`, and passes them to the first one of the macros in parentheses.
macro_rules! endpoint_events {
    (($next:ident $($later:ident)*) $($rows:tt)*) => { $next! { ($($later)*) $($rows)*
        #[doc = "A workload endpoint is up: its interface, routes and rules are in the kernel. `problem` names something that is missing nevertheless, such as a profile."]
        EndpointUp "endpoint.up" INFO "endpoint up" {
            endpoint: Text, interface: Text, problem: Option<Text>,
        }
        #[doc = "A workload endpoint is down."]
        EndpointDown "endpoint.down" INFO "endpoint down" {
            endpoint: Text, interface: Text, reason: Text,
        }
        #[doc = "A workload endpoint is rejected because of other resources of the datastore, or by the kernel, or its interface does not appear."]
        EndpointFailed "endpoint.failed" WARN "endpoint failed" {
            endpoint: Text, interface: Text, reason: Text,
        }
        #[doc = "A workload endpoint of this host was deleted."]
        EndpointRemoved "endpoint.removed" INFO "endpoint removed" {
            endpoint: Text,
        }
        #[doc = "The endpoint status files for plugins cannot be written; it is tried again."]
        EndpointFilesFailed "endpoint.files_failed" WARN "endpoint status files not written; trying again" {
            reason: Text,
        }
        #[doc = "A workload interface has no endpoint in the datastore: all its traffic is dropped."]
        InterfaceUnclaimed "interface.unclaimed" WARN "workload interface without an endpoint: all its traffic is dropped" {
            interface: Text,
        }
        #[doc = "The kernel rejected a setting of a workload interface; it is tried again."]
        InterfaceFailed "interface.failed" WARN "interface not configured; trying again" {
            interface: Text, reason: Text,
        }
        #[doc = "A limit of the bandwidth of a workload is not in effect: the kernel rejected it, or another program has a queueing discipline on the interface. It is tried again; the endpoint is up without the limit."]
        InterfaceLimitFailed "interface.limit_failed" WARN "bandwidth not limited; trying again" {
            interface: Text, reason: Text,
        }
        #[doc = "The device that limits the bandwidth of a removed interface cannot be removed. It limits nothing; it is tried again with each check of the host's settings."]
        InterfaceShaperStays "interface.shaper_stays" WARN "bandwidth device of a removed interface not removed" {
            reason: Text,
        }
        #[doc = "A VXLAN device had other parameters, and was replaced. If another program makes it again, only one of both may use the name."]
        InterfaceReplaced "interface.replaced" WARN "VXLAN device with other parameters replaced" {
            interface: Text,
        }
        #[doc = "The MTU of a VXLAN device changes, because that of the uplinks or a setting has changed. Existing workloads keep their MTU."]
        InterfaceMtuChanged "interface.mtu_changed" WARN "MTU of a VXLAN device changed; existing workloads keep theirs" {
            interface: Text, mtu: u64,
        }
        #[doc = "The kernel rejected a permanent neighbor entry of an endpoint; it is tried again."]
        InterfaceNeighborFailed "interface.neighbor_failed" WARN "neighbor entry not added; trying again" {
            interface: Text, address: IpAddr, reason: Text,
        }
        #[doc = "A permanent neighbor entry of a former endpoint cannot be removed."]
        InterfaceNeighborStays "interface.neighbor_stays" WARN "neighbor entry not removed" {
            address: IpAddr, reason: Text,
        }
        #[doc = "The kernel accepted a change of the packet filter. `transactions` counts them since the start; `revision` is the revision of the datastore at that time."]
        RulesApplied "rules.applied" INFO "packet filter changed" {
            transactions: u64, revision: Option<u64>,
        }
        #[doc = "Another program changed the packet filter of this daemon; the change was undone."]
        RulesRepaired "rules.repaired" WARN "foreign change of the packet filter undone" {
        }
        #[doc = "Another program changed or removed the table of an earlier run. All workload traffic is dropped until the rules of the datastore, or of its snapshot, are written. Until then, no host endpoint filters the host."]
        RulesClosed "rules.closed" WARN "packet filter closed: all workload traffic is dropped" {
            reason: Text,
        }
        #[doc = "The kernel rejected a change of the packet filter; it is tried again, and the last valid filter stays in effect."]
        RulesFailed "rules.failed" WARN "packet filter not changed; trying again" {
            reason: Text,
        }
        #[doc = "The kernel does not support owners of tables: other programs may change the packet filter. Linux 6.9 and later do."]
        RulesUnowned "rules.unowned" WARN "the kernel refuses an owner of the packet filter: other programs may change it" {
            reason: Text,
        }
        #[doc = "Another program wrote to the packet filter right after this daemon did; the rules were written again."]
        RulesRewritten "rules.rewritten" INFO "packet filter written again: another program wrote at the same time" {
        }
        #[doc = "The packet filter cannot be compared with the wanted one; it is tried again."]
        RulesCheckFailed "rules.check_failed" WARN "packet filter cannot be read; trying again" {
            reason: Text,
        }
        #[doc = "Established connections that the policies forbid were cut: their packets are dropped until they end."]
        ConnectionsCut "connections.cut" INFO "established connections cut" {
            count: u64,
        }
        #[doc = "Established connections cannot be evaluated or cut: they continue to pass. It is tried again, at the latest after the next change of the packet filter."]
        ConnectionsNotCut "connections.not_cut" WARN "established connections not cut" {
            reason: Text,
        }
        #[doc = "Established connections are not offloaded, although `nftablesFlowTableOffload` is `All`: the kernel refuses the flowtable. Their packets pass the packet filter. It is tried again."]
        OffloadFailed "offload.failed" WARN "connections not offloaded; trying again" {
            reason: Text,
        }
        #[doc = "The flow log collects the records of a group of the kernel's packet log (NFLOG)."]
        FlowLogOpened "flow_log.opened" INFO "flow log opened" {
            group: u64,
        }
        #[doc = "The flow log cannot receive the records of its group of the kernel's packet log; it is tried again. The packet filter has the rules as without the flow log."]
        FlowLogFailed "flow_log.failed" WARN "flow log not opened; trying again" {
            group: u64, reason: Text,
        }
    } };
}
