//! `cambric show`: asks the daemons of this host over their control sockets.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use admin::client::{self, CallError};
use admin::report::{Route, Routes};
use admin::{Command, Reply};
use anyhow::bail;
use clap::Subcommand;
use ipnet::IpNet;

mod blocks;
mod cells;
mod tables;
#[cfg(test)]
mod tests;

/// Where the daemons' sockets are unless their configuration says otherwise.
const SOCKETS: &str = "/run/cambric";

/// Routes that a table shows unless told otherwise.
const ROUTES_SHOWN: usize = 1000;

/// The arguments of `cambric show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    /// Print one JSON object: daemon name to report
    #[arg(long, global = true)]
    json: bool,
    /// Ask the daemon behind this socket only
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// BGP neighbours and their sessions
    #[command(visible_alias = "neighbours")]
    Neighbors {
        /// Everything about this one: its name or address
        name: Option<String>,
    },
    /// BGP routes
    Routes {
        /// Only this prefix
        prefix: Option<IpNet>,
        /// Also the paths that lost, and the step of the decision where each did
        #[arg(long)]
        why: bool,
        /// Show so many routes at most; 0 for all (JSON always has all)
        #[arg(long, value_name = "ROUTES", default_value_t = ROUTES_SHOWN)]
        limit: usize,
    },
    /// Kernel routes that the daemons own or import
    Fib,
    /// Workload endpoints of this host
    Endpoints,
    /// What the daemons are and how they fare
    Status,
    /// Packet filter rules
    Rules,
}

impl What {
    fn command(&self) -> Command {
        match self {
            Self::Neighbors { .. } => Command::Neighbors {},
            Self::Routes { prefix, why, .. } => Command::Routes {
                prefix: *prefix,
                why: *why,
                after: None,
            },
            Self::Fib => Command::Fib {},
            Self::Endpoints => Command::Endpoints {},
            Self::Status => Command::Status {},
            Self::Rules => Command::Rules {},
        }
    }

    /// Who can answer.
    const fn daemons(&self) -> &'static [&'static str] {
        match self {
            Self::Neighbors { .. } | Self::Routes { .. } => &["bgp-client", "route-reflector"],
            Self::Fib => &["bgp-client", "felix"],
            Self::Endpoints | Self::Rules => &["felix"],
            Self::Status => &["bgp-client", "route-reflector", "felix"],
        }
    }

    /// Routes to fetch at most.
    const fn limit(&self, json: bool) -> usize {
        match self {
            Self::Routes { limit: 1.., .. } if json => usize::MAX,
            Self::Routes {
                limit: limit @ 1.., ..
            } => *limit,
            _ => usize::MAX,
        }
    }
}

/// Runs `cambric show`.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let answers = ask(&args, Path::new(SOCKETS)).await?;
    let text = if args.json {
        json(&answers)?
    } else {
        tables::print(&args.what, &answers)
    };
    // A closed pipe ("| head") is no error of ours.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(if found(&args.what, &answers) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Daemon name to its reply.
type Answers = BTreeMap<String, Reply>;

/// Asks the one socket that was named, or all where an answer may come from.
async fn ask(args: &Args, directory: &Path) -> anyhow::Result<Answers> {
    let sockets: Vec<PathBuf> = match &args.socket {
        Some(socket) => vec![socket.clone()],
        None => {
            let names = args.what.daemons().iter();
            names
                .map(|name| directory.join(name).with_extension("sock"))
                .collect()
        }
    };
    let mut answers = Answers::new();
    let mut failures = Vec::new();
    for socket in &sockets {
        let name = socket
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        match fetch(socket, args.what.command(), args.what.limit(args.json)).await {
            Ok(reply) => {
                answers.insert(name, reply);
            }
            Err(failure) => failures.push(failure),
        }
    }
    if answers.is_empty() {
        return Err(nobody(args, directory, &failures));
    }
    for failure in failures
        .iter()
        .filter(|failure| !matches!(failure, CallError::Absent(_)))
    {
        eprintln!("cambric: {failure}");
    }
    Ok(answers)
}

/// One reply; of routes all pages, until `limit` routes are there.
async fn fetch(socket: &Path, mut command: Command, limit: usize) -> Result<Reply, CallError> {
    let mut all = Routes::default();
    loop {
        let mut page = match client::call(socket, &command).await? {
            Reply::Routes(page) => page,
            other => return Ok(other),
        };
        all.routes.append(&mut page.routes);
        all.next = page.next;
        let Command::Routes { after, .. } = &mut command else {
            return Ok(Reply::Routes(all));
        };
        if all.next.is_none() || all.routes.len() >= limit || *after == all.next {
            all.routes.sort_by_cached_key(order);
            return Ok(Reply::Routes(all));
        }
        after.clone_from(&all.next);
    }
}

/// Routes stand in the order of their prefixes, a family after the other.
fn order(route: &Route) -> (String, Option<IpNet>, String) {
    (
        route.family.clone(),
        route.prefix.parse().ok(),
        route.prefix.clone(),
    )
}

/// Why there is no answer, in one line.
fn nobody(args: &Args, directory: &Path, failures: &[CallError]) -> anyhow::Error {
    let absent = |failure: &CallError| matches!(failure, CallError::Absent(_));
    match failures
        .iter()
        .find(|failure| !absent(failure))
        .or_else(|| failures.first())
    {
        Some(failure) if args.socket.is_some() || !absent(failure) => anyhow::anyhow!("{failure}"),
        _ => anyhow::anyhow!(
            "no daemon that could answer runs here: {} has no {}.sock; start one, or name its \
             control socket with --socket",
            directory.display(),
            args.what.daemons().join(".sock, "),
        ),
    }
}

/// The reports without the tag that says which kind they are: the command told that.
fn json(answers: &Answers) -> anyhow::Result<String> {
    let mut object = serde_json::Map::new();
    for (name, reply) in answers {
        let serde_json::Value::Object(tagged) = serde_json::to_value(reply)? else {
            bail!("a reply that is no object");
        };
        object.extend(tagged.into_iter().map(|(_, report)| (name.clone(), report)));
    }
    Ok(format!("{}\n", serde_json::to_string_pretty(&object)?))
}

/// A single thing that was asked for is there.
fn found(what: &What, answers: &Answers) -> bool {
    answers.values().any(|reply| match (what, reply) {
        (
            What::Routes {
                prefix: Some(_), ..
            },
            Reply::Routes(routes),
        ) => !routes.routes.is_empty(),
        (What::Neighbors { name: Some(name) }, Reply::Neighbors(neighbors)) => neighbors
            .neighbors
            .iter()
            .any(|neighbor| blocks::is_called(neighbor, name)),
        _ => true,
    })
}
