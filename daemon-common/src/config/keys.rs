//! The keys of the configuration files whose values are no secrets, with the type of each value in
//! an operator's words.
//!
//! A key that is missing here costs readability, not a secret: its value is covered in reports.

use self::Type::{
    Address, Any, Flag, Ipv4, Ipv6, List, Listener, Metric, Number, Path, Port, Protocol, Quad,
    Seconds, Section, Sections, Table, Text,
};

/// The type of a value, as an operator writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// Several types, or one that the key itself describes.
    Any,
    /// A duration in whole seconds.
    Seconds,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Number,
    /// A TCP port.
    Port,
    /// A text.
    Text,
    /// A path of a file or socket.
    Path,
    /// An address of either IP version.
    Address,
    /// An IPv4 address.
    Ipv4,
    /// An identifier in the form of an IPv4 address.
    Quad,
    /// An IPv6 address.
    Ipv6,
    /// An address with a port.
    Listener,
    /// The number of a kernel routing table.
    Table,
    /// The number of a kernel route protocol.
    Protocol,
    /// The metric of a kernel route.
    Metric,
    /// A section of keys.
    Section,
    /// A section that may be repeated.
    Sections,
    /// A list.
    List(&'static Self),
}

impl Type {
    /// Describes the value, to follow "is".
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Any => "another value",
            Self::Seconds => "a number of seconds",
            Self::Flag => "true or false",
            Self::Number => "a whole number",
            Self::Port => "a port, a number from 1 to 65535",
            Self::Text => "a text in quotation marks",
            Self::Path => "a path in quotation marks",
            Self::Address => "an IPv4 or IPv6 address in quotation marks",
            Self::Ipv4 => "an IPv4 address in quotation marks",
            Self::Quad => "four octets like an IPv4 address, in quotation marks",
            Self::Ipv6 => "an IPv6 address in quotation marks",
            Self::Listener => "an address with a port, in quotation marks",
            Self::Table => "the number of a routing table",
            Self::Protocol => "the number of a route protocol, from 0 to 255",
            Self::Metric => "the metric of a route, a whole number",
            Self::Section => "a section of keys",
            Self::Sections => "a section that may be repeated",
            Self::List(_) => "a list in brackets",
        }
    }

    /// Returns whether the value needs quotation marks.
    pub(super) const fn is_quoted(self) -> bool {
        use Type::{Address, Ipv4, Ipv6, Listener, Path, Quad, Text};
        matches!(self, Text | Path | Address | Ipv4 | Quad | Ipv6 | Listener)
    }

    /// Returns whether the value is a number.
    pub(super) const fn is_number(self) -> bool {
        use Type::{Metric, Number, Port, Protocol, Seconds, Table};
        matches!(self, Seconds | Number | Port | Table | Protocol | Metric)
    }
}

/// Returns the type of a key's value; `None` if the key is unknown here.
pub(super) fn type_of(key: &str) -> Option<Type> {
    let found = KEYS.iter().find(|(name, _)| *name == key);
    found.map(|(_, kind)| *kind)
}

/// Returns the type of a list's items for an item, else the type itself.
pub(super) fn item_type(kind: Option<Type>, is_item: bool) -> Option<Type> {
    match kind {
        Some(List(item)) if is_item => Some(*item),
        kind => kind,
    }
}

/// The keys and their types.
const KEYS: &[(&str, Type)] = &[
    ("absence_wait", Seconds),
    ("action", Text),
    ("add_path", Text),
    ("add_path_send", Any),
    ("address", Address),
    ("addresses", List(&Address)),
    ("allow_as_sets", Flag),
    ("asn", Any),
    ("bfd", Any),
    ("bfd_auth", Text),
    ("bfd_graceful", Text),
    ("bfd_socket", Path),
    ("bgp_files", List(&Path)),
    ("bird6_control", Path),
    ("bird_control", Path),
    ("budgets", Section),
    ("ca_file", Path),
    ("cert_file", Path),
    ("cluster_id", Quad),
    ("connect_retry", Seconds),
    ("connections", Number),
    ("control", Path),
    ("control_port_exceptions", List(&Address)),
    ("cutting", Section),
    ("datastore", Section),
    ("datastore_snapshot", Section),
    ("dir", Path),
    ("enabled", Flag),
    ("endpoint_metric", Metric),
    ("endpoint_status_path_prefix", Path),
    ("endpoints", List(&Text)),
    ("export", Text),
    ("extended_messages", Flag),
    ("extended_next_hop", Flag),
    ("families", List(&Text)),
    ("family", Text),
    ("felix_configuration", Section),
    ("file", Path),
    ("former_metrics", List(&Metric)),
    ("flow_log", Section),
    ("fragments_per_second", Number),
    ("grace", Seconds),
    ("graceful_restart", Any),
    ("group", Number),
    ("guard", Section),
    ("handshake_time", Seconds),
    ("hold_time", Seconds),
    ("hostname", Text),
    ("import", Any),
    ("install", Flag),
    ("interface_patience_s", Seconds),
    ("interface_prefix", List(&Text)),
    ("interfaces", List(&Text)),
    ("interval_min_ms", Number),
    ("interval_ms", Number),
    ("keepalive", Seconds),
    ("kernel", Section),
    ("key_file", Path),
    ("kubeconfig", Path),
    ("limit", Number),
    ("link_local_per_minute", Number),
    ("listen", List(&Listener)),
    ("log", Text),
    ("log_format", Text),
    ("mark", Number),
    ("max", Number),
    ("max_age_s", Seconds),
    ("memory_max", Any),
    ("metric", Metric),
    ("metrics", Section),
    ("mode", Text),
    ("multihop", Any),
    ("multipath", Number),
    ("multipath_weights", Text),
    ("multiplier", Number),
    ("name", Text),
    ("neighbor", Sections),
    ("neighbor_range", Sections),
    ("next_hop", Text),
    ("next_hop_ipv4", Ipv4),
    ("next_hop_ipv6", Ipv6),
    ("next_hops_per_minute", Number),
    ("nexthop_objects", Text),
    ("on_exit", Text),
    ("origin_validation", Text),
    ("own_as_max", Number),
    ("own_tables", Flag),
    ("packets_per_second", Number),
    ("passive", Flag),
    ("password_file", Path),
    ("police_host_traffic", Flag),
    ("port", Port),
    ("ports", List(&Port)),
    ("prefix", Text),
    ("prefix_limit", Sections),
    ("prefix_limit_out", Sections),
    ("privileges", Text),
    ("protocol", Protocol),
    ("protocols", List(&Protocol)),
    ("reconcile", Seconds),
    ("reflectors", Number),
    ("registration_ttl", Seconds),
    ("require_leader", Flag),
    ("restart_after", Seconds),
    ("restart_wait", Seconds),
    ("route-target", Any),
    ("route_protocol", Protocol),
    ("route_reflector_client", Flag),
    ("route_refresh_s", Seconds),
    ("route_table", Table),
    ("router_id", Quad),
    ("secrets", Section),
    ("server_name", Text),
    ("sessions", Number),
    ("socket", Path),
    ("source", Address),
    ("table", Table),
    ("tls", Section),
    ("ttl_security", Any),
    ("username", Text),
    ("users", List(&Text)),
    ("warn", Number),
];
