//! Selectors over labels, in Calico's grammar.
//!
//! `||` binds weaker than `&&`, and both weaker than `!`. The empty selector selects everything.

use std::collections::BTreeMap;

use crate::limits::SELECTOR_DEPTH_MAX;

/// A selector.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Selector {
    /// Everything.
    All,
    /// Everything; in a selector of namespaces: resources without a namespace.
    Global,
    /// Resources with the label.
    Has(String),
    /// Resources with the label, whose value passes the test.
    Is(String, Test),
    /// Resources without the label, or with another value than these.
    IsNot(String, Vec<String>),
    /// The negation.
    Not(Box<Self>),
    /// Resources that all of them select.
    And(Vec<Self>),
    /// Resources that one of them selects.
    Or(Vec<Self>),
}

/// A test of a label's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Test {
    /// It is one of these.
    OneOf(Vec<String>),
    /// It contains the text.
    Contains(String),
    /// It begins with the text.
    StartsWith(String),
    /// It ends with the text.
    EndsWith(String),
}

/// An invalid selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the selector is invalid at octet {0}")]
pub struct SelectorError(pub usize);

impl Selector {
    /// Parses a selector.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut reader = Reader { text, at: 0 };
        reader.blanks();
        if reader.rest().is_empty() {
            return Ok(Self::All);
        }
        let found = reader.any(0)?;
        match reader.rest().is_empty() {
            true => Ok(found),
            false => Err(SelectorError(reader.at)),
        }
    }

    /// Returns the selector that requires the value of a label.
    pub fn equal(label: &str, value: &str) -> Self {
        Self::Is(label.to_owned(), Test::OneOf(vec![value.to_owned()]))
    }

    /// Returns the selector of namespaces or service accounts as one of endpoints, which inherit
    /// their labels with a prefix. `own` is the label that each endpoint of a namespace or service
    /// account has.
    #[must_use]
    pub fn inherited(self, prefix: &str, own: &str) -> Self {
        let label = |name: String| format!("{prefix}{name}");
        let all = |parts: Vec<Self>| {
            let parts = parts.into_iter();
            parts.map(|part| part.inherited(prefix, own)).collect()
        };
        match self {
            Self::All => Self::Has(own.to_owned()),
            Self::Global => Self::Not(Box::new(Self::Has(own.to_owned()))),
            Self::Has(name) => Self::Has(label(name)),
            Self::Is(name, test) => Self::Is(label(name), test),
            Self::IsNot(name, values) => Self::IsNot(label(name), values),
            Self::Not(inner) => Self::Not(Box::new(inner.inherited(prefix, own))),
            Self::And(parts) => Self::And(all(parts)),
            Self::Or(parts) => Self::Or(all(parts)),
        }
    }

    /// Returns whether a resource with these labels is selected.
    pub fn selects<'l>(&self, label: &impl Fn(&str) -> Option<&'l str>) -> bool {
        match self {
            Self::All | Self::Global => true,
            Self::Has(name) => label(name).is_some(),
            Self::Is(name, test) => label(name).is_some_and(|value| test.passes(value)),
            Self::IsNot(name, values) => {
                label(name).is_none_or(|value| !values.iter().any(|one| one == value))
            }
            Self::Not(inner) => !inner.selects(label),
            Self::And(parts) => parts.iter().all(|part| part.selects(label)),
            Self::Or(parts) => parts.iter().any(|part| part.selects(label)),
        }
    }

    /// Does the same with labels in a map.
    pub fn selects_map(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selects(&|name: &str| labels.get(name).map(String::as_str))
    }
}

impl Test {
    fn passes(&self, value: &str) -> bool {
        match self {
            Self::OneOf(values) => values.iter().any(|one| one == value),
            Self::Contains(text) => value.contains(&**text),
            Self::StartsWith(text) => value.starts_with(&**text),
            Self::EndsWith(text) => value.ends_with(&**text),
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    fn takes(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
            self.blanks();
        }
        found
    }

    fn requires(&mut self, token: &str) -> Result<(), SelectorError> {
        match self.takes(token) {
            true => Ok(()),
            false => Err(SelectorError(self.at)),
        }
    }

    fn any(&mut self, depth: usize) -> Result<Selector, SelectorError> {
        let mut parts = vec![self.all(depth)?];
        while self.takes("||") {
            parts.push(self.all(depth)?);
        }
        Ok(joined(parts, Selector::Or))
    }

    fn all(&mut self, depth: usize) -> Result<Selector, SelectorError> {
        let mut parts = vec![self.one(depth)?];
        while self.takes("&&") {
            parts.push(self.one(depth)?);
        }
        Ok(joined(parts, Selector::And))
    }

    fn one(&mut self, depth: usize) -> Result<Selector, SelectorError> {
        if depth > SELECTOR_DEPTH_MAX {
            return Err(SelectorError(self.at));
        }
        if self.takes("!") {
            return Ok(Selector::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.takes("(") {
            let inner = self.any(depth + 1)?;
            self.requires(")")?;
            return Ok(inner);
        }
        let name = self.name()?;
        if let Some(selector) = self.function(&name)? {
            return Ok(selector);
        }
        self.comparison(name)
    }

    /// Reads a function, if a parenthesis follows its name directly.
    fn function(&mut self, name: &str) -> Result<Option<Selector>, SelectorError> {
        if !self.rest().starts_with('(') {
            return Ok(None);
        }
        self.requires("(")?;
        let found = match name {
            "all" => Selector::All,
            "global" => Selector::Global,
            "has" => {
                let label = self.name()?;
                self.blanks();
                Selector::Has(label)
            }
            _ => return Err(SelectorError(self.at)),
        };
        self.requires(")")?;
        Ok(Some(found))
    }

    fn comparison(&mut self, name: String) -> Result<Selector, SelectorError> {
        self.blanks();
        if self.takes("==") {
            let value = self.string()?;
            return Ok(Selector::Is(name, Test::OneOf(vec![value])));
        }
        if self.takes("!=") {
            return Ok(Selector::IsNot(name, vec![self.string()?]));
        }
        if self.takes("in") {
            return Ok(Selector::Is(name, Test::OneOf(self.values()?)));
        }
        if self.takes("contains") {
            return Ok(Selector::Is(name, Test::Contains(self.string()?)));
        }
        // Blanks between two words of an operator may be missing.
        if self.takes("not") {
            self.requires("in")?;
            return Ok(Selector::IsNot(name, self.values()?));
        }
        if self.takes("starts") {
            self.requires("with")?;
            return Ok(Selector::Is(name, Test::StartsWith(self.string()?)));
        }
        self.requires("ends")?;
        self.requires("with")?;
        Ok(Selector::Is(name, Test::EndsWith(self.string()?)))
    }

    fn name(&mut self) -> Result<String, SelectorError> {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
        let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
        let name = rest.get(..end).unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err(SelectorError(self.at));
        }
        self.at += end;
        Ok(name)
    }

    fn string(&mut self) -> Result<String, SelectorError> {
        let start = self.at;
        let quote = self
            .rest()
            .chars()
            .next()
            .filter(|c| matches!(c, '\'' | '"'));
        let quote = quote.ok_or(SelectorError(start))?;
        let inner = self.rest().get(1..).unwrap_or_default();
        let end = inner.find(quote).ok_or(SelectorError(start))?;
        let value = inner.get(..end).unwrap_or_default().to_owned();
        self.at += end + 2;
        self.blanks();
        Ok(value)
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        self.requires("{")?;
        let mut values = Vec::new();
        if self.takes("}") {
            return Ok(values);
        }
        loop {
            values.push(self.string()?);
            if self.takes("}") {
                return Ok(values);
            }
            self.requires(",")?;
        }
    }
}

fn joined(mut parts: Vec<Selector>, join: impl Fn(Vec<Selector>) -> Selector) -> Selector {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            join(parts)
        }
        None => Selector::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(text: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels
            .iter()
            .map(|(label, value)| ((*label).into(), (*value).into()));
        Selector::parse(text)
            .unwrap()
            .selects_map(&labels.collect())
    }

    #[test]
    fn selectors_have_the_meaning_of_their_operators() {
        let web = &[("app", "web"), ("tier.x/y_z-1", "a'b")];
        for (text, is_selected) in [
            ("", true),
            (" all() ", true),
            ("has(app)", true),
            ("has( app )", true),
            ("!has(app)", false),
            ("! !has(app)", true),
            ("app == 'web'", true),
            ("app=='web'&&has(other)", false),
            ("app != 'web'", false),
            ("other != 'web'", true),
            ("app in {'x', \"web\"}", true),
            ("app in {}", false),
            ("app not in {'x'}", true),
            ("other not in {'x'}", true),
            ("app not in{'web'}", false),
            ("app contains 'e'", true),
            ("app starts with 'we'", true),
            ("app startswith'we'", true),
            ("app ends  with 'eb'", true),
            ("app notin{'web'}", false),
            ("app ends with 'we'", false),
            ("tier.x/y_z-1 == \"a'b\"", true),
            ("has(other) && has(app) || app == 'web'", true),
            ("has(other) && (has(app) || app == 'web')", false),
            ("!(has(other) || has(app))", false),
            ("!has(other) && has(app)", true),
        ] {
            assert_eq!(selects(text, web), is_selected, "{text}");
        }
    }

    #[test]
    fn invalid_selector_is_an_error() {
        let deep = format!("{}has(a)", "!".repeat(10_000));
        for text in [
            "app",
            "app =",
            "app == web",
            "has(a",
            "has()",
            "(has(a)",
            "has(a))",
            "a in {'x'",
            "&&",
            "a == 'x' &&",
            "a == 'x' has(b)",
            "all",
            "is(a)",
            "a == 'x\"",
            "ä == 'x'",
            "a in 'x'",
            &deep,
        ] {
            assert!(Selector::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn selector_of_namespaces_uses_inherited_labels() {
        let parsed = |text| Selector::parse(text).unwrap().inherited("pcns.", "ns");
        assert_eq!(parsed("all()"), Selector::Has("ns".into()));
        assert_eq!(
            parsed("global()"),
            Selector::Not(Box::new(Selector::Has("ns".into())))
        );
        assert_eq!(parsed("env == 'x'"), Selector::equal("pcns.env", "x"));
        assert_eq!(
            parsed("!has(a)"),
            Selector::Not(Box::new(Selector::Has("pcns.a".into())))
        );
    }
}
