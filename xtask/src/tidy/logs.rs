//! Plain log calls: what an operator should know is an event, which the log, the JSON log, the history
//! and the metrics have. A plain call has none of these, so each has its reason here. Calls of level
//! `debug` and `trace` are free.

use std::path::Path;

use super::Finding;
use super::files::File;

/// A file with plain log calls, their number, and the reason.
struct Allowed {
    path: &'static str,
    calls: usize,
    #[expect(dead_code, reason = "for readers")]
    why: &'static str,
}

/// Reports of several lines: the event has the first one.
const REPORT: &str = "the whole report of a rejected configuration; the event has its first line";

/// A history, a watch and a counter of events are answers of a control socket or of the metrics
/// endpoint. `cambric store serve` and `cambric ipam gc` are units too, but have neither.
const TOOL: &str = "a program without a control socket: no reader could ask for its events";

/// Libraries below the events: an event needs a notice that each of their daemons converts.
const BELOW: &str = "a library below the events: operators see the status of the datastore as \
                     events, and why a range is not read in the notes of `show status`; failures of \
                     the snapshot are only in the log (docs/design/events.md)";

/// All of them.
const ALLOWED: &[Allowed] = &[
    allowed("bgp-daemon/src/reload.rs", 1, REPORT),
    allowed("felix/src/events.rs", 1, REPORT),
    allowed(
        "felix/src/agent/rules.rs",
        1,
        "a mistake of the program itself, which has no meaning for operators",
    ),
    allowed(
        "fib-sync/src/netlink/fib.rs",
        1,
        "a published library, which has no events; tests meet it, a daemon with its rights does not",
    ),
    allowed("calico-store/src/mirror/follow.rs", 2, BELOW),
    allowed("calico-store/src/mirror/keep.rs", 5, BELOW),
    allowed("calico-manifests/src/lib.rs", 2, TOOL),
    allowed("etcd-lite/src/kept.rs", 4, TOOL),
    allowed("etcd-lite/src/local.rs", 1, TOOL),
    allowed("etcd-lite/src/serve.rs", 1, TOOL),
    allowed("cli/src/store.rs", 1, TOOL),
    allowed("cli/src/addresses/gc.rs", 5, TOOL),
    allowed("cli/src/node/start.rs", 14, TOOL),
];

const fn allowed(path: &'static str, calls: usize, why: &'static str) -> Allowed {
    Allowed { path, calls, why }
}

const MACROS: [&str; 3] = ["error!(", "warn!(", "info!("];

/// Compares the plain log calls of each file with their table.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test())
    {
        let calls = calls(file.without_tests());
        let row = ALLOWED.iter().find(|row| Path::new(row.path) == file.path);
        let most = row.map_or(0, |row| row.calls);
        if calls > most {
            let text = format!(
                "{calls} plain log calls, {most} have a reason in xtask/src/tidy/logs.rs; what an operator \
                 should know is an event (daemon-common/src/events/table)"
            );
            findings.push(Finding::file(&file.path, text));
        } else if calls < most {
            let text =
                format!("{calls} plain log calls; lower the number in xtask/src/tidy/logs.rs");
            findings.push(Finding::file(&file.path, text));
        }
    }
    findings
}

/// Counts the calls of the macros, with or without the path of their crate.
fn calls(text: &str) -> usize {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let is_call = |line: &str, name: &str| {
        line.match_indices(name).any(|(at, _)| {
            let before = line[..at].chars().next_back();
            before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '_' | '"' | '`'))
        })
    };
    code.map(|line| MACROS.iter().filter(|name| is_call(line, name)).count())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_log_call_without_a_reason_is_found() {
        let file = |path: &str, text: &str| File::new(path, text);
        let found = check(&[
            file("felix/src/new.rs", "fn f() {\n    warn!(\"x\");\n}\n"),
            file("felix/src/more.rs", "tracing::error!(\"{report}\");\n"),
            file(
                "felix/src/free.rs",
                "debug!(\"x\");\n// warn!(\nlet a = my_info!(\n",
            ),
            file("felix/tests/any.rs", "warn!(\"x\");\n"),
            file(
                "felix/src/events.rs",
                "\n#[cfg(test)]\nmod tests {\n    warn!(\"x\");\n}\n",
            ),
        ]);
        let paths: Vec<_> = found.iter().map(|one| one.path.to_string_lossy()).collect();
        assert_eq!(
            paths,
            [
                "felix/src/new.rs",
                "felix/src/more.rs",
                "felix/src/events.rs"
            ],
            "the last one has fewer than its row"
        );
    }
}
