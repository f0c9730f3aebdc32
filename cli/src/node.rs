//! `cambric node`: the BGP sessions of this host, in the table that calicoctl prints; the agents of all
//! hosts; and the drain of a node.

use std::net::IpAddr;
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use daemon_common::report::{Neighbor, Neighbors, Status};
use daemon_common::{Command, Reply, paths};
use jiff::Zoned;

use crate::ask::{BGP_DAEMONS, Targets};
use crate::resources::Connection;
use crate::show::clean;
use crate::table::boxed;

mod drain;
mod list;
mod start;
mod tunnels;

/// The arguments of `cambric node`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// Make the routes of a node the least preferred ones, services first; sessions stay up
    Drain(drain::DrainArgs),
    /// List all hosts: state of Felix, time of its last report, number of endpoints, drain
    List {
        #[command(flatten)]
        connection: Connection,
    },
    /// Prepare this host as a node of Kubernetes, as calico-node does: its Node and pools, the files of the CNI
    /// plugin, the condition NetworkUnavailable. Runs until a signal stops it
    Start(Box<start::Args>),
    /// Allocate the addresses of tunnel devices while pools use VXLAN or IP in IP, and release them otherwise
    Tunnels(tunnels::Args),
    /// Show the BGP sessions of this host: address, type, state, since when, last error
    Status,
    /// End the drain of a node
    Undrain(drain::Args),
}

/// Runs `cambric node`.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let run = Path::new(paths::RUN);
    let text = match args.what {
        What::Drain(args) => drain::drain(args, run).await?,
        What::Undrain(args) => drain::undrain(args, run).await?,
        What::List { connection } => list::list(&connection.store().await?).await?,
        What::Tunnels(args) => {
            let report = tunnels::run(&args).await?;
            print!("{}", report.lines);
            eprint!("{}", report.errors);
            let failed = !report.errors.is_empty();
            return Ok(ExitCode::from(u8::from(failed)));
        }
        What::Start(args) => return start::run(*args).await,
        What::Status => status(run, &Zoned::now()).await?,
    };
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}

async fn status(run: &Path, now: &Zoned) -> anyhow::Result<String> {
    let targets = |daemons| Targets {
        daemons,
        socket: None,
        run,
    };
    let felix = targets(&["felix"]).ask(&Command::Status {}, 0).await;
    let state = if felix.is_ok() { "" } else { "not " };
    let mut text = format!("felix is {state}running.\n");
    let speakers = targets(BGP_DAEMONS);
    let neighbors = speakers.ask(&Command::Neighbors {}, 0).await?;
    let states = speakers.ask(&Command::Status {}, 0).await?;
    for (daemon, reply) in &neighbors {
        let (Reply::Neighbors(report), Some(Reply::Status(state))) = (reply, states.get(daemon))
        else {
            continue;
        };
        text.push_str(&format!("{daemon} is running.\n"));
        text.push_str(&family("IPv4", report, state, now));
        text.push_str(&family("IPv6", report, state, now));
    }
    Ok(text)
}

/// The sessions over one family.
fn family(name: &str, report: &Neighbors, state: &Status, now: &Zoned) -> String {
    let is_in = |neighbor: &&Neighbor| {
        neighbor
            .address
            .is_some_and(|address| address.is_ipv4() == (name == "IPv4"))
    };
    let rows: Vec<Vec<String>> = report
        .neighbors
        .iter()
        .filter(is_in)
        .map(|neighbor| row(neighbor, state, now))
        .collect();
    let text = match rows.as_slice() {
        [] => format!("No {name} peers found.\n"),
        rows => boxed(&HEADINGS, rows),
    };
    format!("\n{name} BGP status\n{text}")
}

fn row(neighbor: &Neighbor, state: &Status, now: &Zoned) -> Vec<String> {
    let (word, ago) = match (neighbor.since_s, neighbor.down_for_s) {
        (Some(up), _) => ("up", up),
        (None, Some(down)) => ("start", down),
        (None, None) => ("start", state.uptime_s),
    };
    let why = neighbor
        .last_error
        .as_ref()
        .or(neighbor.last_down.as_ref())
        .filter(|_| neighbor.since_s.is_none());
    let info = match why {
        Some(why) => format!("{} {}", neighbor.state, clean(why)),
        None => neighbor.state.clone(),
    };
    let address = neighbor
        .address
        .as_ref()
        .map_or_else(String::new, IpAddr::to_string);
    let since = daemon_common::bird::since(now, ago);
    vec![
        address,
        kind(&neighbor.name).to_owned(),
        word.to_owned(),
        since,
        info,
    ]
}

/// Returns the origin of a peer: sessions from the datastore have Calico's names.
fn kind(name: &str) -> &'static str {
    [
        ("Mesh_", "node-to-node mesh"),
        ("Global_", "global"),
        ("Local_Workload_", "local workload"),
    ]
    .iter()
    .find(|(prefix, _)| name.starts_with(prefix))
    .map_or("node specific", |(_, kind)| kind)
}

const HEADINGS: [&str; 5] = ["PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "INFO"];

#[cfg(test)]
mod tests {
    use daemon_common::control::Control;

    use super::*;

    fn neighbors() -> Neighbors {
        let peer = |name: &str, address: &str, since_s: Option<u64>, down_for_s| Neighbor {
            name: name.to_owned(),
            address: address.parse().ok(),
            state: if since_s.is_none() {
                "Active"
            } else {
                "Established"
            }
            .to_owned(),
            since_s,
            down_for_s,
            last_down: Some("hold timer expired".to_owned()),
            ..Neighbor::default()
        };
        Neighbors {
            neighbors: vec![
                peer("Mesh_10_20_1_8", "10.20.1.8", Some(86_400), None),
                peer(
                    "Global_10_20_1_254_port_1179",
                    "10.20.1.254",
                    None,
                    Some(60),
                ),
                peer("tor", "fd20::1", Some(3600), None),
            ],
            ..Neighbors::default()
        }
    }

    #[tokio::test]
    async fn sessions_are_shown_in_the_table_of_calicoctl() {
        let directory = tempfile::tempdir().expect("directory");
        let socket = paths::control_below(directory.path(), "bgp-client");
        let mut control = Control::bind(socket).expect("bound");
        let serve = async {
            loop {
                let request = control.next().await;
                let reply = match request.command {
                    Command::Neighbors {} => Reply::Neighbors(neighbors()),
                    _ => Reply::Status(Status::default()),
                };
                request.reply(reply);
            }
        };
        let now: Zoned = "2026-03-04T12:00:00+00:00[UTC]".parse().expect("a time");
        let text = tokio::select! {
            text = status(directory.path(), &now) => text.expect("a table"),
            () = serve => unreachable!("it serves on"),
        };
        assert_eq!(
            text,
            "\
felix is not running.
bgp-client is running.

IPv4 BGP status
+--------------+-------------------+-------+------------+---------------------------+
| PEER ADDRESS | PEER TYPE         | STATE | SINCE      | INFO                      |
+--------------+-------------------+-------+------------+---------------------------+
| 10.20.1.8    | node-to-node mesh | up    | 2026-03-03 | Established               |
| 10.20.1.254  | global            | start | 11:59:00   | Active hold timer expired |
+--------------+-------------------+-------+------------+---------------------------+

IPv6 BGP status
+--------------+---------------+-------+----------+-------------+
| PEER ADDRESS | PEER TYPE     | STATE | SINCE    | INFO        |
+--------------+---------------+-------+----------+-------------+
| fd20::1      | node specific | up    | 11:00:00 | Established |
+--------------+---------------+-------+----------+-------------+
"
        );
    }

    #[tokio::test]
    async fn status_without_a_daemon_is_an_error() {
        let directory = tempfile::tempdir().expect("directory");
        let error = status(directory.path(), &Zoned::now())
            .await
            .expect_err("nobody");
        assert!(
            error.to_string().contains("no daemon that could answer"),
            "{error}"
        );
    }
}
