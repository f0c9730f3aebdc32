//! The table of events: for each its name, level, message and fields.
//!
//! The enum, the history, the log, the control socket and `docs/operate/events.md` are made from the
//! rows. Names and fields are an interface: they are added, never renamed or removed, unless
//! [`VERSION`] grows.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use serde_json::{Map, Value};
use tracing::Level;

use super::field::{Field, Text};

/// The version of names and fields.
pub const VERSION: u32 = 1;

/// One row: an event that daemons emit.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The stable name: `session.established`.
    pub name: &'static str,
    /// How severe it is.
    pub level: Level,
    /// Its destinations.
    pub delivery: Delivery,
    /// The message of its log line, which is the same each time.
    pub message: &'static str,
    /// Its meaning.
    pub doc: &'static str,
    /// Its fields, in the order of the log line.
    pub fields: &'static [FieldKind],
}

impl Kind {
    /// Whether its events are about a route.
    pub(super) fn has_prefix(&self) -> bool {
        self.fields.iter().any(|field| field.of == IpNet::TYPE)
    }
}

/// Where the events of a row go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Into the log and the history.
    Kept,
    /// Into the log and the history, where many at once are summarized; each one to the readers that
    /// watch it.
    Each,
    /// To the readers that watch it, and nowhere else.
    OnDemand,
}

/// A field of an event.
#[derive(Clone, Copy, Debug)]
pub struct FieldKind {
    /// The stable name: `neighbor`.
    pub name: &'static str,
    /// The type of its values: `text`, `number`, `address`, …
    pub of: &'static str,
    /// It is missing where it does not apply.
    pub optional: bool,
}

/// The delivery of a row: kept, unless it names another one.
macro_rules! delivery {
    () => {
        Delivery::Kept
    };
    ($delivery:ident) => {
        Delivery::$delivery
    };
}

/// Declares [`Event`] and everything that follows from its rows.
macro_rules! events {
    ($(
        #[doc = $doc:literal]
        $variant:ident $name:literal $level:ident $([$delivery:ident])? $message:literal {
            $($field:ident: $of:ty,)*
        }
    )+) => {
        /// Something that happened, with its fields.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "docs/operate/events.md has the fields")]
        pub enum Event {
            $(#[doc = $doc] $variant { $($field: $of,)* },)+
        }

        /// The rows, in the order of the variants.
        #[derive(Clone, Copy)]
        enum Row { $($variant,)+ }

        /// All events.
        pub const KINDS: &[Kind] = &[$(Kind {
            name: $name,
            level: Level::$level,
            delivery: delivery!($($delivery)?),
            message: $message,
            doc: $doc,
            fields: &[$(FieldKind {
                name: stringify!($field),
                of: <$of as Field>::TYPE,
                optional: <$of as Field>::OPTIONAL,
            },)*],
        },)+];

        impl Event {
            const fn row(&self) -> Row {
                match self { $(Self::$variant { .. } => Row::$variant,)+ }
            }

            /// Writes the event into the log. `forced`: at any level of the log.
            pub(super) fn log(&self, forced: bool) {
                match self {
                    $(Self::$variant { $($field,)* } if forced => tracing::event!(
                        target: "forced_event", Level::$level, event = $name,
                        $($field = Field::log($field),)* $message
                    ),)+
                    $(Self::$variant { $($field,)* } => tracing::event!(
                        target: "event", Level::$level, event = $name,
                        $($field = Field::log($field),)* $message
                    ),)+
                }
            }

            /// The fields in JSON; a missing one is left out.
            pub fn fields(&self) -> Map<String, Value> {
                let mut map = Map::new();
                match self {
                    $(Self::$variant { $($field,)* } => {
                        $(if let Some(value) = Field::json($field) {
                            map.insert(stringify!($field).to_owned(), value);
                        })*
                    })+
                }
                map
            }

            /// The address of the neighbor that the event is about.
            pub(super) fn address(&self) -> Option<IpAddr> {
                match self {
                    $(Self::$variant { $($field,)* } => {
                        None$(.or_else(|| Field::address($field)))*
                    })+
                }
            }

            /// The prefix of the route that the event is about.
            pub(super) fn prefix(&self) -> Option<IpNet> {
                match self {
                    $(Self::$variant { $($field,)* } => {
                        None$(.or_else(|| Field::prefix($field)))*
                    })+
                }
            }

            /// Octets that the event takes on the heap.
            fn heap_octets(&self) -> usize {
                match self {
                    $(Self::$variant { $($field,)* } => 0 $(+ Field::heap_octets($field))*,)+
                }
            }
        }
    };
}

impl fmt::Display for Event {
    /// The message and the fields, as in a line of the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().message)?;
        let fields = self.fields();
        for field in self.kind().fields {
            if let Some(value) = fields.get(field.name) {
                write!(f, " {}={}", field.name, value)?;
            }
        }
        Ok(())
    }
}

impl Event {
    /// The place of its row in [`KINDS`].
    pub(super) const fn index(&self) -> usize {
        self.row() as usize
    }

    /// Its row.
    pub fn kind(&self) -> &'static Kind {
        &KINDS[self.index()]
    }

    /// Octets that the event takes in memory.
    pub(super) fn octets(&self) -> usize {
        size_of::<Self>() + self.heap_octets()
    }
}

events! {
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
    ConnectionHandshakesFailed "connection.handshakes_failed" WARN "connections that became no session" {
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
    #[doc = "The daemon answers scrapers of metrics on an address."]
    ListenerMetrics "listener.metrics_ready" INFO "listening for scrapers of metrics" {
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
    #[doc = "There were too many changes to report each of them: at most `count` route events are missing here."]
    RouteMissed "route.missed" DEBUG [OnDemand] "route events are missing" {
        count: u64,
    }
    #[doc = "The kernel acknowledged a route."]
    RouteInstalled "route.installed" DEBUG [OnDemand] "route is in the kernel" {
        prefix: IpNet, table: u64, metric: u64, gateways: Text,
    }
    #[doc = "The kernel rejected a route; it is tried again."]
    RouteRefused "route.refused" WARN [Each] "kernel refused the route" {
        prefix: IpNet, table: u64, metric: u64, reason: Text, errno: u64,
    }
    #[doc = "A kernel route is being deleted. `cause` is `withdrawn`, `stray` or `rewrite`. A watch gets the event when the kernel has deleted the route."]
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
    #[doc = "The table that keeps other users of the host from BGP sessions is loaded. `status` has how the daemon knows it, `cover` the ports and users of the table."]
    HostGuardLoaded "host_guard.loaded" INFO "host guard" {
        status: Text, cover: Text,
    }
    #[doc = "The table is missing or lacks something: any user of this host can open BGP sessions from its addresses."]
    HostGuardMissing "host_guard.missing" WARN "host guard not in force; run `cambric guard` as root" {
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
    HostGuardPortOpen "host_guard.port_open" WARN "BGP port is open to local users: host guard not in force" {
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
    #[doc = "The daemon's view of the datastore changed. `status` is `syncing`, `in-sync` or `snapshot`."]
    DatastoreStatus "datastore.status" INFO "datastore status changed" {
        status: Text, revision: Option<u64>, snapshot_age_s: Option<u64>,
    }
    #[doc = "The datastore cannot be used; the last configuration stays in effect. `status` is `away` or `not-ready`."]
    DatastoreUnavailable "datastore.unavailable" WARN "datastore unavailable; keeping the last configuration" {
        status: Text, revision: Option<u64>, reason: Option<Text>,
    }
    #[doc = "A field of a resource in the datastore is unsupported or invalid. `key` is the resource's key."]
    DatastoreFault "datastore.fault" WARN "field of a resource is not applied" {
        key: Text, field: Text, reason: Text,
    }
    #[doc = "A fault of a resource in the datastore is resolved."]
    DatastoreFaultResolved "datastore.fault_resolved" INFO "field of a resource is applied again" {
        key: Text, field: Text,
    }
    #[doc = "A value of the datastore was rejected as a whole. `reason` names its key."]
    DatastoreValueRejected "datastore.value_rejected" WARN "value rejected; the last valid one stays in effect" {
        reason: Text,
    }
    #[doc = "A host name of the datastore cannot be resolved. Its earlier addresses stay closed to workloads; new ones are not closed yet."]
    DatastoreLookupFailed "datastore.lookup_failed" WARN "host name of the datastore cannot be resolved" {
        name: Text, port: u64, reason: Text,
    }
    #[doc = "A configuration took effect. The counts are numbers of neighbors; `keyless` ones wait for their password. `revision` is that of the datastore, if the configuration comes from there."]
    ConfigApplied "config.applied" INFO "configuration applied" {
        added: u64, removed: u64, reset: u64, keyless: u64, revision: Option<u64>,
    }
    #[doc = "A configuration was rejected; the last valid one stays in effect. The log and `cambric show status` have the whole report."]
    ConfigRejected "config.rejected" ERROR "configuration rejected; the last valid one stays in effect" {
        reason: Text,
    }
    #[doc = "Some changed keys of a neighbor take effect with its next session."]
    ConfigDeferred "config.deferred" INFO "some keys take effect with the next session; `cambric clear` resets it" {
        neighbor: Text,
    }
    #[doc = "Changed keys of the file require a restart of the daemon; until then the old values stay in effect."]
    ConfigRestartRequired "config.restart_required" WARN "changed keys require a restart" {
        keys: Text,
    }
    #[doc = "Changed keys of the file took effect."]
    ConfigKeysApplied "config.keys_applied" INFO "changed keys applied" {
        keys: Text,
    }
    #[doc = "A part of a valid configuration has a consequence that an operator should know."]
    ConfigNote "config.note" WARN "configuration note" {
        note: Text,
    }
    #[doc = "Environment variables that look like settings are unsupported."]
    ConfigVariablesIgnored "config.variables_ignored" INFO "environment variables ignored" {
        variables: Text,
    }
    #[doc = "A reload was asked for while the daemon waits for its first configuration from the datastore."]
    ConfigReloadIgnored "config.reload_ignored" WARN "file not read again: the daemon waits for the datastore" {
    }
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
    #[doc = "The kernel rejected a change of the packet filter; it is tried again, and the last valid filter stays in effect."]
    RulesFailed "rules.failed" WARN "packet filter not changed; trying again" {
        reason: Text,
    }
    #[doc = "Another program wrote to the packet filter right after this daemon did; the rules were written again."]
    RulesRewritten "rules.rewritten" INFO "packet filter written again: another program wrote at the same time" {
    }
    #[doc = "The packet filter cannot be compared with the wanted one; it is tried again."]
    RulesCheckFailed "rules.check_failed" WARN "packet filter cannot be read; trying again" {
        reason: Text,
    }
    #[doc = "The daemon runs. `hostname` is the name of its node, if it has one."]
    DaemonStarted "daemon.started" INFO "daemon started" {
        version: Text, hostname: Option<Text>,
    }
    #[doc = "A signal stops the daemon."]
    DaemonStopping "daemon.stopping" INFO "daemon stopping" {
    }
    #[doc = "A part of the daemon did not stop within `within_s` seconds."]
    DaemonStopTimeout "daemon.stop_timeout" WARN "drivers did not stop in time" {
        within_s: u64,
    }
    #[doc = "systemd cannot be notified of the daemon's state."]
    DaemonNotifyFailed "daemon.notify_failed" WARN "systemd cannot be notified" {
        reason: Text,
    }
    #[doc = "Repeated events were counted instead of logged each: `more` within `within_s` seconds. `of` is their name, `last` the last one."]
    EventsRepeated "events.repeated" INFO "repeated events" {
        of: Text, more: u64, within_s: u64, last: Text,
    }
    #[doc = "The same of events of level `warn`."]
    WarningsRepeated "events.warnings_repeated" WARN "repeated events" {
        of: Text, more: u64, within_s: u64, last: Text,
    }
    #[doc = "An operator changed the level of the log; `for_s` is missing once the configured level is in effect again."]
    LogLevelChanged "log.level_changed" WARN "log level changed" {
        level: Text, for_s: Option<u64>,
    }
    #[doc = "An operator debugs a neighbor: all its events are logged for `for_s` seconds, independent of the log level."]
    DebugStarted "debug.started" WARN "debugging of a neighbor started" {
        neighbor: Text, address: IpAddr, for_s: u64,
    }
    #[doc = "An operator ended the debugging of a neighbor."]
    DebugStopped "debug.stopped" WARN "debugging of a neighbor stopped" {
        neighbor: Text, address: IpAddr,
    }
}
