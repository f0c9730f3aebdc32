//! `cambric policy`: the preview of staged policies.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use daemon_common::report::{Preview, PreviewRow};
use daemon_common::{Command, Reply, paths};

use crate::ask::{Answers, Targets, json};
use crate::flows::{cause, service};
use crate::show::clean;

/// The daemon that answers.
const FELIX: &[&str] = &["felix"];

/// The arguments of `cambric policy`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// Show the effect that a staged policy would have on this host: its endpoints, and the flows of the
    /// flow log with another verdict
    Preview(PreviewArgs),
}

/// The arguments of `cambric policy preview`.
#[derive(Clone, Debug, clap::Args)]
struct PreviewArgs {
    /// The staged policy: prod/web, or web for one of the cluster; also with its kind before it
    #[arg(value_name = "NAME", required = true, num_args = 1..=2)]
    name: Vec<String>,
    /// Print one JSON object: daemon name to its preview
    #[arg(long)]
    json: bool,
    /// Query the daemon of this socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Runs `cambric policy`.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let What::Preview(args) = args.what;
    let answers = args.ask(Path::new(paths::RUN)).await?;
    match args.json {
        true => print!("{}", json(&answers)?),
        false => print!("{}", text(&answers)),
    }
    Ok(ExitCode::SUCCESS)
}

impl PreviewArgs {
    async fn ask(&self, run: &Path) -> anyhow::Result<Answers> {
        let targets = Targets {
            daemons: FELIX,
            socket: self.socket.as_deref(),
            run,
        };
        let policy = self.name.join(" ");
        targets.ask(&Command::Preview { policy }, usize::MAX).await
    }
}

fn text(answers: &Answers) -> String {
    let mut text = String::new();
    for reply in answers.values() {
        if let Reply::Preview(preview) = reply {
            add(&mut text, preview);
        }
    }
    text
}

fn add(text: &mut String, preview: &Preview) {
    let verb = match preview.action.as_str() {
        "Delete" => "would be deleted",
        _ => "would be set",
    };
    let _ = writeln!(text, "{} {verb}", clean(&preview.policy));
    let _ = writeln!(text, "endpoints of this host: {}", preview.endpoints.len());
    for endpoint in &preview.endpoints {
        let _ = writeln!(text, "  {}", clean(endpoint));
    }
    for problem in &preview.problems {
        let _ = writeln!(text, "problem: {}", clean(problem));
    }
    if !preview.has_flows {
        text.push_str("the flow log is off: flowLogsLocalReporter of FelixConfiguration\n");
        return;
    }
    let _ = writeln!(
        text,
        "flows: {}; newly denied: {}, newly allowed: {}, unknown: {}",
        preview.flows, preview.newly_denied, preview.newly_allowed, preview.unknown
    );
    for row in &preview.rows {
        let _ = writeln!(text, "  {}", clean(&line(row)));
    }
    if preview.rows_left_out > 0 {
        let _ = writeln!(text, "  {} more rows", preview.rows_left_out);
    }
    for note in &preview.notes {
        let _ = writeln!(text, "note: {}", clean(note));
    }
}

fn line(row: &PreviewRow) -> String {
    let flow = &row.flow;
    let word = |allowed| if allowed { "allow" } else { "deny" };
    format!(
        "{} flows {} {} > {} {}: now {} by {}; then {} by {}",
        flow.flows,
        flow.direction,
        flow.source.name,
        flow.destination.name,
        service(flow),
        word(row.now),
        cause(&row.now_by),
        word(row.then),
        cause(&row.then_by),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use daemon_common::control::Control;
    use daemon_common::report::{FlowEnd, FlowRow, RuleOwner};

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: PreviewArgs,
    }

    fn preview() -> Preview {
        let end = |name: &str| FlowEnd {
            kind: "endpoint".to_owned(),
            name: name.to_owned(),
        };
        let by = |words: &str| RuleOwner {
            words: words.to_owned(),
            ..RuleOwner::default()
        };
        Preview {
            policy: "StagedNetworkPolicy prod/web".to_owned(),
            action: "Set".to_owned(),
            endpoints: vec!["prod/b\u{1b}".to_owned()],
            has_flows: true,
            flows: 12,
            newly_denied: 7,
            rows: vec![PreviewRow {
                flow: FlowRow {
                    source: end("prod/a"),
                    destination: end("prod/b"),
                    protocol: "tcp".to_owned(),
                    port: Some(80),
                    direction: "ingress".to_owned(),
                    flows: 7,
                    ..FlowRow::default()
                },
                now: true,
                now_by: by("profile open"),
                then: false,
                then_by: by("tier default: no policy decides"),
            }],
            ..Preview::default()
        }
    }

    #[test]
    fn preview_has_endpoints_counts_and_both_verdicts() {
        let answers: Answers = [("felix".to_owned(), Reply::Preview(preview()))].into();
        let text = text(&answers);
        for part in [
            "StagedNetworkPolicy prod/web would be set\n",
            "endpoints of this host: 1\n  prod/b\\u{1b}\n",
            "flows: 12; newly denied: 7, newly allowed: 0, unknown: 0\n",
            "  7 flows ingress prod/a > prod/b tcp 80: now allow by profile open; then deny by tier \
             default: no policy decides\n",
        ] {
            assert!(text.contains(part), "{part}{text}");
        }
        let off = Preview {
            has_flows: false,
            ..preview()
        };
        let answers: Answers = [("felix".to_owned(), Reply::Preview(off))].into();
        assert!(super::text(&answers).contains("the flow log is off"));
    }

    #[tokio::test]
    async fn name_may_have_its_kind() {
        let directory = tempfile::tempdir().expect("directory");
        let socket = paths::control_below(directory.path(), "felix");
        let mut control = Control::bind(socket).expect("bound");
        let words = ["preview", "StagedNetworkPolicy", "prod/web"];
        let args = Cli::try_parse_from(words).expect("arguments").args;
        let answer = async {
            let request = control.next().await;
            let policy = "StagedNetworkPolicy prod/web".to_owned();
            assert_eq!(request.command, Command::Preview { policy });
            request.reply(Reply::Preview(preview()));
        };
        let (answers, ()) = tokio::join!(args.ask(directory.path()), answer);
        assert!(answers.is_ok());
    }
}
