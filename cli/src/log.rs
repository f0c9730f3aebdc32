//! `cambric log` and `cambric debug`: the log level of the daemons, for a limited time.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use daemon_common::command::{DebugRequest, LogRequest};
use daemon_common::report::LogState;
use daemon_common::{Command, Reply, paths};

use crate::ask::{Answers, BGP_DAEMONS, DAEMONS, Targets, json};
use crate::{duration, show};

/// The arguments of `cambric log`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A level or directives, as the key `log` has them (debug; info,event=debug), or `reset`
    level: String,
    /// For how long; then the configured level is in effect again
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse, default_value = "10m")]
    time: Duration,
    #[command(flatten)]
    daemon: Daemon,
}

/// The arguments of `cambric debug`.
#[derive(Debug, clap::Args)]
pub(crate) struct DebugArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Log all events of a BGP neighbor
    Neighbor(Neighbor),
}

#[derive(Debug, clap::Args)]
struct Neighbor {
    /// The neighbor's name or address
    name: String,
    /// For how long
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse, default_value = "10m")]
    time: Duration,
    /// End it now
    #[arg(long, conflicts_with = "time")]
    off: bool,
    #[command(flatten)]
    daemon: Daemon,
}

/// The daemons to query, and the form of the output.
#[derive(Debug, clap::Args)]
struct Daemon {
    /// Print one JSON object: daemon name to what its log has
    #[arg(long)]
    json: bool,
    /// Query only the daemon of this socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Runs `cambric log`.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let request = match args.level.as_str() {
        "reset" => LogRequest::default(),
        level => LogRequest {
            level: Some(level.to_owned()),
            for_s: Some(args.time.as_secs()),
        },
    };
    args.daemon.run(DAEMONS, &Command::SetLog(request)).await
}

/// Runs `cambric debug`.
pub(crate) async fn debug(args: DebugArgs) -> anyhow::Result<ExitCode> {
    let What::Neighbor(args) = args.what;
    let time = if args.off { Duration::ZERO } else { args.time };
    let request = DebugRequest {
        neighbor: args.name,
        for_s: Some(time.as_secs()),
    };
    args.daemon.run(BGP_DAEMONS, &Command::Debug(request)).await
}

impl Daemon {
    async fn run(
        &self,
        daemons: &'static [&'static str],
        command: &Command,
    ) -> anyhow::Result<ExitCode> {
        let targets = Targets {
            daemons,
            socket: self.socket.as_deref(),
            run: Path::new(paths::RUN),
        };
        let answers = targets.ask(command, usize::MAX).await?;
        match self.json {
            true => print!("{}", json(&answers)?),
            false => print!("{}", text(&answers)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn text(answers: &Answers) -> String {
    let lines = answers.iter().map(|(daemon, reply)| match reply {
        Reply::Log(state) => format!("{daemon}: {}", state_text(state)),
        other => format!("{daemon}: unexpected reply: {other:?}\n"),
    });
    lines.collect()
}

/// Returns the state of a log in one line, then a line for each debugged neighbor.
pub(crate) fn state_text(state: &LogState) -> String {
    let configured = show::clean(&state.configured);
    let mut text = match (&state.temporary, state.temporary_for_s) {
        (Some(level), Some(left)) => {
            let (level, left) = (show::clean(level), show::duration(left));
            format!("level {level} for {left}, then {configured}\n")
        }
        _ => format!("level {configured}\n"),
    };
    for (neighbor, left) in &state.debugged {
        let (name, left) = (show::clean(neighbor), show::duration(*left));
        text.push_str(&format!("neighbor {name} is debugged for {left}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn log_state_names_the_level_and_how_long_it_stays() {
        let mut state = LogState {
            configured: "info".to_owned(),
            ..LogState::default()
        };
        assert_eq!(state_text(&state), "level info\n");
        state.temporary = Some("debug".to_owned());
        state.temporary_for_s = Some(599);
        state.debugged.insert("rr1".to_owned(), 30);
        let expected = "level debug for 9m59s, then info\nneighbor rr1 is debugged for 30s\n";
        assert_eq!(state_text(&state), expected);
    }

    #[test]
    fn log_and_debug_take_a_time() {
        for (line, accepted) in [
            ("cambric log debug --for 1h", true),
            ("cambric log reset", true),
            ("cambric log debug --for soon", false),
            ("cambric debug neighbor rr1 --for 30s", true),
            ("cambric debug neighbor rr1 --off", true),
            ("cambric debug neighbor", false),
        ] {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert_eq!(parsed.is_ok(), accepted, "{line}");
        }
    }
}
