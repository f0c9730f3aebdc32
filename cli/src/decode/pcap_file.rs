//! Packet captures.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use bgp_proto::SessionParams;
use capture::{Encoding, Item, Packet, Reader, Sessions};

use crate::decode::output::Output;
use crate::decode::schema::{Content, Line, Place, Socket};
use crate::decode::{message, update};

/// Prints the messages of a capture file.
pub(crate) fn run(path: &Path, port: u16, out: &mut Output<impl Write>) -> anyhow::Result<()> {
    let open = || mrt::Source::new(BufReader::new(File::open(path)?));
    let source = open().with_context(|| format!("cannot open {}", path.display()))?;
    packets(source, port, out)
}

/// Prints the messages in the packets of a capture.
pub(crate) fn packets(
    source: impl Read,
    port: u16,
    out: &mut Output<impl Write>,
) -> anyhow::Result<()> {
    let mut sessions = Sessions::new(port);
    let mut printer = Printer { message: 0, out };
    let mut error = None;
    for packet in Reader::new(source) {
        match packet {
            Ok(packet) => {
                let items = sessions.push(&packet);
                printer.items(&place(&packet), items)?;
            }
            Err(found) => error = Some(found),
        }
    }
    printer.items(&Place::default(), sessions.finish())?;
    if let Some(error) = error {
        let place = Place {
            offset: Some(error.at()),
            ..Place::default()
        };
        let error = error.to_string();
        printer.line(&place, Content::Error { error })?;
    }
    Ok(())
}

/// Prints numbered objects.
struct Printer<'a, W> {
    message: u64,
    out: &'a mut Output<W>,
}

impl<W: Write> Printer<'_, W> {
    fn items(&mut self, place: &Place<'static>, items: Vec<Item>) -> anyhow::Result<()> {
        for item in items {
            let place = Place {
                from: Some(socket(item.from)),
                to: Some(socket(item.to)),
                ..place.clone()
            };
            for content in contents(item.content) {
                self.line(&place, content)?;
            }
        }
        Ok(())
    }

    fn line(&mut self, place: &Place<'static>, content: Content) -> anyhow::Result<()> {
        self.message += 1;
        self.out.line(&Line {
            message: self.message,
            place: place.clone(),
            content,
        })
    }
}

fn place(packet: &Packet) -> Place<'static> {
    Place {
        offset: Some(packet.at),
        time: packet.time.map(|(seconds, _)| seconds),
        microseconds: packet.time.map(|(_, microseconds)| microseconds),
        ..Place::default()
    }
}

const fn socket(end: SocketAddr) -> Socket {
    Socket {
        address: end.ip(),
        port: end.port(),
    }
}

fn contents(content: capture::Content) -> Vec<Content> {
    match content {
        capture::Content::Message { octets, encoding } => {
            message::messages(&octets, &params(&encoding))
        }
        capture::Content::Malformed(octets) => {
            message::messages(&octets, &SessionParams::default())
        }
        capture::Content::Lost(octets) => vec![Content::Lost { octets }],
        capture::Content::Skipped(octets) => vec![Content::Skipped { octets }],
        _ => Vec::new(),
    }
}

fn params(encoding: &Encoding) -> SessionParams {
    SessionParams {
        add_path_receive: encoding.add_path,
        ..update::params(encoding.kind, encoding.as4, false)
    }
}
