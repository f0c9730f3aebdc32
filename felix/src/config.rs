//! The configuration file, TOML, and the environment.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use calico_model::GoDuration;
use calico_store::{EtcdOptions, OptionFault, SnapshotOptions};
use daemon_common::config::{Problem, Report, Source, bool_in, integer_in};
use daemon_common::daemon::{LogFormat, host_name};
use daemon_common::metrics::MetricsSection;
use daemon_common::paths;
use fib_sync::{Owner, claim};
use ipnet::IpNet;
use serde::Deserialize;
use toml::Spanned;

use crate::agent::AgentConfig;
pub use crate::bgp_files::BgpFilePaths;
use crate::calc::{Settings, interface_prefixes};
use crate::limits::{
    BGP_FILES_MAX, CONTROL_PORT_EXCEPTIONS_MAX, FLOW_LOG_GROUP, FLOW_RECORDS_PER_SECOND,
    FLOW_RECORDS_PER_SECOND_MAX, HOST_NAME_OCTETS_MAX, ROUTE_METRIC_MAX,
};
use crate::render::PacketLog;
use crate::report::DAEMON;

/// `rtm_protocol` values below this belong to the kernel and the administrator (`RTPROT_STATIC` is
/// 4): their routes would be mistaken for Felix's.
const PROTOCOL_MIN: u8 = 5;

/// The built-in protocol.
const FELIX: Owner = Owner(80);

/// The default protocol of cambric-bgp-client's routes.
const BGP_PROTOCOL: i64 = 119;

const PROTOCOL_HELP: &str = "80, the built-in value, or another number from 5 on that no other \
     program of this host uses: Felix deletes routes of its protocol that no endpoint wants";

mod budgets;
mod changes;
mod cutting;
mod environment;
mod file_settings;
mod parameters;

pub use environment::Environment;

/// The configuration of the daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// The control socket.
    pub control: PathBuf,
    /// Address of the metrics endpoint, if enabled.
    pub metrics: Option<MetricsSection>,
    /// Log level or directives; `None`: the level of the settings.
    pub log: Option<String>,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Connection options of the datastore.
    pub datastore: EtcdOptions,
    /// Where the snapshot of the datastore is stored across a restart, if enabled.
    pub datastore_snapshot: Option<SnapshotOptions>,
    /// The files of this host's BGP daemons, whose ports are closed to workloads.
    pub bgp_files: BgpFilePaths,
    /// The packet log that the flow log uses, if it is enabled.
    pub packet_log: PacketLog,
    /// The tables of the packet filter belong to Felix: no other program changes them.
    pub own_tables: bool,
    /// The configuration of the agent.
    pub agent: AgentConfig,
    /// The path of the file.
    pub path: PathBuf,
    /// Environment variables that look like settings and are ignored.
    pub ignored_variables: Vec<String>,
}

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    hostname: Option<Spanned<String>>,
    #[serde(default = "control")]
    control: PathBuf,
    metrics: Option<MetricsSection>,
    log: Option<Spanned<String>>,
    #[serde(default)]
    log_format: LogFormat,
    interface_prefix: Option<Spanned<Vec<Spanned<String>>>>,
    route_protocol: Option<Spanned<u8>>,
    endpoint_metric: Option<Spanned<u32>>,
    route_table: Option<Spanned<u32>>,
    route_refresh_s: Option<u32>,
    interface_patience_s: Option<u32>,
    #[serde(default)]
    control_port_exceptions: Vec<Spanned<String>>,
    bgp_files: Option<Vec<Spanned<PathBuf>>>,
    #[serde(default)]
    police_host_traffic: bool,
    #[serde(default)]
    budgets: budgets::Table,
    endpoint_status_path_prefix: Option<Spanned<PathBuf>>,
    #[serde(default)]
    cutting: cutting::Table,
    #[serde(default)]
    flow_log: FlowLogTable,
    #[serde(default)]
    own_tables: bool,
    #[serde(default)]
    felix_configuration: file_settings::Table,
    datastore: EtcdOptions,
    datastore_snapshot: Option<SnapshotOptions>,
}

/// The table `[flow_log]` as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowLogTable {
    group: Option<u16>,
    records_per_second: Option<Spanned<u32>>,
}

impl FlowLogTable {
    fn packet_log(&self) -> PacketLog {
        let per_second = self.records_per_second.as_ref();
        PacketLog {
            group: self.group.unwrap_or(FLOW_LOG_GROUP),
            records_per_second: per_second.map_or(FLOW_RECORDS_PER_SECOND, |one| *one.get_ref()),
        }
    }

    fn problem(&self) -> Option<Problem> {
        let written = self.records_per_second.as_ref()?;
        (*written.get_ref() > FLOW_RECORDS_PER_SECOND_MAX).then(|| {
            let message = format!("the limit is above {FLOW_RECORDS_PER_SECOND_MAX}");
            Problem::at(written.span(), message).help("0 means that there is no limit")
        })
    }
}

fn control() -> PathBuf {
    paths::control("felix")
}

/// The built-in level of the log.
pub(crate) const LOG_LEVEL: &str = "info";

impl Config {
    /// Returns the level of the log until the datastore has been read.
    pub(crate) fn first_log_level(&self) -> String {
        let level = || Settings::new(&self.agent.settings).log_level;
        let level = self.log.clone().or_else(level);
        level.unwrap_or_else(|| LOG_LEVEL.to_owned())
    }

    /// Reads a file, and the environment of the process, which overrides it. The configuration is
    /// also checked against the machine: the named files, and other programs.
    ///
    /// # Errors
    ///
    /// All faults, each with its place.
    pub fn read(path: impl Into<PathBuf>) -> Result<Self, Report> {
        Self::check(&Source::read(path.into())?, Environment::of_process(), true)
    }

    /// Parses a text, without an environment.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn of(source: &Source) -> Result<Self, Report> {
        Self::within(source, Environment::default())
    }

    /// Parses a text, with an environment.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn within(source: &Source, environment: Environment) -> Result<Self, Report> {
        Self::check(source, environment, false)
    }

    fn check(source: &Source, environment: Environment, machine: bool) -> Result<Self, Report> {
        let (file, mut problems) = source.examine::<File>();
        let Some(file) = file else {
            return Err(problems.into_report());
        };
        let mut agent = AgentConfig::new(host_name());
        let (settings, wrong) = file_settings::read(&file.felix_configuration);
        for found in [
            take_metric(&file, &mut agent),
            take_files(&file, &mut agent),
        ] {
            found.into_iter().for_each(|problem| problems.push(problem));
        }
        agent.settings = settings.over(&agent.settings);
        wrong.into_iter().for_each(|problem| problems.push(problem));
        for wrong in environment.problems {
            problems.push(Problem::whole(wrong));
        }
        for found in [
            take_name(&file, environment.hostname, &mut agent),
            take_prefixes(&file, &mut agent),
            take_protocol(&file, &mut agent),
            take_table(&file, &mut agent),
            take_exceptions(&file, &mut agent),
            file.budgets.take(&mut agent.budgets),
            file.cutting.take(&mut agent.cut_mark),
            too_many_bgp_files(&file),
            log_problem(&file),
            file.flow_log.problem(),
        ] {
            found.into_iter().for_each(|problem| problems.push(problem));
        }
        if !problems.is_part_lost("datastore") {
            let faults = store_faults(source, &file.datastore, machine);
            faults
                .into_iter()
                .for_each(|problem| problems.push(problem));
        }
        if machine {
            for found in [protocol_clash(source, &agent), missing_bgp_file(&file)] {
                found.into_iter().for_each(|problem| problems.push(problem));
            }
        }
        problems.finish()?;
        let refresh = file.route_refresh_s.map(|s| Duration::from_secs(s.into()));
        agent.settings.route_refresh_interval = refresh.map(GoDuration);
        // A level of the environment overrides that of the file.
        let has_level = !environment.settings.log_severity_screen.is_empty();
        agent.settings = environment.settings.over(&agent.settings);
        agent.police_host_traffic = file.police_host_traffic;
        agent.metrics = file.metrics.map(|metrics| metrics.listen);
        match file.interface_patience_s {
            Some(0) => agent.interface_patience = Duration::MAX,
            Some(seconds) => agent.interface_patience = Duration::from_secs(seconds.into()),
            None => {}
        }
        Ok(Self {
            control: file.control,
            metrics: file.metrics,
            own_tables: file.own_tables,
            log: file.log.filter(|_| !has_level).map(Spanned::into_inner),
            log_format: file.log_format,
            datastore: file.datastore,
            datastore_snapshot: file.datastore_snapshot,
            bgp_files: match file.bgp_files {
                None => BgpFilePaths::Beside(source.path().to_owned()),
                Some(paths) => {
                    BgpFilePaths::Named(paths.into_iter().map(Spanned::into_inner).collect())
                }
            },
            packet_log: file.flow_log.packet_log(),
            agent,
            path: source.path().to_owned(),
            ignored_variables: environment.ignored,
        })
    }
}

fn take_name(file: &File, environment: Option<String>, agent: &mut AgentConfig) -> Option<Problem> {
    let own = file.hostname.as_ref().map(|name| name.get_ref().clone());
    if let Some(name) = environment.or(own) {
        agent.hostname = name;
    }
    let span = file.hostname.as_ref().map_or(0..0, Spanned::span);
    let name = &agent.hostname;
    let fits = (1..=HOST_NAME_OCTETS_MAX).contains(&name.len()) && !name.contains('/');
    (!fits).then(|| {
        Problem::at(span, format!("`{name}` cannot be the name of a host"))
            .help("`hostname` must equal `spec.node` of this host's workload endpoints")
    })
}

fn take_prefixes(file: &File, agent: &mut AgentConfig) -> Option<Problem> {
    let list = file.interface_prefix.as_ref()?;
    let entries: Vec<&str> = list
        .get_ref()
        .iter()
        .map(|entry| entry.get_ref().as_str())
        .collect();
    if entries.is_empty() {
        let problem = Problem::at(list.span(), "`interface_prefix` is empty");
        return Some(problem.help("leave the key out for the built-in `[\"cali\", \"tap\"]`"));
    }
    match interface_prefixes(&entries.join(",")) {
        Ok(prefixes) => agent.settings.interface_prefix = prefixes.join(","),
        Err(reason) => {
            let bad = list
                .get_ref()
                .iter()
                .find(|one| interface_prefixes(one.get_ref()).is_err());
            return Some(Problem::at(
                bad.map_or_else(|| list.span(), Spanned::span),
                reason,
            ));
        }
    }
    None
}

fn take_protocol(file: &File, agent: &mut AgentConfig) -> Option<Problem> {
    let protocol = file.route_protocol.as_ref()?;
    agent.route_protocol = *protocol.get_ref();
    let owner = Owner(agent.route_protocol);
    if owner.0 >= PROTOCOL_MIN && owner != FELIX && owner.name().is_some() {
        let message = format!("`route_protocol` {owner} is another program's");
        return Some(Problem::at(protocol.span(), message).help(PROTOCOL_HELP));
    }
    (agent.route_protocol < PROTOCOL_MIN).then(|| {
        Problem::at(
            protocol.span(),
            format!("`route_protocol` is below {PROTOCOL_MIN}"),
        )
        .help(
            "routes of protocols 0 to 4 are the kernel's and the administrator's; Felix removes \
             routes of its own protocol that no endpoint wants",
        )
    })
}

/// Returns the faults of the datastore's options, and of the files named in them.
fn store_faults(source: &Source, options: &EtcdOptions, files: bool) -> Vec<Problem> {
    let mut faults = options.faults();
    if files {
        faults.extend(options.file_faults());
    }
    let problem = |fault: OptionFault| {
        let mut keys = vec!["datastore"];
        keys.extend(fault.keys);
        Problem::at(source.place_of(&keys, fault.index), fault.message).help(fault.help)
    };
    faults.into_iter().map(problem).collect()
}

/// Returns a problem if another program of this host has routes of the same protocol:
/// cambric-bgp-client according to its file, or any that runs.
fn protocol_clash(source: &Source, agent: &AgentConfig) -> Option<Problem> {
    let owner = Owner(agent.route_protocol);
    let place = source.place_of(&["route_protocol"], None);
    let installs = |path: &PathBuf| bool_in(path, &["kernel", "install"]) != Some(false);
    if let Some(path) = source.beside("bgp-client.toml").filter(installs) {
        let protocol = integer_in(&path, &["kernel", "protocol"]).unwrap_or(BGP_PROTOCOL);
        if protocol == i64::from(owner.0) {
            let message = format!(
                "`route_protocol` {owner} is cambric-bgp-client's: kernel.protocol of {}",
                path.display()
            );
            return Some(Problem::at(place, message).help(PROTOCOL_HELP));
        }
    }
    let holder = claim::holder(owner, DAEMON)?;
    let message = format!("`route_protocol` {owner} is in use by {holder}");
    Some(Problem::at(place, message).help(PROTOCOL_HELP))
}

fn take_metric(file: &File, agent: &mut AgentConfig) -> Option<Problem> {
    let metric = file.endpoint_metric.as_ref()?;
    let value = *metric.get_ref();
    let problem = match value {
        0 => Problem::at(metric.span(), "`endpoint_metric` is 0")
            .help("IPv6 has no metric 0: the kernel makes it 1024; the built-in value is 256"),
        value if value > ROUTE_METRIC_MAX => {
            let message = format!("`endpoint_metric` is above {ROUTE_METRIC_MAX}");
            Problem::at(metric.span(), message)
        }
        value => {
            for field in ["ipv4NormalRoutePriority", "ipv6NormalRoutePriority"] {
                agent
                    .settings
                    .unknown
                    .insert(field.to_owned(), value.into());
            }
            return None;
        }
    };
    Some(problem)
}

fn take_files(file: &File, agent: &mut AgentConfig) -> Option<Problem> {
    let prefix = file.endpoint_status_path_prefix.as_ref()?;
    let path = prefix.get_ref();
    if path.is_relative() && !path.as_os_str().is_empty() {
        let message = format!("`{}` is not an absolute path", path.display());
        let problem = Problem::at(prefix.span(), message);
        return Some(problem.help("write \"\" for no status files of endpoints"));
    }
    let path = path.to_str()?.to_owned();
    let field = "endpointStatusPathPrefix".to_owned();
    agent.settings.unknown.insert(field, path.into());
    None
}

fn take_table(file: &File, agent: &mut AgentConfig) -> Option<Problem> {
    let table = file.route_table.as_ref()?;
    agent.table = *table.get_ref();
    matches!(agent.table, 0 | 255).then(|| {
        let message = format!("`route_table` {} is the kernel's own", agent.table);
        Problem::at(table.span(), message).help("the main table is 254")
    })
}

fn take_exceptions(file: &File, agent: &mut AgentConfig) -> Option<Problem> {
    let list = &file.control_port_exceptions;
    if let Some(beyond) = list.get(CONTROL_PORT_EXCEPTIONS_MAX) {
        let message = format!("more than {CONTROL_PORT_EXCEPTIONS_MAX} exceptions");
        return Some(Problem::at(beyond.span(), message));
    }
    for entry in list {
        let text = entry.get_ref();
        let net = text.parse::<IpNet>();
        let Ok(net) = net.or_else(|_| text.parse::<IpAddr>().map(IpNet::from)) else {
            let message = format!("`{text}` is neither an address nor a range of addresses");
            let problem = Problem::at(entry.span(), message);
            let help = "`control_port_exceptions` lists addresses of workloads: \
                [\"10.65.0.7\", \"fd65::/64\"]";
            return Some(problem.help(help));
        };
        agent.control_port_exceptions.push(net.trunc());
    }
    None
}

fn too_many_bgp_files(file: &File) -> Option<Problem> {
    let beyond = file.bgp_files.as_ref()?.get(BGP_FILES_MAX)?;
    let message = format!("more than {BGP_FILES_MAX} files in `bgp_files`");
    Some(Problem::at(beyond.span(), message))
}

fn missing_bgp_file(file: &File) -> Option<Problem> {
    let mut paths = file.bgp_files.iter().flatten();
    let missing = paths.find(|path| !path.get_ref().is_file())?;
    let message = format!("there is no file {}", missing.get_ref().display());
    let help = "`bgp_files` lists the files of this host's BGP daemons; without the key,         bgp-client.toml and route-reflector.toml are read if they exist";
    Some(Problem::at(missing.span(), message).help(help))
}

fn log_problem(file: &File) -> Option<Problem> {
    let log = file.log.as_ref()?;
    let error = daemon_common::daemon::log_filter(log.get_ref()).err()?;
    Some(Problem::at(log.span(), error.to_string()))
}

#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod secret_tests;
#[cfg(test)]
mod tests;
