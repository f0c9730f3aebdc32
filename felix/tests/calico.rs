//! Corner cases of Calico's selectors and ports, as named cases for both parsers: that of the programs, and
//! that of the check of rules. The facts are those of projectcalico/calico, with other names and values:
//!
//! * selectors: `libcalico-go/lib/selector/parser/parser_test.go`;
//! * ports: `api/pkg/lib/numorstring/numorstring_test.go`, and for forms that it lacks the patterns of
//!   `port.go` beside it.

use std::collections::BTreeMap;

use calico_model::{Port, Selector};
use rule_audit::evaluator::{Port as AuditedPort, Selector as Audited};
use serde_json::{Value, json};

/// Labels of a resource.
type Labels = &'static [(&'static str, &'static str)];

/// A name, a selector, labels that it selects, and labels that it does not select.
type Case = (
    &'static str,
    &'static str,
    &'static [Labels],
    &'static [Labels],
);

const CASES: &[Case] = &[
    ("empty selector", "", &[&[], &[("z", "1")]], &[]),
    ("blank selector", "  ", &[&[], &[("z", "1")]], &[]),
    ("all with blanks", "  all( ) ", &[&[], &[("z", "1")]], &[]),
    ("all in parentheses", " ( all() )", &[&[]], &[]),
    ("global", "global()", &[&[], &[("z", "1")]], &[]),
    (
        "equality",
        "z == '1'",
        &[&[("z", "1")], &[("y", "2"), ("z", "1")]],
        &[&[], &[("z", "2")], &[("y", "1")]],
    ),
    (
        "equality without blanks",
        r#"z=="1""#,
        &[&[("z", "1")]],
        &[&[("z", "2")]],
    ),
    (
        "inequality of a missing label",
        "z != '1'",
        &[&[], &[("z", "2")]],
        &[&[("z", "1")]],
    ),
    (
        "inequality without blanks",
        r#"z!="1""#,
        &[&[]],
        &[&[("z", "1")]],
    ),
    (
        "other quote in a value",
        r#"z == "'""#,
        &[&[("z", "'")]],
        &[&[("z", "\"")]],
    ),
    (
        "quotes in a set",
        r#"z in {'"', "'"}"#,
        &[&[("z", "'")], &[("z", "\"")]],
        &[&[], &[("z", "`")]],
    ),
    (
        "repeated value in a set",
        "z in {'1', '1', '0'}",
        &[&[("z", "0")], &[("z", "1")]],
        &[&[("z", "2")]],
    ),
    (
        "negated set and a missing label",
        "z not in {'1'}",
        &[&[], &[("z", "2")]],
        &[&[("z", "1")]],
    ),
    (
        "negated set in one word",
        "z notin {'1'}",
        &[&[], &[("z", "2")]],
        &[&[("z", "1")]],
    ),
    (
        "negation of a set",
        "! z in {'1'}",
        &[&[], &[("z", "2")]],
        &[&[("z", "1")]],
    ),
    (
        "contains",
        "z contains '1'",
        &[&[("z", "212")], &[("z", "1")]],
        &[&[], &[("z", "2")], &[("y", "1")]],
    ),
    (
        "starts with",
        "z starts with '1'",
        &[&[("z", "12")]],
        &[&[], &[("z", "21")]],
    ),
    (
        "starts with in one word",
        "z startswith '1'",
        &[&[("z", "12")]],
        &[&[("z", "21")]],
    ),
    (
        "ends with",
        "z ends with '1'",
        &[&[("z", "21")]],
        &[&[], &[("z", "12")]],
    ),
    (
        "ends with in one word",
        "z endswith '1'",
        &[&[("z", "21")]],
        &[&[("z", "12")]],
    ),
    (
        "presence with blanks",
        "has( z )",
        &[&[("z", "")]],
        &[&[], &[("y", "1")]],
    ),
    (
        "absence",
        "!has(z)",
        &[&[], &[("y", "1")]],
        &[&[("z", "1")]],
    ),
    ("two negations", "!!has(z)", &[&[("z", "1")]], &[&[]]),
    (
        "three negations with blanks",
        "! !! has(z)",
        &[&[]],
        &[&[("z", "1")]],
    ),
    (
        "negation binds one operand",
        "!z == '1' && y == '2'",
        &[&[("y", "2")]],
        &[&[("z", "1"), ("y", "2")], &[]],
    ),
    (
        "conjunction before disjunction",
        "has(x) && has(y) || has(z)",
        &[&[("z", "1")], &[("x", "1"), ("y", "1")]],
        &[&[("x", "1")], &[]],
    ),
    (
        "negated parentheses",
        "!(has(y) || !has(z))",
        &[&[("z", "1")]],
        &[&[], &[("y", "1"), ("z", "1")]],
    ),
];

/// Selectors that Calico rejects.
const INVALID: &[(&str, &str)] = &[
    ("label as a value", "z == z"),
    ("label as a part", "z contains z"),
    ("label as a prefix", "z starts with z"),
    ("label as a suffix", "z ends with z"),
    ("value before the operator", "'1' == z"),
    ("label alone", "z"),
    ("label and a blank", "z "),
    ("two labels", "z y"),
    ("negation alone", "!"),
    ("half of an operator", "z == '1' &"),
    ("half of another operator", "z == '1' |"),
    ("operator without a value", "z != ||"),
    ("set without an end", "z in {'1', ||"),
    ("value in the place of a set", "z in '1'"),
    ("text without an end", "\"z"),
    ("text with two quotes", "\"z'"),
    ("parenthesis alone", "("),
    ("parenthesis without an end", "(z == '1'"),
    ("parenthesis without a begin", ")"),
    ("empty parentheses", "()"),
    ("unknown sign", "%"),
    ("unknown sign after an operator", "z == '1' && %"),
    ("operator at the end", "has(z) &&"),
];

fn map(labels: Labels) -> BTreeMap<String, String> {
    let labels = labels.iter();
    labels
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn selectors_have_the_meaning_of_calico() {
    for (name, text, selected, others) in CASES {
        let programs: Selector = text
            .parse()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let audited = Audited::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let selected = selected.iter().map(|labels| (labels, true));
        for (labels, wanted) in selected.chain(others.iter().map(|labels| (labels, false))) {
            let labels = map(labels);
            assert_eq!(
                programs.matches(&labels),
                wanted,
                "{name}: {text} {labels:?}"
            );
            assert_eq!(
                audited.selects_map(&labels),
                wanted,
                "{name}: {text} {labels:?}"
            );
        }
    }
}

#[test]
fn selectors_that_calico_rejects_are_invalid() {
    for (name, text) in INVALID {
        assert!(text.parse::<Selector>().is_err(), "{name}: {text}");
        assert!(Audited::parse(text).is_err(), "{name}: {text}");
    }
}

/// A name, an entry in a list of ports, and its range; `None` for the name of a port.
type PortCase = (&'static str, Value, Option<(u16, u16)>);

/// Returns the entries that Calico accepts.
fn ports() -> Vec<PortCase> {
    let longest = json!("p".repeat(128));
    vec![
        ("first port", json!(0), Some((0, 0))),
        ("last port", json!(65_535), Some((65_535, 65_535))),
        ("all ports", json!("0:65535"), Some((0, 65_535))),
        ("range", json!("20:29"), Some((20, 29))),
        ("range of one port", json!("20:20"), Some((20, 20))),
        ("number in quotes", json!("9090"), Some((9090, 9090))),
        ("first port in quotes", json!("0"), Some((0, 0))),
        ("leading zeros", json!("0080"), Some((80, 80))),
        (
            "leading zeros in a range",
            json!("020:0029"),
            Some((20, 29)),
        ),
        ("name", json!("www-alt"), None),
        ("name with other signs", json!("www_alt.v2"), None),
        ("name that begins with digits", json!("80www"), None),
        ("name that ends with digits", json!("www80"), None),
        ("digits and a sign", json!("1-2"), None),
        ("sign alone", json!("-"), None),
        ("longest name", longest, None),
    ]
}

/// Returns the entries that Calico rejects.
fn invalid_ports() -> Vec<(&'static str, Value)> {
    vec![
        ("negative number", json!(-1)),
        ("number beyond the last port", json!(65_536)),
        ("number beyond the last port in quotes", json!("65536")),
        ("fraction", json!(80.5)),
        ("range beyond the last port", json!("0:65536")),
        ("range from a negative number", json!("-1:65535")),
        ("reversed range", json!("29:20")),
        ("range of three", json!("1:2:3")),
        ("range without an end", json!("80:")),
        ("range without a begin", json!(":80")),
        ("colon alone", json!(":")),
        ("range of names", json!("a:b")),
        ("empty text", json!("")),
        ("star", json!("*")),
        ("name with a blank", json!("www alt")),
        ("name with another sign", json!("www%alt")),
        ("blank before a number", json!(" 80")),
        ("sign before a number", json!("+80")),
        ("sign in a range", json!("+80:+90")),
        ("digits of another script", json!("\u{0661}")),
        ("name beyond the longest", json!("p".repeat(129))),
    ]
}

#[test]
fn ports_have_the_meaning_of_calico() {
    for (name, value, range) in ports() {
        let programs: Port = serde_json::from_value(value.clone()).unwrap();
        let wanted = range.map(|(first, last)| first..=last);
        assert_eq!(programs.range(), wanted, "{name}: {value}");
        assert_eq!(programs.is_name(), range.is_none(), "{name}: {value}");
        let wanted = match range {
            Some((first, last)) => AuditedPort::Range(first, last),
            None => AuditedPort::Name(value.as_str().unwrap().to_owned()),
        };
        assert_eq!(AuditedPort::parse(&value), Some(wanted), "{name}: {value}");
    }
}

#[test]
fn ports_that_calico_rejects_are_invalid() {
    for (name, value) in invalid_ports() {
        if let Ok(programs) = serde_json::from_value::<Port>(value.clone()) {
            assert_eq!(programs.range(), None, "{name}: {value}");
            assert!(!programs.is_name(), "{name}: {value}");
        }
        assert_eq!(AuditedPort::parse(&value), None, "{name}: {value}");
    }
}
