//! The exact reports about mistaken files.

use std::path::Path;

use bgp_config::Source;
use daemon_common::config::compare_reports;

use crate::config::Config;

#[test]
fn reports_about_mistaken_files_are_exact() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/mistakes");
    let compared = compare_reports(&directory, |name, text| {
        let source = Source::new(name, text).showing(bgp_config::is_shown);
        match Config::parse(&source) {
            Ok(_) => panic!("{name} is accepted"),
            Err(report) => format!("{report}\n"),
        }
    });
    match compared {
        Ok(count) => assert!(count >= 5, "{count}"),
        Err(differences) => panic!("{differences}"),
    }
}
