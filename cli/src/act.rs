//! `cambric refresh` and `cambric clear`: requests about one session.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use daemon_common::{Command, Reply, paths};

use crate::ask::{Answers, BGP_DAEMONS, Targets, json};

/// The neighbor of the session, and the daemons to query.
#[derive(Debug, clap::Args)]
pub(crate) struct Session {
    /// The neighbor's name or address
    neighbor: String,
    /// Print one JSON object: daemon name to what it did
    #[arg(long)]
    json: bool,
    /// Query only the daemon of this socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// The arguments of `cambric refresh`.
#[derive(Debug, clap::Args)]
pub(crate) struct Refresh {
    #[command(flatten)]
    session: Session,
    /// Only this family, such as ipv4-unicast; default: all families of the session
    family: Option<String>,
}

/// The arguments of `cambric clear`.
#[derive(Debug, clap::Args)]
pub(crate) struct Clear {
    #[command(flatten)]
    session: Session,
}

/// Runs `cambric refresh`.
pub(crate) async fn refresh(args: Refresh) -> anyhow::Result<ExitCode> {
    let command = Command::Refresh {
        neighbor: args.session.neighbor.clone(),
        family: args.family,
    };
    args.session.run(&command).await
}

/// Runs `cambric clear`.
pub(crate) async fn clear(args: Clear) -> anyhow::Result<ExitCode> {
    let command = Command::Clear {
        neighbor: args.session.neighbor.clone(),
    };
    args.session.run(&command).await
}

impl Session {
    async fn run(&self, command: &Command) -> anyhow::Result<ExitCode> {
        let answers = self.ask(command, Path::new(paths::RUN)).await?;
        if self.json {
            print!("{}", json(&answers)?);
        } else {
            print!("{}", text_of(&answers));
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn ask(&self, command: &Command, run: &Path) -> anyhow::Result<Answers> {
        let targets = Targets {
            daemons: BGP_DAEMONS,
            socket: self.socket.as_deref(),
            run,
        };
        targets.ask(command, usize::MAX).await
    }
}

fn text_of(answers: &Answers) -> String {
    let lines = answers.iter().map(|(daemon, reply)| match reply {
        Reply::Refresh(done) => format!(
            "{daemon}: route refresh sent to neighbor {}: {}\n",
            done.neighbor,
            done.families.join(" ")
        ),
        Reply::Clear(done) => format!(
            "{daemon}: session with neighbor {} is reset\n",
            done.neighbor
        ),
        _ => format!("{daemon}: an answer to something else\n"),
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use daemon_common::control::Control;
    use daemon_common::report::{Cleared, Refreshed};

    use super::*;

    /// Returns the answers of the two commands from a reflector with these replies.
    async fn ask(command: &Command, reply: impl Fn(&Command) -> Reply) -> anyhow::Result<Answers> {
        let directory = tempfile::tempdir().expect("directory");
        let path = paths::control_below(directory.path(), "route-reflector");
        let mut control = Control::bind(path).expect("bind");
        let serve = async {
            loop {
                let request = control.next().await;
                let reply = reply(&request.command);
                request.reply(reply);
            }
        };
        let operator = Session {
            neighbor: String::new(),
            json: false,
            socket: None,
        };
        tokio::select! {
            answers = operator.ask(command, directory.path()) => answers,
            () = serve => unreachable!("it serves on"),
        }
    }

    #[tokio::test]
    async fn action_is_reported_by_daemon() {
        let command = Command::Refresh {
            neighbor: "tor".to_owned(),
            family: Some("ipv4-unicast".to_owned()),
        };
        let answers = ask(&command, |asked| match asked {
            Command::Refresh {
                neighbor,
                family: Some(family),
            } => Reply::Refresh(Refreshed {
                neighbor: neighbor.clone(),
                families: vec![family.clone()],
            }),
            other => Reply::error(format!("{other:?}")),
        })
        .await;
        let text = text_of(&answers.expect("an answer"));
        assert_eq!(
            text,
            "route-reflector: route refresh sent to neighbor tor: ipv4-unicast\n"
        );
        let cleared = Reply::Clear(Cleared {
            neighbor: "tor".to_owned(),
        });
        let text = text_of(&[("bgp-client".to_owned(), cleared)].into());
        assert_eq!(text, "bgp-client: session with neighbor tor is reset\n");
    }

    #[tokio::test]
    async fn rejection_by_a_daemon_is_reported() {
        let command = Command::Clear {
            neighbor: "ghost".to_owned(),
        };
        let refused = ask(&command, |_| Reply::error("no neighbor ghost")).await;
        let error = refused.expect_err("refused").to_string();
        assert_eq!(error, "no neighbor ghost");
    }
}
