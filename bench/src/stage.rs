//! The common parts of every run of a workload: a namespace, a daemon in it, the sessions to it,
//! and the meters.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netns_lab::{Host, Lab};

use crate::daemons::{Daemon, Kind, Scene};
use crate::fabric::Origins;
use crate::generator::Generator;
use crate::intake::Intake;
use crate::ledger::Ledger;
use crate::meter::Reading;
use crate::routes::{CLIENTS, Passing, Routes};
use crate::wire::Offer;

/// The daemon's address, BGP identifier and cluster ID.
pub const DAEMON: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 1);
/// The daemon's autonomous system.
pub const DAEMON_AS: u32 = 64512;

/// The results of one run, by the name of the measure.
pub type Measures = BTreeMap<&'static str, f64>;

/// The options of the command line for all runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of the routes.
    pub seed: u64,
    /// Small sizes, as a functional check.
    pub quick: bool,
    /// The program and its arguments under which the daemon is started.
    pub wrap: Vec<String>,
    /// The duration of churn.
    pub churn: Duration,
    /// The sizes of bfd and death.
    pub bfd: BfdSizes,
    /// The mode of origin validation of path.
    pub origins: Option<Origins>,
    /// The sizes of felix and rules.
    pub policies: Sizes,
    /// How long one phase of a run may take.
    pub patience: Duration,
}

/// The given sizes of felix and rules; those that are missing have a default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// Policies.
    pub policies: Option<u32>,
    /// Endpoints of other nodes.
    pub remote: Option<u32>,
    /// Endpoints of the measured node.
    pub local: Option<u32>,
}

impl Sizes {
    /// Returns the given sizes, with these for the missing ones.
    pub fn or(self, default: Policies) -> Policies {
        Policies {
            policies: self.policies.unwrap_or(default.policies),
            remote: self.remote.unwrap_or(default.remote),
            local: self.local.unwrap_or(default.local),
        }
    }
}

/// The given sizes of bfd and death; those that are missing have a default.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct BfdSizes {
    /// Seconds of each half of bfd [default: 120, with --quick 6]
    #[arg(long = "bfd", value_name = "SECONDS")]
    pub seconds: Option<u64>,
    /// Sessions of bfd [default: 1000, with --quick 50]
    #[arg(long = "bfd-sessions", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=50_000))]
    pub sessions: Option<u32>,
    /// Routes that are added and deleted beside bfd [default: 1000000, with --quick 2000]
    #[arg(long = "bfd-routes", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub routes: Option<u32>,
    /// Hosts of death [default: 20, with --quick 3]
    #[arg(long = "death-hosts", value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(2..=200))]
    pub hosts: Option<u8>,
    /// Routes of each host of death [default: 100, with --quick 10]
    #[arg(long = "death-routes", value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub host_routes: Option<u16>,
    /// Deaths with each interval [default: 50, with --quick 4]
    #[arg(long = "deaths", value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub deaths: Option<u32>,
}

/// The numbers of policies and endpoints of felix and rules.
#[derive(Clone, Copy, Debug)]
pub struct Policies {
    /// Policies.
    pub policies: u32,
    /// Endpoints of other nodes.
    pub remote: u32,
    /// Endpoints of the measured node.
    pub local: u32,
}

impl Policies {
    /// The default sizes of felix.
    pub const FULL: Self = Self {
        policies: 2_000,
        remote: 2_000,
        local: 200,
    };

    /// The default sizes of rules.
    pub const RULES: Self = Self {
        policies: 1_000,
        remote: 10_000,
        local: 200,
    };

    /// The same for a quick run.
    pub const QUICK: Self = Self {
        policies: 40,
        remote: 40,
        local: 4,
    };
}

/// One daemon, measured.
#[derive(Debug)]
pub struct Stage {
    /// The daemon's host, and the load generator's.
    pub host: Host,
    /// The daemon's kind.
    pub kind: Kind,
    /// Its configuration.
    pub scene: Scene,
    /// The daemon.
    pub daemon: Daemon,
    /// The sessions to it.
    pub generator: Generator,
    /// How long one phase may take.
    pub patience: Duration,
}

/// One session of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its autonomous system.
    pub asn: u32,
    /// Whether it must hold all routes of the others.
    pub receives: bool,
    /// The hold time it offers, in seconds.
    pub hold_time_s: u16,
}

/// Returns how attributes change on their way through `kind`.
pub const fn passing(kind: Kind, internal: bool) -> Passing {
    match (internal, kind.reflects()) {
        (true, true) => Passing::Reflected(DAEMON.octets()),
        (_, false) => Passing::Copied,
        (false, true) => Passing::External(DAEMON_AS, DAEMON.octets()),
    }
}

/// Returns the address of a session.
pub fn client(at: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(CLIENTS + at as u32)
}

/// Returns a daemon's configuration for these sessions, with IPv4 only and without options.
pub fn scene(parts: &[Part]) -> Scene {
    let neighbors = parts.iter().enumerate();
    Scene {
        asn: DAEMON_AS,
        address: DAEMON,
        neighbors: neighbors.map(|(at, part)| (client(at), part.asn)).collect(),
        ipv6: false,
        add_path: false,
        password: None,
        range: false,
    }
}

impl Stage {
    /// Starts a daemon and establishes all sessions with it.
    pub async fn set(
        lab: &Lab,
        kind: Kind,
        options: &Options,
        parts: &[Part],
        routes: Rc<Routes>,
    ) -> Result<Self> {
        let mut stage = Self::prepare(lab, kind, options, scene(parts), parts, routes).await?;
        stage.establish()?;
        Ok(stage)
    }

    /// Starts a daemon with this configuration, without dialing.
    pub async fn prepare(
        lab: &Lab,
        kind: Kind,
        options: &Options,
        scene: Scene,
        parts: &[Part],
        routes: Rc<Routes>,
    ) -> Result<Self> {
        let host = ground(lab).await?;
        let daemon = Daemon::start(kind, &host, &scene, &options.wrap)?;
        let receivers: Vec<_> = parts.iter().map(|part| part.receives).collect();
        let ledger = Ledger::new(routes.prefixes.count(), &receivers);
        let intake = Intake::new(routes, ledger, kind.echoes(), receivers);
        let offers = parts.iter().enumerate().map(|(at, part)| Offer {
            asn: part.asn,
            id: client(at),
            hold_time_s: part.hold_time_s,
            ipv6: scene.ipv6,
            add_path: scene.add_path,
        });
        let mut generator = Generator::new(&host, DAEMON, offers.collect::<Vec<_>>(), intake)?;
        generator.password = scene.password;
        Ok(Self {
            host,
            kind,
            scene,
            daemon,
            generator,
            patience: options.patience,
        })
    }

    /// Establishes all sessions.
    pub fn establish(&mut self) -> Result<()> {
        let established = self.generator.establish(self.patience);
        self.with_logs(established)
    }

    /// Adds the end of the daemon's log to an error.
    pub fn with_logs<T>(&self, result: Result<T>) -> Result<T> {
        result.with_context(|| {
            let tail = self.daemon.log_tail();
            format!("{}; the end of its log:\n{tail}", self.kind.name())
        })
    }

    /// Performs an action and measures until the state is correct and stays so. Returns seconds,
    /// and the meters before and after.
    pub fn measure(
        &mut self,
        what: &str,
        act: impl FnOnce(&mut Generator) -> Result<()>,
    ) -> Result<Measured> {
        let limit = self.patience;
        let before = self.daemon.used()?;
        let began = self.generator.begin();
        let done = act(&mut self.generator)
            .and_then(|()| self.generator.until_right(what, limit))
            .and_then(|first| {
                let after = self.daemon.used()?;
                let last = self.generator.settle(what, limit)?;
                let late = last != first;
                let after = if late { self.daemon.used()? } else { after };
                Ok((last, after))
            });
        let (at, after) = self.with_logs(done)?;
        Ok(Measured::between(began, at, before, after))
    }

    /// Ends the daemon.
    pub async fn strike(self) -> Result<()> {
        // The sessions first: a daemon that shuts down waits until its peers have read its last
        // messages.
        drop(self.generator);
        self.daemon.stop().await
    }
}

/// Makes a namespace with the addresses of all speakers, and sufficient kernel limits.
async fn ground(lab: &Lab) -> Result<Host> {
    let host = lab.host("bench").await?;
    let links = host.links()?;
    // This makes every address of the subnet local.
    for net in ["10.64.0.1/10", "fd00::a40:1/64"] {
        links.add_address("lo", net.parse()?).await?;
    }
    for (key, value) in [
        ("net/core/somaxconn", "4096"),
        ("net/ipv4/tcp_max_syn_backlog", "8192"),
    ] {
        host.sysctl(key, value)?;
    }
    // Not every kernel has this limit per namespace; a daemon that needs more reports it.
    let _ = host.sysctl("net/core/optmem_max", "1048576");
    Ok(host)
}

/// Duration and resource usage of a phase.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Seconds until the state was correct.
    pub seconds: f64,
    /// CPU seconds of the daemon.
    pub cpu: f64,
    /// CPU seconds of the load generator.
    pub generator: f64,
    /// CPU seconds of everything else on the machine.
    pub foreign: f64,
    /// Peak of the daemon's resident memory so far, in MB.
    pub peak: f64,
}

impl Measured {
    /// Returns them as the measures of a workload's first phase.
    pub fn measures(&self) -> Measures {
        Measures::from([
            ("conv_s", self.seconds),
            ("conv_cpu_s", self.cpu),
            ("conv_generator_s", self.generator),
            ("conv_foreign_s", self.foreign),
            ("peak_mb", self.peak),
        ])
    }

    fn between(began: Instant, ended: Instant, before: Reading, after: Reading) -> Self {
        Self {
            seconds: (ended - began).as_secs_f64(),
            cpu: after.daemon.saturating_sub(before.daemon).as_secs_f64(),
            generator: after
                .generator
                .saturating_sub(before.generator)
                .as_secs_f64(),
            foreign: after.foreign_since(&before).as_secs_f64(),
            peak: after.peak_octets as f64 / 1e6,
        }
    }
}

/// Returns for each share the value that this share of the samples does not exceed.
pub fn quantiles<const N: usize>(mut samples: Vec<f64>, shares: [f64; N]) -> Result<[f64; N]> {
    samples.sort_by(f64::total_cmp);
    let Some(last) = samples.len().checked_sub(1) else {
        bail!("no samples");
    };
    Ok(shares.map(|share| samples[(last as f64 * share).round() as usize]))
}
