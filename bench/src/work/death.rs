//! death: hosts that are cut off silently, until no other kernel has their routes.

use std::fs;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use daemon_common::{Command, Reply, client};
use netns_lab::fabric::{Fabric, Plan, Shape};
use netns_lab::{Lab, Program, VethEnd};
use tokio::time::sleep;

use crate::chance::Chance;
use crate::fabric::{self, Presence, Turned};
use crate::limits::{FABRIC_WITHIN, STARTED_WITHIN};
use crate::stage::{Measures, Options, quantiles};

const REFLECTORS: u16 = 2;
/// The link of the routes of a host.
const WORKLOADS: &str = "cali0";
/// How often the times of all kernels are collected. The times themselves are those of the notifications.
const COLLECT_EVERY: Duration = Duration::from_millis(5);
/// The pause before each death.
const PAUSE: Duration = Duration::from_millis(300);

/// The numbers of hosts, of routes of each, and of deaths with each interval.
struct Size {
    hosts: u8,
    routes: u16,
    deaths: u32,
}

const FULL: Size = Size {
    hosts: 20,
    routes: 100,
    deaths: 50,
};

const QUICK: Size = Size {
    hosts: 3,
    routes: 10,
    deaths: 4,
};

/// An interval, and the names of its measures.
struct Half {
    keys: &'static str,
    detection_ms: f64,
    removed: [&'static str; 2],
    /// Until the routes are present again after the first death of a host: the next ones are held.
    returned: [&'static str; 2],
}

const HALVES: [Half; 2] = [
    Half {
        keys: "bfd = { interval_ms = 50, multiplier = 3 }\n",
        detection_ms: 150.0,
        removed: ["death_50_p50_ms", "death_50_p99_ms"],
        returned: ["death_50_back_p50_ms", "death_50_back_p99_ms"],
    },
    Half {
        keys: "bfd = true\n",
        detection_ms: 900.0,
        removed: ["death_p50_ms", "death_p99_ms"],
        returned: ["death_back_p50_ms", "death_back_p99_ms"],
    },
];

/// Runs both halves, each in a fabric of its own.
pub(super) fn death(options: &Options) -> Result<Measures> {
    let default = if options.quick { &QUICK } else { &FULL };
    let given = &options.bfd;
    let size = Size {
        hosts: given.hosts.unwrap_or(default.hosts),
        routes: given.host_routes.unwrap_or(default.routes),
        deaths: given.deaths.unwrap_or(default.deaths),
    };
    ensure!(
        size.hosts > 1 && size.routes > 0 && size.deaths > 0,
        "sizes of death"
    );
    let mut measures = Measures::new();
    for half in &HALVES {
        measures.extend(fabric::apart(async |lab: Lab| {
            let mut ground = Ground::raise(lab, &size, half.keys).await?;
            let measured = ground.measure(&size, half, options.seed).await;
            measured.with_context(|| ground.logs())
        })?);
    }
    Ok(measures)
}

struct Ground {
    fabric: Fabric,
    /// The routes of each kernel.
    kernels: Vec<Presence>,
}

impl Ground {
    async fn raise(lab: Lab, size: &Size, keys: &str) -> Result<Self> {
        let mut plan = Plan::new(Shape {
            nodes: size.hosts.into(),
            reflectors: REFLECTORS,
            workloads_per_node: 0,
            mesh: false,
        })?;
        keys.clone_into(&mut plan.neighbor_keys);
        let mut fabric = Fabric::build(lab, plan).await?;
        let mut kernels = vec![];
        for node in &fabric.nodes {
            kernels.push(Presence::listen(&node.host, size.routes.into())?);
        }
        for (node, host) in fabric.nodes.iter().zip(0..) {
            let end = |name| VethEnd {
                host: &node.host,
                name,
                mac: None,
            };
            node.links
                .add_veth(end(WORKLOADS), end("workload0"))
                .await?;
            for name in [WORKLOADS, "workload0"] {
                node.links.up(name).await?;
            }
            let routes = (0..size.routes).map(|number| {
                format!(
                    "route add {} dev {WORKLOADS}\n",
                    Presence::route(host, number)
                )
            });
            let file = node.host.directory().join("routes");
            fs::write(&file, routes.collect::<String>())?;
            let program = Program::new("/usr/sbin/ip").arg("-batch").arg(&file);
            let (status, _) = node.host.output(&program).await?;
            ensure!(status.success(), "ip -batch: {status}");
        }
        fabric.start_bfd(&fabric::program("cambric-bfd")?)?;
        let programs = fabric::programs()?;
        fabric.start_reflectors(&programs)?;
        for reflector in &fabric.reflectors {
            let socket = reflector.control("route-reflector");
            let there = async || anyhow::Ok(socket.exists().then_some(()).ok_or(String::new()));
            netns_lab::until(STARTED_WITHIN, "a reflector listens", there).await?;
        }
        for place in 0..fabric.nodes.len() {
            fabric.start_bgp_client(place, &programs.bgp_client)?;
        }
        Ok(Self { fabric, kernels })
    }

    async fn measure(&mut self, size: &Size, half: &Half, seed: u64) -> Result<Measures> {
        for host in 0..size.hosts {
            self.complete(host, size).await?;
        }
        let mut chance = Chance::new(seed);
        let mut order: Vec<u8> = (0..size.hosts).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, chance.below(last + 1));
        }
        let (mut removed, mut returned) = (vec![], vec![]);
        let deaths = order.iter().copied().cycle().take(size.deaths as usize);
        for (number, host) in deaths.enumerate() {
            // After its second death, a host is held for a time. Without a session it keeps stale routes.
            self.complete(host, size).await?;
            self.connected(size).await?;
            self.monitored(host, half).await?;
            sleep(PAUSE).await;
            let died = Instant::now();
            self.fabric.discard(host.into(), true).await?;
            removed.push(self.last(host, died, |turned| turned.empty).await?);
            let opened = Instant::now();
            self.fabric.discard(host.into(), false).await?;
            if number < usize::from(size.hosts) {
                returned.push(self.last(host, opened, |turned| turned.full).await?);
            }
            self.fabric.check()?;
        }
        let mut measures = Measures::new();
        for (names, samples) in [(half.removed, removed), (half.returned, returned)] {
            let values = quantiles(samples, [0.5, 0.99])?;
            measures.extend(names.into_iter().zip(values));
        }
        Ok(measures)
    }

    /// Returns the milliseconds from an instant until the last of the other kernels has changed.
    async fn last(
        &self,
        host: u8,
        since: Instant,
        change: impl Fn(&Turned) -> Option<Instant>,
    ) -> Result<f64> {
        let end = since + FABRIC_WITHIN;
        loop {
            let times = self
                .others(host)
                .map(|kernel| change(&kernel.since(host, since)));
            if let Some(times) = times.collect::<Option<Vec<_>>>() {
                let last = times.into_iter().max().context("other kernels")?;
                return Ok((last - since).as_secs_f64() * 1e3);
            }
            ensure!(
                Instant::now() < end,
                "routes of node{}: no change",
                host + 1
            );
            sleep(COLLECT_EVERY).await;
        }
    }

    /// Waits until all other kernels have all routes of a host.
    async fn complete(&self, host: u8, size: &Size) -> Result<()> {
        let end = Instant::now() + FABRIC_WITHIN;
        let is_complete = |kernel: &Presence| kernel.len(host) == usize::from(size.routes);
        while !self.others(host).all(is_complete) {
            ensure!(Instant::now() < end, "routes of node{}: missing", host + 1);
            sleep(COLLECT_EVERY).await;
        }
        Ok(())
    }

    /// Waits until every reflector has a session with each host.
    async fn connected(&self, size: &Size) -> Result<()> {
        for reflector in &self.fabric.reflectors {
            let control = reflector.control("route-reflector");
            netns_lab::until(FABRIC_WITHIN, "all sessions", async || {
                let answer = client::call(&control, &Command::Neighbors {}).await;
                let Ok(Reply::Neighbors(report)) = answer else {
                    return anyhow::Ok(Err(format!("{answer:?}")));
                };
                let clients = report.neighbors.iter().filter(|one| one.role == "client");
                let count = clients.filter(|one| one.state == "Established").count();
                let are_all = count == usize::from(size.hosts);
                Ok(are_all
                    .then_some(())
                    .ok_or_else(|| format!("{count} sessions")))
            })
            .await?;
        }
        Ok(())
    }

    fn others(&self, host: u8) -> impl Iterator<Item = &Presence> {
        let kernels = self.kernels.iter().enumerate();
        kernels
            .filter(move |(of, _)| *of != usize::from(host))
            .map(|(_, kernel)| kernel)
    }

    /// Waits until BFD of every reflector has a session with a host, with its final detection time.
    async fn monitored(&self, host: u8, half: &Half) -> Result<()> {
        let remote = IpAddr::V4(self.fabric.node(host.into())?.plan.v4);
        for reflector in &self.fabric.reflectors {
            let control = reflector.control("bfd");
            netns_lab::until(FABRIC_WITHIN, "BFD is up", async || {
                let answer = client::call(&control, &Command::Bfd {}).await;
                let Ok(Reply::Bfd(report)) = answer else {
                    return anyhow::Ok(Err(format!("{answer:?}")));
                };
                let mut sessions = report.sessions.iter();
                let session = sessions.find(|session| session.remote == Some(remote));
                let is_final = session.is_some_and(|session| {
                    session.state == "Up" && session.detection_ms <= half.detection_ms
                });
                Ok(is_final.then_some(()).ok_or_else(|| format!("{session:?}")))
            })
            .await?;
        }
        Ok(())
    }

    /// Returns the ends of all logs.
    fn logs(&self) -> String {
        let machines = self.fabric.reflectors.iter().chain(&self.fabric.nodes);
        let logs = machines.flat_map(|machine| &machine.daemons).map(|daemon| {
            let process = &daemon.process;
            format!("{}:\n{}", process.name(), process.log_tail())
        });
        logs.collect::<Vec<_>>().join("\n")
    }
}
