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
    /// The message of its log line, which is the same each time.
    pub message: &'static str,
    /// What it means.
    pub doc: &'static str,
    /// Its fields, in the order of the log line.
    pub fields: &'static [FieldKind],
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

/// Declares [`Event`] and what is made from its rows.
macro_rules! events {
    ($(
        #[doc = $doc:literal]
        $variant:ident $name:literal $level:ident $message:literal {
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

            /// Writes the event into the log. `forced`: whatever the level of the log is.
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
    #[doc = "A neighbor cannot be connected to. Emitted once for each reason until the connection opens; `cambric show neighbors` has the last one and since when."]
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
    #[doc = "The neighbor sent a family again, and what it did not send again is removed (RFC 7313)."]
    SessionRefreshed "session.refreshed" INFO "all routes received again" {
        neighbor: Text, address: Option<IpAddr>, family: Text,
    }
    #[doc = "The neighbor began to send a family again and did not mark the end in time: what it had not sent again is removed (RFC 7313)."]
    SessionRefreshTimeout "session.refresh_timeout" WARN "route refresh without an end: stale routes removed" {
        neighbor: Text, address: Option<IpAddr>, family: Text,
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
    #[doc = "An incoming connection was refused: no neighbor has its address, or its neighbor wants none now."]
    ConnectionRefused "connection.refused" WARN "connection refused" {
        address: IpAddr, port: u64, local: SocketAddr, reason: Text,
    }
    #[doc = "An incoming connection out of a `neighbor_range` was refused; `connection.handshakes_failed` counts them."]
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
    #[doc = "A malformed UPDATE was handled as RFC 7606 says; `cambric show malformed` has its octets."]
    UpdateMalformed "update.malformed" WARN "malformed UPDATE" {
        neighbor: Text, address: Option<IpAddr>, attribute: Text, octet: u64, fault: Text,
        remedy: Text,
    }
    #[doc = "The neighbor's paths of a family reached the share of `prefix_limit` that is warned of."]
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
    #[doc = "The kernel did not take the password of a neighbor or a range: its connections are refused until then."]
    PasswordFailed "password.failed" ERROR "password is not in the kernel; connections are refused until then" {
        of: Text, reason: Text,
    }
    #[doc = "The kernel took the password of a neighbor or a range that had failed."]
    PasswordInstalled "password.installed" INFO "password is in the kernel" {
        of: Text,
    }
    #[doc = "The kernel refused a route; it is tried again."]
    RouteRefused "route.refused" WARN "kernel refused the route" {
        prefix: IpNet, table: u64, metric: u64, reason: Text, errno: u64,
    }
    #[doc = "A kernel route is being deleted. `cause` is `withdrawn`, `stray` or `rewrite`."]
    RouteDeleted "route.deleted" INFO "deleting kernel route" {
        prefix: IpNet, table: u64, metric: u64, gateways: Text, cause: Text,
    }
    #[doc = "Further kernel routes were deleted within the last `within_s` seconds."]
    RouteDeletedMore "route.deleted_more" INFO "deleted more kernel routes" {
        count: u64, within_s: u64,
    }
    #[doc = "A foreign kernel route has this daemon's protocol, but a table or metric that this daemon does not write: it is left alone."]
    RouteForeign "route.foreign" WARN "foreign kernel route with this daemon's protocol is left alone" {
        prefix: IpNet, table: u64, metric: u64, protocol: u64,
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
    #[doc = "A configuration took effect. The counts are of neighbors; `keyless` ones wait for their password."]
    ConfigApplied "config.applied" INFO "configuration applied" {
        added: u64, removed: u64, reset: u64, keyless: u64,
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
    #[doc = "A workload endpoint is up: its interface, routes and rules are in the kernel. `problem` is what it lacks nevertheless, such as a profile."]
    EndpointUp "endpoint.up" INFO "endpoint up" {
        endpoint: Text, interface: Text, problem: Option<Text>,
    }
    #[doc = "A workload endpoint is down."]
    EndpointDown "endpoint.down" INFO "endpoint down" {
        endpoint: Text, interface: Text, reason: Text,
    }
    #[doc = "A workload endpoint is refused, by other resources of the datastore or by the kernel, or its interface does not appear."]
    EndpointFailed "endpoint.failed" WARN "endpoint failed" {
        endpoint: Text, interface: Text, reason: Text,
    }
    #[doc = "A workload endpoint of this host was deleted."]
    EndpointRemoved "endpoint.removed" INFO "endpoint removed" {
        endpoint: Text,
    }
    #[doc = "The kernel took a change of the packet filter. `transactions` counts them since the start."]
    RulesApplied "rules.applied" INFO "packet filter changed" {
        transactions: u64,
    }
    #[doc = "Another program changed the packet filter of this daemon; the change was undone."]
    RulesRepaired "rules.repaired" WARN "foreign change of the packet filter undone" {
    }
    #[doc = "The kernel refused a change of the packet filter; it is tried again, and the last one stays in effect."]
    RulesFailed "rules.failed" WARN "packet filter not changed; trying again" {
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
    #[doc = "An operator debugs a neighbor: all its events are logged for `for_s` seconds, whatever the level of the log is."]
    DebugStarted "debug.started" WARN "debugging of a neighbor started" {
        neighbor: Text, address: IpAddr, for_s: u64,
    }
    #[doc = "An operator ended the debugging of a neighbor."]
    DebugStopped "debug.stopped" WARN "debugging of a neighbor stopped" {
        neighbor: Text, address: IpAddr,
    }
}
