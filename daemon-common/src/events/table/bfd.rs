//! Events of BFD: sessions, their clients, and their effect on BGP.

/// Appends these rows to `$rows`, and passes them to the first one of the macros in parentheses.
macro_rules! bfd_events {
    (($next:ident $($later:ident)*) $($rows:tt)*) => { $next! { ($($later)*) $($rows)*
        #[doc = "A BFD session came up: both systems receive each other."]
        BfdSessionUp "bfd.session_up" INFO "BFD session up" {
            address: IpAddr, local_address: IpAddr,
        }
        #[doc = "A BFD session that was up is no longer. `reason` distinguishes a failure from a session that an operator has disabled."]
        BfdSessionDown "bfd.session_down" WARN "BFD session down" {
            address: IpAddr, local_address: IpAddr, reason: Text,
        }
        #[doc = "A BFD session that is not up has another state."]
        BfdSessionState "bfd.session_state" DEBUG "BFD session state changed" {
            address: IpAddr, local_address: IpAddr, state: Text,
        }
        #[doc = "There is no path for a BFD session, and so no session; it is tried again every 5 s."]
        BfdNoPath "bfd.no_path" WARN "no path for a BFD session" {
            client: Text, address: IpAddr, reason: Text,
        }
        #[doc = "A BFD session has a path, and cannot come up or has not the wanted configuration: packets of the neighbor arrive on the port of the other mode, for example. `reason` has the remedy."]
        BfdSessionProblem "bfd.session_problem" WARN "problem of a BFD session" {
            client: Text, address: IpAddr, reason: Text,
        }
        #[doc = "A request of a client for a BFD session was rejected, because of a limit for example."]
        BfdSessionRejected "bfd.session_rejected" WARN "BFD session rejected" {
            client: Text, address: IpAddr, reason: Text,
        }
        #[doc = "A BFD session ends in AdminDown, because its client did not return within the grace."]
        BfdSessionExpired "bfd.session_expired" WARN "BFD session ends: its client did not return" {
            client: Text, address: IpAddr,
        }
        #[doc = "The kernel does not send packets of a BFD session. Emitted once, until a packet is sent again."]
        BfdSendFailed "bfd.send_failed" WARN "BFD packet not sent" {
            address: IpAddr, reason: Text,
        }
        #[doc = "cambric-bfd continues the sessions of its earlier process, as many as `sessions`: the neighbors do not notice the restart."]
        BfdTakenOver "bfd.taken_over" INFO "BFD sessions continue from the earlier process" {
            sessions: u64,
        }
        #[doc = "cambric-bfd cannot continue the sessions of its earlier process, or one of them: they start in Down, which is a failure for the neighbors."]
        BfdTakeOverFailed "bfd.take_over_failed" WARN "BFD sessions of the earlier process start afresh" {
            reason: Text,
        }
        #[doc = "The state of the BFD sessions can no longer be kept outside cambric-bfd: its next restart is a failure for the neighbors."]
        BfdKeepFailed "bfd.keep_failed" WARN "state of BFD sessions is not kept" {
            reason: Text,
        }
        #[doc = "A daemon has connected to cambric-bfd for its sessions."]
        BfdClientConnected "bfd.client_connected" INFO "BFD client connected" {
            client: Text, pid: u64,
        }
        #[doc = "A daemon with BFD sessions has disconnected: they continue for the grace."]
        BfdClientLost "bfd.client_lost" INFO "BFD client disconnected" {
            client: Text, reason: Text,
        }
        #[doc = "A process was not accepted as a client. Emitted once for each user."]
        BfdClientRejected "bfd.client_rejected" WARN "BFD client rejected" {
            user: u64, reason: Text,
        }
        #[doc = "A BGP daemon has connected to cambric-bfd."]
        BfdAvailable "bfd.available" INFO "BFD available" {
        }
        #[doc = "A BGP daemon has no connection to cambric-bfd: neighbors with `bfd` are as those without it. Emitted once for each reason."]
        BfdUnavailable "bfd.unavailable" WARN "BFD not available: dead neighbors are found by the hold time only" {
            reason: Text,
        }
        #[doc = "cambric-bfd rejected the session of a neighbor."]
        BfdRejected "bfd.rejected" WARN "BFD session of a neighbor rejected" {
            address: IpAddr, reason: Text,
        }
        #[doc = "The path to a neighbor failed while no process of this BGP daemon was connected."]
        BfdFailedBefore "bfd.failed_before" WARN "BFD session failed before this start" {
            address: IpAddr, reason: Text,
        }
        #[doc = "BFD has found the path to a neighbor failed; `consequence` is that for its session and routes."]
        BfdPathFailed "bfd.path_failed" WARN "path to a neighbor failed" {
            neighbor: Text, address: Option<IpAddr>, consequence: Text,
        }
        #[doc = "cambric-bfd has no precedence over other processes: under load, neighbors may find this host dead."]
        BfdPrecedenceMissing "bfd.precedence_missing" WARN "BFD runs without precedence" {
            reason: Text,
        }
    } };
}
