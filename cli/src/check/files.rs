//! The control ports and the host guard by the files of the daemons of a host. No resource of the datastore
//! has these ports.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use bgp_config::Source;
use calico_store::Store;
use host_guard::{Holder, user_id};
use ipnet::IpNet;
use rule_audit::Settings;
use rule_audit::evaluator::{Control, HostGuard};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Rules;
use crate::guard;

/// The file of the package.
const FELIX: &str = "/etc/cambric/felix.toml";
/// The directory of the packages' files.
const DIRECTORY: &str = "/etc/cambric";
/// The user of the packaged `cambric-bfd`.
const BFD_USER: &str = "cambric-bfd";
/// Maximum number of URLs of the datastore that are resolved.
const URLS_MAX: usize = 64;

/// The keys of Felix's file that concern its rules.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Felix {
    interface_prefix: Option<Vec<String>>,
    control_port_exceptions: Vec<String>,
    police_host_traffic: bool,
    bgp_files: Option<Vec<PathBuf>>,
    cutting: Cutting,
    metrics: Option<Metrics>,
    felix_configuration: Option<IgnoredAny>,
    datastore: Datastore,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cutting {
    enabled: bool,
}

#[derive(Debug, Deserialize)]
struct Metrics {
    listen: SocketAddr,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Datastore {
    endpoints: Vec<String>,
}

/// The settings of the files of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Files {
    prefixes: Option<Vec<String>>,
    police_host: bool,
    cuts: bool,
    control: Control,
    host_guard: Option<HostGuard>,
}

impl Files {
    /// Reads the files, and the members of the datastore, which Felix closes, too. A part that cannot be read
    /// makes the result unknown.
    pub(super) async fn read(args: &Rules, store: &impl Store) -> Self {
        let mut files = Self::default();
        let path = match &args.felix_file {
            Some(path) => Some(path.clone()),
            None if args.no_files || args.listing.is_some() => None,
            None => Some(PathBuf::from(FELIX)).filter(|path| path.exists()),
        };
        match path {
            Some(path) => files.felix(&path, args, store).await,
            None if args.no_files => files.host_guard = Some(HostGuard::default()),
            None => {
                let text = "there is no file of Felix: use --felix-file, or --no-files if no daemon has one";
                files.control.unread.push(text.to_owned());
            }
        }
        files.control.extend(&Control {
            ports: args.control_ports.clone(),
            services: args.control_services.clone(),
            ..Control::default()
        });
        for text in &args.control_port_exceptions {
            files.exception(text);
        }
        files
    }

    async fn felix(&mut self, path: &Path, args: &Rules, store: &impl Store) {
        let read = Source::read(path).and_then(|source| source.parse::<Felix>());
        let felix = match read {
            Ok(felix) => felix,
            Err(report) => {
                self.control.unread.push(report.to_string());
                return;
            }
        };
        self.prefixes = felix.interface_prefix;
        self.police_host = felix.police_host_traffic;
        self.cuts = felix.cutting.enabled;
        if felix.felix_configuration.is_some() {
            let text = format!("felix_configuration of {} is not evaluated", path.display());
            self.control.unread.push(text);
        }
        for text in &felix.control_port_exceptions {
            self.exception(text);
        }
        if let Some(Metrics { listen }) = felix.metrics
            && !listen.ip().is_loopback()
        {
            self.on_each_host(listen.port());
        }
        let mut urls = felix.datastore.endpoints;
        match store.members().await {
            Ok(members) => urls.extend(members),
            Err(error) => {
                let text = format!("the datastore does not list its members: {error}");
                self.control.unread.push(text);
            }
        }
        self.datastore(&urls).await;
        self.bgp_daemons(path, felix.bgp_files, &args.guard_user);
    }

    /// Closes a port on all hosts of the fabric.
    fn on_each_host(&mut self, port: u16) {
        let each = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
        self.control.services.push(each);
    }

    /// Adds an address or a network that may reach control ports.
    fn exception(&mut self, text: &str) {
        let net = text
            .parse::<IpNet>()
            .or_else(|_| text.parse().map(IpAddr::into));
        match net {
            Ok(net) => self
                .control
                .exceptions
                .push((net.network(), net.broadcast())),
            Err(_) => {
                let text = format!("control_port_exceptions: '{text}' is no address");
                self.control.unread.push(text);
            }
        }
    }

    async fn datastore(&mut self, urls: &[String]) {
        if urls.len() > URLS_MAX {
            let text = format!("the datastore has more than {URLS_MAX} URLs");
            self.control.unread.push(text);
        }
        for url in urls.iter().take(URLS_MAX) {
            let Some((host, port)) = authority(url) else {
                let text = format!("the URL '{url}' of the datastore is invalid");
                self.control.unread.push(text);
                continue;
            };
            match tokio::net::lookup_host((host, port)).await {
                Ok(found) => {
                    let found = found.map(|at| SocketAddr::new(at.ip().to_canonical(), at.port()));
                    self.control.services.extend(found);
                }
                Err(error) => {
                    let text = format!("the name {host} of the datastore: {error}");
                    self.control.unread.push(text);
                }
            }
        }
    }

    /// Reads the files of the BGP daemons: those that are named, otherwise those of the packages.
    fn bgp_daemons(&mut self, felix: &Path, named: Option<Vec<PathBuf>>, users: &[String]) {
        let mut own = HostGuard::default();
        let directory = felix.parent().unwrap_or_else(|| Path::new(DIRECTORY));
        let usual = Holder::ALL.map(|holder| {
            let name = format!("{holder}.toml");
            let beside = directory.join(&name);
            match beside.exists() {
                true => beside,
                false => Path::new(DIRECTORY).join(name),
            }
        });
        let usual = usual.into_iter().filter(|path| path.exists());
        let paths = named.unwrap_or_else(|| usual.collect());
        let mut is_known = true;
        for path in &paths {
            match guard::configured(path, users) {
                Ok((is_enabled, cover, neighbors)) => {
                    self.control.ports.extend(&cover.ports);
                    self.control.services.extend(neighbors);
                    if is_enabled {
                        own.ports.extend(&cover.ports);
                        own.peers.extend(&cover.peers);
                        own.users.extend(&cover.users);
                    }
                }
                Err(error) => {
                    self.control.unread.push(format!("{error:#}"));
                    is_known = false;
                }
            }
        }
        let packaged = Holder::ALL.map(|holder| format!("cambric-{holder}"));
        own.users
            .extend(packaged.iter().filter_map(|name| user_id(name).ok()));
        own.bfd_users = [BFD_USER]
            .iter()
            .filter_map(|name| user_id(name).ok())
            .chain([0])
            .collect();
        self.host_guard = is_known.then_some(own);
    }

    /// Applies the files and the options to the settings of the datastore.
    pub(super) fn apply(&self, args: &Rules, settings: &mut Settings) {
        settings.police_host |= args.police_host_traffic || self.police_host;
        settings.cuts |= args.cutting || self.cuts;
        let given = Some(&args.interface_prefix).filter(|prefixes| !prefixes.is_empty());
        if let Some(prefixes) = given.or(self.prefixes.as_ref()) {
            settings.prefixes.clone_from(prefixes);
        }
        settings.control.clone_from(&self.control);
        settings.host_guard.clone_from(&self.host_guard);
        settings
            .known_tables
            .extend(args.known_table.iter().cloned());
    }
}

/// Returns host and port of a URL; the default port is that of its scheme.
fn authority(url: &str) -> Option<(&str, u16)> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let rest = rest.split(['/', '?', '#']).next()?;
    let rest = rest.rsplit('@').next()?;
    let (host, port) = match rest.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            (host, rest.strip_prefix(':'))
        }
        None => match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let default = if scheme == "https" { 443 } else { 80 };
    let port = port.map_or(Some(default), |port| port.parse().ok())?;
    (!host.is_empty()).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_yields_host_and_port() {
        for (url, wanted) in [
            ("http://127.0.0.1:2379", Some(("127.0.0.1", 2379))),
            ("https://etcd.example/x", Some(("etcd.example", 443))),
            ("http://user@[fd00::1]:1", Some(("fd00::1", 1))),
            ("etcd", Some(("etcd", 80))),
            ("http://", None),
            ("http://a:x", None),
            ("http://[fd00::1", None),
        ] {
            assert_eq!(authority(url), wanted, "{url}");
        }
    }

    #[test]
    fn exception_is_an_address_or_a_network() {
        let mut files = Files::default();
        for text in ["10.65.0.7", "10.66.0.0/30", "fd65::/126", "x"] {
            files.exception(text);
        }
        let pair = |one: &str, two: &str| (one.parse().unwrap(), two.parse().unwrap());
        let wanted = [
            pair("10.65.0.7", "10.65.0.7"),
            pair("10.66.0.0", "10.66.0.3"),
            pair("fd65::", "fd65::3"),
        ];
        assert_eq!(files.control.exceptions, wanted);
        assert_eq!(files.control.unread.len(), 1);
    }
}
