//! `cambric check ready`: whether packets can follow the routes of this host.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use daemon_common::{Command, Reply, paths};

use crate::ask::{Answers, Targets, json};
use crate::show::clean;

/// The daemons that a host's readiness depends on.
const DAEMONS: &[&str] = &["bgp-client", "route-reflector", "felix"];

/// The arguments of `cambric check ready`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// Print one JSON object: daemon name to its criteria
    #[arg(long)]
    json: bool,
    /// Query only the daemon of this socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Runs `cambric check ready`.
pub(super) async fn run(args: Args) -> Result<ExitCode> {
    let answers = ask(&args, Path::new(paths::RUN)).await?;
    match args.json {
        true => print!("{}", json(&answers)?),
        false => print!("{}", text(&answers)),
    }
    Ok(match is_ready(&answers) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn ask(args: &Args, run: &Path) -> Result<Answers> {
    let targets = Targets {
        daemons: DAEMONS,
        socket: args.socket.as_deref(),
        run,
    };
    targets.ask(&Command::Readiness {}, 0).await
}

fn is_ready(answers: &Answers) -> bool {
    answers
        .values()
        .all(|reply| matches!(reply, Reply::Readiness(ready) if ready.missing.is_empty()))
}

fn text(answers: &Answers) -> String {
    let mut text = String::new();
    for (daemon, reply) in answers {
        let Reply::Readiness(ready) = reply else {
            text.push_str(&format!("{daemon}: an answer to something else\n"));
            continue;
        };
        let state = match ready.missing.is_empty() {
            true => "ready",
            false => "not ready",
        };
        text.push_str(&format!("{daemon}: {state}\n"));
        let met = ready.met.iter().map(|name| format!("  met      {name}\n"));
        let missing = ready.missing.iter();
        let missing = missing.map(|why| format!("  not met  {why}\n"));
        met.chain(missing).for_each(|line| {
            text.push_str(&clean(line.trim_end()));
            text.push('\n');
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use daemon_common::report::Readiness;

    use super::*;

    fn answers(missing: &[&str]) -> Answers {
        let bgp = Readiness {
            missing: missing.iter().map(|&why| why.to_owned()).collect(),
            met: vec!["end-of-rib".to_owned(), "kernel-routes".to_owned()],
        };
        let felix = Readiness::default();
        let all = [("bgp-client", bgp), ("felix", felix)];
        let all = all.map(|(name, ready)| (name.to_owned(), Reply::Readiness(ready)));
        all.into()
    }

    #[test]
    fn criteria_are_listed_by_daemon() {
        let not = answers(&["felix: it has no route"]);
        assert!(!is_ready(&not));
        assert_eq!(
            text(&not),
            "\
bgp-client: not ready
  met      end-of-rib
  met      kernel-routes
  not met  felix: it has no route
felix: ready
"
        );
        assert!(is_ready(&answers(&[])));
    }
}
