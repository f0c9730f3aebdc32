use serde::Deserialize;
use toml::Spanned;

use super::{Problem, Source, beside, load};
use crate::limits::{CONFIG_PROBLEMS_MAX, CONFIG_READ_AGAIN_OCTETS_MAX};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct File {
    asn: Spanned<u32>,
    #[serde(default)]
    neighbor: Vec<Neighbor>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code)]
struct Neighbor {
    address: Spanned<std::net::IpAddr>,
    hold_time: Option<u16>,
}

fn failure(text: &str) -> String {
    Source::new("bgp.toml", text)
        .parse::<File>()
        .expect_err("must not parse")
        .to_string()
}

#[test]
fn typo_gets_line_caret_and_suggestion() {
    let text = "asn = 64512\n[[neighbor]]\naddress = \"10.0.0.1\"\nhold_tiem = 9\n";
    let shown = failure(text);
    assert!(shown.contains("error: unknown key `hold_tiem`"), "{shown}");
    assert!(shown.contains("--> bgp.toml:4:1"), "{shown}");
    assert!(
        shown.contains("^^^^^^^^^ did you mean `hold_time`?"),
        "{shown}"
    );
    assert!(
        shown.contains("known keys here: address, hold_time"),
        "{shown}"
    );
}

#[test]
fn a_key_like_no_other_gets_no_suggestion() {
    let shown = failure("asn = 1\nzzz = 1\n");
    assert!(shown.contains("unknown key `zzz`"), "{shown}");
    assert!(!shown.contains("did you mean"), "{shown}");
}

#[test]
fn wrong_value_points_at_the_value() {
    let shown = failure("asn = 64512\n[[neighbor]]\naddress = \"10.0.0.300\"\n");
    assert!(shown.contains("--> bgp.toml:3:11"), "{shown}");
    assert!(shown.contains("^^^^^^^^^^^^"), "{shown}");
}

#[test]
fn missing_key_is_named() {
    let shown = failure("[[neighbor]]\naddress = \"10.0.0.1\"\n");
    assert!(shown.contains("bgp.toml"), "{shown}");
    assert!(shown.contains("missing key `asn`"), "{shown}");
    let shown = failure("asn = 1\n\n[[neighbor]]\nhold_time = 9\n");
    assert!(shown.contains("missing key `address`"), "{shown}");
    assert!(shown.contains("--> bgp.toml:3:1"), "{shown}");
}

#[test]
fn every_syntax_error_is_reported() {
    let shown = failure("asn = \nneighbor = [\n  = 3\n");
    assert!(shown.matches("error: ").count() >= 2, "{shown}");
    assert!(shown.contains("bgp.toml:1"), "{shown}");
}

#[test]
fn semantic_problems_come_in_one_report_in_text_order() {
    let text =
        "asn = 7\n[[neighbor]]\naddress = \"10.0.0.1\"\n[[neighbor]]\naddress = \"10.0.0.1\"\n";
    let source = Source::new("bgp.toml", text);
    let file: File = source.parse().expect("parses");
    let mut problems = source.problems();
    let (first, second) = (&file.neighbor[0].address, &file.neighbor[1].address);
    problems.push(
        Problem::at(second.span(), "neighbor 10.0.0.1 is given twice")
            .label("again here")
            .related(first.span(), "first here")
            .help("give each neighbor once"),
    );
    problems.push(Problem::at(file.asn.span(), "AS 7 is not ours"));
    let report = problems.finish().expect_err("two problems");
    assert_eq!(
        report.messages(),
        ["AS 7 is not ours", "neighbor 10.0.0.1 is given twice"]
    );
    let shown = report.to_string();
    assert!(shown.contains("bgp.toml:5:11"), "{shown}");
    assert!(
        shown.contains("first here") && shown.contains("again here"),
        "{shown}"
    );
    assert!(shown.contains("help: give each neighbor once"), "{shown}");
}

fn messages(text: &str) -> Vec<String> {
    let source = Source::new("bgp.toml", text);
    let (_, problems) = source.examine::<File>();
    problems.into_report().messages().to_vec()
}

#[test]
fn mistakes_of_all_kinds_come_in_one_report() {
    let text = "asn = \"x\"\nfoo = 1\n[[neighbor]]\naddress = \"10.0.0.1/24\"\nhold_tiem = 3\n\
                [[neighbor]]\naddress = 10.0.0.2\nhold_time = \"30s\"\n";
    assert_eq!(
        messages(text),
        [
            "`asn` is a whole number, from 0 to 4294967295",
            "unknown key `foo`",
            "`address` is an IPv4 or IPv6 address in quotation marks",
            "unknown key `hold_tiem`",
            "`address` is an IPv4 or IPv6 address in quotation marks",
            "`hold_time` is a number of seconds",
        ]
    );
}

#[test]
fn key_with_a_mistake_is_not_missing_as_well() {
    let source = Source::new("bgp.toml", "asn = \"x\"\nneighbor = 7\n");
    let (file, problems) = source.examine::<File>();
    assert!(file.is_none(), "asn is required");
    assert!(problems.is_lost("asn") && problems.is_lost("neighbor"));
    assert!(!problems.is_lost("hold_time"));
    assert_eq!(problems.into_report().messages().len(), 2);
    let source = Source::new("bgp.toml", "asn = 1\nneighbor = 7\n");
    let (file, problems) = source.examine::<File>();
    assert!(file.expect("the rest is valid").neighbor.is_empty());
    assert!(problems.is_part_lost("neighbor") && !problems.is_part_lost("asn"));
}

#[test]
fn report_has_a_bounded_number_of_mistakes() {
    let text: String = (0..500).map(|at| format!("key{at} = 1\n")).collect();
    let count = messages(&text).len();
    assert!(count <= CONFIG_PROBLEMS_MAX + 1, "{count}");
    let text = "[[neighbor]]\naddress = 7\n".repeat(500);
    let count = messages(&text).len();
    assert!(count <= CONFIG_PROBLEMS_MAX + 1, "{count}");
}

/// A long file is not read a hundred times while a daemon waits for it.
#[test]
fn long_file_has_fewer_mistakes_in_one_report() {
    let comment = format!("# {}\n", "x".repeat(CONFIG_READ_AGAIN_OCTETS_MAX / 4));
    let text = format!(
        "asn = 1\n{}{comment}",
        "[[neighbor]]\naddress = 7\n".repeat(20)
    );
    let count = messages(&text).len();
    assert!((1..=3).contains(&count), "{count}");
}

#[test]
fn unreadable_file_is_reported_with_its_cause() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("none.toml");
    let shown = load::<File>(&path).expect_err("absent").to_string();
    assert!(shown.contains("none.toml: no such file"), "{shown}");
    let shown = load::<File>(directory.path())
        .expect_err("directory")
        .to_string();
    assert!(shown.contains("a directory"), "{shown}");
    std::fs::write(&path, [0xff, 0xfe]).expect("write");
    let shown = load::<File>(&path).expect_err("octets").to_string();
    assert!(shown.contains("not UTF-8"), "{shown}");
}

#[test]
fn file_that_cannot_be_examined_counts_as_present() {
    let directory = tempfile::tempdir().expect("directory");
    let own = directory.path().join("own.toml");
    let name = "cambric-test-other.toml";
    let other = directory.path().join(name);
    assert_eq!(beside(&own, name), None);
    std::fs::create_dir(&other).expect("directory");
    assert_eq!(beside(&own, name), None, "a directory is no file");
    assert_eq!(beside(&other.join("own.toml"), name), None);
    std::fs::remove_dir(&other).expect("removed");
    std::os::unix::fs::symlink(&other, &other).expect("a link to itself");
    assert_eq!(beside(&own, name), Some(other.clone()));
    std::fs::remove_file(&other).expect("removed");
    std::fs::write(&other, "").expect("written");
    assert_eq!(beside(&own, name), Some(other.clone()));
    // Its directory is a file.
    assert_eq!(beside(&other.join("own.toml"), name), None);
}

#[test]
fn odd_spans_do_not_panic() {
    let source = Source::new("x", "ä = \"ö\"\n");
    for span in [0..1, 1..2, 6..7, 7..900, 900..901] {
        assert!(source.problem(span, "odd").to_string().contains("odd"));
    }
    for text in ["", "\u{feff}", "a", "[", "\"", "a = 1\r\n\0", "[[a]]\n[a]"] {
        assert!(!failure(text).is_empty());
    }
}
