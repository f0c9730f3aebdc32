//! Corner cases of Calico's selectors, as named cases for both parsers: that of the programs, and that of
//! the check of rules. The facts are those of `libcalico-go/lib/selector/parser/parser_test.go` in
//! projectcalico/calico, with other names and values.

use std::collections::BTreeMap;

use calico_model::Selector;
use rule_audit::evaluator::Selector as Audited;

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
