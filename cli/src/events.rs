//! `cambric events`: the events of the daemons of this host.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use daemon_common::client::{self, CallError};
use daemon_common::command::EventQuery;
use daemon_common::events::KINDS;
use daemon_common::report::{EventPage, EventRecord};
use daemon_common::{Command, Reply, paths};
use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use crate::ask::{DAEMONS, Targets};
use crate::duration;
use crate::show::clean;

/// Pages of watched daemons that wait to be printed.
const PAGES_WAITING_MAX: usize = 4;

/// The arguments of `cambric events`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only events with this name or prefix: session.closed, session
    name: Option<String>,
    /// Only events of routes to this prefix and to those inside it
    #[arg(long)]
    prefix: Option<IpNet>,
    /// Only events of the last 10m, 2h, …
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    since: Option<Duration>,
    /// Print further events as they happen
    #[arg(short, long)]
    watch: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    /// Query only the daemon of this socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Runs `cambric events`.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (query, mut out) = (args.query(), Out::new(&args));
    let mut daemons = first_pages(&args, Path::new(paths::RUN), &query).await?;
    out.print_all(&daemons);
    if args.watch {
        let (sender, pages) = mpsc::channel(PAGES_WAITING_MAX);
        for (socket, (name, page)) in std::mem::take(&mut daemons) {
            let query = EventQuery {
                after: Some(page.next),
                ..query.clone()
            };
            tokio::spawn(watch(socket, name, query, sender.clone()));
        }
        drop(sender);
        return follow(pages, &mut out).await;
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn query(&self) -> EventQuery {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = self
            .since
            .map(|since| unix.unwrap_or_default().saturating_sub(since));
        EventQuery {
            name: self.name.clone(),
            prefix: self.prefix,
            since_ms: since.map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
            ..EventQuery::default()
        }
    }
}

/// Each daemon's name and its events, by its socket.
type Daemons = BTreeMap<PathBuf, (String, EventPage)>;

/// Reads the histories of all running daemons.
async fn first_pages(args: &Args, run: &Path, query: &EventQuery) -> anyhow::Result<Daemons> {
    let targets = Targets {
        daemons: DAEMONS,
        socket: args.socket.as_deref(),
        run,
    };
    let mut daemons = Daemons::new();
    let mut failures = Vec::new();
    for socket in targets.sockets() {
        let name = socket.file_stem().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        match history(&socket, query.clone()).await {
            Ok(page) => {
                daemons.insert(socket, (name, page));
            }
            // No such events in the history; whether the daemon reports them at all is in the
            // answer to the watch.
            Err(CallError::Daemon { .. }) if args.watch => {
                daemons.insert(socket, (name, EventPage::default()));
            }
            Err(failure) => failures.push(failure),
        }
    }
    match daemons.is_empty() {
        true => Err(targets.no_answer(&failures)),
        false => Ok(daemons),
    }
}

/// Returns all pages of a history as one.
async fn history(socket: &Path, mut query: EventQuery) -> Result<EventPage, CallError> {
    let mut all = EventPage::default();
    loop {
        let mut page = ask(socket, &query).await?;
        all.events.append(&mut page.events);
        all.lost += page.lost;
        all.next = page.next;
        all.note = page.note;
        if !page.more {
            return Ok(all);
        }
        query.after = Some(page.next);
    }
}

async fn ask(socket: &Path, query: &EventQuery) -> Result<EventPage, CallError> {
    match client::call(socket, &Command::Events(query.clone())).await? {
        Reply::Events(page) => Ok(page),
        other => Err(CallError::Daemon {
            path: socket.to_owned(),
            message: format!("an answer to another question: {other:?}"),
        }),
    }
}

/// A daemon's further events, or why there are no more.
type News = (String, Result<EventPage, CallError>);

/// Passes on a daemon's further events until it ends or the printer is gone.
async fn watch(socket: PathBuf, name: String, query: EventQuery, pages: mpsc::Sender<News>) {
    let mut query = EventQuery {
        wait: true,
        ..query
    };
    loop {
        let page = ask(&socket, &query).await;
        let next = page.as_ref().ok().map(|page| (page.next, page.watch));
        if pages.send((name.clone(), page)).await.is_err() {
            return;
        }
        match next {
            Some((next, watch)) => (query.after, query.watch) = (Some(next), watch),
            None => return,
        }
    }
}

/// Prints further events until all daemons have ended or the output is closed.
async fn follow(mut pages: mpsc::Receiver<News>, out: &mut Out) -> anyhow::Result<ExitCode> {
    let mut last = None;
    while let Some((name, page)) = pages.recv().await {
        match page {
            Ok(page) => {
                if !out.print(&name, &page) {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            Err(error) => {
                eprintln!("cambric: {name}: {error}");
                last = Some(error);
            }
        }
    }
    match last {
        Some(_) => Ok(ExitCode::FAILURE),
        None => bail!("no daemon to watch"),
    }
}

/// Prints events as text or as JSON.
struct Out {
    json: bool,
    /// Whether the text of an event includes its daemon.
    names: bool,
    /// Whether further events follow.
    watches: bool,
}

impl Out {
    const fn new(args: &Args) -> Self {
        Self {
            json: args.json,
            names: args.socket.is_none(),
            watches: args.watch,
        }
    }

    /// Prints the histories of several daemons in the order of time.
    fn print_all(&self, daemons: &Daemons) {
        let mut lines = Vec::new();
        for (name, page) in daemons.values() {
            if page.lost > 0 {
                lines.push((0, self.lost(name, page.lost)));
            }
            if let Some(note) = page.note.as_deref().filter(|_| !self.watches) {
                lines.push((0, self.note(name, note)));
            }
            let events = page.events.iter();
            lines.extend(events.map(|event| (event.time_ms, self.line(name, event))));
        }
        lines.sort_by_key(|(at, _)| *at);
        write_lines(lines.into_iter().map(|(_, line)| line));
    }

    /// Prints further events of a daemon; returns false if the output is closed.
    fn print(&self, name: &str, page: &EventPage) -> bool {
        let lost = (page.lost > 0).then(|| self.lost(name, page.lost));
        let events = page.events.iter().map(|event| self.line(name, event));
        write_lines(lost.into_iter().chain(events))
    }

    fn lost(&self, name: &str, lost: u64) -> String {
        match self.json {
            true => json!({ "daemon": name, "lost": lost }).to_string(),
            false => format!("-- {name}: {lost} earlier events are no longer kept --"),
        }
    }

    fn note(&self, name: &str, note: &str) -> String {
        match self.json {
            true => json!({ "daemon": name, "note": note }).to_string(),
            false => format!("-- {name}: {} --", clean(note)),
        }
    }

    fn line(&self, name: &str, event: &EventRecord) -> String {
        let time = time(event.time_ms);
        if self.json {
            return json!({
                "daemon": name,
                "number": event.number,
                "time": time,
                "event": event.event,
                "level": event.level,
                "message": event.message,
                "fields": event.fields,
            })
            .to_string();
        }
        let level = event.level.to_ascii_uppercase();
        let daemon = if self.names {
            format!(" {name}")
        } else {
            String::new()
        };
        let (of, fields) = (clean(&event.event), fields(&event.event, &event.fields));
        format!("{time} {level:>5}{daemon} {of}{fields}")
    }
}

/// Unix time as in a line of the log.
fn time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or_default();
    format!("{time:.3}")
}

/// Returns the fields in the order of the table of events; fields of a newer daemon follow.
fn fields(event: &str, fields: &Map<String, Value>) -> String {
    let kind = KINDS.iter().find(|kind| kind.name == event);
    let known: Vec<&str> = kind
        .map(|kind| kind.fields.iter().map(|field| field.name).collect())
        .unwrap_or_default();
    let mut sorted: Vec<_> = fields.iter().collect();
    let place = |name: &str| known.iter().position(|of| *of == name);
    sorted.sort_by_key(|(name, _)| place(name).unwrap_or(usize::MAX));
    let words = sorted
        .into_iter()
        .map(|(name, value)| match value.as_str() {
            Some(text) if is_plain(text) => format!(" {}={text}", clean(name)),
            _ => format!(" {}={}", clean(name), clean(&value.to_string())),
        });
    words.collect()
}

/// Whether a text needs no quotation marks.
fn is_plain(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:/+".contains(c);
    !text.is_empty() && text.chars().all(is_plain)
}

/// Writes lines; returns false if the output is closed.
fn write_lines(lines: impl Iterator<Item = String>) -> bool {
    let mut out = io::stdout().lock();
    let mut written = Ok(());
    for line in lines {
        written = written.and_then(|()| writeln!(out, "{line}"));
    }
    written.and_then(|()| out.flush()).is_ok()
}

#[cfg(test)]
mod tests {
    use daemon_common::control::Control;
    use daemon_common::events::{Event, Text, emit};

    use super::*;

    fn out(json: bool) -> Out {
        Out {
            json,
            names: true,
            watches: false,
        }
    }

    fn record() -> EventRecord {
        let fields = json!({
            "reason": "Network is unreachable",
            "neighbor": "rr1",
            "address": "10.0.0.1",
            "port": 179,
            "a_newer_field": "x\u{1b}",
        });
        EventRecord {
            number: 7,
            time_ms: 1_764_000_000_123,
            event: "session.connect_failed".to_owned(),
            level: "warn".to_owned(),
            message: "cannot connect to neighbor".to_owned(),
            fields: fields.as_object().cloned().expect("an object"),
        }
    }

    #[test]
    fn event_is_one_line_with_fields_in_table_order() {
        assert_eq!(
            out(false).line("bgp-client", &record()),
            "2025-11-24T16:00:00.123Z  WARN bgp-client session.connect_failed neighbor=rr1 \
             address=10.0.0.1 port=179 reason=\"Network is unreachable\" a_newer_field=\"x\\u001b\""
        );
        let json = out(true).line("bgp-client", &record());
        let json: Value = serde_json::from_str(&json).expect("one object");
        assert_eq!(json["fields"]["port"], 179);
        assert_eq!(json["time"], "2025-11-24T16:00:00.123Z");
    }

    #[tokio::test]
    async fn events_of_a_daemon_are_read_from_its_socket() {
        let directory = tempfile::tempdir().expect("directory");
        let _control =
            Control::bind(paths::control_below(directory.path(), "felix")).expect("bound");
        emit(Event::ListenerFailed {
            reason: Text::new("a reason"),
        });
        let args = Args {
            name: None,
            prefix: None,
            since: Some(Duration::from_secs(3600)),
            watch: false,
            json: false,
            socket: None,
        };
        let pages = first_pages(&args, directory.path(), &args.query()).await;
        let pages = pages.expect("a history");
        let (name, page) = pages.values().next().expect("one daemon");
        assert_eq!(name, "felix");
        let is_emitted = |event: &EventRecord| event.fields["reason"] == "a reason";
        assert!(page.events.iter().any(is_emitted), "{page:?}");
    }
}
