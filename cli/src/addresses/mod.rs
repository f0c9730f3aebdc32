//! `cambric ipam`: the addresses of workloads, with the subcommands of calicoctl.

mod check;
mod configure;
mod gc;
mod release;
mod report;
mod show;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

/// The arguments of `cambric ipam`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Show pools, blocks, the owner of an address, borrowed addresses, or the settings
    Show(show::Show),
    /// Find leaked or unallocated addresses, and inconsistent blocks, affinities and handles
    Check(check::Check),
    /// Release an address, or the leaked addresses of a report of `check`
    Release(release::Release),
    /// Change the settings
    Configure(configure::Configure),
    /// Release leaked addresses, and correct inconsistent blocks, affinities and handles
    Gc(gc::Gc),
}

/// Runs `cambric ipam`.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    match args.what {
        What::Show(args) => show::run(args).await,
        What::Check(args) => check::run(args).await,
        What::Release(args) => release::run(args).await,
        What::Configure(args) => configure::run(args).await,
        What::Gc(args) => gc::run(args).await,
    }?;
    Ok(ExitCode::SUCCESS)
}
