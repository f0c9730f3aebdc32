use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSliceMut, PipeReader, Read, Seek, Write, pipe};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::cmsg_space;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use tracing::Level;
use tracing_subscriber::fmt::format;
use tracing_subscriber::layer::SubscriberExt;

use super::entry::{WithFields, encode};
use super::{Journal, is_named};
use crate::events::{Event, Text, emit};
use crate::limits::{EVENT_TEXT_OCTETS_MAX, LOG_OCTETS_MAX};
use crate::log::format::{LogFormat, Style};
use crate::log::lines;
use crate::log::sink::{Output, Sink};

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

type Fields = BTreeMap<String, Vec<u8>>;

/// Reads an entry as the documentation of the native protocol describes it; each field occurs once.
fn decoded(mut rest: &[u8]) -> Fields {
    let mut fields = Fields::new();
    while !rest.is_empty() {
        let end = rest.iter().position(|octet| *octet == b'\n').expect("end");
        let (line, behind) = (&rest[..end], &rest[end + 1..]);
        let (name, value) = match line.iter().position(|octet| *octet == b'=') {
            Some(at) => {
                rest = behind;
                (&line[..at], &line[at + 1..])
            }
            None => {
                let (length, behind) = behind.split_at(8);
                let length = u64::from_le_bytes(length.try_into().expect("8 octets"));
                let (value, behind) = behind.split_at(usize::try_from(length).expect("short"));
                rest = behind.strip_prefix(b"\n").expect("an end");
                (line, value)
            }
        };
        let name = String::from_utf8(name.to_vec()).expect("text");
        let is_legal = |c: u8| c.is_ascii_uppercase() || c.is_ascii_digit() || c == b'_';
        assert!(name.bytes().all(is_legal) && name.len() <= 64, "{name}");
        assert_eq!(fields.insert(name, value.to_vec()), None);
    }
    fields
}

/// Collects the formatter's output.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The entry of logged lines, as the journal reads it.
fn entry_of(level: Level, log: impl FnOnce()) -> Fields {
    let lines = Lines::default();
    let writer = lines.clone();
    let bare = format().without_time().with_level(false).with_target(false);
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .event_format(WithFields(bare));
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, log);
    let line = lines.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut entry = Vec::new();
    encode(&mut entry, "cambric-test", level, &line);
    decoded(&entry)
}

fn text<'f>(fields: &'f Fields, name: &str) -> &'f str {
    std::str::from_utf8(&fields[name]).expect("text")
}

/// Keys of the fields besides the time.
fn keys(fields: &Fields) -> Vec<&str> {
    let names = fields.keys().map(String::as_str);
    names.filter(|name| *name != "CAMBRIC_TIME").collect()
}

fn closed(reason: &str) -> Event {
    Event::SessionClosed {
        neighbor: Text::new("rr1"),
        address: Some([10, 0, 0, 1].into()),
        cause: Text::new("received"),
        code: Some(6),
        subcode: None,
        reason: Text::new(reason),
    }
}

#[test]
fn event_has_its_priority_and_fields_in_the_journal() {
    let entry = entry_of(Level::WARN, || emit(closed("gone")));
    for (name, value) in [
        ("PRIORITY", "4"),
        ("SYSLOG_IDENTIFIER", "cambric-test"),
        ("CAMBRIC_EVENT", "session.closed"),
        ("CAMBRIC_NEIGHBOR", "rr1"),
        ("CAMBRIC_ADDRESS", "10.0.0.1"),
        ("CAMBRIC_CODE", "6"),
        ("CAMBRIC_REASON", "gone"),
    ] {
        assert_eq!(text(&entry, name), value, "{name}");
    }
    assert!(!entry.contains_key("CAMBRIC_SUBCODE"), "it is missing");
    let message = text(&entry, "MESSAGE");
    assert!(message.starts_with("session closed "), "{message}");
    assert!(message.contains("neighbor=\"rr1\""), "{message}");
    let time = text(&entry, "CAMBRIC_TIME");
    assert!(time.ends_with('Z'), "{time}");
}

// Promise (Daemons): No value of a log line forges a field of the journal.
#[test]
fn newline_in_a_value_forges_no_field() {
    let honest = entry_of(Level::WARN, || emit(closed("gone")));
    let forged = "x\nPRIORITY=0\nMESSAGE=forged\n\n\u{0}\u{85}CAMBRIC_EVENT=forged\n";
    let entry = entry_of(Level::WARN, || emit(closed(forged)));
    assert_eq!(keys(&entry), keys(&honest));
    assert_eq!(text(&entry, "PRIORITY"), "4");
    assert!(!text(&entry, "MESSAGE").contains('\n'));
    // A line that is not an event has no text that was escaped before.
    let prose = entry_of(Level::ERROR, || {
        tracing::error!(why = forged, error = %forged, "it failed:\n{forged}");
    });
    let expected = [
        "CAMBRIC_ERROR",
        "CAMBRIC_TARGET",
        "CAMBRIC_WHY",
        "MESSAGE",
        "PRIORITY",
        "SYSLOG_IDENTIFIER",
    ];
    assert_eq!(keys(&prose), expected);
    for name in ["CAMBRIC_WHY", "CAMBRIC_ERROR"] {
        assert!(
            text(&prose, name).starts_with("x\\nPRIORITY=0\\n"),
            "{name}"
        );
    }
    assert!(text(&prose, "MESSAGE").starts_with("it failed:\nx\n"));
}

#[test]
fn long_value_in_the_journal_is_whole() {
    let long = "y".repeat(3 * EVENT_TEXT_OCTETS_MAX);
    let entry = entry_of(Level::INFO, || tracing::info!(long, "a report"));
    assert_eq!(text(&entry, "CAMBRIC_LONG"), long);
    assert_eq!(text(&entry, "PRIORITY"), "6");
}

#[test]
fn name_that_the_journal_refuses_is_made_legal() {
    let entry = entry_of(Level::INFO, || {
        tracing::info!(
            stream.id = 1,
            a_name_of_more_than_sixty_four_octets_that_is_cut_where_it_is_too_long = 2,
            "names"
        );
    });
    assert_eq!(text(&entry, "CAMBRIC_STREAM_ID"), "1");
    let cut = "CAMBRIC_A_NAME_OF_MORE_THAN_SIXTY_FOUR_OCTETS_THAT_IS_CUT_WHERE_";
    assert_eq!(text(&entry, cut), "2");
}

#[test]
fn line_of_the_sink_itself_has_fields() {
    let style = Style {
        format: LogFormat::Text,
        with_fields: true,
    };
    let mut entry = Vec::new();
    let (level, line) = lines::lost(style, &super::super::queue::Counts::default());
    encode(&mut entry, "cambric-test", level, &line);
    let entry = decoded(&entry);
    assert_eq!(text(&entry, "CAMBRIC_LINES"), "0");
    assert!(text(&entry, "MESSAGE").starts_with("log lines lost: "));
    let mut entry = Vec::new();
    let report = "first\n\nsecond";
    let line = lines::plain_text(style, report);
    encode(&mut entry, "cambric-test", Level::ERROR, &line);
    assert_eq!(text(&decoded(&entry), "MESSAGE"), report);
}

/// A journal of this test, and its socket.
fn journal(directory: &Path) -> (Journal, UnixDatagram) {
    let path = directory.join("socket");
    let socket = UnixDatagram::bind(&path).expect("bound");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    let program = OsStr::new("/usr/bin/cambric-test");
    (Journal::open(path, program).expect("a socket"), socket)
}

fn received(socket: &UnixDatagram) -> Fields {
    let mut datagram = vec![0; 2 * LOG_OCTETS_MAX];
    let length = socket.recv(&mut datagram).expect("received");
    decoded(&datagram[..length])
}

#[test]
fn line_reaches_the_socket_of_the_journal() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut journal, socket) = journal(directory.path());
    journal
        .send(Level::INFO, b"CAMBRIC_A=b\n\nhello\n")
        .expect("sent");
    let entry = received(&socket);
    assert_eq!(text(&entry, "SYSLOG_IDENTIFIER"), "cambric-test");
    assert_eq!(
        (text(&entry, "CAMBRIC_A"), text(&entry, "MESSAGE")),
        ("b", "hello")
    );
}

#[test]
fn line_longer_than_a_datagram_is_sent_in_a_sealed_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut journal, socket) = journal(directory.path());
    let long = "x".repeat(LOG_OCTETS_MAX);
    journal
        .send(Level::WARN, format!("\n{long}\n").as_bytes())
        .expect("sent");
    let mut none = [];
    let mut data = [IoSliceMut::new(&mut none)];
    let mut space = cmsg_space!([OwnedFd; 1]);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut data, Some(&mut space), flags);
    let message = message.expect("received");
    let control = message.cmsgs().expect("whole").next().expect("a file");
    let ControlMessageOwned::ScmRights(files) = control else {
        panic!("{control:?}");
    };
    // Opened again by its number: a received number cannot be owned without `unsafe`.
    let path = format!("/proc/self/fd/{}", files[0]);
    let mut file = File::open(path).expect("opened");
    let seals = fcntl(&file, FcntlArg::F_GET_SEALS).expect("seals");
    assert!(SealFlag::from_bits_retain(seals).contains(SealFlag::F_SEAL_WRITE));
    let mut entry = Vec::new();
    file.rewind().expect("at its begin");
    file.read_to_end(&mut entry).expect("read");
    assert_eq!(text(&decoded(&entry), "MESSAGE"), long);
}

/// A sink that writes to a journal and, where that refuses lines, into a pipe.
fn sink(journal: Journal) -> (&'static Sink, PipeReader) {
    let (reader, writer) = pipe().expect("a pipe");
    let sink: &'static Sink = Box::leak(Box::new(Sink::new()));
    let out = Output {
        stream: OwnedFd::from(writer).into(),
        journal: Some(journal),
    };
    sink.write_to(out).expect("a thread");
    (sink, reader)
}

#[test]
fn line_that_the_journal_refuses_is_on_the_stream() {
    let directory = tempfile::tempdir().expect("a directory");
    let (journal, socket) = journal(directory.path());
    let path = directory.path().join("socket");
    drop(socket);
    let (sink, mut reader) = sink(journal);
    sink.push(Level::WARN, b"CAMBRIC_A=b\n\nfirst\nsecond\n".to_vec());
    let mut text = [0; 19];
    reader.read_exact(&mut text).expect("read");
    assert_eq!(&text, b"<4>first\n<4>second\n");
    // A journal that is there again gets the next line.
    std::fs::remove_file(&path).expect("removed");
    let socket = UnixDatagram::bind(&path).expect("bound");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    sink.push(Level::WARN, b"CAMBRIC_A=b\n\nthird\n".to_vec());
    assert_eq!(received(&socket)["MESSAGE"], b"third");
    // The journal cannot find the unit of a process that has ended.
    let plain_text = lines::plain_text(sink.style(), "said");
    sink.push(Level::ERROR, plain_text);
    let mut text = [0; 8];
    reader.read_exact(&mut text).expect("read");
    assert_eq!(&text, b"<3>said\n");
}

#[test]
fn stopped_journal_loses_lines_and_gets_their_number() {
    let directory = tempfile::tempdir().expect("a directory");
    let (journal, socket) = journal(directory.path());
    let (sink, _reader) = sink(journal);
    let now = std::time::Instant::now();
    while sink.look(now).0.lost.total() == 0 {
        sink.push(
            Level::WARN,
            [b"CAMBRIC_A=b\n\n".as_slice(), &[b'w'; 1000]].concat(),
        );
        assert!(now.elapsed() < DEADLINE);
    }
    let mut lost = None;
    while lost.is_none() {
        lost = received(&socket).remove("CAMBRIC_LINES");
    }
    let total = sink.look(now).0.lost.total().to_string();
    assert_eq!(lost, Some(total.into_bytes()));
}

#[test]
fn stream_is_the_journals_only_by_device_and_inode() {
    let file = File::open("/proc/self/stat").expect("open");
    let found = file.metadata().expect("known");
    let (device, inode) = (found.dev(), found.ino());
    assert!(is_named(&format!("{device}:{inode}"), &file));
    for wrong in [
        format!("{device}:{}", inode + 1),
        format!("{}:{inode}", device + 1),
        format!("{device}{inode}"),
        format!("{device}:"),
        String::new(),
    ] {
        assert!(!is_named(&wrong, &file), "{wrong}");
    }
}
