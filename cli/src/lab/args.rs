//! The command line of `cambric lab`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Subcommand, ValueEnum};
use netns_lab::Enclosure;
use netns_lab::fabric::{Plan, Shape};

/// A routed fabric on this machine, in namespaces of its own
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) command: Command,

    /// Set on the second start, within the namespaces.
    #[arg(long, hide = true, global = true, value_name = "HOW")]
    pub(super) inside: Option<Inside>,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    /// Start a fabric, check that it routes, print measurements, and remove it
    Demo(DemoArgs),
    /// Start a fabric and keep it in the background
    Up(UpArgs),
    /// Show the machines of a fabric that is kept, with sessions and routes
    Status(NameArgs),
    /// Run a command on a host of a fabric that is kept
    Exec(ExecArgs),
    /// Add a workload to a fabric that is kept, or remove one
    #[command(subcommand)]
    Workload(WorkloadCommand),
    /// Remove a fabric that is kept
    Down(NameArgs),
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum WorkloadCommand {
    /// Connect a new workload to a node with CNI's ADD, as a container runtime does
    Add(AddWorkloadArgs),
    /// Disconnect a workload with CNI's DEL, and remove it
    Del(DelWorkloadArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct AddWorkloadArgs {
    #[command(flatten)]
    pub(super) fabric: NameArgs,
    /// Its name
    #[arg(value_name = "WORKLOAD", value_parser = lab_name)]
    pub(super) workload: String,
    /// The node that it is connected to
    #[arg(long, default_value = "node1", value_name = "NODE")]
    pub(super) node: String,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct DelWorkloadArgs {
    #[command(flatten)]
    pub(super) fabric: NameArgs,
    /// Its name
    #[arg(value_name = "WORKLOAD")]
    pub(super) workload: String,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct FabricArgs {
    /// How many nodes
    #[arg(long, default_value_t = 4, value_name = "N")]
    nodes: u16,
    /// How many route reflectors
    #[arg(long, default_value_t = 2, value_name = "R")]
    reflectors: u16,
    /// How many workloads on each node
    #[arg(long, default_value_t = 2, value_name = "W")]
    workloads: u16,
    /// No reflectors: a full mesh of the nodes
    #[arg(long)]
    mesh: bool,
    /// Configure every neighbor in the daemons' files, not in the datastore
    #[arg(long)]
    from_files: bool,
    /// The datastore
    #[arg(long, value_enum, default_value_t = StoreKind::Embedded)]
    pub(super) store: StoreKind,
    /// Number of members of the datastore, on separate hosts; needs --store etcd
    #[arg(long, default_value_t = 1, value_name = "M")]
    members: u16,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct DemoArgs {
    #[command(flatten)]
    pub(super) fabric: FabricArgs,
    /// Write the figures to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Copy the logs and configurations of all daemons to this directory
    #[arg(long, value_name = "DIR")]
    pub(super) logs: Option<PathBuf>,
    /// Run the same fabric in the simulator, which needs no namespaces
    #[arg(long, conflicts_with_all = ["json", "logs", "from_files"])]
    pub(super) sim: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct UpArgs {
    #[command(flatten)]
    pub(super) fabric: FabricArgs,
    #[command(flatten)]
    pub(super) name: NameArgs,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct NameArgs {
    /// Which fabric, when there are several
    #[arg(long, default_value = "default", value_name = "NAME", value_parser = lab_name)]
    pub(super) name: String,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct ExecArgs {
    #[command(flatten)]
    pub(super) name: NameArgs,
    /// A node (node1), reflector (rr1), workload (w1), or a host of the store (fabric, store2)
    #[arg(value_name = "HOST")]
    pub(super) host: String,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(super) command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StoreKind {
    /// `cambric store serve`, in memory
    Embedded,
    /// The etcd of the system
    Etcd,
}

/// How the namespaces were entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Inside {
    Root,
    User,
}

impl FabricArgs {
    /// Returns the plan of the requested fabric.
    pub(super) fn plan(&self) -> Result<Plan> {
        if self.members > 1 && self.store == StoreKind::Embedded {
            bail!("the embedded store has one member; add --store etcd");
        }
        let plan = Plan::new(self.shape())?.with_store_members(self.members)?;
        Ok(match self.from_files {
            true => plan,
            false => plan.with_bgp_from_store(),
        })
    }

    pub(super) const fn shape(&self) -> Shape {
        Shape {
            nodes: self.nodes,
            reflectors: self.reflectors,
            workloads_per_node: self.workloads,
            mesh: self.mesh,
        }
    }
}

impl StoreKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Etcd => "etcd",
        }
    }
}

impl From<Enclosure> for Inside {
    fn from(enclosure: Enclosure) -> Self {
        match enclosure {
            Enclosure::Root => Self::Root,
            Enclosure::User => Self::User,
        }
    }
}

impl Inside {
    pub(super) const fn flag(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User => "user",
        }
    }
}

/// Returns a name that can also name a file.
fn lab_name(text: &str) -> std::result::Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || text.len() > 32 || !text.chars().all(fits) {
        return Err("up to 32 letters, digits, '-' and '_'".to_owned());
    }
    Ok(text.to_owned())
}
