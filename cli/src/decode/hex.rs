//! Text files with one message in hex per line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

use anyhow::Context;
use bgp_proto::{PeerKind, SessionParams};

use crate::decode::octets::from_hex;
use crate::decode::output::Output;
use crate::decode::schema::{Content, Line, Place};
use crate::decode::{message, update};

/// Longest line that is read, in octets: a message of 65535 octets in hex, and its fields.
const LINE_OCTETS_MAX: u64 = 1 << 20;

/// Prints the messages of a text file.
pub(crate) fn run(path: &Path, out: &mut Output<impl Write>) -> anyhow::Result<()> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot open {shown}"))?;
    lines(BufReader::new(file), out)
}

/// Prints the messages of all lines. Lines that are empty or begin with "#" are skipped.
pub(crate) fn lines(mut input: impl BufRead, out: &mut Output<impl Write>) -> anyhow::Result<()> {
    let (mut message, mut number) = (0, 0);
    let mut raw = Vec::new();
    loop {
        raw.clear();
        let mut limited = Read::by_ref(&mut input).take(LINE_OCTETS_MAX);
        if limited.read_until(b'\n', &mut raw)? == 0 {
            return Ok(());
        }
        number += 1;
        let text = String::from_utf8_lossy(&raw);
        let text = text.split(" #").next().unwrap_or_default().trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (place, contents) = line(text, number);
        for content in contents {
            message += 1;
            out.line(&Line {
                message,
                place: place.clone(),
                content,
            })?;
        }
    }
}

/// Reads one line: fields, then hex digits.
fn line(text: &str, number: u64) -> (Place<'_>, Vec<Content>) {
    let mut place = Place {
        line: Some(number),
        ..Place::default()
    };
    let mut rest = text;
    while let Some((key, value, after)) = field(rest) {
        place.fields.insert(key, value);
        rest = after;
    }
    let contents = params(&mut place.fields)
        .and_then(|params| Ok(message::messages(&from_hex(rest)?, &params)));
    (
        place,
        contents.unwrap_or_else(|error| vec![Content::Error { error }]),
    )
}

/// Takes "key=value" off the beginning.
fn field(text: &str) -> Option<(&str, &str, &str)> {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, after) = text.split_at(end);
    let (key, value) = word.split_once('=')?;
    Some((key, value, after))
}

/// Removes the fields with the parameters of the session, and returns these.
fn params(fields: &mut BTreeMap<&str, &str>) -> Result<SessionParams, String> {
    let as4 = flag(fields, "as4", true)?;
    let add_path = flag(fields, "ap", false)?;
    Ok(update::params(PeerKind::Internal, as4, add_path))
}

fn flag(fields: &mut BTreeMap<&str, &str>, key: &str, default: bool) -> Result<bool, String> {
    match fields.remove(key) {
        None => Ok(default),
        Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(format!("{key}={other}: write {key}=0 or {key}=1")),
    }
}
