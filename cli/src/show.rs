//! `cambric show`: queries the daemons of this host over their control sockets.

use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use clap::Subcommand;
use daemon_common::{Command, Reply, paths};
use ipnet::IpNet;

use crate::ask::{Answers, BGP_DAEMONS, DAEMONS, Targets, json};

mod bfd;
mod blocks;
mod cells;
mod grid;
mod malformed;
mod sent;
mod settings;
mod tables;
#[cfg(test)]
mod tests;
mod why;

pub(crate) use cells::{clean, duration};

/// Routes that a table shows without `--limit`; its help text has the number, too.
const ROUTES_SHOWN: usize = 1000;

/// The arguments of `cambric show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// Print one JSON object: daemon name to report
    #[arg(long, global = true)]
    json: bool,
    /// Query only the daemon of this socket
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// The requested routes.
#[derive(Clone, Copy, Debug)]
enum Destination {
    /// The route of exactly this prefix.
    Prefix(IpNet),
    /// The route of the longest prefix with this address.
    Address(IpAddr),
}

impl Destination {
    const fn prefix(self) -> Option<IpNet> {
        match self {
            Self::Prefix(prefix) => Some(prefix),
            Self::Address(_) => None,
        }
    }
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let prefix = || text.parse().ok().map(Self::Prefix);
        let address = || text.parse().ok().map(Self::Address);
        let wrong = || format!("`{text}` is neither a prefix nor an address");
        prefix().or_else(address).ok_or_else(wrong)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(prefix) => prefix.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// BGP neighbors and their sessions
    #[command(visible_alias = "neighbours")]
    Neighbors {
        /// Show all about this one: its name or address
        name: Option<String>,
    },
    /// BGP routes
    Routes {
        /// Only this prefix; for an address, the longest prefix with a usable path
        prefix: Option<Destination>,
        /// Also the losing paths, with the step of the decision process
        #[arg(long)]
        why: bool,
        /// Maximum number of routes; 0 for all [default: 1000, in JSON all]
        #[arg(long, value_name = "ROUTES")]
        limit: Option<usize>,
    },
    /// Kernel routes that the daemons own or import
    Fib,
    /// Workload endpoints of this host
    Endpoints {
        /// Show only this one: namespace/name, namespace/workload or interface
        name: Option<String>,
        /// Show the policies and profiles that apply to it, rule by rule
        #[arg(long, requires = "name")]
        why: bool,
    },
    /// State of the daemons, and what they wait for
    Status,
    /// Packet filter rules
    Rules,
    /// The last malformed messages of BGP neighbors, with their octets
    Malformed {
        /// Only those of this neighbor: its name
        name: Option<String>,
    },
    /// Sessions of BFD
    Bfd {
        /// Show all about those with this address
        address: Option<IpAddr>,
    },
    /// Limits of the daemons, and their use
    Limits,
    /// Log levels of the daemons, and neighbors that are debugged
    Log,
    /// The effective configuration, with the source of each neighbor
    Config,
}

impl What {
    fn command(&self) -> Command {
        match self {
            Self::Neighbors { .. } => Command::Neighbors {},
            Self::Routes {
                prefix: Some(Destination::Address(address)),
                why,
                ..
            } => Command::Lookup {
                address: *address,
                why: *why,
            },
            Self::Routes { prefix, why, .. } => Command::Routes {
                prefix: prefix.and_then(Destination::prefix),
                why: *why,
                family: None,
                after: None,
            },
            Self::Fib => Command::Fib {},
            Self::Endpoints {
                name: Some(name),
                why: true,
            } => Command::EndpointRules {
                endpoint: name.clone(),
            },
            Self::Endpoints { .. } => Command::Endpoints {},
            Self::Status => Command::Status {},
            Self::Rules => Command::Rules {},
            Self::Malformed { .. } => Command::Malformed {},
            Self::Bfd { .. } => Command::Bfd {},
            Self::Limits => Command::Limits {},
            Self::Log => Command::Log {},
            Self::Config => Command::Config {},
        }
    }

    /// Returns the daemons that can answer.
    const fn daemons(&self) -> &'static [&'static str] {
        match self {
            Self::Neighbors { .. }
            | Self::Routes { .. }
            | Self::Malformed { .. }
            | Self::Config => BGP_DAEMONS,
            Self::Limits => &["bgp-client", "route-reflector", "bfd", "kube"],
            Self::Bfd { .. } => &["bfd"],
            Self::Fib => &["bgp-client", "felix"],
            Self::Endpoints { .. } | Self::Rules => &["felix"],
            Self::Status | Self::Log => DAEMONS,
        }
    }

    /// Returns the maximum number of routes to show.
    const fn limit(&self, json: bool) -> usize {
        match self {
            Self::Routes {
                limit: Some(limit @ 1..),
                ..
            } => *limit,
            Self::Routes { limit: None, .. } if !json => ROUTES_SHOWN,
            _ => usize::MAX,
        }
    }
}

/// Runs `cambric show`.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let answers = ask(&args, Path::new(paths::RUN)).await?;
    let text = if args.json {
        json(&answers)?
    } else {
        tables::print(&args.what, &answers)
    };
    // A closed pipe ("| head") is not an error of this program.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(if found(&args.what, &answers) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Queries the given socket, or all daemons that can answer.
async fn ask(args: &Args, run: &Path) -> anyhow::Result<Answers> {
    let targets = Targets {
        daemons: args.what.daemons(),
        socket: args.socket.as_deref(),
        run,
    };
    targets
        .ask(&args.what.command(), args.what.limit(args.json))
        .await
}

/// Returns whether a single requested object was found.
fn found(what: &What, answers: &Answers) -> bool {
    answers.values().any(|reply| match (what, reply) {
        (
            What::Routes {
                prefix: Some(_), ..
            },
            Reply::Routes(routes),
        ) => !routes.routes.is_empty(),
        (
            What::Endpoints {
                name: Some(name), ..
            },
            Reply::Endpoints(endpoints),
        ) => endpoints
            .endpoints
            .iter()
            .any(|endpoint| why::is_called(endpoint, name)),
        (
            What::Bfd {
                address: Some(address),
            },
            Reply::Bfd(report),
        ) => (report.sessions.iter()).any(|one| one.remote == Some(*address)),
        (What::Neighbors { name: Some(name) }, Reply::Neighbors(neighbors)) => neighbors
            .neighbors
            .iter()
            .any(|neighbor| blocks::is_called(neighbor, name)),
        _ => true,
    })
}
