//! Patterns of interface names: `mtuIfacePattern` and `interfaceExclude`.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use calico_model::FelixConfigurationSpec;
use regex::bytes::{Regex, RegexBuilder};

use super::fields::field;
use crate::limits::{
    INTERFACE_NAME_OCTETS_MAX, PATTERN_OCTETS_MAX, PATTERN_PROGRAM_OCTETS_MAX, PATTERNS_MAX,
};

/// A regular expression over names of interfaces, compared by its text.
#[derive(Clone, Debug)]
pub struct Pattern(Arc<(String, Regex)>);

impl Pattern {
    /// Compiles a regular expression.
    fn new(text: &str) -> Result<Self, String> {
        if text.len() > PATTERN_OCTETS_MAX {
            return Err(format!("a pattern of more than {PATTERN_OCTETS_MAX} bytes"));
        }
        let mut builder = RegexBuilder::new(text);
        builder
            .unicode(false)
            .size_limit(PATTERN_PROGRAM_OCTETS_MAX);
        // The message of a syntax error has several lines, the last of which is the cause.
        let regex = builder.build().map_err(|error| {
            let text = error.to_string();
            let cause = text.lines().last().unwrap_or_default();
            cause.trim_start_matches("error: ").to_owned()
        });
        let regex = regex.map_err(|cause| format!("'{text}' is not a pattern: {cause}"))?;
        Ok(Self(Arc::new((text.to_owned(), regex))))
    }

    /// Returns whether a name has a part that matches.
    pub fn matches(&self, name: &str) -> bool {
        self.0.1.is_match(name.as_bytes())
    }

    fn text(&self) -> &str {
        &self.0.0
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::new(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Pattern {}

impl PartialOrd for Pattern {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pattern {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text().cmp(other.text())
    }
}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

/// Returns the interfaces whose MTU counts for tunnel devices; `None`: those with the built-in names.
pub(super) fn uplinks(spec: &FelixConfigurationSpec) -> Result<Option<Pattern>, String> {
    let text: Option<String> = field(spec, "mtuIfacePattern")?;
    let text = text.filter(|text| !text.is_empty());
    text.map(|text| Pattern::new(&text)).transpose()
}

/// The interfaces to which no host endpoint applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded {
    names: Vec<String>,
    patterns: Vec<Pattern>,
}

impl Default for Excluded {
    /// The device on which `kube-proxy` holds the addresses of services (as in Calico).
    fn default() -> Self {
        Self {
            names: vec!["kube-ipvs0".to_owned()],
            patterns: Vec::new(),
        }
    }
}

impl Excluded {
    /// Returns the names that the kernel permits for interfaces.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.names.iter().map(String::as_str);
        names.filter(|name| name.len() <= INTERFACE_NAME_OCTETS_MAX)
    }

    /// Returns whether an interface is excluded.
    pub fn has(&self, interface: &str) -> bool {
        self.names.iter().any(|name| name == interface)
            || self
                .patterns
                .iter()
                .any(|pattern| pattern.matches(interface))
    }
}

/// Returns the interfaces to which no host endpoint applies: names and patterns between slashes, with
/// commas between them.
pub(super) fn excluded(spec: &FelixConfigurationSpec) -> Result<Excluded, String> {
    let text: Option<String> = field(spec, "interfaceExclude")?;
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        return Ok(Excluded::default());
    };
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() > PATTERNS_MAX {
        return Err(format!("more than {PATTERNS_MAX} names"));
    }
    let mut excluded = Excluded {
        names: Vec::new(),
        patterns: Vec::new(),
    };
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        match part
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix('/'))
        {
            Some("") => return Err(format!("'{part}' is an empty pattern")),
            Some(pattern) => excluded.patterns.push(Pattern::new(pattern)?),
            None => excluded.names.push(part.to_owned()),
        }
    }
    Ok(excluded)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_patterns_of_interfaces_are_excluded() {
        let of = |text: &str| {
            let spec = json!({"interfaceExclude": text});
            excluded(&serde_json::from_value(spec).unwrap())
        };
        let built_in = of("").unwrap();
        assert!(built_in.has("kube-ipvs0") && !built_in.has("kube-ipvs01"));
        let both = of("/^kube/, veth1").unwrap();
        for (name, is_excluded) in [
            ("kube-ipvs0", true),
            ("kubelet", true),
            ("akube", false),
            ("veth1", true),
            ("veth10", false),
        ] {
            assert_eq!(both.has(name), is_excluded, "{name}");
        }
        assert!(of("//").unwrap_err().contains("empty pattern"));
        assert!(of("/(/").unwrap_err().contains("'(' is not a pattern"));
        let long = "a,".repeat(PATTERNS_MAX + 1);
        assert!(of(&long).unwrap_err().contains("more than"));
    }

    #[test]
    fn pattern_has_a_bounded_size() {
        let of = |text: &str| {
            let spec = json!({"mtuIfacePattern": text});
            uplinks(&serde_json::from_value(spec).unwrap())
        };
        assert_eq!(of("").unwrap(), None);
        let found = of("^((en|eth)[0-9]+|bond\\d)").unwrap().unwrap();
        for (name, is_found) in [
            ("en0", true),
            ("eth10", true),
            ("bond3", true),
            ("lo", false),
        ] {
            assert_eq!(found.matches(name), is_found, "{name}");
        }
        let long = "a".repeat(PATTERN_OCTETS_MAX + 1);
        assert!(of(&long).unwrap_err().contains("more than"));
        assert!(of("((a{100}){100}){100}").is_err());
    }
}
