//! `cambric store`: the small store as a subcommand.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use daemon_common::daemon::{LogFormat, Signal, Signals, init_logging, notify_ready};
use daemon_common::log::Logging;
use etcd_lite::serve::{ServeConfig, Server};

/// The arguments of `cambric store`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Serve a datastore over the etcd v3 API: one member, in memory or in a file
    Serve {
        /// Address and port to listen on; repeat for several. There is no authentication:
        /// every client that reaches it may write
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2379")]
        listen: Vec<SocketAddr>,
        /// Load resources from this directory, and apply its changes
        #[arg(long, value_name = "DIR")]
        manifests: Option<PathBuf>,
        /// Save the content to this file
        #[arg(long, value_name = "FILE")]
        data: Option<PathBuf>,
        /// Level or directives; CAMBRIC_LOG overrides it
        #[arg(long, value_name = "LEVEL", default_value = "info")]
        log: String,
    },
}

/// Runs until a signal stops it.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let What::Serve {
        listen,
        manifests,
        data,
        log,
    } = args.what;
    let _log = Logging::begin().context("no thread for the log")?;
    init_logging(&log, LogFormat::Text)?;
    for address in listen.iter().filter(|address| !address.ip().is_loopback()) {
        tracing::warn!(%address, "reachable from outside, and without authentication");
    }
    let mut signals = Signals::new().context("listening for signals")?;
    let server = Server::bind(ServeConfig {
        listen,
        manifests,
        data,
    })
    .await?;
    notify_ready();
    let stopped = async { while signals.next().await == Signal::Reload {} };
    server.run(stopped).await?;
    Ok(ExitCode::SUCCESS)
}
