//! The client's configuration file: the sections of all BGP daemons, and `[kernel]`.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use bgp_config::{NextHops, Problem, Problems, Source};
use bgp_daemon::Settings;
use fib_sync::watch::{ImportRule, NamePattern};
use fib_sync::{NexthopObjects, Owner, TABLE_MAIN};
use kernel_events::marker;
use serde::Deserialize;
use toml::Spanned;

use crate::limits::{ENDPOINT_METRIC, FORMER_METRICS_MAX};
use crate::protocol;

/// The kernel's local table; no traffic is forwarded by it.
const TABLE_LOCAL: u32 = 255;

/// Default metric of installed routes.
const METRIC_DEFAULT: u32 = 1024;

/// `[kernel]`, in its written form.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KernelSection {
    /// `install`: false for a shadow run.
    pub install: Option<bool>,
    /// `table`: table to install into; next hops are resolved there too.
    pub table: Option<Spanned<u32>>,
    /// `metric`: metric of installed routes.
    pub metric: Option<Spanned<u32>>,
    /// `former_metrics`: further metrics at which a former run installed routes.
    #[serde(default)]
    pub former_metrics: Vec<Spanned<u32>>,
    /// `protocol`: the `rtm_protocol` of installed routes.
    pub protocol: Option<Spanned<u8>>,
    /// `grace`, in seconds.
    pub grace: Option<u32>,
    /// `reconcile`, in seconds, 0 for never.
    pub reconcile: Option<u32>,
    /// `on_exit`.
    pub on_exit: Option<OnExit>,
    /// `nexthop_objects`.
    pub nexthop_objects: Option<NexthopUse>,
    /// `multipath_weights`.
    pub multipath_weights: Option<MultipathWeights>,
    /// `felix`: whether Felix programs this host.
    pub felix: Option<bool>,
    /// `[[kernel.import]]`.
    pub import: Option<Vec<ImportSection>>,
}

/// One `[[kernel.import]]`, in its written form.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportSection {
    /// `protocols`: `rtm_protocol` of imported routes.
    pub protocols: Spanned<Vec<u8>>,
    /// `table`: their table.
    pub table: Option<Spanned<u32>>,
    /// `interfaces`: their outgoing interfaces, as names, or prefixes followed by `*`; any if
    /// absent.
    #[serde(default)]
    pub interfaces: Vec<Spanned<String>>,
}

/// The treatment of installed routes when the daemon is shut down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExit {
    /// They stay, so that traffic continues over a restart.
    #[default]
    Keep,
    /// They are deleted.
    Flush,
}

/// Whether installed routes share nexthop objects of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NexthopUse {
    /// They do where the kernel has nexthop objects.
    Auto,
    /// They have their next hops themselves.
    #[default]
    Off,
}

/// The weights of the next hops of a route with several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MultipathWeights {
    /// All are equal.
    #[default]
    Equal,
    /// By the link bandwidth of the paths, if each has one (RFC 10005).
    LinkBandwidth,
}

impl From<NexthopUse> for NexthopObjects {
    fn from(config: NexthopUse) -> Self {
        match config {
            NexthopUse::Auto => Self::Auto,
            NexthopUse::Off => Self::Off,
        }
    }
}

/// The validated `[kernel]` section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    /// Whether to write to the kernel; otherwise the daemon only compares.
    pub install: bool,
    /// Table to install into.
    pub table: u32,
    /// Metric of installed routes.
    pub metric: u32,
    /// Further metrics at which routes of `owner` belong to a former run.
    pub former_metrics: Vec<u32>,
    /// `rtm_protocol` of installed routes.
    pub owner: Owner,
    /// How long after the start routes of the former process are kept without an announcement.
    pub grace: Duration,
    /// How often the kernel's tables are read without a sign of a difference; zero for never.
    pub reconcile: Duration,
    /// The treatment of installed routes at exit.
    pub on_exit: OnExit,
    /// Whether installed routes share nexthop objects.
    pub nexthop_objects: NexthopUse,
    /// The weights of the next hops of a route.
    pub multipath_weights: MultipathWeights,
    /// Whether this host is ready only when Felix has programmed it; `None` if neither the file nor the
    /// machine has been asked.
    pub felix: Option<bool>,
    /// Which foreign routes are announced.
    pub import: Vec<ImportRule>,
}

impl Default for KernelConfig {
    fn default() -> Self {
        Self {
            install: true,
            table: TABLE_MAIN,
            metric: METRIC_DEFAULT,
            former_metrics: Vec::new(),
            owner: Owner(119),
            grace: Duration::from_secs(120),
            reconcile: Duration::from_secs(60),
            on_exit: OnExit::Keep,
            nexthop_objects: NexthopUse::Off,
            multipath_weights: MultipathWeights::Equal,
            felix: None,
            import: vec![ImportRule::default()],
        }
    }
}

/// A parsed and validated file.
pub type Config = bgp_daemon::Config<KernelConfig>;

impl Settings for KernelConfig {
    type Section = KernelSection;

    const DAEMON: &'static str = "bgp-client";

    const NEXT_HOPS: NextHops = NextHops::Track;

    fn check(section: Option<&KernelSection>, problems: &mut Problems<'_>) -> Self {
        section.map_or_else(Self::default, |section| section.check(problems))
    }

    fn check_machine(&mut self, source: &Source, problems: &mut Problems<'_>) {
        let has_felix = || protocol::has_felix(source);
        self.felix = Some(self.felix.unwrap_or_else(has_felix));
        if !self.install {
            return; // It does not write routes.
        }
        protocol::check_machine(self.owner, source, problems);
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.install {
            notes.push("kernel.install = false: a shadow run, no route is installed".to_owned());
        }
        if self.metric <= ENDPOINT_METRIC {
            notes.push(format!(
                "kernel.metric = {} is not above {ENDPOINT_METRIC}, the metric of workload routes: \
                 a learned route may win over a workload of this host",
                self.metric
            ));
        }
        notes
    }
}

impl KernelConfig {
    /// Returns the tables that are read.
    pub(crate) fn tables(&self) -> Vec<u32> {
        let mut tables = vec![self.table];
        for rule in &self.import {
            if !tables.contains(&rule.table) {
                tables.push(rule.table);
            }
        }
        if self.awaits_felix() && !tables.contains(&marker::TABLE) {
            tables.push(marker::TABLE);
        }
        tables
    }

    /// Returns the tables into which routes are written.
    pub(crate) fn tables_written(&self) -> Vec<u32> {
        let mut tables = vec![self.table];
        tables.extend(self.answers_felix().then_some(marker::TABLE));
        tables
    }

    /// Returns whether marked routes of Felix are answered.
    pub(crate) fn answers_felix(&self) -> bool {
        self.install && self.awaits_felix()
    }

    /// Returns whether this host is ready only when Felix has programmed it.
    pub(crate) fn awaits_felix(&self) -> bool {
        self.felix == Some(true)
    }

    /// Returns the metrics at which a route of `owner` belongs to this daemon, independent of
    /// LOCAL_PREF.
    pub(crate) fn metrics(&self) -> Vec<RangeInclusive<u32>> {
        let mut metrics = vec![self.metric, METRIC_DEFAULT];
        metrics.extend(&self.former_metrics);
        if self.owner == protocol::BIRD {
            metrics.extend(protocol::BIRD_METRICS);
        }
        metrics.sort_unstable();
        metrics.dedup();
        metrics.into_iter().map(|metric| metric..=metric).collect()
    }
}

impl KernelSection {
    /// Validates the section; the result is only usable when `problems` stays empty.
    fn check(&self, problems: &mut Problems<'_>) -> KernelConfig {
        let default = KernelConfig::default();
        let seconds = |value: Option<u32>, default| {
            value.map_or(default, |seconds| Duration::from_secs(seconds.into()))
        };
        let owner = protocol::owner(self.protocol.as_ref(), default.owner, problems);
        let import = match &self.import {
            None => default.import.clone(),
            Some(rules) => rules
                .iter()
                .map(|rule| rule.check(owner, problems))
                .collect(),
        };
        let install = self.install.unwrap_or(default.install);
        if let (true, Some(metric)) = (install, &self.metric) {
            check_metric(metric, problems);
        }
        KernelConfig {
            install,
            table: table(self.table.as_ref(), problems),
            metric: self
                .metric
                .as_ref()
                .map_or(default.metric, |m| *m.get_ref()),
            former_metrics: former_metrics(&self.former_metrics, problems),
            owner,
            grace: seconds(self.grace, default.grace),
            reconcile: seconds(self.reconcile, default.reconcile),
            on_exit: self.on_exit.unwrap_or(default.on_exit),
            nexthop_objects: self.nexthop_objects.unwrap_or(default.nexthop_objects),
            multipath_weights: self.multipath_weights.unwrap_or(default.multipath_weights),
            felix: self.felix,
            import,
        }
    }
}

impl ImportSection {
    fn check(&self, own: Owner, problems: &mut Problems<'_>) -> ImportRule {
        let protocols = self.protocols.get_ref();
        if protocols.is_empty() {
            let problem = Problem::at(self.protocols.span(), "no protocol: nothing is imported")
                .help("Felix uses 80; `ip route` prints the number after `proto`");
            problems.push(problem);
        }
        if protocols.contains(&own.0) {
            let message = format!(
                "protocol {} is kernel.protocol: the daemon would import its \
                own routes",
                own.0
            );
            problems.push(Problem::at(self.protocols.span(), message));
        }
        let mut interfaces = Vec::new();
        for pattern in &self.interfaces {
            match pattern.get_ref().parse::<NamePattern>() {
                Ok(parsed) => interfaces.push(parsed),
                Err(error) => problems.push(Problem::at(pattern.span(), error.to_string())),
            }
        }
        let table = table(self.table.as_ref(), problems);
        ImportRule::new(protocols.clone(), table, interfaces)
    }
}

fn table(table: Option<&Spanned<u32>>, problems: &mut Problems<'_>) -> u32 {
    let Some(table) = table else {
        return TABLE_MAIN;
    };
    let (number, span) = (*table.get_ref(), table.span());
    if number == 0 || number == TABLE_LOCAL {
        problems.push(bad(
            span,
            format!("table {number} is not one for routes"),
            "254 is the main table",
        ));
    }
    number
}

/// Checks the metric of installed routes. A shadow run may compare with routes without a metric.
fn check_metric(metric: &Spanned<u32>, problems: &mut Problems<'_>) {
    if *metric.get_ref() == 0 {
        let message = "metric 0 means another metric in IPv6".to_owned();
        problems.push(bad(
            metric.span(),
            message,
            "any other number; 1024 is the default",
        ));
    }
}

/// Checks the metrics of a former run. With the metric of Felix's routes, the daemon would treat
/// those as its own.
fn former_metrics(given: &[Spanned<u32>], problems: &mut Problems<'_>) -> Vec<u32> {
    if let Some(first) = given.get(FORMER_METRICS_MAX) {
        let message = format!("more than {FORMER_METRICS_MAX} former metrics");
        problems.push(Problem::at(first.span(), message));
    }
    for metric in given {
        if *metric.get_ref() == ENDPOINT_METRIC {
            let message = format!("metric {ENDPOINT_METRIC} is that of Felix's routes");
            problems.push(bad(
                metric.span(),
                message,
                "delete routes of a former run at that metric with `ip route del`",
            ));
        }
    }
    given.iter().map(|metric| *metric.get_ref()).collect()
}

fn bad(span: Range<usize>, message: String, help: &'static str) -> Problem {
    Problem::at(span, message).help(help)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use bgp_config::Report;

    use super::*;

    const HEAD: &str = "asn = 64512\nrouter_id = \"10.0.0.11\"\n";

    fn parse(text: &str) -> Result<Config, Report> {
        Config::parse(&Source::new("client.toml", format!("{HEAD}{text}")))
    }

    fn refusal(text: &str) -> String {
        parse(text).expect_err("refused").to_string()
    }

    #[test]
    fn defaults_are_felix_and_the_main_table() {
        let config = parse("").unwrap();
        assert_eq!(config.settings, KernelConfig::default());
        assert_eq!(config.settings.tables(), [254]);
        assert!(config.notes().is_empty());
        assert_eq!(
            config.control(),
            PathBuf::from("/run/cambric-bgp-client/bgp-client.sock")
        );
    }

    #[test]
    fn every_key_of_the_section_counts() {
        let config = parse(
            "[kernel]\ninstall = false\ntable = 1000\nmetric = 200\nformer_metrics = [7, 9]\nprotocol = 12\ngrace = 5\n\
             reconcile = 0\non_exit = \"flush\"\nnexthop_objects = \"auto\"\nmultipath_weights = \"link-bandwidth\"\nfelix = true\n[[kernel.import]]\nprotocols = [80]\ntable = 7\n\
             interfaces = [\"veth*\", \"eth1\"]\n",
        );
        let KernelConfig {
            install,
            table,
            metric,
            former_metrics,
            owner,
            grace,
            reconcile,
            on_exit,
            nexthop_objects,
            multipath_weights,
            felix,
            import,
        } = config.as_ref().unwrap().settings.clone();
        assert_eq!(
            (install, table, metric, owner),
            (false, 1000, 200, Owner(12))
        );
        assert_eq!((grace, reconcile), (Duration::from_secs(5), Duration::ZERO));
        assert_eq!(former_metrics, [7, 9]);
        assert_eq!(multipath_weights, MultipathWeights::LinkBandwidth);
        assert_eq!(
            (on_exit, nexthop_objects),
            (OnExit::Flush, NexthopUse::Auto)
        );
        assert_eq!(felix, Some(true));
        assert_eq!((import.len(), import[0].table), (1, 7));
        assert_eq!(import[0].interfaces[0].to_string(), "veth*");
        let config = config.unwrap();
        assert_eq!(config.settings.tables(), [1000, 7, marker::TABLE]);
        let notes = config.notes().join("\n");
        assert!(
            notes.contains("shadow run") && notes.contains("not above 256"),
            "{notes}"
        );
    }

    #[test]
    fn routes_at_other_metrics_are_foreign() {
        let metrics = |kernel: &str| {
            let metrics = parse(kernel).unwrap().settings.metrics();
            metrics
                .iter()
                .map(|range| *range.start())
                .collect::<Vec<_>>()
        };
        assert_eq!(metrics(""), [1024]);
        assert_eq!(
            metrics("[kernel]\nmetric = 7\nformer_metrics = [9, 7]\n"),
            [7, 9, 1024]
        );
        assert_eq!(metrics("[kernel]\nprotocol = 12\n"), [0, 32, 1024]);
        let report = refusal("[kernel]\nformer_metrics = [9, 256]\n");
        assert!(report.contains("client.toml:4:22"), "{report}");
        assert!(report.contains("that of Felix's routes"), "{report}");
    }

    #[test]
    fn a_shadow_run_compares_with_routes_without_a_metric() {
        let config = parse("[kernel]\ninstall = false\nmetric = 0\n").unwrap();
        assert_eq!(config.settings.metric, 0);
    }

    #[test]
    fn an_empty_import_list_announces_nothing() {
        let config = parse("[kernel]\nimport = []\n").unwrap();
        assert!(config.settings.import.is_empty());
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        let text = refusal("[kernel]\nmetrik = 5\n");
        assert!(
            text.contains("client.toml:4") && text.contains("metric"),
            "{text}"
        );
        for (key, expected) in [
            ("metric = 0", "metric 0 means another metric"),
            ("protocol = 2", "2 (kernel) is the system's own"),
            ("table = 255", "table 255 is not one for routes"),
            (
                "import = [{ protocols = [119] }]",
                "protocol 119 is kernel.protocol",
            ),
            ("import = [{ protocols = [] }]", "nothing is imported"),
            (
                "import = [{ protocols = [80], interfaces = [\"a*b\"] }]",
                "only at the end",
            ),
            ("on_exit = \"drop\"", "on_exit"),
        ] {
            let text = refusal(&format!("[kernel]\n{key}\n"));
            assert!(
                text.contains(expected) && text.contains("client.toml:4"),
                "{key}: {text}"
            );
        }
    }

    #[test]
    fn the_packaged_file_shows_defaults_and_examples_that_are_right() {
        let packaged = include_str!("../../packaging/etc/bgp-client.toml");
        let read = |text: &str| Config::parse(&Source::new("bgp-client.toml", text));
        let intent = |config: &Config| config.intent().expect("all in the file").clone();
        let plain = read(packaged).unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(plain.settings, KernelConfig::default());
        let stored = read(&daemon_common::config::alternative(packaged));
        let stored = stored.unwrap_or_else(|report| panic!("{report}"));
        assert!(stored.intent().is_none(), "it is in the datastore");
        assert!(stored.file.secrets.is_some() && stored.file.datastore_snapshot.is_some());
        let all = daemon_common::config::uncommented(packaged);
        let all = read(&all).unwrap_or_else(|report| panic!("{report}\n{all}"));
        assert_eq!(all.settings, plain.settings);
        assert_eq!(all.control(), plain.control());
        assert_eq!(intent(&all).restart_wait, intent(&plain).restart_wait);
        assert_eq!(
            intent(&all).speaker.families,
            intent(&plain).speaker.families
        );
        assert_eq!(intent(&all).speaker.peers.len(), 2);
    }

    #[test]
    fn the_page_on_moving_from_calico_is_right() {
        let manual = include_str!("../../docs/operate/migrate.md");
        let mut examples = manual.split("```toml\n").skip(1);
        let mut next = || {
            let example = examples.next().and_then(|rest| rest.split("```").next());
            let source = Source::new("manual.toml", example.expect("an example"));
            Config::parse(&source).unwrap_or_else(|report| panic!("{report}"))
        };
        let (stored, config) = (next(), next());
        assert!(stored.intent().is_none());
        assert_eq!(stored.settings, config.settings);
        assert_eq!(config.settings.owner, Owner(12));
        let intent = config.intent().expect("all in the file");
        assert_eq!(intent.speaker.peers[0].name, "Mesh_10_0_0_2");
    }

    #[test]
    fn the_page_about_the_store_is_right() {
        let page = include_str!("../../docs/operate/bgp-resources.md");
        let examples = page.split("```toml\n").skip(1);
        let examples = examples.filter_map(|rest| rest.split("```").next());
        let read = |text: &str| Config::parse(&Source::new("page.toml", text));
        for text in examples {
            let config = read(text).unwrap_or_else(|report| panic!("{report}"));
            assert!(config.intent().is_none(), "it is in the datastore");
        }
        let stored = |key: &str| {
            format!("hostname = \"a\"\n{key}\n[datastore]\nendpoints = [\"http://s:2379\"]\n")
        };
        assert!(read(&stored("absence_wait = 5")).is_ok());
        for (key, expected) in [
            ("absence_wait = 4000", "at most 3600 seconds"),
            ("registration_ttl = 15", "registers nowhere"),
        ] {
            let report = read(&stored(key)).expect_err("refused").to_string();
            assert!(
                report.contains("page.toml:2") && report.contains(expected),
                "{report}"
            );
        }
        // Keys that the datastore determines are rejected in the file.
        let twice = "hostname = \"a\"\nasn = 1\n[datastore]\nendpoints = [\"http://s:2379\"]\n";
        let report = read(twice).expect_err("refused").to_string();
        assert!(
            report.contains("page.toml:2") && report.contains("comes from the store"),
            "{report}"
        );
    }

    #[test]
    fn reflectors_key_requires_a_datastore() {
        let read = |head: &str, count: u16, rest: &str| {
            let text = format!("{head}reflectors = {count}\n{rest}");
            Config::parse(&Source::new("client.toml", text))
        };
        let store = "[datastore]\nendpoints = [\"http://s:2379\"]\n";
        let good = read("", 3, store).unwrap_or_else(|report| panic!("{report}"));
        let Some(host) = good.host else {
            panic!("it is in the datastore");
        };
        assert_eq!((host.reflectors, host.reflects), (Some(3), false));
        for (head, count, rest, expected) in [
            ("", 0, store, "reflectors is from 1 to 8"),
            ("", 9, store, "reflectors is from 1 to 8"),
            (HEAD, 2, "", "no [datastore] is given"),
        ] {
            let report = read(head, count, rest).expect_err("refused").to_string();
            let line = head.lines().count() + 1;
            let place = format!("client.toml:{line}:14");
            assert!(
                report.contains(expected) && report.contains(&place),
                "{report}"
            );
        }
    }

    #[test]
    fn the_page_of_the_manual_is_right() {
        let manual = include_str!("../../docs/operate/bgp-client.md");
        let examples = manual.split("```toml\n").skip(1);
        let mut examples = examples.filter_map(|rest| rest.split("```").next());
        let mut next = || {
            let source = Source::new("manual.toml", examples.next().expect("an example"));
            Config::parse(&source).unwrap_or_else(|report| panic!("{report}"))
        };
        let (config, classic) = (next(), next());
        assert_eq!(config.settings, KernelConfig::default());
        let peer =
            |config: &Config| config.intent().expect("all in the file").speaker.peers[0].clone();
        assert_eq!(peer(&config).name, "rr1");
        assert!(config.notes().is_empty(), "{:?}", config.notes());
        assert_eq!(peer(&classic).next_hop, bgp_io::rib::NextHopMode::Own);
        assert_eq!(classic.settings.import[0].interfaces.len(), 3);
    }
}
