//! Interface name patterns: a name, or a prefix followed by `*`.

use core::fmt;
use core::str::FromStr;

/// Longest interface name (`IFNAMSIZ` less the terminating zero).
const NAME_MAX: usize = 15;

/// Matches interface names: `eth0` matches only itself, `cali*` all names with this prefix, `*`
/// all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamePattern {
    start: String,
    open: bool,
}

/// Why a text is not a valid interface name pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// It is empty.
    #[error("an interface pattern must not be empty")]
    Empty,
    /// A `*` is elsewhere than at the end.
    #[error("`*` is allowed only at the end of an interface pattern")]
    Star,
    /// It is longer than an interface name can be.
    #[error("an interface name has at most {NAME_MAX} characters")]
    Long,
    /// It has a character that an interface name cannot have.
    #[error("an interface name holds no `/` and no space")]
    Character,
}

impl NamePattern {
    /// Returns whether the name matches.
    pub fn matches(&self, name: &str) -> bool {
        if self.open {
            name.starts_with(&self.start)
        } else {
            name == self.start
        }
    }
}

impl FromStr for NamePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let (start, open) = text
            .strip_suffix('*')
            .map_or((text, false), |start| (start, true));
        if text.is_empty() {
            Err(PatternError::Empty)
        } else if start.contains('*') {
            Err(PatternError::Star)
        } else if start.len() > NAME_MAX {
            Err(PatternError::Long)
        } else if start.contains(|c: char| c == '/' || c.is_whitespace()) {
            Err(PatternError::Character)
        } else {
            Ok(Self {
                start: start.to_owned(),
                open,
            })
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.start, if self.open { "*" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_beginnings() {
        let cali: NamePattern = "cali*".parse().unwrap();
        assert!(
            cali.matches("cali12ab34cd56e") && cali.matches("cali") && !cali.matches("tapcali")
        );
        let eth0: NamePattern = "eth0".parse().unwrap();
        assert!(eth0.matches("eth0") && !eth0.matches("eth01"));
        assert_eq!(
            (cali.to_string(), eth0.to_string()),
            ("cali*".into(), "eth0".into())
        );
        assert!("*".parse::<NamePattern>().unwrap().matches("anything"));
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!("".parse::<NamePattern>(), Err(PatternError::Empty));
        assert_eq!("ca*li".parse::<NamePattern>(), Err(PatternError::Star));
        assert_eq!(
            "a-name-far-too-long".parse::<NamePattern>(),
            Err(PatternError::Long)
        );
        assert_eq!("a b".parse::<NamePattern>(), Err(PatternError::Character));
    }
}
