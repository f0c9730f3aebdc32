//! The effect of a reload on each key of the file: the operators' page is checked against this
//! table.

use serde_json::Value;

use super::Config;

/// The effect of a changed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It is applied by a reload.
    Applied,
    /// The old value stays in effect until the daemon is restarted.
    Restart,
}

/// A key of the file.
struct Key {
    name: &'static str,
    effect: Effect,
    /// Whether two configurations differ in it.
    differs: fn(&Config, &Config) -> bool,
}

const fn applied(name: &'static str, differs: fn(&Config, &Config) -> bool) -> Key {
    let effect = Effect::Applied;
    Key {
        name,
        effect,
        differs,
    }
}

const fn restart(name: &'static str, differs: fn(&Config, &Config) -> bool) -> Key {
    let effect = Effect::Restart;
    Key {
        name,
        effect,
        differs,
    }
}

/// Every key of the file.
const KEYS: [Key; 22] = [
    restart("hostname", |a, b| a.agent.hostname != b.agent.hostname),
    restart("control", |a, b| a.control != b.control),
    restart("log", |a, b| a.log != b.log),
    restart("log_format", |a, b| a.log_format != b.log_format),
    restart("metrics", |a, b| a.metrics != b.metrics),
    applied("interface_prefix", |a, b| {
        a.agent.settings.interface_prefix != b.agent.settings.interface_prefix
    }),
    restart("route_protocol", |a, b| {
        a.agent.route_protocol != b.agent.route_protocol
    }),
    applied("endpoint_metric", has_other_metric),
    restart("route_table", |a, b| a.agent.table != b.agent.table),
    applied("route_refresh_s", |a, b| {
        a.agent.settings.route_refresh_interval != b.agent.settings.route_refresh_interval
    }),
    applied("interface_patience_s", |a, b| {
        a.agent.interface_patience != b.agent.interface_patience
    }),
    applied("control_port_exceptions", |a, b| {
        a.agent.control_port_exceptions != b.agent.control_port_exceptions
    }),
    applied("bgp_files", |a, b| a.bgp_files != b.bgp_files),
    applied("police_host_traffic", |a, b| {
        a.agent.police_host_traffic != b.agent.police_host_traffic
    }),
    applied("budgets", |a, b| a.agent.budgets != b.agent.budgets),
    applied("flow_log", |a, b| a.packet_log != b.packet_log),
    applied("cutting", |a, b| a.agent.cut_mark != b.agent.cut_mark),
    restart("own_tables", |a, b| a.own_tables != b.own_tables),
    applied("endpoint_status_path_prefix", |a, b| {
        unknown(a, STATUS_FILES) != unknown(b, STATUS_FILES)
    }),
    restart("datastore", |a, b| a.datastore != b.datastore),
    restart("datastore_snapshot", |a, b| {
        a.datastore_snapshot != b.datastore_snapshot
    }),
    applied("felix_configuration", |a, b| {
        let mut settings = a.agent.settings.clone();
        let new = &b.agent.settings;
        // Settings with a key of their own.
        settings.interface_prefix.clone_from(&new.interface_prefix);
        settings.route_refresh_interval = new.route_refresh_interval;
        let mut own = vec![STATUS_FILES];
        if has_other_metric(a, b) {
            own.extend(METRICS);
        }
        for field in own {
            match new.unknown.get(field) {
                Some(value) => settings.unknown.insert(field.to_owned(), value.clone()),
                None => settings.unknown.remove(field),
            };
        }
        settings != *new
    }),
];

/// The field with the directory of status files, which has a key of its own.
const STATUS_FILES: &str = "endpointStatusPathPrefix";

/// The fields that `endpoint_metric` sets.
const METRICS: [&str; 2] = ["ipv4NormalRoutePriority", "ipv6NormalRoutePriority"];

fn has_other_metric(a: &Config, b: &Config) -> bool {
    METRICS
        .iter()
        .all(|field| unknown(a, field) != unknown(b, field))
}

/// Returns the value of a setting that the data model leaves unparsed.
fn unknown<'c>(config: &'c Config, field: &str) -> Option<&'c Value> {
    config.agent.settings.unknown.get(field)
}

impl Config {
    /// Returns the keys in which another configuration differs, and that a reload applies.
    pub(crate) fn applied_keys(&self, new: &Self) -> Vec<&'static str> {
        self.keys(new, Effect::Applied)
    }

    /// Returns the keys in which another configuration differs, and that require a restart.
    pub(crate) fn restart_keys(&self, new: &Self) -> Vec<&'static str> {
        self.keys(new, Effect::Restart)
    }

    fn keys(&self, new: &Self, effect: Effect) -> Vec<&'static str> {
        let changed = KEYS
            .iter()
            .filter(|key| key.effect == effect && (key.differs)(self, new));
        changed.map(|key| key.name).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use daemon_common::config::Source;

    use super::super::File;
    use super::*;

    const PAGE: &str = include_str!("../../../docs/operate/felix.md");

    fn names(of: impl IntoIterator<Item = impl Into<String>>) -> BTreeSet<String> {
        of.into_iter().map(Into::into).collect()
    }

    fn all() -> BTreeSet<String> {
        names(KEYS.iter().map(|key| key.name))
    }

    #[test]
    fn every_key_of_the_file_has_an_effect() {
        let error = toml::from_str::<File>("nonsense = 1\n").expect_err("no such key");
        let message = error.message().to_owned();
        let (_, listed) = message.split_once("expected one of ").expect("a list");
        let listed = listed.split(", ").map(|name| name.trim_matches('`'));
        assert_eq!(names(listed), all());
    }

    #[test]
    fn effects_of_keys_are_documented() {
        let (_, section) = PAGE.split_once("\n## Reload\n").expect("the section");
        let rows = section.lines().skip_while(|line| !line.starts_with('|'));
        let rows = rows.skip(2).take_while(|line| line.starts_with('|'));
        let effect = |name: &str| {
            KEYS.iter()
                .find(|key| key.name == name)
                .map(|key| key.effect)
        };
        let mut documented = BTreeSet::new();
        for row in rows {
            let (keys, what) = row.trim_matches('|').split_once('|').expect("two cells");
            let wanted = match what.trim().starts_with("requires a restart") {
                true => Effect::Restart,
                false => Effect::Applied,
            };
            for key in keys.split(',').map(|key| key.trim().trim_matches('`')) {
                assert_eq!(effect(key), Some(wanted), "{key}");
                documented.insert(key.to_owned());
            }
        }
        assert_eq!(documented, all());
    }

    #[test]
    fn changed_key_is_named_alone() {
        let store = "[datastore]\nendpoints = [\"http://10.0.0.254:2379\"]\n";
        let read = |text: String| Config::of(&Source::new("felix.toml", text)).unwrap();
        let before = read(store.to_owned());
        let lines = [
            "hostname = \"other\"",
            "control = \"/tmp/other.sock\"",
            "log = \"debug\"",
            "log_format = \"json\"",
            "metrics.listen = \"127.0.0.1:9091\"",
            "interface_prefix = [\"tap\"]",
            "route_protocol = 81",
            "endpoint_metric = 100",
            "route_table = 10",
            "route_refresh_s = 7",
            "interface_patience_s = 7",
            "control_port_exceptions = [\"10.65.0.7\"]",
            "bgp_files = []",
            "police_host_traffic = true",
            "budgets.connections = 7",
            "cutting.enabled = true",
            "flow_log.group = 7",
            "own_tables = true",
            "endpoint_status_path_prefix = \"/tmp/other\"",
            "datastore_snapshot.file = \"/tmp/other.snapshot\"",
            "felix_configuration.reportingInterval = \"7s\"",
        ];
        let mut seen = BTreeSet::new();
        let mut check = |after: Config, key: &'static str| {
            let mut named = before.restart_keys(&after);
            named.extend(before.applied_keys(&after));
            assert_eq!(named, [key]);
            seen.insert(key.to_owned());
        };
        for line in lines {
            let name = line.split([' ', '.']).next().unwrap();
            let key = KEYS.iter().find(|key| key.name == name).unwrap();
            check(read(format!("{line}\n{store}")), key.name);
        }
        check(read(store.replace("254", "253")), "datastore");
        assert_eq!(seen, all());
    }
}
