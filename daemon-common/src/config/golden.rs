//! Reports about mistaken files, compared with the expected ones. For tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The ending of an expected report.
const EXPECTED: &str = "txt";

/// Compares the reports about the files of a directory with the expected ones beside them, which
/// have the same name and end in `.txt`. `report` gets the name and the text of a file. Returns the
/// number of files. With `UPDATE_EXPECT` in the environment, writes the expected reports.
///
/// # Errors
///
/// The differences, as a text: a test fails with it.
pub fn compare_reports(
    directory: &Path,
    mut report: impl FnMut(&str, &str) -> String,
) -> Result<usize, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let entries = fs::read_dir(directory).map_err(failed)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names: BTreeSet<String> = names.collect::<Result<_, _>>().map_err(failed)?;
    let is_report = |name: &&String| name.ends_with(EXPECTED);
    let mut left: BTreeSet<String> = names.iter().filter(is_report).cloned().collect();
    let (mut count, mut differences) = (0, Vec::new());
    for name in names.iter().filter(|name| !is_report(name)) {
        let path = directory.join(name);
        let expected = path.with_extension(EXPECTED);
        let text = fs::read_to_string(&path).map_err(failed)?;
        let found = report(name, &text);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&expected, &found).map_err(failed)?;
        }
        let written = fs::read_to_string(&expected).unwrap_or_default();
        if written != found {
            differences.push(format!("{name}: expected\n{written}\nfound\n{found}"));
        }
        left.remove(
            &expected
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        );
        count += 1;
    }
    differences.extend(
        left.iter()
            .map(|name| format!("{name}: a report without a file")),
    );
    match differences.is_empty() {
        true => Ok(count),
        false => Err(format!(
            "{}\nif this is intended, run the test with UPDATE_EXPECT=1 and read the reports",
            differences.join("\n")
        )),
    }
}
