use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use tracing::Level;

use super::format::{LogFormat, Style};
use super::lines;
use super::queue::{Counts, Entry, Queue};
use super::sink::{Output, Sink};
use crate::limits::{
    LOG_FLUSH, LOG_LAST_LINES, LOG_LINES_MAX, LOG_LINES_RESERVED, LOG_OCTETS_MAX,
    LOG_OCTETS_RESERVED,
};

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

fn drained(queue: &mut Queue) -> Vec<String> {
    let entries = std::iter::from_fn(|| {
        let entry = queue.pop()?;
        queue.written(Ok(()));
        Some(entry)
    });
    let texts = entries.map(|entry| match entry {
        Entry::Line(_, line) => String::from_utf8(line).expect("text"),
        Entry::Lost(lost) => format!("lost {}", lost.total()),
    });
    texts.collect()
}

#[test]
fn queue_full_of_lines_loses_new_ones_and_reports_the_count() {
    let mut queue = Queue::new();
    for at in 0..LOG_LINES_MAX + 10 {
        queue.push(Level::WARN, format!("{at}").into_bytes());
        assert!(queue.waiting() <= LOG_LINES_MAX - LOG_LINES_RESERVED);
    }
    let kept = queue.waiting();
    let lost = (LOG_LINES_MAX + 10 - kept) as u64;
    assert_eq!(
        (queue.lost.of(Level::WARN), queue.lost.total()),
        (lost, lost)
    );
    for _ in 0..2 {
        queue.pop().expect("a line");
    }
    queue.push(Level::INFO, b"later".to_vec());
    let texts = drained(&mut queue);
    let end = &texts[texts.len() - 3..];
    let last_kept = format!("{}", kept - 1);
    assert_eq!(end, [last_kept, format!("lost {lost}"), "later".to_owned()]);
    assert!(queue.is_done());
}

#[test]
fn queue_full_of_octets_loses_new_lines() {
    let mut queue = Queue::new();
    let line = vec![b'x'; 10_000];
    for _ in 0..200 {
        queue.push(Level::INFO, line.clone());
        assert!(queue.octets() <= LOG_OCTETS_MAX - LOG_OCTETS_RESERVED);
    }
    assert!(queue.lost.of(Level::INFO) > 90);
    queue.push(Level::INFO, vec![0; 2 * LOG_OCTETS_MAX]);
    let texts = drained(&mut queue);
    assert_eq!(texts.last().map(|text| &text[..4]), Some("lost"));
    assert_eq!(queue.octets(), 0);
}

#[test]
fn errors_have_room_when_other_lines_have_none() {
    let mut queue = Queue::new();
    for _ in 0..LOG_LINES_MAX {
        queue.push(Level::WARN, b"w".to_vec());
    }
    queue.push(Level::ERROR, b"e".to_vec());
    assert_eq!(queue.lost.of(Level::ERROR), 0);
    for _ in 0..LOG_LINES_MAX {
        queue.push(Level::ERROR, b"e".to_vec());
        assert!(queue.waiting() <= LOG_LINES_MAX);
    }
    assert!(queue.lost.of(Level::ERROR) > 0);
}

#[test]
fn last_lines_of_a_process_use_the_room_for_errors() {
    let mut queue = Queue::new();
    for _ in 0..LOG_LINES_MAX {
        queue.push(Level::WARN, b"w".to_vec());
    }
    queue.open_reserve();
    queue.push(Level::INFO, b"leaving".to_vec());
    assert_eq!(queue.lost.of(Level::INFO), 0);
}

#[test]
fn lines_that_cannot_be_written_are_counted_and_reported_later() {
    let mut queue = Queue::new();
    queue.push(Level::WARN, b"one".to_vec());
    let entry = queue.pop().expect("a line");
    queue.written(Err(&entry));
    assert_eq!(queue.pop(), None, "a report would fail as well");
    assert!(queue.is_done());
    queue.push(Level::INFO, b"two".to_vec());
    assert_eq!(drained(&mut queue), ["lost 1", "two"]);
    assert_eq!(queue.lost.total(), 1);
}

#[test]
fn last_lines_are_kept_and_the_others_counted() {
    let mut queue = Queue::new();
    for at in 0..100 {
        queue.push(Level::INFO, format!("{at}").into_bytes());
    }
    queue.keep_last(LOG_LAST_LINES);
    let texts = drained(&mut queue);
    assert_eq!(texts.len(), LOG_LAST_LINES + 1);
    assert_eq!(texts[0], format!("lost {}", 100 - LOG_LAST_LINES));
    assert_eq!(texts.last().map(String::as_str), Some("99"));
    assert_eq!(queue.octets(), 0);
}

#[test]
fn lost_lines_are_reported_as_text_and_as_json() {
    let mut queue = Queue::new();
    for _ in 0..2 * LOG_LINES_MAX {
        queue.push(Level::ERROR, b"e".to_vec());
    }
    let counts: Counts = queue.lost;
    let style = |format| Style {
        format,
        with_fields: false,
    };
    let (level, text) = lines::lost(style(LogFormat::Text), &counts);
    assert_eq!(level, Level::ERROR);
    let text = String::from_utf8(text).expect("text");
    let number = counts.total();
    assert!(text.contains(" ERROR daemon_common::log"), "{text}");
    assert!(
        text.contains(&format!(" lines={number} error={number} warn=0")),
        "{text}"
    );
    let (_, json) = lines::lost(style(LogFormat::Json), &counts);
    let json: serde_json::Value = serde_json::from_slice(&json).expect("one object");
    assert_eq!(json["level"], "ERROR");
    assert_eq!(json["fields"]["lines"], number);
    assert!(
        json["timestamp"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z'))
    );
}

fn stream(fd: impl Into<OwnedFd>) -> Output {
    let (stream, journal) = (fd.into().into(), None);
    Output { stream, journal }
}

/// A sink that writes into a pipe, and the pipe's other end.
fn sink() -> (&'static Sink, PipeReader, PipeWriter) {
    let (reader, writer) = pipe().expect("a pipe");
    let sink: &'static Sink = Box::leak(Box::new(Sink::new()));
    let out = stream(writer.try_clone().expect("duplicated"));
    sink.write_to(out).expect("a thread");
    (sink, reader, writer)
}

/// Fills a sink until lines are lost; no call of it may wait for the reader.
fn fill(sink: &Sink) {
    let began = Instant::now();
    while sink.look(began).0.lost.total() == 0 {
        sink.push(Level::WARN, vec![b'w'; 1000]);
        assert!(began.elapsed() < DEADLINE);
    }
}

#[test]
fn stopped_reader_delays_an_exit_no_longer_than_the_deadline() {
    let (sink, reader, _writer) = sink();
    fill(sink);
    let began = Instant::now();
    sink.leave(LOG_FLUSH);
    // By the second time the sink has detected that nothing is read.
    sink.leave(DEADLINE);
    assert!(began.elapsed() < DEADLINE / 2, "{:?}", began.elapsed());
    assert!(sink.look(Instant::now()).1.is_some(), "the writer waits");
    drop(reader);
}

#[test]
fn reader_that_resumes_finds_the_lines_and_the_lost_count() {
    let (sink, mut reader, writer) = sink();
    fill(sink);
    drop(writer);
    let (done, lines) = sync_channel(1);
    thread::spawn(move || {
        let mut text = Vec::new();
        let mut chunk = [0; 4096];
        while !String::from_utf8_lossy(&text).contains("the end") {
            let read = reader.read(&mut chunk).expect("read");
            text.extend_from_slice(&chunk[..read]);
        }
        let _ = done.send(text);
    });
    sink.leave(DEADLINE);
    sink.push(Level::INFO, b"the end\n".to_vec());
    let text = lines.recv_timeout(DEADLINE).expect("all is read");
    let text = String::from_utf8(text).expect("text");
    assert!(text.contains("log lines lost"), "{}", text.len());
    let lost = sink.look(Instant::now()).0.lost.total();
    assert!(text.contains(&format!("lines={lost} ")), "{lost}");
}

#[test]
fn reader_that_has_left_does_not_stop_the_sink() {
    let (sink, reader, _writer) = sink();
    drop(reader);
    for _ in 0..10 {
        sink.push(Level::INFO, b"line\n".to_vec());
    }
    sink.leave(DEADLINE);
    assert_eq!(sink.look(Instant::now()).0.lost.of(Level::INFO), 10);
}

#[test]
fn non_blocking_sink_that_is_full_loses_no_part_of_a_line() {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let (mut reader, mut writer) = pipe().expect("a pipe");
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("set");
    let mut filled = 0;
    while let Ok(written) = writer.write(&[b'.'; 4096]) {
        filled += written;
    }
    let sink: &'static Sink = Box::leak(Box::new(Sink::new()));
    sink.write_to(stream(writer)).expect("a thread");
    let line = [vec![b'x'; 100_000], b"\n".to_vec()].concat();
    sink.push(Level::INFO, line.clone());
    let mut text = vec![0; filled + line.len()];
    reader.read_exact(&mut text).expect("read");
    assert!(text.ends_with(&line));
    assert_eq!(sink.look(Instant::now()).0.lost.total(), 0);
}
