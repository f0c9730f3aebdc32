//! The configuration file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use calico_store::{EtcdOptions, OptionFault};
use daemon_common::config::{Problem, Report, Source};
use daemon_common::daemon::{LogFormat, chance, host_name, log_filter};
use daemon_common::metrics::MetricsSection;
use daemon_common::paths;
use serde::Deserialize;
use toml::Spanned;

use kube_client::{Access, AccessError, Credential, Trust, cluster_access, is_pod, own_namespace};

use crate::lease::LeaseName;
use crate::limits::NAME_CHARACTERS_MAX;
use crate::settings::Variables;

/// The name of the program.
pub const DAEMON: &str = "cambric-kube";

/// The default of the lease's namespace outside of a pod.
const LEASE_NAMESPACE: &str = "kube-system";

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
    datastore: EtcdOptions,
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
        let mut faults = file.datastore.faults();
        if files {
            faults.extend(file.datastore.file_faults());
        }
        let problem = |fault: OptionFault| {
            let mut keys = vec!["datastore"];
            keys.extend(fault.keys);
            Problem::at(source.place_of(&keys, fault.index), fault.message).help(fault.help)
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
        let access = match access(file.kubernetes, variable) {
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
            let (keys, message) = match field {
                "token" => (vec!["kubernetes"], format!("token_file: {message}")),
                "ca" => (vec!["kubernetes", "ca_file"], message),
                "cert" => (vec!["kubernetes", "cert_file"], message),
                "key" => (vec!["kubernetes", "key_file"], message),
                field => (vec!["kubernetes", field], message),
            };
            problems.push(Problem::at(source.place_of(&keys, None), message));
        }
        problems.finish()?;
        let Some(access) = access else {
            // `finish` has returned the problem.
            return Err(source.report(Vec::new()));
        };
        Ok(Self {
            path: source.path().to_owned(),
            control: file.control,
            metrics: file.metrics,
            log: file.log.into_inner(),
            log_format: file.log_format,
            datastore: file.datastore,
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

/// Returns the access to the API server; or the key of the table and its mistake.
fn access(
    table: ServerTable,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Access, (&'static str, String)> {
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
            let message = "`kubernetes.server` is missing, and this is no pod of Kubernetes";
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
mod tests {
    use daemon_common::config::uncommented;

    use super::*;

    const STORE: &str = "[datastore]\nendpoints = [\"http://10.0.0.1:2379\"]\n";

    fn parse(text: &str) -> Result<Config, Report> {
        Config::parse(&Source::new("kube.toml", text))
    }

    /// Returns a variable of the environment of a pod.
    fn of_pod(name: &str) -> Option<String> {
        let text = match name.ends_with("HOST") {
            true => "10.96.0.1",
            false => "443",
        };
        Some(text.to_owned())
    }

    #[test]
    fn packaged_file_is_valid_and_shows_every_key() {
        const PACKAGED: &str = include_str!("../../packaging/etc/kube.toml");
        let shown = parse(&uncommented(PACKAGED)).expect("valid");
        assert_eq!(shown.control, control());
        assert!(shown.metrics.is_some(), "an example");
        for key in ["server", "ca_file", "token_file", "cert_file", "key_file"] {
            assert!(PACKAGED.contains(&format!("{key} = ")), "{key}");
        }
    }

    #[test]
    fn server_of_a_pod_is_in_its_environment() {
        let source = Source::new("kube.toml", STORE);
        let config = Config::check(&source, of_pod, false).expect("valid");
        assert_eq!(config.access.authority(), "10.96.0.1:443");
        let lease = config.lease.expect("pods have a lease");
        assert_eq!(lease.to_string(), "kube-system/cambric-kube");
        assert!(parse(STORE).is_err(), "no server");
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        for (server, place) in [
            ("server = \"10.0.0.1\"", "kube.toml:4"),
            ("server = \"https://10.0.0.1\"", "ca_file"),
            (
                "server = \"http://10.0.0.1\"\ntoken_file = \"/t\"",
                "kube.toml:5",
            ),
            ("sever = \"http://10.0.0.1\"", "kube.toml:4"),
        ] {
            let text = format!("{STORE}[kubernetes]\n{server}\n");
            let report = parse(&text).expect_err(server).to_string();
            assert!(report.contains(place), "{report}");
        }
        let report = parse("[datastore]\nendpoints = []\n[kubernetes]\nserver = \"http://a\"\n");
        let report = report.expect_err("no endpoint").to_string();
        assert!(report.contains("kube.toml:2"), "{report}");
    }

    #[test]
    fn lease_is_that_of_the_table() {
        let server = "[kubernetes]\nserver = \"http://a\"\n";
        let text = |lease: &str| format!("{STORE}{server}{lease}");
        assert_eq!(parse(&text("")).expect("valid").lease, None);
        let with = parse(&text("[lease]\nnamespace = \"net\"\n")).expect("valid");
        let again = parse(&text("[lease]\nnamespace = \"net\"\n")).expect("valid");
        assert!(with.changed_keys(&again).is_empty(), "another identity");
        let lease = with.lease.clone().expect("a lease");
        assert_eq!(lease.to_string(), "net/cambric-kube");
        assert_ne!(
            Some(lease.identity),
            again.lease.map(|lease| lease.identity)
        );
        let other = parse(&text("[lease]\nname = \"b\"\n")).expect("valid");
        assert_eq!(with.changed_keys(&other), ["lease"]);
        let report = parse(&text("[lease]\nname = \"A/b\"\n")).expect_err("invalid");
        assert!(report.to_string().contains("kube.toml:6"), "{report}");
        let source = Source::new("kube.toml", format!("{STORE}[lease]\nenabled = false\n"));
        let config = Config::check(&source, of_pod, false).expect("valid");
        assert_eq!(config.lease, None);
    }

    #[test]
    fn files_of_credentials_are_read() {
        let keys = ["ca_file", "token_file", "cert_file", "key_file"];
        let lines = keys.map(|key| format!("{key} = \"/nonexistent/{key}\"\n"));
        let text = format!(
            "{STORE}[kubernetes]\nserver = \"https://a\"\n{}",
            lines.concat()
        );
        let source = Source::new("kube.toml", &text);
        assert!(Config::check(&source, |_| None, false).is_ok());
        let report = Config::check(&source, |_| None, true).expect_err("no files");
        let report = report.to_string();
        for key in keys {
            assert!(report.contains(&format!("/nonexistent/{key}")), "{report}");
        }
    }

    #[test]
    fn changed_keys_are_named() {
        let text = |server: &str| format!("{STORE}[kubernetes]\nserver = \"http://{server}\"\n");
        let before = parse(&text("a")).expect("valid");
        assert!(before.changed_keys(&before).is_empty());
        let after = parse(&text("b")).expect("valid");
        assert_eq!(before.changed_keys(&after), ["kubernetes"]);
    }
}
