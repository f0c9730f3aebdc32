//! Events of BGP: sessions, connections, messages and their limits.

/// Appends these rows to `$rows`, and passes them to the first one of the macros in parentheses.
macro_rules! session_events {
    (($next:ident $($later:ident)*) $($rows:tt)*) => { $next! { ($($later)*) $($rows)*
        #[doc = "A BGP session is up: both OPENs are accepted and the first KEEPALIVE has come."]
        SessionEstablished "session.established" INFO "session established" {
            neighbor: Text, address: Option<IpAddr>, asn: u64, router_id: Ipv4Addr, families: Text,
            hold_time_s: u64,
        }
        #[doc = "An established session ended. `cause` is `sent` (a NOTIFICATION of this daemon), `received`, `connection-lost`, `reopened` or `restart`; `code` and `subcode` are those of the NOTIFICATION."]
        SessionClosed "session.closed" WARN "session closed" {
            neighbor: Text, address: Option<IpAddr>, cause: Text, code: Option<u64>,
            subcode: Option<u64>, reason: Text,
        }
        #[doc = "An attempt at a session was rejected by a NOTIFICATION of either side."]
        SessionRejected "session.rejected" WARN "session rejected" {
            neighbor: Text, address: Option<IpAddr>, cause: Text, code: Option<u64>,
            subcode: Option<u64>, reason: Text,
        }
        #[doc = "The daemon cannot connect to a neighbor. Emitted once for each reason until the connection opens; `cambric show neighbors` has the last reason and its time."]
        SessionConnectFailed "session.connect_failed" WARN "cannot connect to neighbor" {
            neighbor: Text, address: IpAddr, port: u64, reason: Text, errno: Option<u64>,
        }
        #[doc = "A further attempt to connect failed for a reason that is known already."]
        SessionConnectRetried "session.connect_retried" DEBUG "cannot connect to neighbor" {
            neighbor: Text, address: IpAddr, port: u64, reason: Text, errno: Option<u64>,
        }
        #[doc = "A session moved to another state of RFC 4271 §8.2.2."]
        SessionStateChanged "session.state_changed" DEBUG "session state changed" {
            neighbor: Text, address: Option<IpAddr>, state: Text,
        }
        #[doc = "The neighbor sent the End-of-RIB marker of a family (RFC 4724): all its routes are received."]
        SessionEndOfRib "session.end_of_rib" INFO "all routes received" {
            neighbor: Text, address: Option<IpAddr>, family: Text,
        }
        #[doc = "The neighbor did not return within its restart time. Its stale routes of these families are retained as the least preferred ones for the long-lived stale time (RFC 9494)."]
        SessionLongLivedStale "session.long_lived_stale" WARN "neighbor still away: its routes are the least preferred ones" {
            neighbor: Text, address: Option<IpAddr>, families: Text,
        }
        #[doc = "The neighbor has sent a family again; its routes that were not sent again are removed (RFC 7313)."]
        SessionRefreshed "session.refreshed" INFO "all routes received again" {
            neighbor: Text, address: Option<IpAddr>, family: Text,
        }
        #[doc = "The neighbor began to send a family again and did not send EoRR in time; its routes that were not sent again are removed (RFC 7313)."]
        SessionRefreshTimeout "session.refresh_timeout" WARN "route refresh without an end: stale routes removed" {
            neighbor: Text, address: Option<IpAddr>, family: Text,
        }
        #[doc = "A session that the datastore no longer configures is closed, because other neighbors have sent its routes."]
        SessionHandedOver "session.handed_over" INFO "session ends: other neighbors have its routes" {
            address: IpAddr,
        }
        #[doc = "An operator reset the session with `cambric clear`."]
        SessionCleared "session.cleared" INFO "session reset by the operator" {
            neighbor: Text, address: Option<IpAddr>,
        }
        #[doc = "The neighbor's host no longer acknowledged the connection in use; the newer connection replaced it."]
        ConnectionPromoted "connection.promoted" INFO "another connection while one was in use" {
            neighbor: Text, address: Option<IpAddr>, reason: Text,
        }
        #[doc = "A connection that the neighbor opened while one was in use was closed."]
        ConnectionNotPromoted "connection.not_promoted" WARN "another connection while one was in use" {
            neighbor: Text, address: Option<IpAddr>, reason: Text,
        }
        #[doc = "A connection that the neighbor opened while one was in use was closed by the neighbor or replaced by a newer one."]
        ConnectionAbandoned "connection.abandoned" DEBUG "another connection while one was in use" {
            neighbor: Text, address: Option<IpAddr>, reason: Text,
        }
        #[doc = "An incoming connection was rejected: no neighbor has its address, or the neighbor accepts no connection now."]
        ConnectionRefused "connection.refused" WARN "connection refused" {
            address: IpAddr, port: u64, local: SocketAddr, reason: Text,
        }
        #[doc = "An incoming connection of a `neighbor_range` was rejected; `connection.handshakes_failed` counts them."]
        ConnectionRefusedInRange "connection.refused_in_range" DEBUG "connection refused" {
            address: IpAddr, port: u64, local: SocketAddr, reason: Text,
        }
        #[doc = "An incoming connection was closed: it came from more hops away than `ttl_security` allows."]
        ConnectionTooFar "connection.too_far" DEBUG "connection closed: too many hops" {
            address: IpAddr, port: u64, reason: Text,
        }
        #[doc = "An incoming connection was closed: the neighbor has a password, but the connection came before the kernel had it."]
        ConnectionUnsigned "connection.unsigned" DEBUG "connection closed: opened before the password was in the kernel" {
            address: IpAddr, port: u64,
        }
        #[doc = "A connection was closed: TCP-MD5 or GTSM cannot be set on it."]
        ConnectionOptionFailed "connection.option_failed" WARN "connection closed: TCP-MD5 or GTSM cannot be set" {
            address: IpAddr, port: u64, reason: Text,
        }
        #[doc = "Connections of a range, or of a neighbor with GTSM or a password, did not become sessions. `failures` has the counts since the last such event."]
        ConnectionHandshakesFailed "connection.handshakes_failed" WARN "connections failed before a session was established" {
            of: Text, failures: Text, address: IpAddr, reason: Text,
        }
        #[doc = "A malformed UPDATE was handled as RFC 7606 requires; `cambric show malformed` has its octets."]
        UpdateMalformed "update.malformed" WARN "malformed UPDATE" {
            neighbor: Text, address: Option<IpAddr>, attribute: Text, octet: u64, fault: Text,
            remedy: Text,
        }
        #[doc = "A message that a debugged neighbor sent. `text` has its content: capabilities, routes and attributes, or the code. Only in the log."]
        MessageReceived "message.received" DEBUG "message received" {
            neighbor: Text, address: IpAddr, kind: Text, octets: u64, text: Text,
        }
        #[doc = "A message that was sent to a debugged neighbor. Only in the log."]
        MessageSent "message.sent" DEBUG "message sent" {
            neighbor: Text, address: IpAddr, kind: Text, octets: u64, text: Text,
        }
        #[doc = "Messages of debugged neighbors that were not logged, because there were too many. Only in the log."]
        MessageLost "message.lost" DEBUG "messages of debugged neighbors not logged" {
            address: IpAddr, count: u64,
        }
        #[doc = "The neighbor's paths of a family reached the share of `prefix_limit` at which a warning is logged."]
        PrefixLimitNear "prefix_limit.near" WARN "prefix limit nearly reached" {
            neighbor: Text, address: Option<IpAddr>, family: Text, limit: u64, warn_percent: u64,
        }
        #[doc = "The neighbor's paths of a family exceed `prefix_limit`. `action` is `warn`, `drop` or `restart`; after `restart` the session stays down for `idle_s`."]
        PrefixLimitExceeded "prefix_limit.exceeded" WARN "prefix limit exceeded" {
            neighbor: Text, address: Option<IpAddr>, family: Text, limit: u64, action: Text,
            idle_s: Option<u64>,
        }
        #[doc = "The neighbor's paths of a family fell to 90 percent of `prefix_limit` or below, after paths were rejected. A ROUTE-REFRESH was sent, so that the neighbor advertises the rejected paths again."]
        PrefixLimitCleared "prefix_limit.cleared" INFO "prefix limit has room again: route refresh sent" {
            neighbor: Text, address: Option<IpAddr>, family: Text, limit: u64,
        }
        #[doc = "The same, but the neighbor cannot be asked for the rejected paths: see `reason`. They are missing until it advertises them again; `cambric clear NAME` resets the session."]
        PrefixLimitIncomplete "prefix_limit.incomplete" WARN "prefix limit has room again, but rejected paths are missing" {
            neighbor: Text, address: Option<IpAddr>, family: Text, limit: u64, reason: Text,
        }
        #[doc = "The paths of a family that the neighbor was sent reached the share of `prefix_limit_out` at which a warning is logged."]
        SentLimitNear "sent_limit.near" WARN "limit of sent paths nearly reached" {
            neighbor: Text, address: Option<IpAddr>, family: Text, limit: u64, warn_percent: u64,
        }
        #[doc = "The paths of a family for the neighbor exceed `prefix_limit_out`: further paths are not advertised to it until a withdrawal makes room."]
        SentLimitExceeded "sent_limit.exceeded" WARN "limit of sent paths reached: further paths are suppressed" {
            neighbor: Text, address: Option<IpAddr>, family: Text, limit: u64,
        }
        #[doc = "All paths of a family are advertised to the neighbor again, after some were suppressed because of `prefix_limit_out`."]
        SentLimitCleared "sent_limit.cleared" INFO "limit of sent paths has room again: all paths are sent" {
            neighbor: Text, address: Option<IpAddr>, family: Text, limit: u64,
        }
        #[doc = "The daemon's accounts reached 85 percent of `memory_max`, and this neighbor has the most bytes: its new paths are rejected. `bytes` are those of the neighbor, `total` those of all."]
        MemoryPathsRejected "memory.paths_rejected" WARN "memory_max nearly reached: new paths of the neighbor with the most bytes are rejected" {
            neighbor: Text, address: Option<IpAddr>, bytes: u64, total: u64, limit: u64,
        }
        #[doc = "The daemon's accounts reached 95 percent of `memory_max`. The session of the neighbor with the most bytes ends (Cease, Out of Resources), and stays down for `idle_s`."]
        MemorySessionEnded "memory.session_ended" ERROR "memory_max nearly reached: session of the neighbor with the most bytes ends" {
            neighbor: Text, address: Option<IpAddr>, bytes: u64, total: u64, limit: u64, idle_s: u64,
        }
        #[doc = "The daemon's accounts fell below 75 percent of `memory_max`: new paths of the neighbor are accepted again. If paths were rejected, a ROUTE-REFRESH was sent, so that the neighbor advertises them again."]
        MemoryCleared "memory.cleared" INFO "memory_max has room again: new paths of the neighbor are accepted" {
            neighbor: Text, address: Option<IpAddr>,
        }
        #[doc = "The same, but the neighbor cannot be asked for the rejected paths: see `reason`. They are missing until it advertises them again; `cambric clear NAME` resets the session."]
        MemoryIncomplete "memory.incomplete" WARN "memory_max has room again, but rejected paths are missing" {
            neighbor: Text, address: Option<IpAddr>, reason: Text,
        }
        #[doc = "After a restart of this daemon the routes of a family are advertised again (RFC 4724 §4.1)."]
        RestartDeferralEnded "restart.deferral_ended" INFO "routes are advertised again after the restart" {
            family: Text,
        }
        #[doc = "The neighbors that a graceful restart needs were not written to a file; it is tried again with the next change."]
        RestartFileFailed "restart.file_failed" WARN "restart file not written; the next start is not a graceful restart" {
            file: Text, reason: Text,
        }
        #[doc = "A drained reflector closes all sessions: its clients receive their routes from other reflectors."]
        ReflectorDrained "reflector.drained" INFO "reflector drained: closing all sessions" {
        }
        #[doc = "The drain of this node began: its routes become the least preferred ones of its neighbors (RFC 8326). `source` is `datastore`, `control socket` or both."]
        NodeDrainStarted "node.drain_started" INFO "drain started: routes are advertised as the least preferred ones" {
            source: Text,
        }
        #[doc = "All routes of this node have been sent to its neighbors as the least preferred ones. `behind` is the number of established neighbors that have not been sent all in time."]
        NodeDrained "node.drained" INFO "node drained: all neighbors have other routes if there are any" {
            behind: u64,
        }
        #[doc = "The drain of this node ended: its routes are advertised as usual."]
        NodeDrainEnded "node.drain_ended" INFO "drain ended: routes are advertised as usual" {
        }
        #[doc = "The daemon listens on an address."]
        ListenerReady "listener.ready" INFO "listening" {
            local: SocketAddr,
        }
        #[doc = "The daemon cannot listen on an address; it tries again."]
        ListenerFailed "listener.failed" ERROR "cannot listen; trying again" {
            reason: Text,
        }
        #[doc = "Connections cannot be accepted for now; the daemon tries again."]
        ListenerAcceptFailed "listener.accept_failed" WARN "cannot accept connections for now" {
            local: SocketAddr, reason: Text,
        }
        #[doc = "A flood of connections from addresses that are no neighbor's began: the kernel drops their SYNs until few arrive."]
        ListenerStrangersDropped "listener.strangers_dropped" WARN "too many connections of strangers: their SYNs are dropped" {
        }
        #[doc = "Such a flood has ended, or the configuration has changed: these connections are refused with a NOTIFICATION again."]
        ListenerStrangersAdmitted "listener.strangers_admitted" INFO "connections of strangers are answered again" {
            dropped: u64,
        }
        #[doc = "The daemon answers scrapers of metrics on an address."]
        ListenerMetrics "listener.metrics_ready" INFO "listening for scrapers of metrics" {
            local: SocketAddr,
        }
        #[doc = "The daemon answers probes of liveness and readiness on an address."]
        ListenerHealth "listener.health_ready" INFO "listening for probes of health" {
            local: SocketAddr,
        }
        #[doc = "A socket for operators or scrapers cannot accept connections; the daemon tries again."]
        ListenerControlFailed "listener.control_failed" WARN "cannot accept operators' connections for now" {
            reason: Text,
        }
        #[doc = "The kernel rejected the TCP-MD5 key of a neighbor or a range: its connections are rejected until the kernel accepts the key."]
        PasswordFailed "password.failed" ERROR "password is not in the kernel; connections are refused until then" {
            of: Text, reason: Text,
        }
        #[doc = "The kernel accepted the TCP-MD5 key of a neighbor or a range, after a failure."]
        PasswordInstalled "password.installed" INFO "password is in the kernel" {
            of: Text,
        }
    } };
}
