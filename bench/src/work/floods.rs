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
use crate::daemons::Kind;
use crate::flood::Flood;
use crate::limits::{FLOOD_BLOCKS, FLOOD_GAP, FLOOD_ROUNDS, FLOOD_WITHIN};
use crate::stage::{Measures, Options, Stage, quantiles, scene};

/// The priority of the thread that attacks.
const LOWEST_PRIORITY: i32 = 19;

/// The quiet clients.
const QUIET: Fleet = Fleet {
    clients: 2,
    each: 50,
    each_v6: 0,
};

/// The floods, with the names of their measures: p99 in relation to that without a flood, and
/// milliseconds.
const FLOODS: [(Flood, &str, &str); 8] = [
    (
        Flood::Strangers { rate: 1000 },
        "strangers_ratio",
        "strangers_p99_ms",
    ),
    (
        Flood::Strangers { rate: 5000 },
        "strangers_5k_ratio",
        "strangers_5k_p99_ms",
    ),
    (
        Flood::Garbage { rate: 1000 },
        "garbage_ratio",
        "garbage_p99_ms",
    ),
    (Flood::SlowOpens, "slow_opens_ratio", "slow_opens_p99_ms"),
    (
        Flood::Malformed { rate: 5000 },
        "malformed_ratio",
        "malformed_p99_ms",
    ),
    (
        Flood::SlowReaders,
        "slow_readers_ratio",
        "slow_readers_p99_ms",
    ),
    (
        Flood::TakeOvers { rate: 200 },
        "take_overs_ratio",
        "take_overs_p99_ms",
    ),
    (
        Flood::LongOpens { rate: 1000 },
        "long_opens_ratio",
        "long_opens_p99_ms",
    ),
];

/// Measures each flood in turn with undisturbed blocks, then strangers while the daemon's log is not
/// read.
pub(super) async fn floods(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let mut measures = Measures::new();
    let mut stage = quiet(lab, kind, options).await?;
    for (flood, ratio, p99) in FLOODS {
        measure(&mut stage, flood, options, (ratio, p99), &mut measures)?;
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
    let names = ("log_ratio", "log_p99_ms");
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
    (ratio, p99): (&'static str, &'static str),
    measures: &mut Measures,
) -> Result<()> {
    let (blocks, rounds) = match options.quick {
        true => (1, 5),
        false => (FLOOD_BLOCKS, FLOOD_ROUNDS),
    };
    let (mut free, mut flooded) = (Vec::new(), Vec::new());
    let samples = |stage: &mut Stage, all: &mut Vec<f64>| -> Result<()> {
        let each = latency(stage, QUIET, Some(FLOOD_GAP), rounds, None)?;
        all.extend(each.announce.into_iter().chain(each.withdraw));
        Ok(())
    };
    for _ in 0..blocks {
        samples(stage, &mut free)?;
        let running = Running::start(&stage.host, flood);
        let began = Instant::now();
        while running.done.load(Ordering::Relaxed) < flood.least() {
            stage.generator.run_for(FLOOD_GAP)?;
            ensure!(
                began.elapsed() < FLOOD_WITHIN && !running.thread.is_finished(),
                "{flood:?} did not begin: {:?}",
                running.stop()
            );
        }
        samples(stage, &mut flooded)?;
        running.stop()?;
        stage.generator.rest(stage.patience)?;
    }
    let ([free], [flooded]) = (quantiles(free, [0.99])?, quantiles(flooded, [0.99])?);
    measures.insert(ratio, flooded / free);
    measures.insert(p99, flooded);
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
    fn start(host: &Host, flood: Flood) -> Self {
        let (ends, ended) = sync_channel(1);
        let done = Arc::<AtomicU64>::default();
        let (host, count) = (host.clone(), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            let run = move || {
                // In a real fabric, attackers do not use the processors of the daemon and its clients.
                rustix::process::setpriority_process(None, LOWEST_PRIORITY)?;
                flood.run(&ended, &count)
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
