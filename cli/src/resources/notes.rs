//! Fields of resources that have no effect: reported when they are written or shown.

use calico_manifests::Document;
use calico_model::{Kind, unsupported_fields};
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

/// Returns the fields of a resource that have no effect, one per line.
fn notes(kind: Kind, resource: &Value) -> Vec<(String, String)> {
    let named = format!("{kind} {}", name(resource));
    let found = unsupported_fields(kind, resource).into_iter();
    found
        .map(|one| (one.field.clone(), format!("{named}: {one}")))
        .collect()
}

/// Reports the fields of a written resource that have no effect, each with its place in the
/// manifest.
pub(super) fn report_written(document: &Document, kind: Kind, resource: &Value) {
    for (field, note) in notes(kind, resource) {
        let warning = format!("warning: {note}");
        eprintln!("cambric: {}", document.fault(&field, warning));
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
    let all: Vec<String> = all.map(|(_, note)| note).collect();
    for note in all.iter().take(NOTES_SHOWN_MAX) {
        eprintln!("cambric: note: {note}");
    }
    let more = all.len().saturating_sub(NOTES_SHOWN_MAX);
    if more > 0 {
        eprintln!("cambric: note: {more} more fields without effect");
    }
}
