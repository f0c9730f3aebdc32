//! The grammar of selectors.

use std::collections::BTreeSet;

use nom::branch::alt;
use nom::bytes::complete::{tag, take_till, take_while, take_while1};
use nom::combinator::{not, opt, value};
use nom::error::{ErrorKind, ParseError};
use nom::multi::fold_many0;
use nom::sequence::{delimited, pair, preceded, terminated};
use nom::{Err, IResult, Parser};

use super::{Expression, Operator, SelectorError};
use crate::limits::{LABEL_OCTETS_MAX, SELECTOR_DEPTH_MAX};

/// Parses a whole selector.
pub(super) fn read(text: &str) -> Result<Expression, SelectorError> {
    let failed = |rest: &str, expected| SelectorError {
        at: text.len() - rest.len(),
        expected,
    };
    if blanks(text).is_ok_and(|(rest, _)| rest.is_empty()) {
        return Ok(Expression::All);
    }
    match or(text, 0) {
        Ok(("", expression)) => Ok(expression),
        Ok((rest, _)) => Err(failed(rest, "&&, || or the end")),
        Err(Err::Error(fault) | Err::Failure(fault)) => Err(failed(fault.rest, fault.expected)),
        Err(Err::Incomplete(_)) => Err(failed("", OPERAND)),
    }
}

const OPERAND: &str = "(, !, has(…), all(), global() or a label";
const COMPARISON: &str = "==, !=, contains, starts with, ends with, in or not in";

/// The position of a syntax error, and the expected syntax.
struct Fault<'a> {
    rest: &'a str,
    expected: &'static str,
}

impl<'a> ParseError<&'a str> for Fault<'a> {
    fn from_error_kind(rest: &'a str, _: ErrorKind) -> Self {
        let expected = OPERAND;
        Self { rest, expected }
    }

    fn append(_: &'a str, _: ErrorKind, other: Self) -> Self {
        other
    }
}

type Read<'a, O> = IResult<&'a str, O, Fault<'a>>;

/// Replaces any failure of the parser by one with the expected syntax, without backtracking.
fn expect<'a, O>(
    expected: &'static str,
    mut parser: impl Parser<&'a str, Output = O, Error = Fault<'a>>,
) -> impl FnMut(&'a str) -> Read<'a, O> {
    move |rest| match parser.parse(rest) {
        Err(Err::Error(_)) => Err(Err::Failure(Fault { rest, expected })),
        other => other,
    }
}

fn or(text: &str, depth: usize) -> Read<'_, Expression> {
    joined(text, "||", |text| and(text, depth), Expression::Or)
}

fn and(text: &str, depth: usize) -> Read<'_, Expression> {
    joined(text, "&&", |text| unary(text, depth), Expression::And)
}

/// Parses one operand, or several with the operator between them.
fn joined<'a>(
    text: &'a str,
    word: &'static str,
    operand: impl Fn(&'a str) -> Read<'a, Expression>,
    join: fn(Vec<Expression>) -> Expression,
) -> Read<'a, Expression> {
    let (rest, first) = operand(text)?;
    let (rest, more) = fold_many0(
        preceded(tag(word), &operand),
        Vec::new,
        |mut more: Vec<_>, next| {
            more.push(next);
            more
        },
    )
    .parse(rest)?;
    if more.is_empty() {
        return Ok((rest, first));
    }
    Ok((rest, join([vec![first], more].concat())))
}

/// Parses a primary with any number of `!` before it; two of them cancel each other out.
fn unary(text: &str, depth: usize) -> Read<'_, Expression> {
    let (rest, negated) =
        fold_many0((blanks, tag("!")), || false, |negated: bool, _| !negated).parse(text)?;
    let (rest, operand) =
        delimited(blanks, expect(OPERAND, |text| primary(text, depth)), blanks).parse(rest)?;
    Ok(match negated {
        true => (rest, Expression::Not(Box::new(operand))),
        false => (rest, operand),
    })
}

fn primary(text: &str, depth: usize) -> Read<'_, Expression> {
    if let Some(inner) = text.strip_prefix('(') {
        if depth == SELECTOR_DEPTH_MAX {
            let expected = "fewer parentheses within each other";
            return Err(Err::Failure(Fault {
                rest: text,
                expected,
            }));
        }
        let (rest, expression) = or(inner, depth + 1)?;
        let (rest, _) = expect("&&, || or )", tag(")")).parse(rest)?;
        return Ok((rest, expression));
    }
    alt((
        value(Expression::All, call("all(")),
        value(Expression::Global, call("global(")),
        has,
        comparison,
    ))
    .parse(text)
}

/// Parses a function without arguments; the opening parenthesis belongs to its name.
fn call<'a>(name: &'static str) -> impl Parser<&'a str, Output = (), Error = Fault<'a>> {
    value((), (tag(name), blanks, expect(")", tag(")"))))
}

fn has(text: &str) -> Read<'_, Expression> {
    let close = (blanks, expect(")", tag(")")));
    let (rest, label) =
        delimited(pair(tag("has("), blanks), expect("a label", label), close).parse(text)?;
    Ok((rest, Expression::Has(label.to_owned())))
}

fn comparison(text: &str) -> Read<'_, Expression> {
    let (rest, label) = terminated(label, blanks).parse(text)?;
    let operator = alt((
        value(Operator::Equal, tag("==")),
        value(Operator::NotEqual, tag("!=")),
        value(Operator::Contains, words("contains", "")),
        value(Operator::StartsWith, words("starts", "with")),
        value(Operator::EndsWith, words("ends", "with")),
    ));
    let within = alt((
        value(false, words("not", "in")),
        value(true, words("in", "")),
    ));
    let (rest, (operator, within)) = expect(
        COMPARISON,
        alt((
            operator.map(|operator| (Some(operator), true)),
            within.map(|within| (None, within)),
        )),
    )
    .parse(rest)?;
    let (rest, _) = blanks(rest)?;
    let label = label.to_owned();
    if let Some(operator) = operator {
        let (rest, text) = expect("a string in quotes", string).parse(rest)?;
        return Ok((rest, Expression::Compare(label, operator, text.to_owned())));
    }
    let (rest, values) = set(rest)?;
    Ok(match within {
        true => (rest, Expression::In(label, values)),
        false => (rest, Expression::NotIn(label, values)),
    })
}

/// Parses comma-separated strings in braces; a trailing comma is allowed.
fn set(text: &str) -> Read<'_, BTreeSet<String>> {
    let (mut rest, _) = (expect("{", tag("{")), blanks).parse(text)?;
    let mut values = BTreeSet::new();
    while let (after, Some(value)) = opt(string).parse(rest)? {
        values.insert(value.to_owned());
        let (after, comma) = delimited(blanks, opt(tag(",")), blanks).parse(after)?;
        rest = after;
        if comma.is_none() {
            break;
        }
    }
    let (rest, _) = expect("a string in quotes or }", tag("}")).parse(rest)?;
    Ok((rest, values))
}

/// Parses an operator of one or two words. The following text must not be read as part of it.
fn words<'a>(
    first: &'static str,
    second: &'static str,
) -> impl Parser<&'a str, Output = (), Error = Fault<'a>> {
    let end = not(take_while1(is_label));
    value((), (tag(first), blanks, tag(second), end))
}

fn label(text: &str) -> Read<'_, &str> {
    let (rest, label) = take_while1(is_label).parse(text)?;
    if label.len() > LABEL_OCTETS_MAX {
        let expected = "a label of at most 512 octets";
        return Err(Err::Failure(Fault {
            rest: text,
            expected,
        }));
    }
    Ok((rest, label))
}

fn string(text: &str) -> Read<'_, &str> {
    let closing = |quote: &'static str| expect("the quote that ends the string", tag(quote));
    alt((
        delimited(tag("\""), take_till(|c| c == '"'), closing("\"")),
        delimited(tag("'"), take_till(|c| c == '\''), closing("'")),
    ))
    .parse(text)
}

fn blanks(text: &str) -> Read<'_, &str> {
    take_while(|c| c == ' ' || c == '\t').parse(text)
}

const fn is_label(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')
}
