//! `cambric kube`: the cluster of Kubernetes.

mod check;
mod rights;

use std::process::ExitCode;

use clap::Subcommand;

/// The arguments of `cambric kube`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Check what stops pods of this cluster: rights, kubeconfig, CNI configuration, pools, profiles, names of
    /// nodes
    Check(Box<check::Args>),
}

/// Runs `cambric kube`.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Check(args) => check::run(*args).await,
    }
}
