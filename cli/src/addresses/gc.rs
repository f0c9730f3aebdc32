//! `cambric ipam gc`: one collection, or periodic collections.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use calico_ipam::{Collector, Finding, Ipam, IpamError, NotReady};
use calico_model::GoDuration;
use calico_store::EtcdStore;
use daemon_common::daemon::{LogFormat, Signal, Signals, init_logging};
use daemon_common::log::Logging;

use crate::resources::Connection;
use crate::show::clean;

/// The arguments of `cambric ipam gc`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Gc {
    /// How long an object must have been leaked or inconsistent before it is collected: longer than
    /// a plugin needs from the allocation of an address to the write of its endpoint
    #[arg(long, value_name = "DURATION", default_value = "15m")]
    grace: GoDuration,
    /// Print what would be collected, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Run permanently, and log each change
    #[arg(long)]
    watch: bool,
    /// Time between two scans
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "5m",
        requires = "watch"
    )]
    interval: GoDuration,
    /// Level or directives; CAMBRIC_LOG overrides it
    #[arg(long, value_name = "LEVEL", default_value = "info", requires = "watch")]
    log: String,
    #[command(flatten)]
    connection: Connection,
}

/// Minimum time between two scans: each reads all endpoints and blocks.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Runs `cambric ipam gc`.
pub(super) async fn run(args: Gc) -> Result<()> {
    let mut _log = None;
    if args.watch {
        _log = Some(Logging::begin().context("no thread for the log")?);
        init_logging(&args.log, LogFormat::Text)?;
    }
    let store = args.connection.store().await?;
    let mut collector = Collector::new(args.grace.0);
    if args.watch {
        return watch(&args, &store, &mut collector).await;
    }
    let first = look(&store, &mut collector).await??;
    debug_assert!(first.is_empty(), "a first look confirms nothing");
    let suspects = collector.suspects().count();
    if suspects == 0 {
        println!("Nothing to collect.");
        return Ok(());
    }
    if !args.grace.0.is_zero() {
        println!(
            "Found {suspects} things to collect, if they are the same in {}.",
            args.grace
        );
        tokio::time::sleep(args.grace.0).await;
    }
    let found = look(&store, &mut collector).await??;
    let mut mended = 0;
    for finding in &found {
        let text = clean(&finding.to_string());
        if args.dry_run {
            println!("{text}");
        } else if Ipam::new(&store).mend(finding).await? {
            println!("{text}: done");
            mended += 1;
        } else {
            println!("{text}: has changed since");
        }
    }
    let all = found.len();
    if args.dry_run {
        println!("Would collect {all} things.");
    } else {
        println!("Collected {mended} of {all} things.");
    }
    Ok(())
}

/// Scans the store, and returns the repairs.
async fn look(
    store: &EtcdStore,
    collector: &mut Collector,
) -> Result<Result<Vec<Finding>, NotReady>, IpamError> {
    let inventory = Ipam::new(store).inventory().await?;
    Ok(collector.look(Instant::now(), &inventory))
}

async fn watch(args: &Gc, store: &EtcdStore, collector: &mut Collector) -> Result<()> {
    let mut signals = Signals::new().context("listening for signals")?;
    let mut interval = tokio::time::interval(args.interval.0.max(INTERVAL_MIN));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            signal = signals.next() => match signal {
                Signal::Reload => continue,
                _ => return Ok(()),
            },
        }
        let turn = turn(args, store, collector);
        tokio::select! {
            // Each change is one transaction: the turn may end between any two.
            () = turn => {}
            () = async { while signals.next().await == Signal::Reload {} } => return Ok(()),
        }
    }
}

/// Scans once, and applies the repairs. After an error the store is read again in the next turn.
async fn turn(args: &Gc, store: &EtcdStore, collector: &mut Collector) {
    let found = match look(store, collector).await {
        Ok(Ok(found)) => found,
        Ok(Err(not_ready)) => return tracing::warn!(%not_ready, "nothing is collected"),
        Err(error) => return tracing::warn!(%error, "the store cannot be read"),
    };
    let suspects = collector.suspects().count();
    tracing::debug!(suspects, confirmed = found.len(), "looked");
    for finding in &found {
        let text = clean(&finding.to_string());
        if args.dry_run {
            tracing::info!(finding = %text, "would collect");
            continue;
        }
        match Ipam::new(store).mend(finding).await {
            Ok(true) => tracing::info!(finding = %text, "collected"),
            Ok(false) => tracing::debug!(finding = %text, "not collected: changed since the scan"),
            Err(error) => tracing::warn!(finding = %text, %error, "not collected"),
        }
    }
}
