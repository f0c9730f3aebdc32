//! Fields of resources that have no effect: reported when they are written or shown.

use calico_manifests::Document;
use calico_model::{Kind, Severity, unsupported_fields};
use serde_json::Value;

use super::print::{Output, Shown};

/// Notes that are printed beside a table; further ones are counted.
const NOTES_SHOWN_MAX: usize = 20;

/// Returns the name of a resource, with its namespace.
fn name(resource: &Value) -> String {
    let of = |field: &str| resource["metadata"][field].as_str().unwrap_or_default();
    match of("namespace") {
        "" => of("name").to_owned(),
        namespace => format!("{namespace}/{}", of("name")),
    }
}

/// A field without effect.
struct Note {
    /// Its path.
    field: String,
    /// The resource, the field and the reason.
    text: String,
    severity: Severity,
}

/// Returns the fields of a resource that have no effect.
fn notes(kind: Kind, resource: &Value) -> Vec<Note> {
    let named = format!("{kind} {}", name(resource));
    let found = unsupported_fields(kind, resource).into_iter();
    found
        .map(|one| Note {
            text: format!("{named}: {one}"),
            severity: Severity::of(kind, &one.reason),
            field: one.field,
        })
        .collect()
}

/// Reports the fields of a written resource that have no effect, each with its place in the
/// manifest.
pub(super) fn report_written(document: &Document, kind: Kind, resource: &Value) {
    for note in notes(kind, resource) {
        let warning = format!("warning: {}", note.text);
        eprintln!("cambric: {}", document.fault(&note.field, warning));
    }
}

/// Reports the same for resources that are shown as a table. The other forms are for programs.
pub(super) fn report_shown(output: &Output, shown: &[Shown]) {
    if !matches!(output, Output::Table | Output::Wide) {
        return;
    }
    let all = shown.iter().flat_map(|one| {
        let rows = one.rows().into_iter();
        rows.flat_map(|resource| notes(one.kind(), resource))
    });
    for note in most_serious(all.collect()) {
        eprintln!("cambric: note: {note}");
    }
}

/// Returns the most serious notes, and the number of the others.
fn most_serious(mut all: Vec<Note>) -> Vec<String> {
    all.sort_by_key(|note| note.severity);
    let more = all.len().saturating_sub(NOTES_SHOWN_MAX);
    let shown = all.into_iter().take(NOTES_SHOWN_MAX);
    let mut lines: Vec<String> = shown.map(|note| note.text).collect();
    if more > 0 {
        lines.push(format!("{more} more fields without effect"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn host_endpoint_is_noted_before_twenty_other_fields() {
        let log = json!({"metadata": {"name": "l"}, "spec": {"logSeverityScreen": "Debug"}});
        let host = json!({"metadata": {"name": "h"}, "spec": {"interface": "eth0"}});
        let logs = (0..NOTES_SHOWN_MAX).flat_map(|_| notes(Kind::BgpConfiguration, &log));
        let all = logs.chain(notes(Kind::HostEndpoint, &host)).collect();
        let lines = most_serious(all);
        assert!(
            lines[0].starts_with("HostEndpoint h: spec.interface: "),
            "{lines:?}"
        );
        assert_eq!(lines.len(), NOTES_SHOWN_MAX + 1);
        assert_eq!(lines[NOTES_SHOWN_MAX], "1 more fields without effect");
    }

    #[test]
    fn kind_without_effect_is_noted() {
        for (kind, spec) in [
            (Kind::BlockAffinity, json!({"state": "confirmed"})),
            (Kind::CalicoNodeStatus, json!({"node": "n1"})),
        ] {
            let resource = json!({"metadata": {"name": "n1"}, "spec": spec});
            let found = notes(kind, &resource);
            assert_eq!(found.len(), 1, "{kind} {resource}");
            let start = format!("{kind} n1: spec");
            assert!(found[0].text.starts_with(&start), "{}", found[0].text);
        }
    }
}
