//! `cambric node drain` and `undrain`: through the datastore for any node, or on the control socket of
//! this host.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use calico_model::{DrainReport, DrainRequest, DrainStage, FabricKey, Kind, rfc3339_utc};
use calico_store::{Error, KeyRange, LeaseId, Revision, Store, WatchRequest};
use daemon_common::report::{Drain, DrainFigures};
use daemon_common::{Command, Reply};
use tokio::time::{sleep, timeout};

use crate::ask::Targets;
use crate::duration;
use crate::resources::Connection;
use crate::show::clean;

#[cfg(test)]
mod tests;

/// Time between two queries of the daemon of this host.
const QUERY_EVERY: Duration = Duration::from_millis(200);

/// The arguments of `cambric node drain`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    args: Args,
    /// With --local: until the BGP daemon stops, instead of until the machine restarts
    #[arg(long, requires = "local", conflicts_with = "name")]
    until_stop: bool,
}

/// The arguments of `cambric node drain` and `cambric node undrain`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The node
    #[arg(required_unless_present = "local", conflicts_with = "local")]
    name: Option<String>,
    /// Ask the BGP daemon of this host, without the datastore; until the machine restarts
    #[arg(long)]
    local: bool,
    /// Request it and return
    #[arg(long, conflicts_with = "timeout")]
    no_wait: bool,
    /// Maximum time to wait
    #[arg(long, value_parser = duration::parse, value_name = "TIME", default_value = "60s")]
    timeout: Duration,
    #[command(flatten)]
    connection: Connection,
}

/// Runs `cambric node drain`.
pub(super) async fn drain(args: DrainArgs, run: &Path) -> Result<String> {
    let DrainArgs { args, until_stop } = args;
    let Some(name) = &args.name else {
        return here(&args, run, true, until_stop).await;
    };
    let store = args.connection.store().await?;
    let since = request(&store, name).await?;
    if args.no_wait {
        return Ok(format!("node {name} is asked to drain\n"));
    }
    let report = wait(&store, name, args.timeout, |report| {
        report.is_some_and(|report| report.since == since && report.stage == DrainStage::Drained)
    });
    let report = report.await.context(STAYS)?.unwrap_or_default();
    Ok(drained(name, u64::from(report.behind)))
}

/// Runs `cambric node undrain`.
pub(super) async fn undrain(args: Args, run: &Path) -> Result<String> {
    let Some(name) = &args.name else {
        return here(&args, run, false, false).await;
    };
    let store = args.connection.store().await?;
    end_request(&store, name).await?;
    if args.no_wait {
        return Ok(format!("the drain of node {name} is asked to end\n"));
    }
    wait(&store, name, args.timeout, |report| report.is_none())
        .await
        .context(
            "the request is deleted; the node ends its drain when its BGP daemon reads that",
        )?;
    Ok(format!("node {name} advertises its routes as usual\n"))
}

const STAYS: &str = "the request stays in effect until `cambric node undrain`";

fn drained(name: &str, behind: u64) -> String {
    let mut text = format!(
        "node {name} is drained: all its routes are the least preferred ones, and its sessions stay up\n"
    );
    if behind > 0 {
        text.push_str(&format!(
            "{behind} of its neighbors have not been sent all in time\n"
        ));
    }
    text
}

/// Stores the request, unless there is one. Returns the time of the request.
async fn request(store: &impl Store, name: &str) -> Result<String> {
    let registration = FabricKey::Reflector(name.to_owned()).to_string();
    if !store
        .list(KeyRange::key(registration))
        .await?
        .items
        .is_empty()
    {
        bail!("{name} is a route reflector: use `cambric reflector drain {name}`");
    }
    let node = format!("{}{name}", Kind::Node.prefix());
    if store.list(KeyRange::key(node)).await?.items.is_empty() {
        bail!("there is no Node {name} in the datastore");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = rfc3339_utc(now.unwrap_or_default().as_secs());
    create(store, name, since).await
}

/// Stores a request with this time in one transaction, unless there is one. Returns the time of the
/// stored request: two operators at the same time have one request.
async fn create(store: &impl Store, name: &str, since: String) -> Result<String> {
    let key = FabricKey::Drain(name.to_owned()).to_string();
    let value = DrainRequest::since(since.clone()).encode();
    match store.create(key.into(), value.into(), LeaseId::NONE).await {
        Ok(_) => Ok(since),
        Err(Error::Conflict {
            current: Some(earlier),
        }) => {
            let earlier = DrainRequest::parse(&earlier.value);
            Ok(earlier.map(|request| request.since).unwrap_or_default())
        }
        Err(error) => Err(error.into()),
    }
}

/// Deletes the request to drain a node.
///
/// # Errors
///
/// There is neither a request nor a report of an earlier one.
async fn end_request(store: &impl Store, name: &str) -> Result<()> {
    let key = FabricKey::Drain(name.to_owned()).to_string();
    if store.delete(key.into()).await? {
        return Ok(());
    }
    let report = FabricKey::DrainReport(name.to_owned()).to_string();
    let listing = store.list(KeyRange::key(report)).await?;
    if listing.items.is_empty() {
        bail!("node {name} is not being drained");
    }
    Ok(())
}

/// Waits until the report of a node is as wanted, and prints each stage. Returns the report.
async fn wait(
    store: &impl Store,
    name: &str,
    limit: Duration,
    is_wanted: impl Fn(Option<&DrainReport>) -> bool,
) -> Result<Option<DrainReport>> {
    let mut last = None;
    let follow = follow(store, name, is_wanted, &mut last);
    match timeout(limit, follow).await {
        Ok(result) => result,
        Err(_) => {
            let state = match &last {
                Some(report) => format!("its stage is {}", report.stage),
                None => "it has not reported a drain: is its BGP daemon running?".to_owned(),
            };
            bail!(
                "node {name}: not finished within {} s; {state}",
                limit.as_secs()
            )
        }
    }
}

async fn follow(
    store: &impl Store,
    name: &str,
    is_wanted: impl Fn(Option<&DrainReport>) -> bool,
    last: &mut Option<DrainReport>,
) -> Result<Option<DrainReport>> {
    let key = FabricKey::DrainReport(name.to_owned()).to_string();
    let range = KeyRange::key(key.clone());
    loop {
        let listing = store.list(range.clone()).await?;
        let after: Revision = listing.header.revision.next();
        let watch = store.watch(WatchRequest::from(range.clone(), after));
        let mut watch = watch.await?;
        let report = listing
            .items
            .first()
            .map(|item| DrainReport::parse(&item.value));
        let report = report.transpose().with_context(|| key.clone())?;
        if is_wanted(report.as_ref()) {
            return Ok(report);
        }
        if report != *last
            && let Some(report) = &report
        {
            println!("node {name}: {}", stage(report.stage));
        }
        *last = report;
        // After any event and any error: read again.
        let _ = watch.next().await;
    }
}

const fn stage(stage: DrainStage) -> &'static str {
    match stage {
        DrainStage::Services => "routes of services are sent as the least preferred ones",
        DrainStage::All => "all routes are sent as the least preferred ones",
        DrainStage::Drained => "drained",
    }
}

/// Begins or ends the drain of this host, and waits for it.
async fn here(args: &Args, run: &Path, on: bool, until_stop: bool) -> Result<String> {
    let targets = Targets {
        daemons: &["bgp-client"],
        socket: None,
        run,
    };
    let ask = async |on: Option<bool>| {
        let until_stop = until_stop && on.is_some();
        let answers = targets.ask(&Command::Drain { on, until_stop }, 0).await?;
        match answers.into_values().next() {
            Some(Reply::Drain(Drain { drain })) => Ok(drain),
            _ => bail!("the BGP daemon has not answered"),
        }
    };
    let mut found: Option<DrainFigures> = ask(Some(on)).await?;
    if !on {
        return Ok(match &found {
            None => "this node advertises its routes as usual\n".to_owned(),
            Some(left) => format!("this node is still {}\n", clean(&left.note())),
        });
    }
    if args.no_wait {
        return Ok("this node is asked to drain\n".to_owned());
    }
    let waited = timeout(args.timeout, async {
        while !found.as_ref().is_some_and(DrainFigures::is_drained) {
            sleep(QUERY_EVERY).await;
            found = ask(None).await?;
        }
        anyhow::Ok(())
    });
    match waited.await {
        Ok(done) => done?,
        Err(_) => bail!(
            "this node is not drained within {} s; the request stays in effect",
            args.timeout.as_secs()
        ),
    }
    let note = found.map(|figures| figures.note()).unwrap_or_default();
    Ok(format!("this node is {}\n", clean(&note)))
}
