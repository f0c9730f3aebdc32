//! Expands macros of a crate by their `macro_rules!`, so that the items they make are listed as any other.
//!
//! It has what declarations of items need: fragments, groups and repetitions, without hygiene.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Block, Expr, Ident, Item, Lifetime, Lit, Meta, Pat, Path, Type, Visibility};

/// A `macro_rules!`: its patterns with their expansions, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    arms: Vec<(Vec<Pattern>, TokenStream)>,
}

/// A part of a pattern.
#[derive(Clone, Debug)]
enum Pattern {
    Token(String),
    Group(Delimiter, Vec<Self>),
    Fragment(String, String),
    Repeat(Repeat<Vec<Self>>),
}

/// `$( … ) separator operator`.
#[derive(Clone, Debug)]
struct Repeat<T> {
    body: T,
    separator: Option<String>,
    operator: char,
}

/// The tokens of a fragment, or those of each repetition.
#[derive(Clone, Debug)]
enum Bound {
    One(TokenStream),
    Many(Vec<Self>),
}

type Bindings = BTreeMap<String, Bound>;

impl Rules {
    /// Reads the body of a `macro_rules!`.
    pub(super) fn read(body: TokenStream) -> Result<Self> {
        let mut arms = Vec::new();
        let mut tokens = body.into_iter().peekable();
        while let Some(TokenTree::Group(pattern)) = tokens.next() {
            let arrow: String = tokens.by_ref().take(2).map(|t| t.to_string()).collect();
            let Some(TokenTree::Group(made)) = tokens.next() else {
                bail!("macro_rules: `{arrow}` without a body");
            };
            arms.push((patterns(pattern.stream())?, made.stream()));
            tokens.next_if(|token| token.to_string() == ";");
        }
        Ok(Self { arms })
    }

    /// Returns the items that an invocation makes.
    pub(super) fn items(&self, input: &TokenStream) -> Result<Vec<Item>> {
        for (pattern, made) in &self.arms {
            let mut found = Bindings::new();
            let matches = |input: ParseStream<'_>| matches(pattern, input, &mut found);
            if matches.parse2(input.clone()).is_err() {
                continue;
            }
            let made = transcribe(made.clone(), &found)?;
            let file: syn::File = syn::parse2(made).context("the expansion of a macro")?;
            return Ok(file.items);
        }
        bail!("no pattern of the macro matches");
    }
}

/// Splits tokens with `$`: a plain token, a fragment or variable, or a repetition.
enum Part {
    Plain(TokenTree),
    Name(String),
    Repeat(Repeat<TokenStream>),
}

fn parts(tokens: TokenStream) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if token.to_string() != "$" {
            parts.push(Part::Plain(token));
            continue;
        }
        match tokens.next() {
            Some(TokenTree::Ident(name)) => parts.push(Part::Name(name.to_string())),
            Some(TokenTree::Group(group)) => {
                let is_operator = |t: &TokenTree| matches!(t.to_string().as_str(), "*" | "+" | "?");
                let separator = tokens.next_if(|token| !is_operator(token));
                let operator = tokens.next().map(|token| token.to_string());
                let operator = operator.and_then(|operator| operator.chars().next());
                parts.push(Part::Repeat(Repeat {
                    body: group.stream(),
                    separator: separator.map(|token| token.to_string()),
                    operator: operator.context("a repetition without an operator")?,
                }));
            }
            _ => bail!("`$` without a name"),
        }
    }
    Ok(parts)
}

fn patterns(tokens: TokenStream) -> Result<Vec<Pattern>> {
    let mut found = Vec::new();
    let mut parts = parts(tokens)?.into_iter();
    while let Some(part) = parts.next() {
        found.push(match part {
            Part::Plain(TokenTree::Group(group)) => {
                Pattern::Group(group.delimiter(), patterns(group.stream())?)
            }
            Part::Plain(token) => Pattern::Token(token.to_string()),
            Part::Repeat(repeat) => Pattern::Repeat(Repeat {
                body: patterns(repeat.body)?,
                separator: repeat.separator,
                operator: repeat.operator,
            }),
            Part::Name(name) => match (parts.next(), parts.next()) {
                (Some(Part::Plain(_)), Some(Part::Plain(kind))) => {
                    Pattern::Fragment(name, kind.to_string())
                }
                _ => bail!("`${name}` without a kind"),
            },
        });
    }
    Ok(found)
}

fn matches(pattern: &[Pattern], input: ParseStream<'_>, found: &mut Bindings) -> syn::Result<()> {
    for part in pattern {
        match part {
            Pattern::Token(token) => {
                if input.parse::<TokenTree>()?.to_string() != *token {
                    return Err(input.error("another token"));
                }
            }
            Pattern::Group(delimiter, inner) => {
                let TokenTree::Group(group) = input.parse()? else {
                    return Err(input.error("no group"));
                };
                if group.delimiter() != *delimiter {
                    return Err(input.error("another delimiter"));
                }
                let matches = |input: ParseStream<'_>| matches(inner, input, found);
                matches.parse2(group.stream())?;
            }
            Pattern::Fragment(name, kind) => {
                found.insert(name.clone(), Bound::One(fragment(kind, input)?));
            }
            Pattern::Repeat(repeat) => repeated(repeat, input, found)?,
        }
    }
    Ok(())
}

fn repeated(
    repeat: &Repeat<Vec<Pattern>>,
    input: ParseStream<'_>,
    found: &mut Bindings,
) -> syn::Result<()> {
    use syn::parse::discouraged::Speculative;
    let mut rounds = Vec::new();
    while !input.is_empty() {
        let ahead = input.fork();
        let mut round = Bindings::new();
        let separator = repeat.separator.as_ref().filter(|_| !rounds.is_empty());
        let separated = separator.is_none_or(|separator| {
            let token = ahead.parse::<TokenTree>();
            token.is_ok_and(|token| token.to_string() == *separator)
        });
        if !separated || matches(&repeat.body, &ahead, &mut round).is_err() {
            break;
        }
        input.advance_to(&ahead);
        rounds.push(round);
        if repeat.operator == '?' {
            break;
        }
    }
    if repeat.operator == '+' && rounds.is_empty() {
        return Err(input.error("at least one"));
    }
    let mut names = Vec::new();
    names_of(&repeat.body, &mut names);
    for name in names {
        let each = rounds.iter().filter_map(|round| round.get(&name).cloned());
        let each = Bound::Many(each.collect());
        found.insert(name, each);
    }
    Ok(())
}

fn names_of(patterns: &[Pattern], names: &mut Vec<String>) {
    for pattern in patterns {
        match pattern {
            Pattern::Fragment(name, _) => names.push(name.clone()),
            Pattern::Group(_, inner) => names_of(inner, names),
            Pattern::Repeat(repeat) => names_of(&repeat.body, names),
            Pattern::Token(_) => {}
        }
    }
}

fn fragment(kind: &str, input: ParseStream<'_>) -> syn::Result<TokenStream> {
    Ok(match kind {
        "ident" => input.call(Ident::parse_any)?.into_token_stream(),
        "literal" => input.parse::<Lit>()?.into_token_stream(),
        "expr" => input.parse::<Expr>()?.into_token_stream(),
        "ty" => input.parse::<Type>()?.into_token_stream(),
        "meta" => input.parse::<Meta>()?.into_token_stream(),
        "path" => input.parse::<Path>()?.into_token_stream(),
        "vis" => input.parse::<Visibility>()?.into_token_stream(),
        "block" => input.parse::<Block>()?.into_token_stream(),
        "item" => input.parse::<Item>()?.into_token_stream(),
        "lifetime" => input.parse::<Lifetime>()?.into_token_stream(),
        "pat" => Pat::parse_multi(input)?.into_token_stream(),
        "tt" => input.parse::<TokenTree>()?.into(),
        other => return Err(input.error(format!("fragment `{other}`"))),
    })
}

fn transcribe(made: TokenStream, found: &Bindings) -> Result<TokenStream> {
    let mut out = TokenStream::new();
    for part in parts(made)? {
        match part {
            Part::Plain(TokenTree::Group(group)) => {
                let inner = transcribe(group.stream(), found)?;
                out.extend([TokenTree::from(Group::new(group.delimiter(), inner))]);
            }
            Part::Plain(token) => out.extend([token]),
            Part::Name(name) => match found.get(&name) {
                Some(Bound::One(tokens)) => out.extend(tokens.clone()),
                Some(Bound::Many(_)) => bail!("`${name}` outside of its repetition"),
                None => out.extend([TokenTree::from(Ident::new(
                    &name,
                    proc_macro2::Span::call_site(),
                ))]),
            },
            Part::Repeat(repeat) => out.extend(each_round(&repeat, found)?),
        }
    }
    Ok(out)
}

fn each_round(repeat: &Repeat<TokenStream>, found: &Bindings) -> Result<TokenStream> {
    let mut used = Vec::new();
    variables(repeat.body.clone(), &mut used)?;
    let many = used.iter().filter_map(|name| match found.get(name) {
        Some(Bound::Many(each)) => Some((name, each)),
        _ => None,
    });
    let many: Vec<_> = many.collect();
    let rounds = many.iter().map(|(_, each)| each.len()).max();
    let mut out = TokenStream::new();
    for round in 0..rounds.context("a repetition without a variable")? {
        let mut inner = found.clone();
        for (name, each) in &many {
            let one = each
                .get(round)
                .context("variables that repeat differently")?;
            inner.insert((*name).clone(), one.clone());
        }
        if let Some(separator) = repeat.separator.as_ref().filter(|_| round > 0) {
            let separator: TokenStream = separator
                .parse()
                .map_err(|_| anyhow::anyhow!("separator"))?;
            out.extend(separator);
        }
        out.extend(transcribe(repeat.body.clone(), &inner)?);
    }
    Ok(out)
}

/// Adds the names after `$`.
fn variables(tokens: TokenStream, names: &mut Vec<String>) -> Result<()> {
    for part in parts(tokens)? {
        match part {
            Part::Plain(TokenTree::Group(group)) => variables(group.stream(), names)?,
            Part::Plain(_) => {}
            Part::Name(name) => names.push(name),
            Part::Repeat(repeat) => variables(repeat.body, names)?,
        }
    }
    Ok(())
}
