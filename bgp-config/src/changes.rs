//! The effect of a changed key on established sessions: the operator's page, generated from the
//! speaker's own table ([`bgp_speaker::changes`]).

use std::fmt::{self, Write as _};

use bgp_speaker::keys::{RANGE_KEYS, peer_key};
pub use bgp_speaker::{Effect, PEER_KEYS};

/// One key of the datastore, and the keys of a neighbor that it determines.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub key: &'static str,
    /// The names of these keys.
    pub keys: &'static [&'static str],
    /// A further remark; may be empty.
    pub note: &'static str,
}

const fn key(key: &'static str, keys: &'static [&'static str], note: &'static str) -> Key {
    Key { key, keys, note }
}

/// The keys of the speaker.
pub const SPEAKER_KEYS: &[(&str, &str)] = &[
    ("asn", ANOTHER),
    ("router_id", ANOTHER),
    ("listen", LISTENS),
    ("control", RESTART),
    ("bfd_socket", RESTART),
    ("bird_control", RESTART),
    ("bird6_control", RESTART),
    ("metrics", RESTART),
    ("health", RESTART),
    ("log", RESTART),
    ("log_format", RESTART),
    ("families", RESTART),
    ("multipath", RESTART),
    (
        "memory_max",
        "stays up; applied at once. Without the key, the limit of the control group is read again",
    ),
    ("privileges", RESTART),
    ("next_hop_ipv4", READVERTISED),
    ("next_hop_ipv6", READVERTISED),
    ("cluster_id", READVERTISED),
    ("restart_wait", "applied at the next restart"),
    ("registration_ttl", RESTART),
    ("absence_wait", RESTART),
    ("origin_validation", RESTART),
    (
        "hostname",
        "stays up; applied to the next session. With a datastore, requires a restart",
    ),
    ("reflectors", RESTART),
    ("datastore", RESTART),
    ("datastore_snapshot", RESTART),
    (
        "secrets",
        "a changed `dir` requires a restart of the daemon; the files in it are read every second, \
         and a changed file is a changed `password` and `second_password`",
    ),
    (
        "guard",
        "stays up; the host guard changes at once if the daemon may load it",
    ),
    ("kernel", "see `bgp-client.md`"),
    (
        "neighbor",
        "a new one is opened, a removed one is closed; for a changed one see below",
    ),
    (
        "neighbor_range",
        "a new one is opened, a removed one is closed; for a changed one see below",
    ),
];

/// The keys of the datastore that determine the sessions of a node.
pub const STORE_KEYS: &[Key] = &[
    key("Own Node: `spec.bgp.asNumber`", &["local_asn"], ""),
    key(
        "Own Node: `spec.bgp.ipv4Address`, `spec.bgp.ipv6Address`",
        &["source", "local_id"],
        "with `spec.bindMode: NodeIP`, the daemon listens on the new addresses instead of the old ones, \
         as after a change of `listen`",
    ),
    key(
        "Other Node: `spec.bgp.ipv4Address`, `spec.bgp.ipv6Address`",
        &["address"],
        "",
    ),
    key("Other Node: `spec.bgp.asNumber`", &["asn"], ""),
    key(
        "Node: `spec.bgp.routeReflectorClusterID`",
        &["route_reflector_client", "cluster_id"],
        "with `multipath` above 1, **reset**, because both OPENs change: a reflector then sends its \
         clients several paths",
    ),
    key("Node: `metadata.labels`", &[], SELECTED),
    key(
        "Node: `spec.wireguard`",
        &[],
        "stays up; the set of installed kernel routes changes",
    ),
    key("Node: all other fields", &[], IGNORED),
    key(
        "BGPConfiguration `spec.nodeToNodeMeshEnabled`",
        &[],
        COME_AND_GO,
    ),
    key(
        "BGPConfiguration `metadata.annotations`: `cambric.io/reflectors-per-node`",
        &[],
        COME_AND_GO,
    ),
    key(
        "BGPConfiguration `metadata.annotations`: `cambric.io/fabric-bfd`",
        &["bfd"],
        "",
    ),
    key(
        "BGPConfiguration `spec.asNumber`",
        &["local_asn", "asn"],
        "",
    ),
    key(
        "BGPConfiguration `spec.listenPort`",
        &["port"],
        "the daemon listens on the new port at once",
    ),
    key("BGPConfiguration `spec.bindMode`", &[], LISTENS),
    key(
        "BGPConfiguration `spec.nodeMeshPassword`",
        &["password", "second_password"],
        "",
    ),
    key(
        "BGPConfiguration `spec.nodeMeshMaxRestartTime`",
        &["graceful_restart"],
        "",
    ),
    key(
        "BGPConfiguration `spec.communities`, `spec.prefixAdvertisements`",
        &["export"],
        "",
    ),
    key(
        "BGPConfiguration `spec.serviceClusterIPs`, `spec.serviceExternalIPs`, \
         `spec.serviceLoadBalancerIPs`, `spec.serviceLoadBalancerAggregation`",
        &["export"],
        "",
    ),
    key(
        "BGPConfiguration `spec.ipv4NormalRoutePriority`, `spec.ipv6NormalRoutePriority`",
        &["export"],
        "",
    ),
    key(
        "BGPConfiguration `spec.programClusterRoutes`",
        &["export"],
        "and the set of installed kernel routes changes",
    ),
    key(
        "BGPConfiguration `spec.ignoredInterfaces`, `spec.logSeverityScreen`, \
         `spec.localWorkloadPeeringIPV4`, `spec.localWorkloadPeeringIPV6`",
        &[],
        IGNORED,
    ),
    key(
        "BGPPeer `spec.node`, `spec.nodeSelector`, `spec.peerSelector`, `spec.reversePeering`",
        &[],
        SELECTED,
    ),
    key(
        "BGPPeer `spec.peerIP`",
        &["address"],
        "a changed port alone is applied to the next session",
    ),
    key("BGPPeer `spec.asNumber`", &["asn"], ""),
    key("BGPPeer `spec.localASNumber`", &["local_asn"], ""),
    key(
        "BGPPeer `spec.sourceAddress`",
        &["source"],
        "not if the session already uses this address",
    ),
    key(
        "BGPPeer `spec.nextHopMode`, `spec.keepOriginalNextHop`",
        &["next_hop"],
        "",
    ),
    key("BGPPeer `spec.failureDetectionMode`", &["bfd"], ""),
    key(
        "BFDConfiguration: all",
        &[],
        "stays up; the timers of BFD change without a failure",
    ),
    key(
        "BGPPeer `spec.password`, and the secret it names",
        &["password", "second_password"],
        "",
    ),
    key("BGPPeer `spec.maxRestartTime`", &["graceful_restart"], ""),
    key("BGPPeer `spec.keepaliveTime`", &["keepalive"], ""),
    key(
        "BGPPeer `spec.numAllowedLocalASNumbers`",
        &["own_as_max"],
        "",
    ),
    key("BGPPeer `spec.ttlSecurity`", &["ttl_security"], ""),
    key(
        "BGPPeer `spec.filters`; BGPFilter: all",
        &["import", "export"],
        "",
    ),
    key(
        "BGPPeer `spec.reachableBy`",
        &[],
        "stays up; the route to the peer changes",
    ),
    key(
        "BGPPeer `spec.localWorkloadSelector`",
        &[],
        "stays up; a note reports that sessions with workloads are unsupported",
    ),
    key(
        "IPPool: all; block affinities",
        &["export"],
        "and the node's own blocks change",
    ),
];

const COME_AND_GO: &str = "sessions with new peers are opened; sessions with removed peers are closed \
                           when the other peers have sent their routes; all others stay up";
const SELECTED: &str = "if a `peerSelector` selects the peers: as for `nodeToNodeMeshEnabled`, but \
                        closed at once if no other peer is left ([the order of \
                        labels](bgp-resources.md#when-selected-peers-change)). With `peerIP`: the \
                        session with a removed peer is closed at once. All others stay up";
const RESTART: &str = "requires a restart of the daemon; until then a warning is logged and the old \
                       value stays in effect";
const LISTENS: &str = "stays up; the listening addresses change at once. A port below 1024 other \
                       than 179 must be in the file: in `listen`, or in `ports` of `[guard]`";
const ANOTHER: &str = "all are **reset**, because both OPENs change";
const IGNORED: &str = "stays up; ignored";
const READVERTISED: &str = "stays up; all routes are advertised again to all neighbors";
const LATER: &str = "stays up; applied to the next session";

/// Returns the text of an effect for operators.
const fn words(effect: Effect) -> &'static str {
    match effect {
        Effect::Live => "stays up; applied at once",
        Effect::Reevaluated => "stays up; the import policy evaluates the received routes again",
        Effect::Refreshed => "stays up; a route refresh is sent to the neighbor",
        Effect::Readvertised => {
            "stays up; routes are advertised again to the neighbor, or withdrawn"
        }
        Effect::NextSession => LATER,
        Effect::Renegotiated => "**reset** if the result of both OPENs changes",
        Effect::Reset => "**reset**",
    }
}

impl Key {
    /// Returns the worst effect of a change of this key; `None` if the key does not concern a
    /// single peer.
    #[must_use]
    pub fn effect(&self) -> Option<Effect> {
        let keys = self.keys.iter().filter_map(|name| peer_key(name));
        keys.map(|key| key.effect).max()
    }
}

impl fmt::Display for Key {
    /// Writes a line of the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&line(self.key, self.effect(), self.note))
    }
}

fn line(name: &str, effect: Option<Effect>, note: &str) -> String {
    let parts = effect.map(words).into_iter().chain(Some(note));
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    format!("| {} | {} |\n", code(name), parts.join("; "))
}

/// Formats a name as code, unless a part of it already is.
fn code(name: &str) -> String {
    if name.contains('`') {
        name.to_owned()
    } else {
        format!("`{name}`")
    }
}

const HEAD: &str = "\
# Effects of a change on sessions

A reload (`SIGHUP`, `systemctl reload`), or a change in the datastore, affects only the sessions that
it must. The tables list the effect of each changed key on a session:

* **stays up**: the session is not interrupted.
* **reset**: the session is closed with a Cease and opened again at once with the new value.

A change is applied within 100 ms. `cambric show status` has the time of the last change, and names
invalid values.

If a change waits for the next session, the log names the neighbor; `cambric clear NAME` resets the
session. A session that is not up is opened again at once after any change. Stale routes of a
neighbor that restarts are kept.

A reset because of changed OPENs is a graceful restart. If both sides support it, each retains the
other's routes, and no route is lost. If the neighbor's address changes or a family is removed, the
routes are removed at once.

This page is made from the speaker's own table. A test changes every key of a neighbor and of the
datastore during a session with BIRD. It compares BIRD's view of the session with this page.

Felix has no sessions; [felix.md](felix.md#reload) lists what a reload changes there.
";

/// Returns the page `docs/operate/changes.md`.
#[must_use]
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut table = |title: &str, lines: Vec<String>| {
        let _ = write!(page, "\n## {title}\n\n| key | the session |\n|---|---|\n");
        lines.iter().for_each(|line| page.push_str(line));
    };
    let plain = |keys: &[(&str, &str)]| -> Vec<String> {
        let lines = keys.iter();
        lines
            .map(|(key, what)| format!("| {} | {what} |\n", code(key)))
            .collect()
    };
    table("The speaker", plain(SPEAKER_KEYS));
    let neighbor = PEER_KEYS.iter().filter(|key| !key.places.is_empty());
    let neighbor = neighbor.map(|key| line(key.name, Some(key.effect), key.note));
    table(
        "`[[neighbor]]` and `[[neighbor_range]]`",
        neighbor.collect(),
    );
    let range = RANGE_KEYS.iter().map(|key| line(key.name, None, key.note));
    table("`[[neighbor_range]]` alone", range.collect());
    table(
        "The datastore",
        STORE_KEYS.iter().map(Key::to_string).collect(),
    );
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BgpFile, NoKernel};
    use std::collections::BTreeSet;

    // Promise: as bgp-speaker the_table_is_what_a_living_session_sees
    #[test]
    fn the_page_is_made_from_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/changes.md");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(path, page()).expect("docs/operate can be written");
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            written,
            page(),
            "run the test with UPDATE_EXPECT=1 to write it"
        );
    }

    /// Returns the keys that a section may have, as the error about an unknown key lists them.
    fn keys(section: &str) -> BTreeSet<String> {
        let text = format!("{section}nonsense = 1\n");
        let error = toml::from_str::<BgpFile<NoKernel>>(&text).expect_err("no such key");
        let message = error.message().to_owned();
        let (_, listed) = message.split_once("expected one of ").expect("a list");
        let names = listed.split(", ");
        names
            .map(|name| name.trim_matches('`').to_owned())
            .collect()
    }

    fn names<'k>(keys: impl IntoIterator<Item = &'k str>) -> BTreeSet<String> {
        keys.into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn every_key_of_the_speaker_has_its_line() {
        let speaker = SPEAKER_KEYS.iter().map(|(key, _)| *key);
        assert_eq!(keys(""), names(speaker));
    }

    /// Lists the names of all fields of a spec as the datastore has them; other fields fail to
    /// compile.
    macro_rules! fields {
        ($spec:ident: $($field:ident,)*) => {{
            #[allow(dead_code, reason = "fails to compile when a field is not named")]
            fn complete(spec: &calico_model::$spec) {
                let calico_model::$spec { unknown: _, $($field: _,)* } = spec;
            }
            [$(camel(stringify!($field)),)*]
        }};
    }

    fn camel(field: &str) -> String {
        let mut words = field.split('_');
        let first = words.next().unwrap_or_default().to_owned();
        let rest = words.map(|word| match word {
            "ip" => "IP".to_owned(),
            "ips" => "IPs".to_owned(),
            "ipv4" => "IPV4".to_owned(),
            "ipv6" => "IPV6".to_owned(),
            word => word[..1].to_uppercase() + &word[1..],
        });
        first + &rest.collect::<String>()
    }

    #[test]
    fn every_field_of_the_store_has_its_line() {
        let configuration = fields!(BgpConfigurationSpec:
            log_severity_screen, node_to_node_mesh_enabled, as_number, listen_port, bind_mode,
            service_cluster_ips, service_external_ips, service_load_balancer_ips,
            service_load_balancer_aggregation, communities, prefix_advertisements,
            node_mesh_password, node_mesh_max_restart_time, ignored_interfaces,
            local_workload_peering_ipv4, local_workload_peering_ipv6, program_cluster_routes,
            ipv4_normal_route_priority, ipv6_normal_route_priority,
        );
        let peering = fields!(BgpPeerSpec:
            node, node_selector, peer_ip, as_number, local_as_number, peer_selector,
            keep_original_next_hop, next_hop_mode, password, source_address, max_restart_time,
            failure_detection_mode,
            keepalive_time, num_allowed_local_as_numbers, ttl_security, reachable_by, filters,
            local_workload_selector, reverse_peering,
        );
        let of = |kind: &'static str, fields: &[String]| {
            for field in fields {
                let is_of_field = |key: &&Key| {
                    let text = key.key.to_lowercase();
                    let name = format!("`spec.{}`", field.to_lowercase());
                    key.key.starts_with(kind) && text.contains(&name)
                };
                assert_eq!(
                    STORE_KEYS.iter().filter(is_of_field).count(),
                    1,
                    "{kind} {field}"
                );
            }
        };
        of("BGPConfiguration ", &configuration);
        of("BGPPeer ", &peering);
    }

    #[test]
    fn keys_of_the_store_decide_keys_of_neighbors() {
        for key in STORE_KEYS {
            assert!(
                key.keys.iter().all(|name| peer_key(name).is_some()),
                "{key:?}"
            );
        }
    }
}
