//! Queries of a client.

use ipnet::IpNet;

/// One line of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// `show status`.
    Status,
    /// `show protocols [all] [NAME]`.
    Protocols {
        /// Every detail.
        all: bool,
        /// Only names that match this pattern with `*` and `?`.
        name: Option<String>,
    },
    /// `show route [PREFIX] [primary] [all] [protocol NAME] [count]`.
    Route(RouteAsk),
    /// `restrict`: read-only mode, which every client has already.
    Restrict,
    /// A command that would change something.
    Denied,
    /// Anything else.
    Unknown,
}

/// Which routes, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RouteAsk {
    /// This prefix alone.
    pub(super) prefix: Option<IpNet>,
    /// The chosen paths alone.
    pub(super) primary: bool,
    /// Every attribute.
    pub(super) all: bool,
    /// From this neighbor alone.
    pub(super) protocol: Option<String>,
    /// How many, instead of which.
    pub(super) count: bool,
}

/// Words that change something in BIRD.
const DENIED: &[&str] = &[
    "configure",
    "debug",
    "disable",
    "down",
    "dump",
    "echo",
    "enable",
    "eval",
    "graceful",
    "mrtdump",
    "reload",
    "restart",
];

impl Ask {
    /// Reads a line.
    pub(super) fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split_whitespace().collect();
        let known = match words.as_slice() {
            ["show", "status"] => Some(Self::Status),
            ["show", "protocols", rest @ ..] => protocols(rest),
            ["show", "route", rest @ ..] => route(rest).map(Self::Route),
            ["restrict"] => Some(Self::Restrict),
            [first, ..] if DENIED.contains(first) => Some(Self::Denied),
            _ => None,
        };
        known.unwrap_or(Self::Unknown)
    }
}

fn protocols(words: &[&str]) -> Option<Ask> {
    let (all, words) = match words {
        ["all", rest @ ..] => (true, rest),
        _ => (false, words),
    };
    let name = match words {
        [] => None,
        [name] => Some(unquoted(name)),
        _ => return None,
    };
    Some(Ask::Protocols { all, name })
}

fn route(mut words: &[&str]) -> Option<RouteAsk> {
    let mut ask = RouteAsk::default();
    while let [word, rest @ ..] = words {
        words = rest;
        match *word {
            "primary" => ask.primary = true,
            "all" => ask.all = true,
            "count" => ask.count = true,
            "protocol" => {
                let [name, rest @ ..] = words else {
                    return None;
                };
                words = rest;
                ask.protocol = Some(unquoted(name));
            }
            prefix if ask.prefix.is_none() => ask.prefix = Some(prefix.parse().ok()?),
            _ => return None,
        }
    }
    Some(ask)
}

fn unquoted(word: &str) -> String {
    word.trim_matches('"').to_owned()
}

/// Returns whether a name matches a pattern, in which `*` stands for any text and `?` for one
/// character.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut of) = (0, 0);
    // The position of the last `*`, and the first character that it does not cover yet.
    let mut star: Option<(usize, usize)> = None;
    while let Some(octet) = name.get(of) {
        match (pattern.get(at), star) {
            (Some(b'*'), _) => {
                star = Some((at, of));
                at += 1;
            }
            (Some(wanted), _) if wanted == octet || *wanted == b'?' => {
                at += 1;
                of += 1;
            }
            (_, Some((before, from))) => {
                star = Some((before, from + 1));
                at = before + 1;
                of = from + 1;
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|octet| *octet == b'*')
}
