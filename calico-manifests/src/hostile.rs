//! Texts that were written to do harm, or damaged on their way.

use std::path::Path;

use daemon_common::limits::CONFIG_PROBLEMS_MAX;

use crate::mistaken::report;
use crate::read_text;

const PEER: &str =
    "apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: rr1}\nspec:\n";

/// Returns the report about a file with these octets.
fn report_of(octets: &[u8]) -> String {
    let name = "file.yaml";
    match read_text(Path::new(name), octets) {
        Ok(text) => report(name, &text),
        Err(mistakes) => mistakes.to_string(),
    }
}

#[test]
fn deep_nesting_is_rejected_without_recursion() {
    let levels = 100_000;
    let flow = format!(
        "{PEER}  nodeSelector: {}{}\n",
        "[".repeat(levels),
        "]".repeat(levels)
    );
    let open = format!("{PEER}  nodeSelector: {}\n", "{a: ".repeat(levels));
    let items = format!("{PEER}  nodeSelector:\n    {}x\n", "- ".repeat(levels));
    let indented: String = (0..1000)
        .map(|at| format!("{}a:\n", " ".repeat(at)))
        .collect();
    for text in [flow, open, items, indented] {
        let report = report(".yaml", &text);
        assert!(
            report.contains("too many levels: at most 32"),
            "{report:.400}"
        );
    }
    let allowed = format!("a: {}b{}\n", "[".repeat(31), "]".repeat(31));
    assert!(!report(".yaml", &allowed).contains("too many"));
    let json = format!("{{\"kind\": {}", "[".repeat(levels));
    assert!(report(".json", &json).contains("too many levels"));
}

#[test]
fn references_that_multiply_are_rejected() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for at in 1..10 {
        let before = format!("*a{}, ", at - 1).repeat(10);
        text.push_str(&format!("a{at}: &a{at} [{before}]\n"));
    }
    let report = report("laughs.yaml", &text);
    assert!(report.contains("too many"), "{report:.400}");
    let merged: String = (1..40)
        .map(|at| format!("b{at}: &b{at}\n  <<: [*b{0}, *b{0}]\n", at - 1))
        .collect();
    let report = crate::mistaken::report("merged.yaml", &format!("b0: &b0 {{a: b}}\n{merged}"));
    assert!(!report.is_empty());
}

#[test]
fn files_too_long_or_without_text_are_rejected() {
    let endless = std::io::repeat(b'a');
    let error = read_text(Path::new("endless"), endless).unwrap_err();
    assert_eq!(error.to_string(), "error: endless: is longer than 16 MiB");
    let latin = format!("{PEER}  # Z\u{0}rich\n  peerIP: 10.0.0.1\n");
    let latin: Vec<u8> = latin
        .bytes()
        .map(|octet| if octet == 0 { 0xfc } else { octet })
        .collect();
    let report = report_of(&latin);
    assert!(
        report.contains("this octet is not UTF-8\n --> file.yaml:5:6"),
        "{report}"
    );
    // The encoding of some editors.
    let wide: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain(PEER.bytes().flat_map(|octet| [octet, 0]))
        .collect();
    assert!(report_of(&wide).contains("file.yaml:1:1"));
    assert!(report_of(&[0; 1000]).contains("file.yaml"));
}

#[test]
fn byte_order_mark_and_line_ends_move_no_caret() {
    let text = format!("{PEER}  peerIp: 10.0.0.1\n");
    let plain = report("a.yaml", &text);
    assert!(plain.contains("a.yaml:5:3"), "{plain}");
    assert_eq!(report("a.yaml", &format!("\u{feff}{text}")), plain);
    assert_eq!(report("a.yaml", &text.replace('\n', "\r\n")), plain);
    let documents = format!("---\r\n{text}\r\n---\r\n\r\n...\r\n---\r\n{text}");
    let report = report("a.yaml", &documents);
    assert!(
        report.contains("a.yaml:6:3") && report.contains("a.yaml:16:3"),
        "{report}"
    );
}

#[test]
fn report_has_no_control_characters() {
    let text = format!(
        "{PEER}  peerIP: \"10.0.0.1\\e[2J\\a\\r\"\n  nextHopMode: \"\\e]0;x\\a\"\n  \"a\\eb\": 1\n"
    );
    let report = report("a.yaml", &text);
    assert!(report.contains("nextHopMode"), "{report:?}");
    let is_bad = |c: char| c.is_control() && c != '\n';
    assert!(!report.contains(is_bad), "{report:?}");
}

#[test]
fn mistakes_of_a_large_file_are_reported_in_time() {
    let wrong =
        format!("---\n{PEER}  peerIp: 10.0.0.1\n  password: {{x: some words of a secret}}\n");
    let report = report("large.yaml", &wrong.repeat(60));
    assert_eq!(
        report.matches("large.yaml:").count(),
        CONFIG_PROBLEMS_MAX + 1
    );
    // One document without an end.
    let list = format!("{PEER}  x:\n{}", "  - 1234567890\n".repeat(250_001));
    assert!(crate::mistaken::report("list.yaml", &list).contains("too many values"));
    let name = "x".repeat(100_000);
    let long = crate::mistaken::report("name.yaml", &format!("{PEER}  {name}: 1\n"));
    assert!(!long.is_empty());
}
