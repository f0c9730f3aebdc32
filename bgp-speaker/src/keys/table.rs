//! The rows, and the configuration of a peer that is generated from them.
//!
//! A row is `"key": [field]: type = default, "meaning", Key { further properties };`. A
//! field of the peer itself has its type and default here; a field of a part of it (`session`,
//! `as_path`) has them there. The key also sets a second field
//! after `+`. `get` and `set` are given if the value is not simply that of the field.
//!
//! The rows are read in this order: a value may depend on those before it.

use alloc::{collections::BTreeMap, string::String};
use core::net::{IpAddr, Ipv4Addr};

use bgp_fsm::{GracefulRestartConfig, PeerAs, SessionConfig, limits::HANDSHAKE_S_MAX};
use bgp_proto::{ClusterId, Family, FamilySet, LongLivedEntry};
use rib::{AsPathChecks, NextHopMode, OriginMode, Policy, Role, SendPaths};

use super::{
    Effect, Fallback, Key, PeerKey, Report, Store,
    defaults::{BOTH, IN_CODE, NEIGHBOR, POLICY, SECONDS, STORED},
    field::{Field, send_paths, send_paths_value},
    kind::{Kind, from_one},
    read::{by_family, for_families},
    value::Value,
};
use crate::{
    config::{Bfd, BfdAuth, BfdGraceful, Password, PrefixLimits, PrefixLimitsOut},
    limits::{
        BFD_KEYS_OCTETS_MAX, BGP_PORT, DESCRIPTION_OCTETS_MAX, LINK_BANDWIDTH_MAX, NAME_OCTETS_MAX,
        PASSWORD_OCTETS_MAX, RESTART_TIME_S, RESTART_TIME_S_MAX, STALE_TIME_S, STALE_TIME_S_MAX,
        TTL_SECURITY_HOPS_MAX,
    },
};

peer_keys! {
    "name": [name]: String = String::new(),
        "the name of the neighbor in logs and tables",
        Key {
            kind: Kind::Text(NAME_OCTETS_MAX),
            default: Fallback::Words("the address or prefix"),
            report: Report::Never,
            example: || "other".into(),
            ..BOTH
        };

    "description": [description]: Option<String> = None,
        "a note for operators; `cambric show neighbors NAME` and `cambric show config` show it",
        Key {
            kind: Kind::Text(DESCRIPTION_OCTETS_MAX),
            default: Fallback::Words("none"),
            store: Store::Annotation,
            report: Report::InNeighbors,
            example: || "uplink of rack 7".into(),
            ..BOTH
        };

    "address": [remote]: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        "the neighbor's address",
        Key {
            kind: Kind::Address,
            default: Fallback::Required,
            effect: Effect::Reset,
            note: "the neighbor with the old address is removed",
            store: Store::Fields(&["spec.peerIP"]),
            report: Report::Never,
            example: || "10.0.0.9".into(),
            ..NEIGHBOR
        };

    "port": [port]: u16 = BGP_PORT,
        "the neighbor's TCP port for outgoing connections",
        Key {
            kind: Kind::Number { or_zero: false, least: 1, most: 65_535, unit: "" },
            effect: Effect::NextSession,
            store: Store::Fields(&["spec.peerIP"]),
            example: || 1179.into(),
            ..NEIGHBOR
        };

    "source": [local]: Option<IpAddr> = None,
        "the local address of the session; connections to another local address are rejected",
        Key {
            kind: Kind::Address,
            default: Fallback::Words("the kernel's choice"),
            effect: Effect::Reset,
            note: "not if the session already uses this address, and not if the key is removed",
            store: Store::Fields(&["spec.sourceAddress"]),
            example: || "127.0.0.1".into(),
            ..NEIGHBOR
        };

    "passive": [session.passive],
        "only accept connections. Neighbors of a range are always passive",
        Key { effect: Effect::NextSession, ..NEIGHBOR };

    "asn": [session.peer_asn],
        "the AS of the neighbor: a number, `\"internal\"` (the local AS) or `\"external\"` (any other)",
        Key {
            kind: Kind::Asn,
            default: Fallback::Required,
            effect: Effect::Renegotiated,
            note: "not if the value allows the same AS as before",
            store: Store::Fields(&["spec.asNumber"]),
            report: Report::Always,
            example: || 64_513.into(),
            ..BOTH
        },
        get |peer: &PeerConfig| peer.session.peer_asn.value(),
        set |peer: &mut PeerConfig, value: &Value| {
            if let Some(asn) = PeerAs::of(value) {
                peer.set_asn(asn);
            }
        };

    "local_asn": [session.local_asn],
        "the local AS towards the neighbor",
        Key {
            effect: Effect::Renegotiated,
            store: Store::Fields(&["spec.localASNumber"]),
            report: Report::Always,
            ..IN_CODE
        };

    "local_id": [session.local_id],
        "the local BGP identifier towards the neighbor",
        Key { effect: Effect::Renegotiated, report: Report::Never, ..IN_CODE };

    "families": [session.families],
        "the families in the OPEN to the neighbor",
        Key {
            kind: Kind::Families,
            default: Fallback::Words("`families` of the speaker"),
            effect: Effect::Renegotiated,
            report: Report::Always,
            example: || Value::list(["ipv4-unicast"]),
            ..BOTH
        };

    "hold_time": [session.hold_time_s],
        "the hold time that is proposed; with 0 no KEEPALIVE is sent",
        Key {
            kind: Kind::Number { or_zero: true, least: 3, most: 65_535, unit: "seconds" },
            effect: Effect::NextSession,
            note: "both sides have negotiated the old one",
            store: Store::Annotation,
            help: "0 switches keepalives off, 90 is the default",
            example: || 30.into(),
            ..BOTH
        };

    "min_hold_time": [session.min_hold_time_s],
        "the shortest hold time that is accepted in the neighbor's OPEN. A shorter one is rejected with \
         Unacceptable Hold Time (RFC 4271 §4.2); 0, for no KEEPALIVE, is always accepted",
        Key {
            kind: Kind::Number {
                or_zero: false,
                least: 3,
                most: 65_535,
                unit: "seconds",
            },
            effect: Effect::NextSession,
            store: Store::Annotation,
            example: || 20.into(),
            ..BOTH
        };

    "keepalive": [session.keepalive_s],
        "the time between KEEPALIVE messages, at most a third of the negotiated hold time. A value \
         that is not below `hold_time`, or any value with `hold_time = 0`, is rejected",
        Key {
            kind: SECONDS,
            default: Fallback::Words("a third of the hold time"),
            store: Store::Fields(&["spec.keepaliveTime"]),
            example: || 2.into(),
            ..BOTH
        };

    "connect_retry": [session.connect_retry_s],
        "the time between two attempts to connect",
        Key {
            kind: SECONDS,
            effect: Effect::NextSession,
            store: Store::Annotation,
            example: || 2.into(),
            ..NEIGHBOR
        };

    "handshake_time": [session.handshake_s],
        "the time from a connection to an established session. A connection that takes longer is \
         closed with Hold Timer Expired",
        Key {
            kind: from_one(HANDSHAKE_S_MAX as u32, "seconds"),
            effect: Effect::NextSession,
            store: Store::Annotation,
            help: "15 is the default",
            example: || 30.into(),
            ..BOTH
        };

    "idle_hold": [session.idle_hold_s],
        "the shortest and the longest idle hold time in seconds: it doubles with each failure",
        IN_CODE;

    "open_delay": [session.open_delay_s],
        "the seconds to wait for the neighbor's OPEN before the own OPEN is sent",
        IN_CODE;

    "send_hold": [session.send_hold_s],
        "the seconds that the neighbor may refuse to read (RFC 9687)",
        Key { effect: Effect::Live, ..IN_CODE };

    "hostname": [session.hostname],
        "the local host name in the OPEN",
        Key { report: Report::Never, ..IN_CODE };

    "graceful_restart": [session.graceful_restart],
        "the restart time: each side retains the other's routes as stale for this time (RFC 4724); \
         `true` means 120 seconds",
        Key {
            kind: Kind::Switch {
                on: RESTART_TIME_S as u32,
                least: 0,
                most: RESTART_TIME_S_MAX as u32,
                unit: "seconds",
            },
            default: Fallback::Value(|| true.into()),
            effect: Effect::NextSession,
            note: "whether the neighbor's routes are retained is applied at once",
            store: Store::Fields(&["spec.maxRestartTime"]),
            example: || 77.into(),
            ..BOTH
        },
        get |peer: &PeerConfig| peer.session.graceful_restart.value(),
        set |peer: &mut PeerConfig, value: &Value| {
            // The kernel or other hosts forward: forwarding state survives this process in every
            // family.
            let families_forwarding = peer.session.families;
            peer.session.graceful_restart = u16::of(value)
                .map(|time_s| GracefulRestartConfig::new(time_s).with_forwarding(families_forwarding));
        };

    "graceful_notification": [session.graceful_notification],
        "whether both sides apply `graceful_restart` also after a NOTIFICATION (RFC 8538, the N bit)",
        Key { effect: Effect::NextSession, store: Store::Annotation, example: || false.into(), ..BOTH };

    "stale_time": [stale_time_s]: u32 = STALE_TIME_S,
        "how long stale routes of a neighbor that has returned wait for its End-of-RIB marker",
        Key {
            kind: from_one(STALE_TIME_S_MAX, "seconds"),
            effect: Effect::NextSession,
            store: Store::Annotation,
            example: || 60.into(),
            ..BOTH
        };

    "long_lived_stale_time": [session.long_lived_stale_time_s],
        "for how many seconds after the restart time stale routes are retained as the least preferred \
         ones, by family; see \
         [Long-lived graceful restart](route-reflector.md#long-lived-graceful-restart)",
        Key {
            kind: Kind::FamilyTimes(LongLivedEntry::STALE_TIME_S_MAX),
            default: Fallback::Words("none"),
            effect: Effect::NextSession,
            store: Store::Annotation,
            help: "`long_lived_stale_time = { ipv4-unicast = 3600 }`",
            example: || Value::table([("ipv4-unicast", 3600.into())]),
            ..BOTH
        };

    "ttl_security": [ttl_security_hops]: Option<u8> = None,
        "GTSM (RFC 5082): `true` for a neighbor on the link, or the maximum number of hops. Both sides \
         need it. A connection with a lower TTL is reset; the log and `cambric show neighbors` have \
         the TTL",
        Key {
            kind: Kind::Switch {
                on: 1,
                least: 1,
                most: TTL_SECURITY_HOPS_MAX as u32,
                unit: "hops",
            },
            default: Fallback::Words("`false`"),
            note: "the neighbor must be within this number of hops",
            store: Store::Fields(&["spec.ttlSecurity"]),
            report: Report::InNeighbors,
            example: || 3.into(),
            ..BOTH
        };

    "password": [password]: Option<Password> = None,
        "the TCP-MD5 key (RFC 2385). The kernel holds the keys of all neighbors on the listening \
         socket, limited by `net.core.optmem_max` (963 keys with 131072). Without room for its key, a \
         neighbor is rejected; `cambric show neighbors` has the reason and a sufficient value, and \
         the key is tried again every ten seconds. A range needs one key",
        Key {
            kind: Kind::Secret(PASSWORD_OCTETS_MAX),
            default: Fallback::Words("none"),
            note: "change it on both sides within the hold time; until then no message passes",
            store: Store::Fields(&["spec.password"]),
            report: Report::InNeighbors,
            example: || "other".into(),
            ..BOTH
        };

    "second_password": [second_password]: Option<Password> = None,
        "another TCP-MD5 key, valid while the key is changed (see `session-keys.md`). A \
         connection that the neighbor opens needs `password`; for one that the daemon opens, the \
         daemon finds out which of the two keys the neighbor has",
        Key {
            kind: Kind::Secret(PASSWORD_OCTETS_MAX),
            default: Fallback::Words("none"),
            store: Store::Fields(&["spec.password"]),
            report: Report::InNeighbors,
            example: || "other".into(),
            ..BOTH
        };

    "route_reflector_client": [role]: Role = Role::Internal,
        "the neighbor is a client of this route reflector (RFC 4456); internal neighbors only",
        Key { effect: Effect::Readvertised, ..BOTH },
        get |peer: &PeerConfig| Some((peer.role == Role::Client).into()),
        set |peer: &mut PeerConfig, value: &Value| match (bool::of(value), peer.role) {
            (Some(true), _) => peer.role = Role::Client,
            (Some(false), Role::Client) => peer.role = Role::Internal,
            _ => {}
        };

    "cluster_id": [cluster_id]: Option<ClusterId> = None,
        "the cluster of this client (RFC 4456 §7). A reflected route has the cluster of its source and of \
         its destination; a route with any local cluster ID in its CLUSTER_LIST is not used",
        Key {
            kind: Kind::DottedQuad,
            default: Fallback::Words("`cluster_id` of the speaker"),
            effect: Effect::Readvertised,
            example: || "10.9.9.9".into(),
            ..BOTH
        };

    "import": [import]: Policy = Policy::AcceptAll,
        "the routes that are accepted from the neighbor: all or none. Without this key, no route \
         of an \
         external neighbor is accepted (RFC 8212); the log and `cambric show neighbors` report it",
        Key { effect: Effect::Reevaluated, ..POLICY };

    "export": [export]: Policy = Policy::AcceptAll,
        "the routes that are advertised to the neighbor: all or none, as for `import`",
        Key { effect: Effect::Readvertised, ..POLICY };

    "next_hop": [next_hop]: NextHopMode = NextHopMode::Auto,
        "the next hop of advertised routes: `\"auto\"`: the daemon's own to external neighbors, \
         unchanged for reflected routes; `\"self\"`: always the daemon's own; `\"keep\"`: unchanged",
        Key {
            kind: Kind::Word(&["auto", "self", "keep"]),
            effect: Effect::Readvertised,
            store: Store::Fields(&["spec.nextHopMode", "spec.keepOriginalNextHop"]),
            example: || "self".into(),
            ..BOTH
        };

    "link_bandwidth": [link_bandwidth]: Option<u32> = None,
        "the bandwidth of this host's link, sent as the link bandwidth community with routes of which the \
         next hop is the daemon's own (RFC 10005): transitive to external neighbors. \
         The community of a received route is removed from them in any case",
        Key {
            kind: from_one(LINK_BANDWIDTH_MAX, "Mbit/s"),
            default: Fallback::Words("not sent"),
            effect: Effect::Readvertised,
            store: Store::Annotation,
            example: || 10_000.into(),
            ..BOTH
        };

    "own_as_max": [as_path.own_as_max],
        "how often the local AS may occur in the AS_PATH of received routes. More than 0 is useful if \
         sites of one AS are connected by another AS. If the session has its own local AS \
         (`localASNumber` of a BGPPeer), the limit applies to each of the two",
        Key {
            kind: Kind::Number { or_zero: false, least: 0, most: 255, unit: "times" },
            effect: Effect::Reevaluated,
            store: Store::Fields(&["spec.numAllowedLocalASNumbers"]),
            example: || 1.into(),
            ..BOTH
        };

    "allow_as_sets": [as_path.allow_as_sets],
        "whether the AS_PATH of its routes may have an AS_SET or AS_CONFED_SET. Without it such routes \
         are not used (RFC 9774); `cambric show routes --why` gives `AS_SET in AS_PATH` as the reason",
        Key { effect: Effect::Reevaluated, store: Store::Annotation, ..BOTH };

    "enforce_first_as": [as_path.enforce_first_as],
        "whether the first AS in the AS_PATH of its routes must be its own (RFC 4271 §6.3); external \
         neighbors only. Routes that begin with another AS are not used, and `cambric show routes \
         --why` gives `first AS is not the neighbor's` as the reason. A route server does not prepend \
         its AS (RFC 7947 §2.2.2.1): set `false` for that neighbor",
        Key {
            effect: Effect::Reevaluated,
            store: Store::Annotation,
            example: || false.into(),
            ..BOTH
        };

    "as_path_max": [as_path.length_max],
        "how many ASs the AS_PATH of its routes may have at most, or 0 for any number. They are counted as \
         for the best path (RFC 4271 §9.1.2.2): a prepended AS each time, an AS_SET once. Routes with more \
         are not used, and `cambric show routes --why` gives `AS_PATH too long` as the reason",
        Key {
            kind: Kind::Number { or_zero: true, least: 1, most: 65_534, unit: "ASs" },
            effect: Effect::Reevaluated,
            store: Store::Annotation,
            example: || 50.into(),
            ..BOTH
        };

    "aigp": [aigp]: bool = false,
        "AIGP is exchanged with this external neighbor, of the same administration (RFC 7311 §3.3)",
        Key { effect: Effect::Readvertised, store: Store::Annotation, ..BOTH };

    "tunnel_encapsulation": [tunnel_encapsulation]: bool = false,
        "TUNNEL_ENCAPSULATION is exchanged with this external neighbor, of the same administration (RFC \
         9012 §11)",
        Key { effect: Effect::Readvertised, store: Store::Annotation, ..BOTH };

    "prefix_sid": [prefix_sid]: bool = false,
        "PREFIX_SID is exchanged with this external neighbor, within one SR domain (RFC 8669 §4, §8)",
        Key { effect: Effect::Readvertised, store: Store::Annotation, ..BOTH };

    "multihop": [multihop]: bool = false,
        "an external neighbor may be more than one hop away. Without it, the next hop of a route \
         must be its own address, or an address in a subnet of the local interface to the neighbor. \
         If no local subnet contains the neighbor, only its own address is accepted. \
         Otherwise the route is not used, and `cambric show routes --why` gives `next hop not on the \
         link` as the reason. `ttl_security` of more than 1 has the same effect",
        Key { effect: Effect::Reevaluated, ..BOTH };

    "add_path": [session.add_path_receive + session.add_path_send],
        "whether this daemon receives or sends several paths of a prefix (RFC 7911); see \
         [Several paths](route-reflector.md#several-paths-to-a-prefix)",
        Key {
            kind: Kind::Word(&["off", "receive", "send", "both"]),
            effect: Effect::Renegotiated,
            example: || "receive".into(),
            ..BOTH
        },
        get |peer: &PeerConfig| {
            let (receive, send) = (peer.session.add_path_receive, peer.session.add_path_send);
            Some(match (receive.is_empty(), send.is_empty()) {
                (true, true) => "off".into(),
                (false, true) => "receive".into(),
                (true, false) => "send".into(),
                (false, false) => "both".into(),
            })
        },
        set |peer: &mut PeerConfig, value: &Value| {
            let families = peer.session.families;
            let with = |modes: [&str; 2]| match value.text() {
                Some(mode) if modes.contains(&mode) => families,
                _ => FamilySet::EMPTY,
            };
            peer.session.add_path_receive = with(["receive", "both"]);
            peer.session.add_path_send = with(["send", "both"]);
            let send = peer.session.add_path_send.iter();
            peer.send_paths = send.map(|family| (family, SendPaths::All)).collect();
        };

    "add_path_send": [send_paths]: BTreeMap<Family, SendPaths> = BTreeMap::new(),
        "the paths that are sent if `add_path` is `\"send\"` or `\"both\"`: `\"all\"`, \
         `\"equal-cost\"`, or \
         this number of the best ones; or a table with one of these for each family",
        Key {
            kind: Kind::Paths,
            default: Fallback::Words("`\"all\"`"),
            effect: Effect::Readvertised,
            example: || "equal-cost".into(),
            ..BOTH
        },
        get |peer: &PeerConfig| {
            let of = |paths: &SendPaths| send_paths_value(*paths);
            for_families(&peer.send_paths, peer.session.add_path_send, of)
        },
        set |peer: &mut PeerConfig, value: &Value| {
            peer.send_paths = by_family(value, send_paths).unwrap_or_default();
            let named: FamilySet = peer.send_paths.keys().copied().collect();
            peer.session.add_path_send = peer.session.add_path_send.intersection(named);
        };

    "prefix_limit": [prefix_limits]: PrefixLimits = PrefixLimits::default(),
        "the maximum number of paths that the neighbor may advertise in each family; further ones \
         are rejected. A list of tables has other actions, and limits for single families; see \
         [Limits](route-reflector.md#limits)",
        Key {
            kind: Kind::PathLimits,
            default: Fallback::Words("`2000000`; `20000` for a node of the datastore"),
            effect: Effect::Refreshed,
            store: Store::Annotation,
            help: "`prefix_limit = 5000`, or a [[neighbor.prefix_limit]] with `max`",
            example: || 100.into(),
            ..BOTH
        };

    "prefix_limit_out": [prefix_limits_out]: PrefixLimitsOut = PrefixLimitsOut::default(),
        "the maximum number of paths that are advertised to the neighbor in each family; further ones \
         are suppressed until a withdrawal makes room. A list of tables has limits for single families; \
         see [Limits](route-reflector.md#limits-of-advertised-paths)",
        Key {
            kind: Kind::SentLimits,
            effect: Effect::Readvertised,
            store: Store::Annotation,
            report: Report::InNeighbors,
            help: "`prefix_limit_out = 5000`, or a [[neighbor.prefix_limit_out]] with `max`",
            example: || 100.into(),
            ..BOTH
        };

    "origin_validation": [origin_validation]: Option<OriginMode> = None,
        "the consequence for routes of the neighbor that no record of the datastore confirms; see \
         [origin validation](origin-validation.md)",
        Key {
            kind: Kind::Word(&["off", "warn", "enforce"]),
            default: Fallback::Words("`origin_validation` of the daemon"),
            effect: Effect::Reevaluated,
            example: || "enforce".into(),
            ..STORED
        };

    "transit": [is_transit]: bool = false,
        "the neighbor is not a node, and propagates routes of nodes, as the switch of a rack does. \
         Origin validation then confirms a route of a node if AS_PATH ends with the AS of that node",
        Key { effect: Effect::Reevaluated, ..STORED };

    "bfd": [bfd]: Option<Bfd> = None,
        "monitor the path to the neighbor with BFD: `true`, or a table with `interval_ms` (300), \
         `multiplier` (3) and `mode` (`\"auto\"`, `\"single-hop\"` or `\"multihop\"`). If the path fails, \
         the session and routes through the neighbor end at once; see [BFD](bfd.md)",
        Key {
            kind: Kind::Bfd,
            default: Fallback::Words("`false`"),
            store: Store::Annotation,
            report: Report::InNeighbors,
            ..BOTH
        };

    "bfd_auth": [bfd_auth]: Option<BfdAuth> = None,
        "the authentication of BFD packets, with the keys of `bfd_keys`; see \
         [BFD](bfd.md#authentication)",
        Key {
            kind: Kind::Word(&BfdAuth::WORDS),
            default: Fallback::Words("none"),
            report: Report::InNeighbors,
            example: || "keyed-sha1".into(),
            ..BOTH
        };

    "bfd_keys": [bfd_keys]: Option<Password> = None,
        "the keys of `bfd_auth`, one in each line: its number, a space and the key. The first one \
         signs, and all are accepted",
        Key {
            kind: Kind::Secret(BFD_KEYS_OCTETS_MAX),
            default: Fallback::Words("none"),
            note: "add a key on both sides, then move it to the front, then remove the other one",
            report: Report::InNeighbors,
            example: || "1 other".into(),
            ..BOTH
        };

    "bfd_graceful": [bfd_graceful]: BfdGraceful = BfdGraceful::Auto,
        "whether a failure that BFD finds may be a restart of the neighbor, so that its stale routes are \
         retained: `\"always\"`, `\"never\"`, or `\"auto\"` by the C bit of its packets (RFC 5882 §4.3)",
        Key {
            kind: Kind::Word(&["auto", "always", "never"]),
            store: Store::Annotation,
            example: || "never".into(),
            ..BOTH
        };

    "bfd_strict": [session.bfd_strict],
        "establish the session only when BFD is up, if the neighbor does the same \
         (draft-ietf-idr-bgp-bfd-strict-mode, capability 74). The wait ends with `handshake_time`; see \
         [BFD](bfd.md#strict-mode)",
        Key { effect: Effect::NextSession, store: Store::Annotation, ..NEIGHBOR };

    "extended_messages": [session.extended_messages],
        "messages of up to 65535 octets (RFC 8654). The daemon offers them, and sends them to a \
         neighbor \
         that offers them too",
        Key { effect: Effect::Renegotiated, store: Store::Annotation, ..BOTH };

    "extended_next_hop": [session.extended_next_hop],
        "IPv4 prefixes with IPv6 next hops (RFC 8950)",
        Key { effect: Effect::Renegotiated, ..BOTH };
}
