//! The configuration file of a BGP daemon: a common part, and a section of each program.

use std::fmt::Debug;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};

use bgp_config::{
    BgpFile, Intent, NextHops, Origin, OriginMode, Problem, Problems, Report, Source,
};
use calico_bgp::Host;
use calico_store::{EtcdOptions, OptionFault, SnapshotOptions};
use daemon_common::bird::View;
use daemon_common::daemon::LogFormat;
use daemon_common::health::HealthSection;
use daemon_common::metrics::MetricsSection;
use daemon_common::paths;
use serde::de::DeserializeOwned;
use toml::Spanned;

use crate::privileges::Files;

/// A program's own section of the file, checked.
pub trait Settings: Debug + Sized {
    /// The section as it is written; [`bgp_config::NoKernel`] for a program without one.
    type Section: Debug + DeserializeOwned;

    /// The daemon's name without the prefix of all programs, which names its default paths.
    const DAEMON: &'static str;

    /// How next hops are looked up. The program sets it, not the operator.
    const NEXT_HOPS: NextHops;

    /// Whether the program is a route reflector if its configuration comes from the datastore.
    const REFLECTS: bool = false;

    /// Converts the section; the result is only valid if `problems` stays empty.
    fn check(section: Option<&Self::Section>, problems: &mut Problems<'_>) -> Self;

    /// Reports conflicts with the machine: with other programs' files, and with running processes.
    fn check_machine(&mut self, source: &Source, problems: &mut Problems<'_>) {
        let _ = (source, problems);
    }

    /// Returns notes on what is allowed but worth knowing.
    fn notes(&self) -> Vec<String>;
}

/// A valid configuration file.
#[derive(Debug)]
pub struct Config<S: Settings> {
    /// Path of the file.
    pub path: PathBuf,
    /// Keys of the file, without the neighbors and ranges, which are in the intent.
    pub file: BgpFile<S::Section, EtcdOptions, SnapshotOptions>,
    /// The speaker's configuration in the file; `None` if the datastore has it, and after
    /// [`take_intent`](Self::take_intent).
    intent: Option<Intent>,
    /// The node's name and properties in the datastore, if that has the speaker's configuration.
    pub host: Option<Host>,
    /// The program's own settings.
    pub settings: S,
}

impl<S: Settings> Config<S> {
    /// Reads and checks a file, also against the machine: the files that it names, the machine's
    /// addresses, and other programs.
    ///
    /// # Errors
    ///
    /// Every mistake found, with its place.
    pub fn read(path: &Path) -> Result<Self, Report> {
        Self::check(&Source::read(path)?.showing(bgp_config::is_shown), true)
    }

    /// Checks a text without looking at the machine.
    ///
    /// # Errors
    ///
    /// Every mistake found, with its place.
    pub fn parse(source: &Source) -> Result<Self, Report> {
        Self::check(source, false)
    }

    fn check(source: &Source, machine: bool) -> Result<Self, Report> {
        let (file, mut problems) = source.examine();
        let Some(file): Option<BgpFile<S::Section, EtcdOptions, SnapshotOptions>> = file else {
            return Err(problems.into_report());
        };
        let mut file = file;
        let own_name = daemon_common::daemon::host_name();
        let (intent, host) = match file.origin(S::NEXT_HOPS, &own_name, &mut problems) {
            Origin::File(intent) => (Some(*intent), None),
            Origin::Store(mut host) => {
                host.reflects = S::REFLECTS;
                (None, Some(host))
            }
        };
        if let (true, Some(reflectors)) = (S::REFLECTS, &file.reflectors) {
            let message = "a reflector peers with all others: `reflectors` is for nodes";
            problems.push(Problem::at(reflectors.span(), message));
        }
        if let (false, Some(ttl)) = (S::REFLECTS, &file.registration_ttl) {
            let message = "registration_ttl is a reflector's: this daemon registers nowhere";
            problems.push(Problem::at(ttl.span(), message));
        }
        for user in &file.guard.users {
            if let Err(unknown) = host_guard::user_id(&user.get_ref().0) {
                let problem = Problem::at(user.span(), unknown.to_string());
                problems.push(problem.help("a user name of this host, or a numeric user ID"));
            }
        }
        let mut settings = S::check(file.kernel.as_ref(), &mut problems);
        if let Some(options) = &file.datastore
            && !problems.is_part_lost("datastore")
        {
            let faults = options.get_ref().faults();
            push_store_faults(source, faults, &mut problems);
        }
        if machine {
            check_machine(source, &file, &mut settings, &mut problems);
        } else {
            file.check_own_addresses(|_| false, &mut problems);
        }
        problems.finish()?;
        // The intent has their meaning; the text of a thousand neighbors takes a megabyte.
        (file.neighbor, file.neighbor_range) = (Vec::new(), Vec::new());
        Ok(Self {
            path: source.path().to_owned(),
            file,
            intent,
            host,
            settings,
        })
    }

    /// Returns the speaker's configuration in the file; `None` if the datastore has it.
    pub fn intent(&self) -> Option<&Intent> {
        self.intent.as_ref()
    }

    /// Removes the speaker's configuration from this one, as the speaker keeps its own.
    pub(crate) fn take_intent(&mut self) -> Option<Intent> {
        self.intent.take()
    }

    /// Returns the datastore with the speaker's configuration, and the node's name.
    pub(crate) fn store(&self) -> Option<(&EtcdOptions, &Host)> {
        let options = self.file.datastore.as_ref()?;
        Some((options.get_ref(), self.host.as_ref()?))
    }

    /// Returns the directory of the passwords that resources refer to.
    pub(crate) fn secrets(&self) -> Option<PathBuf> {
        let section = self.file.secrets.as_ref();
        section.map(|section| section.get_ref().dir.clone())
    }

    /// Returns where the snapshot of the datastore is kept.
    pub(crate) fn snapshot(&self) -> Option<&SnapshotOptions> {
        self.file.datastore_snapshot.as_ref().map(Spanned::get_ref)
    }

    /// Returns notes on what is allowed in the file but worth knowing.
    pub fn notes(&self) -> Vec<String> {
        let of_intent = self.intent().map(|intent| intent.notes.clone());
        let mut notes = of_intent.unwrap_or_default();
        notes.extend(self.settings.notes());
        notes
    }

    /// Returns the path of the control socket.
    pub fn control(&self) -> PathBuf {
        let control = self.file.control.clone();
        control.unwrap_or_else(|| paths::control(S::DAEMON))
    }

    /// Returns the path of the socket on which cambric-bfd serves this daemon.
    pub(crate) fn bfd_socket(&self) -> PathBuf {
        let socket = self.file.bfd_socket.clone();
        socket.unwrap_or_else(paths::bfd_clients)
    }

    /// Returns the control sockets for BIRD's tools, each with its view.
    pub(crate) fn bird_controls(&self) -> Vec<(PathBuf, View)> {
        let file = &self.file;
        let first = match file.bird6_control {
            None => View::Both,
            Some(_) => View::Ipv4,
        };
        let both = [
            (&file.bird_control, first),
            (&file.bird6_control, View::Ipv6),
        ];
        let set = both.into_iter();
        set.filter_map(|(path, view)| Some((path.clone()?, view)))
            .collect()
    }

    /// Returns the files that the daemon reads and writes while it runs.
    pub(crate) fn files(&self) -> Files {
        let mut files = Files::default();
        files.read_file(&self.path);
        if let Some((options, _)) = self.store() {
            let tls = options.tls.iter();
            let tls = tls.flat_map(|tls| {
                let own = tls.cert_file.iter().chain(&tls.key_file);
                own.chain([&tls.ca_file])
            });
            let read = tls.chain(&options.password_file);
            read.for_each(|path| files.read_file(path));
        }
        if let Some(secrets) = self.secrets() {
            files.read_directory(&secrets);
        }
        files.write_file(&self.control());
        for (path, _) in self.bird_controls() {
            files.write_file(&path);
        }
        if let Some(snapshot) = self.snapshot() {
            files.write_file(&snapshot.file);
        }
        files
    }

    /// Returns the values of the keys that only a start reads.
    pub(crate) fn start_keys(&self) -> StartKeys {
        StartKeys {
            control: self.file.control.clone(),
            bfd_socket: self.file.bfd_socket.clone(),
            bird_control: self.file.bird_control.clone(),
            bird6_control: self.file.bird6_control.clone(),
            metrics: self.file.metrics,
            health: self.file.health,
            log: self.file.log.get_ref().clone(),
            log_format: self.file.log_format,
            secrets: self.secrets(),
            snapshot: self.snapshot().cloned(),
            datastore: self.file.datastore.clone().map(Spanned::into_inner),
            host: self.store().map(|(_, host)| host.clone()),
            origin_mode: self.file.origin_mode(),
            keeps_privileges: self.file.keeps_privileges(),
        }
    }
}

/// The values of the keys that only a start reads.
#[derive(Clone, Debug)]
pub(crate) struct StartKeys {
    control: Option<PathBuf>,
    bfd_socket: Option<PathBuf>,
    bird_control: Option<PathBuf>,
    bird6_control: Option<PathBuf>,
    metrics: Option<MetricsSection>,
    health: Option<HealthSection>,
    log: String,
    log_format: LogFormat,
    secrets: Option<PathBuf>,
    snapshot: Option<SnapshotOptions>,
    datastore: Option<EtcdOptions>,
    /// With a datastore, the keys that it does not replace.
    host: Option<Host>,
    origin_mode: OriginMode,
    keeps_privileges: bool,
}

impl StartKeys {
    /// Returns the keys with another value in `new`.
    pub(crate) fn changed(&self, new: &Self) -> Vec<&'static str> {
        let changed = [
            ("control", self.control != new.control),
            ("bfd_socket", self.bfd_socket != new.bfd_socket),
            ("bird_control", self.bird_control != new.bird_control),
            ("bird6_control", self.bird6_control != new.bird6_control),
            ("metrics", self.metrics != new.metrics),
            ("health", self.health != new.health),
            ("log", self.log != new.log),
            ("log_format", self.log_format != new.log_format),
            ("secrets", self.secrets != new.secrets),
            ("datastore_snapshot", self.snapshot != new.snapshot),
            ("datastore", self.datastore != new.datastore),
            ("hostname", self.is_host_changed(new, |host| &host.name)),
            ("families", self.is_host_changed(new, |host| &host.families)),
            (
                "multipath",
                self.is_host_changed(new, |host| &host.multipath_max),
            ),
            (
                "restart_wait",
                self.is_host_changed(new, |host| &host.restart_wait),
            ),
            (
                "reflectors",
                self.is_host_changed(new, |host| &host.reflectors),
            ),
            (
                "registration_ttl",
                self.is_host_changed(new, |host| &host.registration_ttl),
            ),
            (
                "absence_wait",
                self.is_host_changed(new, |host| &host.absence_wait),
            ),
            ("origin_validation", self.origin_mode != new.origin_mode),
            ("privileges", self.keeps_privileges != new.keeps_privileges),
        ];
        let changed = changed.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(key, _)| key).collect()
    }

    /// Returns whether both files name a datastore and differ in a part of the host.
    fn is_host_changed<T: PartialEq>(&self, new: &Self, part: fn(&Host) -> &T) -> bool {
        let hosts = self.host.as_ref().zip(new.host.as_ref());
        hosts.is_some_and(|(old, new)| part(old) != part(new))
    }
}

/// Reports keys of a file that conflict with the machine.
fn check_machine<S: Settings>(
    source: &Source,
    file: &BgpFile<S::Section, EtcdOptions, SnapshotOptions>,
    settings: &mut S,
    problems: &mut Problems<'_>,
) {
    file.check_own_addresses(is_local, problems);
    file.check_sample(problems);
    if let Some(options) = &file.datastore {
        push_store_faults(source, options.get_ref().file_faults(), problems);
    }
    if let Some(secrets) = &file.secrets {
        let dir = &secrets.get_ref().dir;
        if !dir.is_dir() {
            let message = format!("{}: no such directory", dir.display());
            let problem = Problem::at(source.place_of(&["secrets", "dir"], None), message);
            problems.push(problem.help("the key `k` of the secret `s` is the file `s/k` below it"));
        }
    }
    settings.check_machine(source, problems);
}

fn push_store_faults(source: &Source, faults: Vec<OptionFault>, problems: &mut Problems<'_>) {
    for fault in faults {
        let mut keys = vec!["datastore"];
        keys.extend(fault.keys);
        let place = source.place_of(&keys, fault.index);
        problems.push(Problem::at(place, fault.message).help(fault.help));
    }
}

/// Returns whether an address is one of the machine's: only then a socket can be bound to it.
fn is_local(address: IpAddr) -> bool {
    let version = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let nonlocal = format!("/proc/sys/net/{version}/ip_nonlocal_bind");
    let nonlocal = std::fs::read_to_string(nonlocal).unwrap_or_default();
    // If `ip_nonlocal_bind` is on, any address can be bound, so the bind proves nothing.
    nonlocal.trim() == "0" && UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::tests::Plain;

    fn keys(keys: &str) -> StartKeys {
        let text = format!("{keys}\n[datastore]\nendpoints = [\"http://127.0.0.1:2379\"]\n");
        let config = Config::<Plain>::parse(&Source::new("daemon.toml", &*text));
        config.expect("a valid file").start_keys()
    }

    #[test]
    fn changed_start_keys_are_named() {
        let start = keys("hostname = \"node1\"");
        assert!(start.changed(&keys("hostname = \"node1\"")).is_empty());
        assert_eq!(start.changed(&keys("hostname = \"node2\"")), ["hostname"]);
        for (key, value) in [
            ("families", "[\"ipv4-unicast\"]"),
            ("multipath", "4"),
            ("restart_wait", "7"),
            ("reflectors", "3"),
            ("absence_wait", "7"),
            ("origin_validation", "\"warn\""),
            ("origin_validation", "\"enforce\""),
            ("control", "\"/run/other.sock\""),
            ("bfd_socket", "\"/run/other.sock\""),
            ("log", "\"debug\""),
            ("health", "{ listen = \"127.0.0.1:9098\" }"),
        ] {
            let new = keys(&format!("hostname = \"node1\"\n{key} = {value}"));
            assert_eq!(start.changed(&new), [key]);
        }
    }
}
