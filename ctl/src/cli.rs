//! The tree of commands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{act, decode, lab, show, store};

/// Cambric: BGP routing for layer-3 fabrics.
#[derive(Debug, Parser)]
#[command(name = "cambric", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// End the session with a BGP neighbour, and begin it anew
    Clear(act::Clear),
    /// Print the BGP messages of MRT files or hex lines as JSON
    Decode(decode::Args),
    /// Bring up a routed fabric on this machine, in namespaces of its own
    Lab(lab::Args),
    /// Ask a BGP neighbour for its routes again
    Refresh(act::Refresh),
    /// Ask the daemons of this host what they know
    Show(show::Args),
    /// Serve the embedded store
    Store(store::Args),
}

impl Cli {
    /// Does what was asked.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Clear(args) => block_on(act::clear(args)),
            Command::Decode(args) => decode::run(args).map(|()| ExitCode::SUCCESS),
            Command::Lab(args) => lab::run(args),
            Command::Refresh(args) => block_on(act::refresh(args)),
            Command::Show(args) => block_on(show::run(args)),
            Command::Store(args) => block_on(store::run(args)),
        }
    }
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(work)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn the_tree_is_sound() {
        Cli::command().debug_assert();
    }
}
