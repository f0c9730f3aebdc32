//! `cambric flows`: the flow log of Felix.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{Table, presets};
use daemon_common::client::{self, CallError};
use daemon_common::command::FlowQuery;
use daemon_common::report::{FlowRow, Flows, RuleOwner};
use daemon_common::{Command, Reply, paths};
use jiff::Timestamp;
use serde_json::json;

use crate::ask::Targets;
use crate::show::clean;

/// The daemon that answers.
const FELIX: &[&str] = &["felix"];

/// The time between two queries of a watch.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// The arguments of `cambric flows`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Only flows from or to this endpoint (namespace/name or namespace/workload), node, network set or
    /// address
    #[arg(long, value_name = "NAME|IP")]
    endpoint: Option<String>,
    /// Only flows about which this policy or profile has decided: prod/web, or with its kind
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Only allowed flows, or only denied ones
    #[arg(long, value_name = "VERDICT")]
    verdict: Option<Verdict>,
    /// Print rows as they change, one a line
    #[arg(short, long)]
    watch: bool,
    /// Print JSON: one object, or with --watch one a line
    #[arg(long)]
    json: bool,
    /// Query the daemon of this socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// A verdict of policies and profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Verdict {
    Allow,
    Deny,
}

/// Runs `cambric flows`.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let socket = args.socket(Path::new(paths::RUN));
    let mut query = args.query();
    let first = all_pages(&socket, &mut query).await?;
    if let Some(problem) = &first.problem {
        eprintln!("cambric: {}", clean(problem));
    }
    if !args.watch {
        match args.json {
            true => println!("{}", serde_json::to_string_pretty(&first)?),
            false => print!("{}", table(&first)),
        }
        return Ok(ExitCode::SUCCESS);
    }
    watch(&socket, query, first, args.json, &mut io::stdout()).await?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the first rows, then changed ones, until the output is closed.
async fn watch(
    socket: &Path,
    mut query: FlowQuery,
    first: Flows,
    as_json: bool,
    out: &mut impl io::Write,
) -> Result<(), CallError> {
    let (mut page, mut lost) = (first, 0);
    while print_changes(&page, &mut lost, as_json, out) {
        tokio::time::sleep(WATCH_EVERY).await;
        page = all_pages(socket, &mut query).await?;
    }
    Ok(())
}

impl Args {
    fn socket(&self, run: &Path) -> PathBuf {
        let targets = Targets {
            daemons: FELIX,
            socket: self.socket.as_deref(),
            run,
        };
        targets.sockets().into_iter().next().unwrap_or_default()
    }

    fn query(&self) -> FlowQuery {
        FlowQuery {
            endpoint: self.endpoint.clone(),
            policy: self.policy.clone(),
            allowed: self.verdict.map(|verdict| verdict == Verdict::Allow),
            after: None,
        }
    }
}

/// Returns all rows that have changed since the last call with this query.
async fn all_pages(socket: &Path, query: &mut FlowQuery) -> Result<Flows, CallError> {
    let mut all: Option<Flows> = None;
    loop {
        let mut page = ask(socket, query).await?;
        // The flow log began again, with lower numbers.
        let is_other = query.after.is_some_and(|after| page.next < after);
        query.after = Some(if is_other { 0 } else { page.next });
        let more = page.more || is_other;
        all = Some(match all {
            None => page,
            Some(mut all) => {
                all.flows.append(&mut page.flows);
                Flows {
                    flows: all.flows,
                    ..page
                }
            }
        });
        if !more {
            return Ok(all.unwrap_or_default());
        }
    }
}

async fn ask(socket: &Path, query: &FlowQuery) -> Result<Flows, CallError> {
    match client::call(socket, &Command::Flows(query.clone())).await? {
        Reply::Flows(page) => Ok(page),
        other => Err(CallError::Daemon {
            path: socket.to_owned(),
            message: format!("an answer to another question: {other:?}"),
        }),
    }
}

/// Prints changed rows; returns false if the output is closed.
fn print_changes(page: &Flows, lost: &mut u64, as_json: bool, out: &mut impl io::Write) -> bool {
    let mut lines = Vec::new();
    let figures = &page.figures;
    let all = figures.lost.saturating_add(figures.unsent);
    let newly_lost = all.saturating_sub(*lost);
    *lost = all;
    if newly_lost > 0 {
        lines.push(match as_json {
            true => json!({ "lost": newly_lost }).to_string(),
            false => format!("-- {newly_lost} records were lost --"),
        });
    }
    lines.extend(page.flows.iter().map(|row| match as_json {
        true => serde_json::to_string(row).unwrap_or_default(),
        false => line(row),
    }));
    let mut written = Ok(());
    for line in lines {
        written = written.and_then(|()| writeln!(out, "{line}"));
    }
    written.and_then(|()| out.flush()).is_ok()
}

/// Returns a row as a line of a watch.
fn line(row: &FlowRow) -> String {
    format!(
        "{} {} {} {} > {} {} by {} flows={} packets={} bytes={}",
        time(row.last_ms),
        verdict(row),
        row.direction,
        clean(&row.source.name),
        clean(&row.destination.name),
        service(row),
        clean(&cause(&row.by)),
        row.flows,
        count(row, row.packets),
        count(row, row.bytes),
    )
}

fn table(flows: &Flows) -> String {
    let mut text = String::new();
    if !flows.enabled {
        text.push_str("flows are not collected: flowLogsLocalReporter of FelixConfiguration\n");
        return text;
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(vec![
        "Last", "From", "To", "Service", "Rules", "Verdict", "By", "Flows", "Packets", "Bytes",
    ]);
    if let Some(first) = table.column_mut(0) {
        first.set_padding((0, 1));
    }
    for row in &flows.flows {
        table.add_row([
            time(row.last_ms),
            clean(&row.source.name),
            clean(&row.destination.name),
            service(row),
            row.direction.clone(),
            verdict(row).to_owned(),
            clean(&cause(&row.by)),
            row.flows.to_string(),
            count(row, row.packets),
            count(row, row.bytes),
        ]);
    }
    let _ = writeln!(text, "{}", table.trim_fmt());
    let figures = &flows.figures;
    let _ = writeln!(
        text,
        "{} rows since {}; {} records lost, {} beyond the limit, {} rows removed to make room",
        flows.flows.len(),
        time(flows.since_ms),
        figures.lost,
        figures.unsent,
        figures.rows_removed
    );
    text
}

const fn verdict(row: &FlowRow) -> &'static str {
    match row.allowed {
        true => "allow",
        false => "deny",
    }
}

/// Returns protocol and port.
pub(crate) fn service(row: &FlowRow) -> String {
    match row.port {
        Some(port) => format!("{} {port}", clean(&row.protocol)),
        None => clean(&row.protocol),
    }
}

/// Returns a count, which is a minimum while other flows of the row are not counted.
fn count(row: &FlowRow, count: Option<u64>) -> String {
    match count {
        None => "unknown".to_owned(),
        Some(count) if row.counted < row.flows => format!("{count}+"),
        Some(count) => count.to_string(),
    }
}

/// Returns the deciding policy or profile.
pub(crate) fn cause(by: &RuleOwner) -> String {
    let tier = by.tier.as_ref().map(|tier| format!("tier {tier}"));
    match (&by.list, &by.rule) {
        (Some(list), rule) => {
            let parts = [tier, Some(list.clone()), rule.clone()];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        (None, _) => by.words.clone(),
    }
}

/// Unix time as in a line of the log.
fn time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or_default();
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use daemon_common::control::Control;
    use daemon_common::report::{FlowEnd, FlowFigures};

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(text: &str) -> Args {
        let words = ["flows"].into_iter().chain(text.split_whitespace());
        Cli::try_parse_from(words).expect("arguments").args
    }

    fn row(number: u64) -> FlowRow {
        let end = |name: &str| FlowEnd {
            kind: "endpoint".to_owned(),
            name: name.to_owned(),
        };
        FlowRow {
            number,
            source: end("prod/a"),
            destination: end("prod/b\u{1b}"),
            protocol: "tcp".to_owned(),
            port: Some(80),
            direction: "ingress".to_owned(),
            allowed: false,
            by: RuleOwner {
                tier: Some("default".to_owned()),
                list: Some("NetworkPolicy prod/web".to_owned()),
                rule: Some("ingress[0]".to_owned()),
                words: "ingress[0]".to_owned(),
            },
            flows: 3,
            counted: 2,
            packets: Some(7),
            bytes: Some(700),
            first_ms: 0,
            last_ms: 1_764_000_000_123,
        }
    }

    #[test]
    fn row_is_one_line_with_its_cause() {
        assert_eq!(
            line(&row(1)),
            "2025-11-24T16:00:00.123Z deny ingress prod/a > prod/b\\u{1b} tcp 80 by tier default \
             NetworkPolicy prod/web ingress[0] flows=3 packets=7+ bytes=700+"
        );
        let uncounted = FlowRow {
            packets: None,
            by: RuleOwner {
                words: "profile open".to_owned(),
                ..RuleOwner::default()
            },
            port: None,
            ..row(1)
        };
        let text = line(&uncounted);
        assert!(
            text.contains(" tcp by profile open flows=3 packets=unknown"),
            "{text}"
        );
    }

    #[test]
    fn table_names_lost_records_and_a_log_that_is_off() {
        let mut flows = Flows {
            enabled: true,
            flows: vec![row(1)],
            figures: FlowFigures {
                lost: 5,
                unsent: 6,
                ..FlowFigures::default()
            },
            ..Flows::default()
        };
        let text = table(&flows);
        assert!(
            text.contains("5 records lost, 6 beyond the limit") && text.contains("prod/web"),
            "{text}"
        );
        flows.enabled = false;
        assert!(table(&flows).starts_with("flows are not collected"));
    }

    #[tokio::test]
    async fn all_pages_are_read_and_a_new_log_begins_again() {
        let directory = tempfile::tempdir().expect("directory");
        let socket = paths::control_below(directory.path(), "felix");
        let mut control = Control::bind(&socket).expect("bound");
        let args = args("--endpoint prod/a --policy prod/web --verdict deny");
        assert_eq!(args.socket(directory.path()), socket);
        let mut query = args.query();
        let answer = async {
            // Two pages, then one of a flow log that was closed and opened again.
            for (after, next, more) in [
                (None, 1, true),
                (Some(1), 9, false),
                (Some(9), 2, false),
                (Some(0), 2, false),
            ] {
                let request = control.next().await;
                let wanted = FlowQuery {
                    endpoint: Some("prod/a".to_owned()),
                    policy: Some("prod/web".to_owned()),
                    allowed: Some(false),
                    after,
                };
                assert_eq!(request.command, Command::Flows(wanted));
                request.reply(Reply::Flows(Flows {
                    flows: vec![row(next)],
                    next,
                    more,
                    ..Flows::default()
                }));
            }
        };
        let asked = async {
            let first = all_pages(&socket, &mut query).await.expect("pages");
            let again = all_pages(&socket, &mut query).await.expect("pages");
            [first, again].map(|page| page.flows.len())
        };
        let (counts, ()) = tokio::join!(asked, answer);
        assert_eq!(counts, [2, 2]);
    }

    /// An output that is closed after some lines.
    struct Output {
        text: String,
        lines: usize,
    }

    impl io::Write for Output {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            if self.text.matches('\n').count() >= self.lines {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.text
                .push_str(std::str::from_utf8(octets).expect("text"));
            Ok(octets.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn page(numbers: &[u64], next: u64, lost: u64, unsent: u64) -> Flows {
        Flows {
            flows: numbers.iter().map(|number| row(*number)).collect(),
            next,
            figures: FlowFigures {
                lost,
                unsent,
                ..FlowFigures::default()
            },
            ..Flows::default()
        }
    }

    // Promise (Felix): `cambric flows --watch` prints each changed row once, and the number of lost records.
    #[tokio::test]
    async fn watch_prints_changed_rows_until_its_output_is_closed() {
        let directory = tempfile::tempdir().expect("directory");
        let socket = paths::control_below(directory.path(), "felix");
        let mut control = Control::bind(&socket).expect("bound");
        let answer = async {
            for (after, page) in [
                (None, page(&[1], 1, 0, 0)),
                (Some(1), page(&[], 1, 5, 0)),
                (Some(1), page(&[2, 3], 3, 5, 2)),
                (Some(3), page(&[4], 4, 5, 2)),
            ] {
                let request = control.next().await;
                let wanted = FlowQuery {
                    after,
                    ..FlowQuery::default()
                };
                assert_eq!(request.command, Command::Flows(wanted));
                request.reply(Reply::Flows(page));
            }
        };
        let mut output = Output {
            text: String::new(),
            lines: 5,
        };
        let watched = async {
            let mut query = FlowQuery::default();
            let first = all_pages(&socket, &mut query).await.expect("a page");
            watch(&socket, query, first, false, &mut output).await
        };
        let (ended, ()) = tokio::join!(watched, answer);
        ended.expect("a closed output is no error");
        let of = |number: u64| line(&row(number));
        let lost = |count: u64| format!("-- {count} records were lost --");
        let wanted = [of(1), lost(5), lost(2), of(2), of(3)];
        assert_eq!(output.text.lines().collect::<Vec<&str>>(), wanted);

        // JSON has one object in each line.
        let (mut text, mut lost) = (Vec::new(), 0);
        assert!(print_changes(
            &page(&[7], 7, 3, 0),
            &mut lost,
            true,
            &mut text
        ));
        let text = String::from_utf8(text).expect("text");
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("an object"))
            .collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(
            (&lines[0]["lost"], &lines[1]["number"]),
            (&json!(3), &json!(7))
        );
    }
}
