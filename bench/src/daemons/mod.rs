//! The daemons of the comparison, all with equivalent configurations.

mod bird;
mod cambric;
mod frr;
mod gobgp;
mod openbgpd;
mod relay;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use netns_lab::{Host, Process, Program};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::limits::ENDED_WITHIN;
use crate::meter::Reading;

/// The daemons, with their configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Kind {
    /// `cambric-route-reflector`
    Cambric,
    /// BIRD 2
    Bird,
    /// FRR's bgpd with `coalesce-time 10`
    FrrFast,
    /// FRR's bgpd with its defaults
    Frr,
    /// OpenBGPD
    Openbgpd,
    /// GoBGP
    Gobgp,
    /// A program without tables that copies each client's octets to all others
    Relay,
}

/// The configuration of every daemon, independent of its syntax.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Its autonomous system.
    pub asn: u32,
    /// Its address, BGP identifier and cluster id.
    pub address: Ipv4Addr,
    /// Its neighbors and their autonomous systems. All are passive for the daemon: they dial.
    pub neighbors: Vec<(Ipv4Addr, u32)>,
    /// Whether IPv6 routes are carried, too.
    pub ipv6: bool,
    /// Whether ADD-PATH is used in both directions.
    pub add_path: bool,
    /// The TCP-MD5 key of all sessions.
    pub password: Option<&'static str>,
    /// Whether further clients may connect from [`crate::wire::Range`]; Cambric only.
    pub range: bool,
}

/// The name of a configuration file, and its text.
type Config = (&'static str, String);

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    process: Process,
}

impl Kind {
    /// Returns the name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cambric => "cambric",
            Self::Bird => "bird",
            Self::Frr => "frr",
            Self::FrrFast => "frr-fast",
            Self::Openbgpd => "openbgpd",
            Self::Gobgp => "gobgp",
            Self::Relay => "relay",
        }
    }

    /// Returns the path of its program, if it is installed.
    pub fn program(self) -> Option<PathBuf> {
        let beside = |name: &str| {
            let own = std::env::current_exe().ok()?;
            Some(own.with_file_name(name)).filter(|path| path.is_file())
        };
        let installed = |path: &str| Some(PathBuf::from(path)).filter(|path| path.is_file());
        match self {
            Self::Cambric => beside("cambric-route-reflector"),
            Self::Bird => installed("/usr/sbin/bird"),
            Self::Frr | Self::FrrFast => installed("/usr/lib/frr/bgpd"),
            // FRR has another program of the same name elsewhere.
            Self::Openbgpd => installed("/usr/sbin/bgpd"),
            Self::Gobgp => installed("/usr/bin/gobgpd"),
            Self::Relay => std::env::current_exe().ok(),
        }
    }

    /// Returns whether it advertises a client's routes back to that client.
    pub const fn echoes(self) -> bool {
        matches!(self, Self::Frr | Self::FrrFast)
    }

    /// Returns whether it adds the attributes of a reflector (RFC 4456).
    pub const fn reflects(self) -> bool {
        !matches!(self, Self::Relay)
    }

    fn config(self, scene: &Scene, host: &Host) -> Config {
        match self {
            Self::Cambric => cambric::config(scene),
            Self::Bird => bird::config(scene),
            Self::Frr => frr::config(scene, None),
            Self::FrrFast => frr::config(scene, Some(10)),
            Self::Openbgpd => openbgpd::config(scene, host),
            Self::Gobgp => gobgp::config(scene),
            Self::Relay => ("relay", String::new()),
        }
    }

    fn arguments(self, scene: &Scene, config: &Path) -> Vec<String> {
        match self {
            Self::Cambric => cambric::arguments(config),
            Self::Bird => bird::arguments(config),
            Self::Frr | Self::FrrFast => frr::arguments(scene, config),
            Self::Openbgpd => openbgpd::arguments(config),
            Self::Gobgp => gobgp::arguments(config),
            Self::Relay => relay::arguments(scene),
        }
    }
}

impl Daemon {
    /// Starts a daemon in `host`, under `wrap` (`perf record -o FILE --`) if that is given.
    pub fn start(kind: Kind, host: &Host, scene: &Scene, wrap: &[String]) -> Result<Self> {
        let path = kind
            .program()
            .with_context(|| format!("{} is not installed", kind.name()))?;
        let (name, text) = kind.config(scene, host);
        let config = host.directory().join(name);
        std::fs::write(&config, text).with_context(|| config.display().to_string())?;
        if kind == Kind::Openbgpd {
            openbgpd::prepare(host, &config)?;
        }
        let arguments = kind.arguments(scene, &config);
        let program = match wrap {
            [] => Program::new(path).args(arguments),
            [first, rest @ ..] => Program::new(first).args(rest).arg(path).args(arguments),
        };
        Ok(Self {
            process: host.spawn(kind.name(), &program)?,
        })
    }

    /// Its pid.
    pub const fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns its resource usage so far.
    pub fn used(&self) -> Result<Reading> {
        Reading::take(self.process.pid())
    }

    /// Returns the end of its log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Stops it gracefully, so that a wrapper can write its results.
    pub async fn stop(mut self) -> Result<()> {
        self.process.signal(Signal::SIGINT)?;
        if self.process.wait(ENDED_WITHIN).await.is_err() {
            self.process.kill().await?;
        }
        Ok(())
    }

    /// Kills it without a NOTIFICATION to its peers, and its wrapper, too.
    pub async fn kill(&mut self) -> Result<()> {
        // It was started as the leader of a process group.
        let group = Pid::from_raw(i32::try_from(self.process.pid())?);
        killpg(group, Signal::SIGKILL)?;
        Ok(self.process.kill().await?)
    }
}
