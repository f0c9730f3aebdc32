use proptest::prelude::*;

use super::*;
use crate::limits::SELECTOR_DEPTH_MAX;

fn read(text: &str) -> Selector {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn the_canonical_text_has_one_form() {
    for (text, canonical) in [
        ("", "all()"),
        (" \t ", "all()"),
        ("all( )", "all()"),
        ("global()", "global()"),
        ("a=='b'", "a == \"b\""),
        ("a == '\"'", "a == '\"'"),
        ("has( a/b.c-d_e )", "has(a/b.c-d_e)"),
        ("a in {'y',\"x\", 'y' , }", "a in {\"x\", \"y\"}"),
        ("a not in{}", "a not in {}"),
        ("a notin {'x'}", "a not in {\"x\"}"),
        ("a startswith'x'", "a starts with \"x\""),
        ("in ends  with 'in'", "in ends with \"in\""),
        ("! ! !has(a)", "!has(a)"),
        ("!!has(a)", "has(a)"),
        (
            "a!='b'&&!all()||has(c)",
            "((a != \"b\" && !all()) || has(c))",
        ),
        ("((a contains 'b'))", "a contains \"b\""),
        ("has(a)&&(has(b)&&has(c))", "(has(a) && (has(b) && has(c)))"),
        ("!(has(a) || has(b))", "!(has(a) || has(b))"),
        ("all == 'x' && has != 'y'", "(all == \"x\" && has != \"y\")"),
    ] {
        assert_eq!(read(text).to_string(), canonical, "{text}");
        assert_eq!(read(text).text(), text);
    }
}

#[test]
fn invalid_selector_has_place_and_expectation() {
    for (text, at, expected) in [
        ("a", 1, "=="),
        ("a = 'b'", 2, "=="),
        ("a == b", 5, "string"),
        ("a == 'b", 7, "ends the string"),
        ("a == 'b' has(c)", 9, "&&"),
        ("a == 'b' &&", 11, "label"),
        ("&& a == 'b'", 0, "label"),
        ("(has(a)", 7, ")"),
        ("has(a))", 6, "&&"),
        ("has()", 4, "a label"),
        ("has(a b)", 6, ")"),
        ("all(x)", 4, ")"),
        ("a in 'b'", 5, "{"),
        ("a in {b}", 6, "}"),
        ("a in {'b' 'c'}", 10, "}"),
        ("a inx {'b'}", 2, "in"),
        ("a == 'b'\n", 8, "&&"),
        ("é == 'b'", 0, "label"),
        ("!", 1, "label"),
    ] {
        let error = text.parse::<Selector>().unwrap_err();
        assert_eq!(error.at, at, "{text}: {error}");
        assert!(error.expected.contains(expected), "{text}: {error}");
    }
}

#[test]
fn bounds_hold() {
    let nested = |depth| format!("{}all(){}", "(".repeat(depth), ")".repeat(depth));
    read(&nested(SELECTOR_DEPTH_MAX));
    let error = nested(SELECTOR_DEPTH_MAX + 1)
        .parse::<Selector>()
        .unwrap_err();
    assert_eq!(error.at, SELECTOR_DEPTH_MAX);
    read(&format!("has({})", "a".repeat(512)));
    assert!(
        format!("has({})", "a".repeat(513))
            .parse::<Selector>()
            .is_err()
    );
    read(&format!("{}all()", "! ".repeat(100_000)));
    read(&vec!["has(a)"; 10_000].join(" || "));
}

#[test]
fn absent_labels_are_unequal_and_in_no_set() {
    let rack = labels(&[("rack", "r1"), ("empty", "")]);
    for (text, holds) in [
        ("rack == 'r1'", true),
        ("rack != 'r1'", false),
        ("shelf == 'r1'", false),
        ("shelf != 'r1'", true),
        ("rack in {'r0', 'r1'}", true),
        ("rack in {}", false),
        ("shelf not in {'r1'}", true),
        ("rack not in {'r1'}", false),
        ("rack contains '1'", true),
        ("rack starts with 'r'", true),
        ("rack ends with 'r'", false),
        ("shelf contains ''", false),
        ("empty == ''", true),
        ("has(empty) && !has(shelf)", true),
        ("has(shelf) || has(rack) && has(shelf)", false),
        ("!has(shelf) && has(rack)", true),
        ("global()", true),
    ] {
        assert_eq!(read(text).matches(&rack), holds, "{text}");
    }
}

#[test]
fn a_rewrite_keeps_the_text_and_equality_looks_at_the_meaning() {
    let json = "\"rack=='r1'\"";
    let selector: Selector = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_string(&selector).unwrap(), json);
    assert_eq!(selector, read("(rack == \"r1\")"));
    let error = serde_json::from_str::<Selector>("\"rack='r1'\"").unwrap_err();
    assert!(error.to_string().contains("octet 4"), "{error}");
}

const LABELS: [&str; 3] = ["a", "b/c", "in"];
const VALUES: [&str; 5] = ["", "x", "xy", "it's", "\""];

fn label() -> impl Strategy<Value = String> {
    prop::sample::select(&LABELS).prop_map(str::to_owned)
}

fn text() -> impl Strategy<Value = String> {
    prop::sample::select(&VALUES).prop_map(str::to_owned)
}

fn operator() -> impl Strategy<Value = Operator> {
    prop::sample::select(&[
        Operator::Equal,
        Operator::NotEqual,
        Operator::Contains,
        Operator::StartsWith,
        Operator::EndsWith,
    ])
}

/// Returns expressions as parsed: `&&` and `||` of two or more, never `!` of `!`, which parsing
/// cancels out.
fn expression() -> impl Strategy<Value = Expression> {
    let set = || prop::collection::btree_set(text(), 0..4);
    let leaf = prop_oneof![
        Just(Expression::All),
        Just(Expression::Global),
        label().prop_map(Expression::Has),
        (label(), operator(), text())
            .prop_map(|(label, operator, text)| Expression::Compare(label, operator, text)),
        (label(), set()).prop_map(|(label, set)| Expression::In(label, set)),
        (label(), set()).prop_map(|(label, set)| Expression::NotIn(label, set)),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let several = || prop::collection::vec(inner.clone(), 2..4);
        prop_oneof![
            several().prop_map(Expression::And),
            several().prop_map(Expression::Or),
            inner.clone().prop_map(|operand| match operand {
                Expression::Not(operand) => *operand,
                operand => Expression::Not(Box::new(operand)),
            }),
        ]
    })
}

fn world() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map(label(), text(), 0..=3)
}

fn holds(expression: &Expression, labels: &BTreeMap<String, String>) -> bool {
    expression.holds(&|label| labels.get(label).map(String::as_str))
}

fn not(expression: Expression) -> Expression {
    Expression::Not(Box::new(expression))
}

proptest! {
    #[test]
    fn printed_selector_parses_to_the_same(expression in expression()) {
        let text = expression.to_string();
        let again = read(&text);
        prop_assert_eq!(&again.expression, &expression, "{}", text);
        prop_assert_eq!(again.to_string(), text);
    }

    #[test]
    fn the_laws_of_de_morgan_hold(a in expression(), b in expression(), labels in world()) {
        let none = not(Expression::Or(vec![a.clone(), b.clone()]));
        let neither = Expression::And(vec![not(a.clone()), not(b.clone())]);
        prop_assert_eq!(holds(&none, &labels), holds(&neither, &labels));
        let (a, b) = (Box::new(a), Box::new(b));
        let or = read(&format!("!(!{a} || !{b})"));
        prop_assert_eq!(or.matches(&labels), holds(&Expression::And(vec![*a, *b]), &labels));
    }

    #[test]
    fn conditions_hold_for_whatever_is_selected(expression in expression(), labels in world()) {
        let selector = read(&expression.to_string());
        let fulfilled = |condition: Vec<(&str, Option<&str>)>| {
            condition.iter().any(|(label, value)| {
                let found = labels.get(*label);
                found.is_some_and(|found| value.is_none_or(|value| value == found))
            })
        };
        let all = selector.conditions().into_iter().all(fulfilled);
        prop_assert!(all || !selector.matches(&labels), "{}", selector);
    }

    #[test]
    fn and_binds_closer_than_or(a in label(), b in label(), c in label(), labels in world()) {
        let bare = read(&format!("has({a}) || has({b}) && has({c})"));
        let there = |label: &String| labels.contains_key(label);
        prop_assert_eq!(bare.matches(&labels), there(&a) || there(&b) && there(&c));
    }

    #[test]
    fn opposites_are_opposite(label in label(), text in text(), set in prop::collection::btree_set(text(), 0..4), labels in world()) {
        let compare = |operator| Expression::Compare(label.clone(), operator, text.clone());
        prop_assert_ne!(holds(&compare(Operator::Equal), &labels), holds(&compare(Operator::NotEqual), &labels));
        let (within, without) = (Expression::In(label.clone(), set.clone()), Expression::NotIn(label, set));
        prop_assert_ne!(holds(&within, &labels), holds(&without, &labels));
    }

    #[test]
    fn any_text_is_answered(text in "\\PC*|[a() !&|='\"{},]{0,40}|(has\\(a\\)|all\\(\\)|!|&&|\\|\\||\\(|\\)| |a in \\{'x'\\}){0,12}") {
        match text.parse::<Selector>() {
            // The canonical text of `!(!a)` is `!!a`, which is parsed as `a`.
            Ok(selector) if selector.to_string().contains("!!") => {}
            Ok(selector) => prop_assert_eq!(read(&selector.to_string()), selector),
            Err(error) => prop_assert!(error.at <= text.len()),
        }
    }
}
