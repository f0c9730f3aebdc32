//! The exact reports about mistaken manifests.

use std::path::Path;

use daemon_common::config::compare_reports;
use serde_json::Value;

use crate::readable_documents;

/// Returns the report about a text, as `cambric apply` prints it.
pub(super) fn report(name: &str, text: &str) -> String {
    let (documents, mut mistakes) = readable_documents(Path::new(name), text);
    for document in documents {
        if let Err(problems) = document.encode(Some("default"), &Value::Null) {
            mistakes.add(&document, problems);
        }
    }
    mistakes.to_string()
}

#[test]
fn reports_about_mistaken_manifests_are_exact() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mistakes");
    let compared = compare_reports(&directory, |name, text| match report(name, text) {
        report if report.is_empty() => panic!("{name} is accepted"),
        report => format!("{report}\n"),
    });
    match compared {
        Ok(count) => assert!(count >= 34, "{count}"),
        Err(differences) => panic!("{differences}"),
    }
}
