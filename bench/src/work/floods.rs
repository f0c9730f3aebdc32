//! floods: the latency between two quiet clients while others attack the reflector.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use netns_lab::{Host, Lab};

use super::fanout::{Fleet, converge};
use super::latency::latency;
use super::scheduling::schedule;
use crate::daemons::Kind;
use crate::flood::{BGP_PORT, Bystander, Flood};
use crate::limits::{FLOOD_BLOCKS, FLOOD_GAP, FLOOD_RATE_LEAST, FLOOD_ROUNDS, FLOOD_WITHIN};
use crate::stage::{Measures, Options, Stage, quantiles, scene};

/// The quiet clients.
const QUIET: Fleet = Fleet {
    clients: 2,
    each: 50,
    each_v6: 0,
};

/// The names of a flood's measures.
#[derive(Clone, Copy)]
struct Names {
    /// p99 in relation to that without a flood.
    ratio: &'static str,
    /// p99 in relation to that during the same flood of another listener, if the flood needs no
    /// session.
    beside: Option<&'static str>,
    /// p99 in milliseconds.
    p99: &'static str,
}

const fn names(ratio: &'static str, beside: Option<&'static str>, p99: &'static str) -> Names {
    Names { ratio, beside, p99 }
}

/// The floods.
const FLOODS: [(Flood, Names); 8] = [
    (
        Flood::Strangers { rate: 1000 },
        names(
            "strangers_ratio",
            Some("strangers_beside_ratio"),
            "strangers_p99_ms",
        ),
    ),
    (
        Flood::Strangers { rate: 5000 },
        names(
            "strangers_5k_ratio",
            Some("strangers_5k_beside_ratio"),
            "strangers_5k_p99_ms",
        ),
    ),
    (
        Flood::Garbage { rate: 1000 },
        names(
            "garbage_ratio",
            Some("garbage_beside_ratio"),
            "garbage_p99_ms",
        ),
    ),
    (
        Flood::SlowOpens,
        names("slow_opens_ratio", None, "slow_opens_p99_ms"),
    ),
    (
        Flood::Malformed { rate: 5000 },
        names("malformed_ratio", None, "malformed_p99_ms"),
    ),
    (
        Flood::SlowReaders,
        names("slow_readers_ratio", None, "slow_readers_p99_ms"),
    ),
    (
        Flood::TakeOvers { rate: 200 },
        names(
            "take_overs_ratio",
            Some("take_overs_beside_ratio"),
            "take_overs_p99_ms",
        ),
    ),
    (
        Flood::LongOpens { rate: 1000 },
        names(
            "long_opens_ratio",
            Some("long_opens_beside_ratio"),
            "long_opens_p99_ms",
        ),
    ),
];

/// Measures each flood in turn with undisturbed blocks, then strangers while the daemon's log is not
/// read.
pub(super) async fn floods(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let mut measures = Measures::new();
    let mut stage = quiet(lab, kind, options).await?;
    for (flood, names) in FLOODS {
        measure(&mut stage, flood, options, names, &mut measures)?;
    }
    stage.strike().await?;

    let directory = std::env::temp_dir().join(format!("cambric-floods-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let result = unread(lab, kind, options, &directory, &mut measures).await;
    std::fs::remove_dir_all(&directory)?;
    result.map(|()| measures)
}

/// Measures strangers with a daemon whose standard error is a full pipe.
async fn unread(
    lab: &Lab,
    kind: Kind,
    options: &Options,
    directory: &Path,
    measures: &mut Measures,
) -> Result<()> {
    let (pipe, _reader) = fifo(directory)?;
    let redirect = format!("exec \"$0\" \"$@\" 2>{}", pipe.display());
    let wrap = ["env", "CAMBRIC_LOG=debug", "sh", "-c", &redirect];
    let options = Options {
        wrap: wrap.map(str::to_owned).to_vec(),
        ..options.clone()
    };
    let mut stage = quiet(lab, kind, &options).await?;
    let names = names("log_ratio", Some("log_beside_ratio"), "log_p99_ms");
    let flood = Flood::Strangers { rate: 1000 };
    measure(&mut stage, flood, &options, names, measures)?;
    stage.strike().await
}

/// Makes a named pipe with a reader that never reads.
fn fifo(directory: &Path) -> Result<(std::path::PathBuf, File)> {
    let path = directory.join("log");
    let made = Command::new("mkfifo")
        .arg(&path)
        .status()
        .context("mkfifo")?;
    ensure!(made.success(), "mkfifo {}", path.display());
    // Opened for both directions, since opening it for reading alone waits for a writer.
    let reader = OpenOptions::new().read(true).write(true).open(&path)?;
    Ok((path, reader))
}

async fn quiet(lab: &Lab, kind: Kind, options: &Options) -> Result<Stage> {
    let parts = QUIET.parts();
    let routes = QUIET.routes(options.seed, crate::stage::passing(kind, true));
    let mut scene = scene(&parts);
    scene.range = true;
    let mut stage = Stage::prepare(lab, kind, options, scene, &parts, routes.into()).await?;
    stage.establish()?;
    converge(&mut stage)?;
    Ok(stage)
}

/// Adds the measures of one flood.
fn measure(
    stage: &mut Stage,
    flood: Flood,
    options: &Options,
    names: Names,
    measures: &mut Measures,
) -> Result<()> {
    let (blocks, rounds) = match options.quick {
        true => (1, 5),
        false => (FLOOD_BLOCKS, FLOOD_ROUNDS),
    };
    let (mut free, mut beside, mut flooded) = (Vec::new(), Vec::new(), Vec::new());
    let samples = |stage: &mut Stage, all: &mut Vec<f64>| -> Result<()> {
        // The quiet clients are this thread. In a fabric, they, the attackers and the daemon have
        // processors of their own; a time slice of another thread is ten times the latency. Threads that it starts would inherit the policy.
        if !schedule("--fifo", "1")? {
            eprintln!("floods: without SCHED_FIFO, the clients wait for processors");
        }
        let each = latency(stage, QUIET, Some(FLOOD_GAP), rounds, None);
        schedule("--other", "0")?;
        let each = each?;
        all.extend(each.announce.into_iter().chain(each.withdraw));
        Ok(())
    };
    for _ in 0..blocks {
        samples(stage, &mut free)?;
        if names.beside.is_some() {
            let bystander = stage.host.run(|| Bystander::start(flood))??;
            let running = Running::start(stage, flood, bystander.port)?;
            samples(stage, &mut beside)?;
            running.stop()?;
            stage.host.run(|| bystander.stop())??;
        }
        let running = Running::start(stage, flood, BGP_PORT)?;
        let (before, began) = (running.done.load(Ordering::Relaxed), Instant::now());
        samples(stage, &mut flooded)?;
        let actions = (running.done.load(Ordering::Relaxed) - before) as f64;
        let rate = actions / began.elapsed().as_secs_f64();
        running.stop()?;
        if let Some(wanted) = flood.rate().filter(|_| !options.quick) {
            ensure!(
                rate > f64::from(wanted) * FLOOD_RATE_LEAST,
                "{flood:?} reached {rate:.0} actions per second only"
            );
        }
        stage.generator.rest(stage.patience)?;
    }
    let ([free], [flooded]) = (quantiles(free, [0.99])?, quantiles(flooded, [0.99])?);
    measures.insert(names.ratio, flooded / free);
    measures.insert(names.p99, flooded);
    if let Some(name) = names.beside {
        let [beside] = quantiles(beside, [0.99])?;
        measures.insert(name, flooded / beside);
    }
    Ok(())
}

/// A flood in a thread of its own.
struct Running {
    /// Dropped to end it.
    ends: SyncSender<()>,
    /// Connections or messages so far.
    done: Arc<AtomicU64>,
    thread: JoinHandle<Result<()>>,
}

impl Running {
    /// Starts it against a port and waits until it has its full effect.
    fn start(stage: &mut Stage, flood: Flood, port: u16) -> Result<Self> {
        let running = Self::begin(&stage.host, flood, port);
        let began = Instant::now();
        while running.done.load(Ordering::Relaxed) < flood.least() {
            stage.generator.run_for(FLOOD_GAP)?;
            ensure!(
                began.elapsed() < FLOOD_WITHIN && !running.thread.is_finished(),
                "{flood:?} did not begin: {:?}",
                running.stop()
            );
        }
        Ok(running)
    }

    fn begin(host: &Host, flood: Flood, port: u16) -> Self {
        let (ends, ended) = sync_channel(1);
        let done = Arc::<AtomicU64>::default();
        let (host, count) = (host.clone(), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            let run = move || {
                // It runs only when no other thread wants the processor.
                ensure!(schedule("--idle", "0")?, "chrt --idle");
                flood.run(port, &ended, &count)
            };
            host.run(run)?.with_context(|| format!("{flood:?}"))
        });
        Self { ends, done, thread }
    }

    fn stop(self) -> Result<()> {
        drop(self.ends);
        let ended = self.thread.join();
        ended.map_err(|_| anyhow!("the flood panicked"))?
    }
}
