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
mod tests;
