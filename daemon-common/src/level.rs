//! Log levels.
//!
//! A level is one of a closed list, in any case: `error`, `warn`, `info`, `debug`, `trace`, `off`,
//! or Calico's `Fatal`, `Error`, `Warning`, `Info`, `Debug` and `None`. Directives such as
//! `info,bgp_io=debug` set the level of single crates. An unknown word is rejected: `tracing`
//! itself takes it for the name of a target, and then logs nothing, errors included.

use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};

/// Each word, and its level. Calico's `Fatal` has no counterpart: the nearest level that still logs
/// is `error`.
const WORDS: [(&str, LevelFilter); 9] = [
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
    ("off", LevelFilter::OFF),
    ("warning", LevelFilter::WARN),
    ("fatal", LevelFilter::ERROR),
    ("none", LevelFilter::OFF),
];

/// The crates that log: those of this repository, and their transport libraries; and `event`, the
/// target of the events of [`crate::events`].
const TARGETS: [&str; 26] = [
    "bgp_config",
    "bgp_daemon",
    "bgp_io",
    "calico_ipam",
    "calico_manifests",
    "calico_store",
    "cambric",
    "cambric_bgp_client",
    "cambric_felix",
    "cambric_route_reflector",
    "cni_plugin",
    "daemon_common",
    "etcd_client",
    "etcd_lite",
    "event",
    "fib_sync",
    "h2",
    "hyper",
    "hyper_util",
    "netns_lab",
    "rustls",
    "sim",
    "tokio_rustls",
    "tokio_util",
    "tonic",
    "tower",
];

/// Returns the filter for a level or a list of directives. Events of a debugged neighbor pass it at
/// any level.
///
/// # Errors
///
/// A sentence with the unknown word.
pub(crate) fn filter(text: &str) -> Result<Targets, String> {
    format!("{},forced_event=debug", directives(text)?)
        .parse()
        .map_err(|error: ParseError| error.to_string())
}

/// Translates a level, or a list of directives, into the words of `tracing`.
///
/// # Errors
///
/// A sentence with the unknown word.
fn directives(text: &str) -> Result<String, String> {
    let parts: Result<Vec<String>, String> = text.split(',').map(directive).collect();
    Ok(parts?.join(","))
}

fn directive(text: &str) -> Result<String, String> {
    let text = text.trim();
    let Some((target, word)) = text.split_once('=') else {
        return level(text).map(|level| level.to_string());
    };
    let (target, word) = (target.trim(), word.trim());
    let name = target.split("::").next().unwrap_or_default();
    if !TARGETS.contains(&name) {
        return Err(format!("`{name}` is not a crate that logs"));
    }
    let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    if !target.chars().all(is_path) {
        return Err(format!("`{target}` is not the path of a module"));
    }
    Ok(format!("{target}={}", level(word)?))
}

fn level(word: &str) -> Result<LevelFilter, String> {
    let known = WORDS
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(word));
    known
        .map(|(_, level)| *level)
        .ok_or_else(|| format!("`{word}` is not a level"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_calico_are_levels() {
        for (word, level) in [
            ("Warning", "warn"),
            ("WARNING", "warn"),
            ("Fatal", "error"),
            ("Info", "info"),
            ("None", "off"),
            ("info, bgp_io=Debug", "info,bgp_io=debug"),
            (
                "warn,fib_sync::netlink=trace",
                "warn,fib_sync::netlink=trace",
            ),
        ] {
            assert_eq!(directives(word).as_deref(), Ok(level));
        }
    }

    #[test]
    fn unknown_words_are_refused() {
        for (text, named) in [
            ("verbose", "`verbose` is not a level"),
            ("", "`` is not a level"),
            ("info,", "`` is not a level"),
            ("bgp_io", "`bgp_io` is not a level"),
            ("bgp_oi=debug", "`bgp_oi` is not a crate"),
            ("bgp_io=loud", "`loud` is not a level"),
            ("bgp_io[x]=debug", "`bgp_io[x]` is not"),
            ("bgp_io::a b=debug", "not the path of a module"),
        ] {
            let error = directives(text).expect_err(text);
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
