//! bfd: many sessions of `cambric-bfd` with a scripted peer, beside routes that come and go.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bfd_client::limits::IDLE_MS;
use bfd_client::{Client, Event, Hops, Liveness, Wanted};
use netns_lab::{Host, Lab, Process, Program, VethEnd};
use nix::unistd::{SysconfVar, sysconf};
use tokio::time::sleep;

use crate::bare::{self, Verb};
use crate::bfd_peer::Report;
use crate::fabric::program;
use crate::limits::{BFD, BFD_QUICK, FABRIC_WITHIN};
use crate::stage::{Measures, Options};

const SESSIONS: u32 = 1_000;
const SESSIONS_QUICK: u32 = 50;
const ROUTES: u32 = 1_000_000;
const ROUTES_QUICK: u32 = 2_000;
/// The first /24 of the routes.
const FIRST_ROUTE: u32 = 0x1400_0000;
/// Passes over the table.
const PASSES: u32 = 16;
const METRIC: u32 = 1024;
const MULTIPLIER: u8 = 3;
const DAEMON: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 2);
/// The first address of the peer's sessions, in the subnet of the link.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 65, 0, 0);
/// The link-layer address of the peer.
const MAC: [u8; 6] = [2, 0x65, 0, 0, 0, 2];
/// The nice value that `cambric-bfd` gives itself.
const NICE: &str = "-15";

/// A half: the interval, and the names of its measures.
struct Half {
    interval_ms: u32,
    downs: &'static str,
    peer_downs: &'static str,
    peer_gaps: &'static str,
    late: &'static str,
    own_gaps: &'static str,
}

const HALVES: [Half; 2] = [
    Half {
        interval_ms: 100,
        downs: "bfd_downs",
        peer_downs: "bfd_peer_downs",
        peer_gaps: "bfd_peer_gaps",
        late: "bfd_peer_late_ms",
        own_gaps: "bfd_peer_own_gaps",
    },
    Half {
        interval_ms: 50,
        downs: "bfd_50_downs",
        peer_downs: "bfd_50_peer_downs",
        peer_gaps: "bfd_50_peer_gaps",
        late: "bfd_50_peer_late_ms",
        own_gaps: "bfd_50_peer_own_gaps",
    },
];

/// Runs both halves, each with processes of its own: first without a load, to measure the processor, then
/// beside the routes.
pub(super) async fn bfd(lab: &Lab, options: &Options) -> Result<Measures> {
    let (count, routes, time) = match options.quick {
        true => (SESSIONS_QUICK, ROUTES_QUICK, BFD_QUICK),
        false => (SESSIONS, ROUTES, BFD),
    };
    let given = &options.bfd;
    let (count, routes) = (
        given.sessions.unwrap_or(count),
        given.routes.unwrap_or(routes),
    );
    let time = given.seconds.map_or(time, Duration::from_secs);
    let one = lab.host("bfd").await?;
    let other = lab.host("peers").await?;
    let links = one.links()?;
    let end = |host, name, mac| VethEnd { host, name, mac };
    links
        .add_veth(end(&one, "up0", None), end(&other, "up0", Some(MAC)))
        .await?;
    links.up("up0").await?;
    links.add_address("up0", "10.64.0.1/10".parse()?).await?;
    let far = other.links()?;
    far.up("up0").await?;
    far.add_address("up0", "10.64.0.2/10".parse()?).await?;
    // This makes every address of the subnet local.
    far.add_address("lo", "10.65.0.0/16".parse()?).await?;
    for number in 0..=count {
        let address = Ipv4Addr::from_bits(FIRST.to_bits() + number);
        links.add_neighbor("up0", address.into(), MAC).await?;
    }
    let mut measures = Measures::new();
    for half in HALVES {
        let mut ground = Ground::start(&one, &other, count, half.interval_ms).await?;
        let measured = ground.measure(&one, &half, routes, time).await;
        let logs = || {
            let logs = [&ground.daemon, &ground.peer].map(Process::log_tail);
            logs.join("\n")
        };
        measures.extend(measured.with_context(logs)?);
    }
    Ok(measures)
}

struct Ground {
    daemon: Process,
    peer: Process,
    client: Client,
    began: Instant,
    alive: BTreeMap<IpAddr, bool>,
    failures: u64,
    count: u32,
}

impl Ground {
    async fn start(one: &Host, other: &Host, count: u32, interval_ms: u32) -> Result<Self> {
        let at = one.directory().display().to_string();
        let text = format!(
            "control = \"{at}/bfd.sock\"\nsocket = \"{at}/clients.sock\"\naddresses = [\"{DAEMON}\"]\n\
             packets_per_second = 1000000\n"
        );
        let config = one.directory().join("bfd.toml");
        fs::write(&config, text)?;
        let socket = one.directory().join("clients.sock");
        let _ = fs::remove_file(&socket);
        let daemon = Program::new(program("cambric-bfd")?)
            .arg("--config")
            .arg(&config);
        let daemon = one.spawn("bfd", &daemon)?;
        let peer = Program::new("/usr/bin/nice")
            .args(["-n", NICE])
            .arg(std::env::current_exe()?)
            .args(["bfd-peer", &DAEMON.to_string(), &FIRST.to_string()])
            .args([count, interval_ms, MULTIPLIER.into()].map(|number: u32| number.to_string()));
        let peer = other.spawn("peer", &peer)?;
        let mut client = Client::new(socket, "bench");
        // The peer does not answer at the last address: a neighbor that is not there.
        let wanted = (0..=count).map(|number| {
            let remote = Ipv4Addr::from_bits(FIRST.to_bits() + number).into();
            let wanted = Wanted {
                remote,
                local: Some(DAEMON.into()),
                hops: Hops::Single,
                interval_ms,
                receive_ms: interval_ms,
                idle_ms: IDLE_MS,
                multiplier: MULTIPLIER,
                ttl_min: 255,
                auth: None,
            };
            (remote, wanted)
        });
        client.want(wanted.collect());
        Ok(Self {
            daemon,
            peer,
            client,
            began: Instant::now(),
            alive: BTreeMap::new(),
            failures: 0,
            count,
        })
    }

    /// Takes the states of sessions until a condition is met, or for a time.
    async fn pass(&mut self, time: Duration, until: impl Fn(&Self) -> bool) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let now = bfd::Instant::ZERO + self.began.elapsed();
            for event in self.client.turn(now) {
                match event {
                    Event::State(state) => {
                        self.failures += state.failures;
                        self.alive
                            .insert(state.remote, state.liveness == Liveness::Alive);
                    }
                    Event::Rejected { reason, .. } => bail!("rejected: {reason}"),
                    Event::Connected(_) | Event::Lost { .. } => {}
                }
            }
            // The last awaited event may be the last one of all.
            if until(self) {
                break;
            }
            let due = self.client.poll_timeout().map(|at| at - now);
            let rest = end.saturating_duration_since(Instant::now());
            tokio::select! {
                () = self.client.ready(), if self.client.is_connected() => {}
                () = sleep(due.unwrap_or(rest).min(rest)) => {}
            }
        }
        Ok(())
    }

    async fn measure(
        &mut self,
        host: &Host,
        half: &Half,
        routes: u32,
        time: Duration,
    ) -> Result<Measures> {
        let is_up = |this: &Self| {
            let up = this.alive.values().filter(|alive| **alive).count();
            up == this.count as usize
        };
        self.pass(FABRIC_WITHIN, is_up).await?;
        ensure!(is_up(self), "{} sessions were seen", self.alive.len());
        // The intervals of a session change once it is up.
        self.pass(Duration::from_secs(3), |_| false).await?;
        self.failures = 0;
        let before = self.report()?;
        let quiet = self.quiet(time / 4).await?;
        let load = Load::start(host, routes);
        let passed = self.pass(time, |_| false).await;
        let changes = load.end()?;
        passed?;
        self.daemon.check()?;
        self.peer.check()?;
        let after = self.report()?;
        let used = self.daemon.usage().context("cambric-bfd has ended")?;
        let mut measures = Measures::from([
            (half.downs, self.failures as f64),
            (half.peer_downs, (after.failed - before.failed) as f64),
            (half.peer_gaps, (after.gaps - before.gaps) as f64),
            (half.late, after.late_us as f64 / 1e3),
            (half.own_gaps, (after.own_gaps - before.own_gaps) as f64),
        ]);
        if half.interval_ms == 100 {
            measures.extend([
                ("bfd_cpu", quiet),
                ("bfd_mb", used.peak_octets as f64 / 1e6),
                ("bfd_routes", changes as f64),
            ]);
        }
        Ok(measures)
    }

    /// Returns the part of a processor that the daemon uses, with all software interrupts of the machine:
    /// also those of the peer.
    async fn quiet(&mut self, time: Duration) -> Result<f64> {
        let daemon = |this: &Self| this.daemon.usage().context("cambric-bfd has ended");
        let (began, used, soft) = (Instant::now(), daemon(self)?.cpu, softirq()?);
        self.pass(time, |_| false).await?;
        let used = daemon(self)?.cpu.saturating_sub(used);
        let soft = softirq()?.saturating_sub(soft);
        Ok((used + soft).as_secs_f64() / began.elapsed().as_secs_f64())
    }

    fn report(&self) -> Result<Report> {
        Report::parse(&self.peer.log_tail())
    }
}

/// Returns the time of all processors in software interrupts.
fn softirq() -> Result<Duration> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq
    let ticks = line.split_whitespace().nth(7).context("softirq")?;
    let per_second = sysconf(SysconfVar::CLK_TCK)?.unwrap_or(100);
    let ticks: u64 = ticks.parse()?;
    Ok(Duration::from_millis(
        ticks * 1000 / per_second.unsigned_abs(),
    ))
}

/// Routes that are added and deleted, all of them and again.
struct Load {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Load {
    fn start(host: &Host, count: u32) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let (host, stop) = (host.clone(), over.clone());
        let thread = thread::spawn(move || {
            let prefix = |number: u32| Ipv4Addr::from_bits(FIRST_ROUTE + (number << 8));
            // The fastest known order for the kernel: spread over the whole table.
            let passes = (0..PASSES).map(|pass| (pass..count).step_by(PASSES as usize));
            let passes: Vec<Vec<_>> = passes.map(|pass| pass.map(prefix).collect()).collect();
            host.run(|| {
                let mut changes = 0;
                let mut change = |verb, pass: &Vec<_>| {
                    changes += pass.len() as u64;
                    bare::run(verb, pass, PEER, METRIC)
                };
                while !stop.load(Ordering::Relaxed) {
                    let mut present = vec![];
                    for pass in &passes {
                        change(Verb::Add, pass)?;
                        present.push(pass);
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                    for pass in present {
                        change(Verb::Delete, pass)?;
                    }
                }
                Ok(changes)
            })?
        });
        Self { over, thread }
    }

    /// Ends it, and deletes its routes; returns the number of changes.
    fn end(self) -> Result<u64> {
        self.over.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(done) => done,
            Err(_) => bail!("the load panicked"),
        }
    }
}
