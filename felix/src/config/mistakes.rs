//! The exact reports about mistaken files.

use std::path::Path;

use daemon_common::config::compare_reports;

use super::*;

#[test]
fn reports_about_mistaken_files_are_exact() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/config/mistakes");
    let compared = compare_reports(&directory, |name, text| {
        match Config::of(&Source::new(name, text)) {
            Ok(_) => panic!("{name} is accepted"),
            Err(report) => format!("{report}\n"),
        }
    });
    match compared {
        Ok(count) => assert!(count >= 10, "{count}"),
        Err(differences) => panic!("{differences}"),
    }
}
