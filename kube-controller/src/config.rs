//! The configuration file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use calico_store::{CalicoEtcd, EtcdOptions, OptionFault};
use daemon_common::config::{Problem, Report, Source};
use daemon_common::daemon::{LogFormat, chance, host_name, log_filter};
use daemon_common::metrics::MetricsSection;
use daemon_common::paths;
use serde::Deserialize;
use toml::Spanned;

use kube_client::{
    Access, AccessError, Credential, Kubeconfig, Overrides, Trust, cluster_access, is_pod,
    own_namespace,
};

use crate::lease::LeaseName;
use crate::limits::NAME_CHARACTERS_MAX;
use crate::settings::Variables;

/// The name of the program.
pub const DAEMON: &str = "cambric-kube";

/// The default of the lease's namespace outside of a pod.
const LEASE_NAMESPACE: &str = "kube-system";

/// The variable of calico-kube-controllers with the path of a kubeconfig.
const KUBECONFIG: &str = "KUBECONFIG";

/// The configuration of the daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The path of the file.
    pub path: PathBuf,
    /// The control socket.
    pub control: PathBuf,
    /// Address of the metrics endpoint, if enabled.
    pub metrics: Option<MetricsSection>,
    /// Log level or directives.
    pub log: String,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// Connection options of the datastore.
    pub datastore: EtcdOptions,
    /// The API server.
    pub access: Access,
    /// The lease of the replicas; `None`: this is the only one.
    pub lease: Option<LeaseName>,
    /// The variables of calico-kube-controllers.
    pub variables: Variables,
}

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "control")]
    control: PathBuf,
    metrics: Option<MetricsSection>,
    #[serde(default = "log")]
    log: Spanned<String>,
    #[serde(default)]
    log_format: LogFormat,
    datastore: Option<EtcdOptions>,
    #[serde(default)]
    kubernetes: ServerTable,
    lease: Option<LeaseTable>,
}

/// The table `[lease]` as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaseTable {
    enabled: Option<bool>,
    namespace: Option<Spanned<String>>,
    name: Option<Spanned<String>>,
}

/// The table `[kubernetes]` as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerTable {
    kubeconfig: Option<PathBuf>,
    server: Option<String>,
    ca_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
}

fn control() -> PathBuf {
    paths::control("kube")
}

fn log() -> Spanned<String> {
    Spanned::new(0..0, "info".to_owned())
}

impl Config {
    /// Reads and checks a file. The API server of a pod is that of its environment.
    ///
    /// # Errors
    ///
    /// Every mistake found, with its place.
    pub fn read(path: &Path) -> Result<Self, Report> {
        let variable = |name: &str| std::env::var(name).ok();
        let mut config = Self::check(&Source::read(path)?, variable, true)?;
        config.variables = Variables::read();
        Ok(config)
    }

    /// Checks a text, outside a pod.
    ///
    /// # Errors
    ///
    /// Every mistake found, with its place.
    pub fn parse(source: &Source) -> Result<Self, Report> {
        Self::check(source, |_| None, false)
    }

    fn check(
        source: &Source,
        variable: impl Fn(&str) -> Option<String>,
        files: bool,
    ) -> Result<Self, Report> {
        let (file, mut problems) = source.examine::<File>();
        let Some(file) = file else {
            return Err(problems.into_report());
        };
        if let Err(error) = log_filter(file.log.get_ref()) {
            problems.push(Problem::at(file.log.span(), error.to_string()));
        }
        let is_of_file = file.datastore.is_some();
        let of_variables = || CalicoEtcd::of_variables(&variable).options();
        let datastore = file.datastore.map_or_else(of_variables, Ok);
        let datastore = match datastore {
            Ok(datastore) => Some(datastore),
            Err(fault) => {
                let message = format!("`datastore` is missing: {fault}");
                problems.push(Problem::at(0..0, message));
                None
            }
        };
        let mut faults = datastore
            .as_ref()
            .map_or_else(Vec::new, EtcdOptions::faults);
        if let Some(datastore) = datastore.as_ref().filter(|_| files) {
            faults.extend(datastore.file_faults());
        }
        let problem = |fault: OptionFault| {
            let mut keys = vec!["datastore"];
            keys.extend(fault.keys);
            let (place, message) = match is_of_file {
                true => (source.place_of(&keys, fault.index), fault.message),
                false => (0..0, format!("variables ETCD_…: {}", fault.message)),
            };
            Problem::at(place, message).help(fault.help)
        };
        for problem in faults.into_iter().map(problem) {
            problems.push(problem);
        }
        let lease = match lease(file.lease, is_pod(&variable), files) {
            Ok(lease) => lease,
            Err((span, message)) => {
                problems.push(Problem::at(span, message));
                None
            }
        };
        let kubeconfig = file.kubernetes.kubeconfig(&variable);
        let access = match access(file.kubernetes, kubeconfig.as_deref(), variable) {
            Ok(access) => Some(access),
            Err((key, message)) => {
                let place = source.place_of(&["kubernetes", key], None);
                problems.push(Problem::at(place, message));
                None
            }
        };
        let read = access.iter().filter(|_| files);
        for (field, message) in read.flat_map(Access::faults) {
            // A line with a token is never quoted, so the place is the table.
            let (keys, message) = match (field, &kubeconfig) {
                (field, Some(file)) => {
                    let message = format!("{}: {field}: {message}", file.display());
                    (vec!["kubernetes", "kubeconfig"], message)
                }
                ("token", None) => (vec!["kubernetes"], format!("token_file: {message}")),
                ("ca", None) => (vec!["kubernetes", "ca_file"], message),
                ("cert", None) => (vec!["kubernetes", "cert_file"], message),
                ("key", None) => (vec!["kubernetes", "key_file"], message),
                (field, None) => (vec!["kubernetes", field], message),
            };
            problems.push(Problem::at(source.place_of(&keys, None), message));
        }
        problems.finish()?;
        let (Some(access), Some(datastore)) = (access, datastore) else {
            // `finish` has returned the problem.
            return Err(source.report(Vec::new()));
        };
        Ok(Self {
            path: source.path().to_owned(),
            control: file.control,
            metrics: file.metrics,
            log: file.log.into_inner(),
            log_format: file.log_format,
            datastore,
            access,
            lease,
            variables: Variables::default(),
        })
    }

    fn lease_name(&self) -> Option<(&str, &str)> {
        let lease = self.lease.as_ref();
        lease.map(|lease| (lease.namespace.as_str(), lease.name.as_str()))
    }

    /// Returns the keys that differ. All of them require a restart.
    #[must_use]
    pub fn changed_keys(&self, new: &Self) -> Vec<&'static str> {
        let differs = [
            ("control", self.control != new.control),
            ("metrics", self.metrics != new.metrics),
            ("log", self.log != new.log),
            ("log_format", self.log_format != new.log_format),
            ("datastore", self.datastore != new.datastore),
            ("kubernetes", self.access != new.access),
            ("lease", self.lease_name() != new.lease_name()),
        ];
        let changed = differs.iter().filter(|(_, differs)| *differs);
        changed.map(|(key, _)| *key).collect()
    }
}

/// Returns the lease of the replicas: that of the table, or in a pod also without one. Its namespace is
/// that of the pod, if `files` are read.
fn lease(
    table: Option<LeaseTable>,
    is_pod: bool,
    files: bool,
) -> Result<Option<LeaseName>, (Range<usize>, String)> {
    let is_default = table.is_some() || is_pod;
    let table = table.unwrap_or_default();
    let valid = |name: Option<Spanned<String>>| match name {
        Some(name) if !is_object_name(name.get_ref()) => {
            let message = format!(
                "a name of Kubernetes has 1 to {NAME_CHARACTERS_MAX} of the characters a-z, 0-9, - and ."
            );
            Err((name.span(), message))
        }
        name => Ok(name.map(Spanned::into_inner)),
    };
    let (namespace, name) = (valid(table.namespace)?, valid(table.name)?);
    if !table.enabled.unwrap_or(is_default) {
        return Ok(None);
    }
    let of_pod = || {
        let found = own_namespace().filter(|_| files && is_pod);
        found.filter(|text| is_object_name(text))
    };
    let namespace = namespace.or_else(of_pod);
    Ok(Some(LeaseName {
        namespace: namespace.unwrap_or_else(|| LEASE_NAMESPACE.to_owned()),
        name: name.unwrap_or_else(|| DAEMON.to_owned()),
        // Two processes of one host have different identities, and so has a process that was restarted.
        identity: format!("{}_{:016x}", host_name(), chance()),
    }))
}

fn is_object_name(name: &str) -> bool {
    let fits =
        |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || b"-.".contains(&octet);
    (1..=NAME_CHARACTERS_MAX).contains(&name.len())
        && name.bytes().all(fits)
        && !name.starts_with(['-', '.'])
        && !name.ends_with(['-', '.'])
        && !name.contains("..")
}

impl ServerTable {
    /// Returns the path of the kubeconfig: that of the key, or without a server that of the environment.
    fn kubeconfig(&self, variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
        let of_environment = || {
            let path = variable(KUBECONFIG).filter(|path| !path.is_empty());
            path.filter(|_| self.server.is_none()).map(PathBuf::from)
        };
        self.kubeconfig.clone().or_else(of_environment)
    }

    /// Returns the first key that a kubeconfig replaces.
    const fn replaced(&self) -> Option<&'static str> {
        match self {
            Self {
                server: Some(_), ..
            } => Some("server"),
            Self {
                ca_file: Some(_), ..
            } => Some("ca_file"),
            Self {
                token_file: Some(_),
                ..
            } => Some("token_file"),
            Self {
                cert_file: Some(_), ..
            } => Some("cert_file"),
            Self {
                key_file: Some(_), ..
            } => Some("key_file"),
            _ => None,
        }
    }
}

/// Returns the access to the API server; or the key of the table and its mistake.
fn access(
    table: ServerTable,
    kubeconfig: Option<&Path>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Access, (&'static str, String)> {
    if let Some(file) = kubeconfig {
        if let Some(key) = table.replaced() {
            let message = format!("`{key}`: the kubeconfig {} has it", file.display());
            return Err((key, message));
        }
        let read = Kubeconfig::read(file);
        let access = read.and_then(|read| read.access(&Overrides::default()));
        return access.map_err(|error| ("kubeconfig", error.to_string()));
    }
    let trust = Trust {
        ca: table.ca_file.map(Credential::File),
        token: table.token_file.map(Credential::File),
        cert: table.cert_file.map(Credential::File),
        key: table.key_file.map(Credential::File),
        server_name: None,
    };
    let access = match table.server {
        Some(url) => Access::new(&url, trust).map(Some),
        None => cluster_access(variable, trust),
    };
    match access {
        Ok(Some(access)) => Ok(access),
        Ok(None) => {
            let message =
                "`kubernetes.server` or `kubeconfig` is missing, and this is no pod of Kubernetes";
            Err(("server", message.to_owned()))
        }
        Err(error) => {
            let key = match error {
                AccessError::Form => "server",
                AccessError::PlainToken => "token_file",
                AccessError::NoAuthority => "ca_file",
                AccessError::Pair => "cert_file",
            };
            Err((key, format!("`{key}`: {error}")))
        }
    }
}

#[cfg(test)]
mod tests;
