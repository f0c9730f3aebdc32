//! `cambric ipam`: the addresses of workloads, with the words that users of calicoctl have.

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
    /// How many addresses pools and blocks have, who has one, who has borrowed some, the settings
    Show(show::Show),
    /// Look for addresses that nobody uses or that nobody was given, and for what does not add up
    Check(check::Check),
    /// Give back an address, or those that a report of `check` says nobody uses
    Release(release::Release),
    /// Change the settings
    Configure(configure::Configure),
    /// Give back what nobody has used for a while, and set right what does not add up
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
