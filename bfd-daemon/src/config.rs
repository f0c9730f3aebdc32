//! The configuration file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon_common::config::{Problem, Problems, Report, Source};
use daemon_common::daemon::{LogFormat, log_filter};
use daemon_common::metrics::MetricsSection;
use daemon_common::paths;
use serde::Deserialize;
use toml::Spanned;

use crate::limits::{
    ADDRESSES_MAX, GRACE_S, GRACE_S_MAX, INTERVAL_MS_MIN, PACKETS_PER_SECOND,
    PACKETS_PER_SECOND_MAX, SESSIONS, SESSIONS_MAX, USERS_MAX,
};

/// The users of the packaged BGP daemons.
pub(crate) const USERS: [&str; 2] = ["cambric-bgp-client", "cambric-route-reflector"];

/// The configuration of the daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The path of the file.
    pub path: PathBuf,
    /// The control socket for operators.
    pub control: PathBuf,
    /// The socket for clients.
    pub socket: PathBuf,
    /// The users that may be clients, beside root and the daemon's own.
    pub users: Vec<String>,
    /// The local addresses on which packets are received.
    pub addresses: Vec<IpAddr>,
    /// Address of the metrics endpoint, if enabled.
    pub metrics: Option<MetricsSection>,
    /// Log level or directives.
    pub log: String,
    /// Format of log lines.
    pub log_format: LogFormat,
    /// The limits of each user.
    pub limits: Limits,
}

/// The limits of each user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most sessions.
    pub sessions: u32,
    /// The most packets that its sessions may send in a second.
    pub packets_per_second: u32,
    /// The shortest interval, in milliseconds.
    pub interval_ms_min: u32,
    /// How long sessions continue without their client, in seconds.
    pub grace_s: u32,
}

impl Limits {
    /// Returns the shortest interval of received packets, in microseconds.
    pub(crate) const fn receive_us_min(&self) -> u32 {
        self.interval_ms_min.saturating_mul(1000)
    }

    /// Returns how long sessions continue without their client.
    #[must_use]
    pub const fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_s as u64)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: SESSIONS,
            packets_per_second: PACKETS_PER_SECOND,
            interval_ms_min: INTERVAL_MS_MIN,
            grace_s: GRACE_S,
        }
    }
}

/// The file as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default = "control")]
    control: PathBuf,
    #[serde(default = "socket")]
    socket: PathBuf,
    users: Option<Spanned<Vec<Spanned<String>>>>,
    addresses: Option<Spanned<Vec<IpAddr>>>,
    metrics: Option<MetricsSection>,
    #[serde(default = "log")]
    log: Spanned<String>,
    #[serde(default)]
    log_format: LogFormat,
    sessions: Option<Spanned<u32>>,
    packets_per_second: Option<Spanned<u32>>,
    interval_min_ms: Option<Spanned<u32>>,
    grace: Option<Spanned<u32>>,
}

fn control() -> PathBuf {
    paths::control("bfd")
}

fn socket() -> PathBuf {
    paths::bfd_clients()
}

fn log() -> Spanned<String> {
    Spanned::new(0..0, "info".to_owned())
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// Every mistake found, with its place.
    pub fn read(path: &Path) -> Result<Self, Report> {
        Self::parse(&Source::read(path)?)
    }

    /// Checks a text.
    ///
    /// # Errors
    ///
    /// Every mistake found, with its place.
    pub fn parse(source: &Source) -> Result<Self, Report> {
        let (file, mut problems) = source.examine::<File>();
        let Some(file) = file else {
            return Err(problems.into_report());
        };
        if let Err(error) = log_filter(file.log.get_ref()) {
            problems.push(Problem::at(file.log.span(), error.to_string()));
        }
        let of = |given: Option<Spanned<u32>>, name, range, default, problems: &mut _| {
            given.map_or(default, |given| number(&given, name, range, problems))
        };
        let defaults = Limits::default();
        let limits = Limits {
            sessions: of(
                file.sessions,
                "sessions",
                1..=SESSIONS_MAX,
                defaults.sessions,
                &mut problems,
            ),
            packets_per_second: of(
                file.packets_per_second,
                "packets_per_second",
                1..=PACKETS_PER_SECOND_MAX,
                defaults.packets_per_second,
                &mut problems,
            ),
            interval_ms_min: of(
                file.interval_min_ms,
                "interval_min_ms",
                1..=bfd_client::limits::INTERVAL_MS_MAX,
                defaults.interval_ms_min,
                &mut problems,
            ),
            grace_s: of(
                file.grace,
                "grace",
                0..=GRACE_S_MAX,
                defaults.grace_s,
                &mut problems,
            ),
        };
        let config = Self {
            path: source.path().to_owned(),
            control: file.control,
            socket: file.socket,
            users: users(file.users, &mut problems),
            addresses: addresses(file.addresses, &mut problems),
            metrics: file.metrics,
            log: file.log.into_inner(),
            log_format: file.log_format,
            limits,
        };
        problems.finish()?;
        Ok(config)
    }

    /// Returns the keys that differ and that only a start reads.
    #[must_use]
    pub fn start_keys_changed(&self, new: &Self) -> Vec<&'static str> {
        let differs = [
            ("control", self.control != new.control),
            ("socket", self.socket != new.socket),
            ("addresses", self.addresses != new.addresses),
            ("metrics", self.metrics != new.metrics),
            ("log", self.log != new.log),
            ("log_format", self.log_format != new.log_format),
        ];
        let changed = differs.iter().filter(|(_, differs)| *differs);
        changed.map(|(key, _)| *key).collect()
    }
}

fn number(
    given: &Spanned<u32>,
    name: &str,
    range: RangeInclusive<u32>,
    problems: &mut Problems<'_>,
) -> u32 {
    let value = *given.get_ref();
    if !range.contains(&value) {
        let message = format!("{name} is from {} to {}", range.start(), range.end());
        problems.push(Problem::at(given.span(), message));
    }
    value
}

/// Returns the ID of a user that is configured by its number.
pub(crate) fn number_of(user: &str) -> Option<u32> {
    user.parse().ok()
}

fn users(given: Option<Spanned<Vec<Spanned<String>>>>, problems: &mut Problems<'_>) -> Vec<String> {
    let Some(given) = given else {
        return USERS.map(str::to_owned).into();
    };
    if given.get_ref().len() > USERS_MAX {
        let message = format!("users has at most {USERS_MAX} entries");
        problems.push(Problem::at(given.span(), message));
    }
    let users = given.into_inner().into_iter();
    users.map(Spanned::into_inner).collect()
}

fn addresses(given: Option<Spanned<Vec<IpAddr>>>, problems: &mut Problems<'_>) -> Vec<IpAddr> {
    let any = [
        IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    ];
    let Some(given) = given else {
        return any.into();
    };
    if !(1..=ADDRESSES_MAX).contains(&given.get_ref().len()) {
        let message = format!("addresses has 1 to {ADDRESSES_MAX} entries");
        problems.push(Problem::at(given.span(), message));
    }
    given.into_inner()
}

#[cfg(test)]
mod tests {
    use daemon_common::config::uncommented;

    use super::*;
    use crate::keeper::SUPERVISE;

    fn parse(text: &str) -> Result<Config, Report> {
        Config::parse(&Source::new("bfd.toml", text))
    }

    const PACKAGED: &str = include_str!("../../packaging/etc/bfd.toml");

    #[test]
    fn packaged_file_shows_the_defaults() {
        let packaged = parse(PACKAGED).expect("valid");
        assert_eq!(packaged, parse("").expect("valid"));
        let shown = parse(&uncommented(PACKAGED)).expect("valid");
        let metrics = shown.metrics;
        assert!(metrics.is_some(), "an example");
        assert_eq!(
            Config {
                metrics: None,
                ..shown
            },
            packaged
        );
    }

    #[test]
    fn packaged_container_has_a_parent_process() {
        let manifest = include_str!("../../packaging/kubernetes/bfd.yaml");
        let command = format!("command: [/usr/bin/cambric-bfd, {SUPERVISE}, --config,");
        assert!(manifest.contains(&command), "{manifest}");
    }

    #[test]
    fn values_out_of_range_are_reported_with_their_place() {
        for wrong in [
            "sessions = 0",
            "packets_per_second = 2000000",
            "interval_min_ms = 0",
            "grace = 100000",
            "addresses = []",
            "addresses = [\"10.0.0\"]",
            "log = \"loud\"",
            "sesions = 1",
        ] {
            let report = parse(wrong).expect_err(wrong).to_string();
            assert!(report.contains("bfd.toml:1"), "{report}");
        }
    }

    #[test]
    fn changed_start_keys_are_named() {
        let before = parse("").expect("valid");
        for (text, keys) in [
            ("grace = 7", &[][..]),
            ("users = [\"root\"]", &[]),
            ("socket = \"/run/other.sock\"", &["socket"]),
            ("addresses = [\"127.0.0.1\"]", &["addresses"]),
        ] {
            let after = parse(text).expect("valid");
            assert_eq!(before.start_keys_changed(&after), keys);
        }
    }
}
