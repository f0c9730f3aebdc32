//! What tests need: `xtask/tests.toml`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

/// What a test needs of the machine.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default)]
pub struct Needs {
    /// How long it takes, about. The longest begin first.
    pub seconds: f64,
    /// Of how many cores it keeps busy.
    pub cores: f64,
    /// It has hosts in namespaces, or foreign programs: if it fails, it is run once more, alone.
    pub lab: bool,
    /// It measures time: nothing else runs beside it.
    pub alone: bool,
    /// It needs the machine's own namespaces, `/run` or `/tmp`.
    pub open: bool,
    /// What it looks at is drawn from the seed: `soak` runs it again and again.
    pub drawn: bool,
    /// How long it may take, in seconds.
    pub limit: u64,
}

impl Default for Needs {
    fn default() -> Self {
        Self {
            seconds: 0.1,
            cores: 1.0,
            lab: false,
            alone: false,
            open: false,
            drawn: false,
            limit: 600,
        }
    }
}

impl Needs {
    /// How long it may take.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// By the beginning of a test's name; the longest that fits holds.
    needs: Vec<Row>,
    /// Tests that may say that they were skipped.
    skipped: Vec<Skipped>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    tests: String,
    #[serde(flatten)]
    needs: Needs,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Skipped {
    test: String,
    #[serde(rename = "reason")]
    _reason: String,
}

impl Table {
    /// Reads it.
    ///
    /// # Errors
    /// If it is not there, or has mistakes.
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join("xtask/tests.toml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{}", path.display()))
    }

    /// What the test of this name needs.
    pub fn needs(&self, name: &str) -> Needs {
        let fits = self.needs.iter().filter(|row| name.starts_with(&row.tests));
        let longest = fits.max_by_key(|row| row.tests.len());
        longest.map_or_else(Needs::default, |row| row.needs.clone())
    }

    /// Whether this test may be skipped.
    pub fn may_skip(&self, name: &str) -> bool {
        self.skipped.iter().any(|row| row.test == name)
    }

    /// Rows about no test of these.
    pub fn stale<'a>(&'a self, names: &[&str]) -> Vec<&'a str> {
        let needs = self.needs.iter().map(|row| row.tests.as_str());
        let rows = needs.chain(self.skipped.iter().map(|row| row.test.as_str()));
        rows.filter(|row| !names.iter().any(|name| name.starts_with(row)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        skipped = [{ test = "mrt/files::dumps", reason = "recordings" }]
        [[needs]]
        tests = "felix/"
        lab = true
        cores = 0.3
        [[needs]]
        tests = "felix/start_netns"
        alone = true
    "#;

    #[test]
    fn longest_row_that_fits_holds() {
        let table: Table = toml::from_str(TEXT).expect("a table");
        assert_eq!(table.needs("felix::calc::x"), Needs::default());
        assert!(table.needs("felix/guard_netns::y").lab);
        let start = table.needs("felix/start_netns::z");
        assert!(start.alone && !start.lab);
    }

    #[test]
    fn row_about_no_test_is_found() {
        let table: Table = toml::from_str(TEXT).expect("a table");
        let stale = table.stale(&["felix/start_netns::z"]);
        assert_eq!(stale, ["mrt/files::dumps"]);
        assert!(table.may_skip("mrt/files::dumps") && !table.may_skip("felix/start_netns::z"));
    }

    #[test]
    fn unknown_word_in_the_table_is_refused() {
        let text = "skipped = []\n[[needs]]\ntests = \"a\"\nalon = true\n";
        toml::from_str::<Table>(text).expect_err("a mistake");
    }
}
