//! Malformed messages, octet by octet.

use std::fmt::Write;

use daemon_common::report::{Malformed, MalformedMessage};

use super::cells::{clean, utc};

/// Octets per line.
const LINE: usize = 16;

/// Returns the messages of one neighbor, or of all.
pub(super) fn print(report: &Malformed, neighbor: Option<&str>) -> String {
    let wanted = |message: &&MalformedMessage| neighbor.is_none_or(|n| n == message.neighbor);
    let text: Vec<String> = report.messages.iter().filter(wanted).map(one).collect();
    match text.as_slice() {
        [] => "no malformed message is kept\n".to_owned(),
        text => text.join("\n"),
    }
}

fn one(message: &MalformedMessage) -> String {
    let mut text = format!(
        "{} {}: {}\n",
        utc(message.time_s),
        clean(&message.neighbor),
        clean(&message.text)
    );
    let octets: Vec<&str> = pairs(&message.octets).collect();
    for (number, line) in octets.chunks(LINE).enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}", row(number * LINE, line, message.at.into()));
    }
    let kept = octets.len() as u64;
    if kept < message.octets_total {
        let _ = writeln!(text, "  … {} bytes more", message.octets_total - kept);
    }
    text
}

/// Returns a line of octets, with the faulty one in brackets.
fn row(first: usize, octets: &[&str], at: usize) -> String {
    let mut text = format!("{first:5} ");
    for (offset, octet) in octets.iter().enumerate() {
        let before = match (first + offset, at) {
            (here, at) if here == at => '[',
            (here, at) if here == at + 1 && offset > 0 => ']',
            _ => ' ',
        };
        text.push(before);
        text.push_str(octet);
    }
    if first + octets.len() == at + 1 {
        text.push(']');
    }
    text
}

fn pairs(hex: &str) -> impl Iterator<Item = &str> {
    (0..hex.len())
        .step_by(2)
        .filter_map(move |at| hex.get(at..at + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(at: u16) -> MalformedMessage {
        MalformedMessage {
            time_s: 1_763_757_667,
            neighbor: "tor".to_owned(),
            text: "ORIGIN: bad attribute value".to_owned(),
            at,
            octets: "0102030405060708090a0b0c0d0e0f101112".to_owned(),
            octets_total: 20,
            ..MalformedMessage::default()
        }
    }

    fn lines(at: u16) -> Vec<String> {
        let messages = vec![message(at)];
        let text = print(&Malformed { messages }, None);
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn faulty_octet_is_shown_in_brackets() {
        assert_eq!(
            lines(2),
            [
                "2025-11-21 20:41:07Z tor: ORIGIN: bad attribute value",
                "      0  01 02[03]04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10",
                "     16  11 12",
                "  … 2 bytes more",
            ]
        );
        assert!(lines(0)[1].ends_with("0 [01]02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10"));
        assert!(lines(15)[1].ends_with(" 0f[10]") && lines(15)[2].ends_with("16  11 12"));
        assert!(lines(17)[2].ends_with(" 11[12]"));
        assert_eq!(lines(400).len(), 4, "a fault past what was kept");
    }

    #[test]
    fn one_neighbor_or_all() {
        let report = Malformed {
            messages: vec![message(1), message(2)],
        };
        assert_eq!(print(&report, Some("tor")).lines().count(), 9);
        let none = "no malformed message is kept\n";
        assert_eq!(print(&report, Some("other")), none);
        assert_eq!(print(&Malformed::default(), None), none);
    }
}
