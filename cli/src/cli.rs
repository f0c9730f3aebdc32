//! The tree of commands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(feature = "lab")]
use crate::lab;
use crate::{
    act, addresses, decode, events, guard, log, migrate, node, reflector, resources, show, store,
};

/// Cambric: BGP routing for layer-3 fabrics.
#[derive(Debug, Parser)]
#[command(name = "cambric", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write resources to the store, whether they are there or not
    Apply(resources::Write),
    /// End the session with a BGP neighbour, and begin it anew
    Clear(act::Clear),
    /// Write resources to the store that must not be there yet
    Create(resources::Create),
    /// Whether the store is acted upon: lock it while it is migrated, and unlock it
    Datastore(migrate::Args),
    /// Log all events of one BGP neighbor for a while
    Debug(log::DebugArgs),
    /// Print the BGP messages of MRT files or hex lines as JSON
    Decode(decode::Args),
    /// Delete resources from the store
    Delete(resources::Delete),
    /// What happened in the daemons of this host
    Events(events::Args),
    /// Print resources of the store
    Get(resources::Get),
    /// Keep other users of this host away from its BGP port: load, check, remove
    Guard(guard::Args),
    /// The addresses of workloads: show, check, release, configure, collect
    Ipam(addresses::Args),
    /// Bring up a routed fabric on this machine, in namespaces of its own
    #[cfg(feature = "lab")]
    Lab(lab::Args),
    /// Set the level of the daemons' logs for a while
    Log(log::Args),
    /// The hosts: their agents, and the BGP sessions of this one
    Node(node::Args),
    /// The fabric's reflectors: list, drain, undrain, remove
    Reflector(reflector::Args),
    /// Ask a BGP neighbour for its routes again
    Refresh(act::Refresh),
    /// Write resources to the store that must be there
    Replace(resources::Write),
    /// Ask the daemons of this host what they know
    Show(show::Args),
    /// Serve the embedded store
    Store(store::Args),
}

impl Cli {
    /// Does what was asked.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Apply(args) => block_on(resources::apply(args)),
            Command::Create(args) => block_on(resources::create(args)),
            Command::Delete(args) => block_on(resources::delete(args)),
            Command::Get(args) => block_on(resources::get(args)),
            Command::Node(args) => block_on(node::run(args)),
            Command::Replace(args) => block_on(resources::replace(args)),
            Command::Clear(args) => block_on(act::clear(args)),
            Command::Datastore(args) => block_on(migrate::run(args)),
            Command::Debug(args) => block_on(log::debug(args)),
            Command::Decode(args) => decode::run(args).map(|()| ExitCode::SUCCESS),
            Command::Events(args) => block_on(events::run(args)),
            Command::Guard(args) => guard::run(&args),
            Command::Ipam(args) => block_on(addresses::run(args)),
            #[cfg(feature = "lab")]
            Command::Lab(args) => lab::run(args),
            Command::Log(args) => block_on(log::run(args)),
            Command::Reflector(args) => block_on(reflector::run(args)),
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
