//! The tree of commands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{
    act, addresses, check, decode, etcd_roles, events, flows, guard, key, kube, lab, log, migrate,
    node, policy, reflector, resources, show, store,
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
    /// Create or update resources
    Apply(resources::Apply),
    /// Check this host: its packet filter against the datastore or for a packet, or whether it is ready
    Check(check::Args),
    /// Reset the session with a BGP neighbor
    Clear(act::Clear),
    /// Create resources
    Create(resources::Create),
    /// Lock or unlock the datastore for a migration
    Datastore(migrate::Args),
    /// Log all events of a BGP neighbor for a limited time
    Debug(log::DebugArgs),
    /// Print the BGP messages of MRT files, packet captures or hex lines as JSON
    Decode(decode::Args),
    /// Delete resources
    Delete(resources::Delete),
    /// Print the roles of etcd for the parts of a fabric, as commands of etcdctl
    EtcdRoles(etcd_roles::Args),
    /// Show the history of events of the daemons of this host
    Events(events::Args),
    /// Show the flows of workloads, each with the policy or profile that allows or denies it
    Flows(flows::Args),
    /// Print resources
    Get(resources::Get),
    /// Load, check or remove the host guard, which keeps other users of this host from BGP ports
    Guard(guard::Args),
    /// Manage workload addresses: show, check, release, configure, collect
    Ipam(addresses::Args),
    /// Create the TCP-MD5 key of BGP sessions, or change it without a reset of the sessions
    Key(key::Args),
    /// Check the cluster of Kubernetes
    Kube(kube::Args),
    /// Run a routed fabric on this machine, in separate namespaces
    #[cfg_attr(not(feature = "lab"), command(hide = true))]
    Lab(lab::Args),
    /// Set the log level of the daemons for a limited time
    Log(log::Args),
    /// Show the hosts with their agents, or the BGP sessions of this host; drain a node
    Node(node::Args),
    /// Show the effect that a staged policy would have
    Policy(policy::Args),
    /// Manage the fabric's route reflectors: list, drain, undrain, remove
    Reflector(reflector::Args),
    /// Request the routes of a BGP neighbor again
    Refresh(act::Refresh),
    /// Replace existing resources
    Replace(resources::Write),
    /// Show the state of the daemons of this host
    Show(show::Args),
    /// Run the small store
    Store(store::Args),
}

impl Cli {
    /// Runs the command.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Apply(args) => block_on(resources::apply(args)),
            Command::Create(args) => block_on(resources::create(args)),
            Command::Delete(args) => block_on(resources::delete(args)),
            Command::Get(args) => block_on(resources::get(args)),
            Command::Node(args) => block_on(node::run(args)),
            Command::Replace(args) => block_on(resources::replace(args)),
            Command::Check(args) => block_on(check::run(args)),
            Command::Clear(args) => block_on(act::clear(args)),
            Command::Datastore(args) => block_on(migrate::run(args)),
            Command::Debug(args) => block_on(log::debug(args)),
            Command::Decode(args) => decode::run(args).map(|()| ExitCode::SUCCESS),
            Command::EtcdRoles(args) => etcd_roles::run(&args),
            Command::Events(args) => block_on(events::run(args)),
            Command::Flows(args) => block_on(flows::run(args)),
            Command::Guard(args) => guard::run(&args),
            Command::Ipam(args) => block_on(addresses::run(args)),
            Command::Key(args) => key::run(&args),
            Command::Kube(args) => block_on(kube::run(args)),
            Command::Lab(args) => lab::run(args),
            Command::Log(args) => block_on(log::run(args)),
            Command::Policy(args) => block_on(policy::run(args)),
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
