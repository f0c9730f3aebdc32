//! The needs of tests: `xtask/tests.toml`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The needs of a test.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(default)]
pub struct Needs {
    /// Its approximate duration in seconds. The longest tests start first.
    pub seconds: f64,
    /// How many cores it keeps busy.
    pub cores: f64,
    /// It has hosts in namespaces, or foreign programs: if it fails, it is run again, alone.
    pub lab: bool,
    /// Its first failure is final: it is not run again. Set by the list of that name.
    #[serde(skip)]
    pub never_flaky: bool,
    /// It measures time: no other test runs at the same time.
    pub alone: bool,
    /// It needs the machine's own namespaces, `/run` or `/tmp`.
    pub open: bool,
    /// Its inputs are drawn from the seed: `soak` runs it repeatedly. Properties need no row for it.
    pub drawn: bool,
    /// Its time limit, in seconds.
    pub limit: u64,
}

impl Default for Needs {
    fn default() -> Self {
        Self {
            seconds: 0.1,
            cores: 1.0,
            lab: false,
            never_flaky: false,
            alone: false,
            open: false,
            drawn: false,
            limit: 600,
        }
    }
}

impl Needs {
    /// Returns its time limit.
    pub fn limit(&self) -> Duration {
        Duration::from_secs(self.limit)
    }
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// By the prefix of a test's name; the longest matching one applies.
    needs: Vec<Row>,
    /// Tests that may report that they were skipped.
    skipped: Vec<Skipped>,
    /// Tests whose first failure is final, by prefix of their names.
    never_flaky: Vec<String>,
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
    /// If it is missing or invalid.
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join("xtask/tests.toml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{}", path.display()))
    }

    /// Returns the needs of the test with this name.
    pub fn needs(&self, name: &str) -> Needs {
        let fits = self.needs.iter().filter(|row| name.starts_with(&row.tests));
        let longest = fits.max_by_key(|row| row.tests.len());
        let needs = longest.map_or_else(Needs::default, |row| row.needs.clone());
        let mut final_ones = self.never_flaky.iter();
        Needs {
            never_flaky: final_ones.any(|prefix| name.starts_with(prefix)),
            ..needs
        }
    }

    /// Returns whether this test may be skipped.
    pub fn may_skip(&self, name: &str) -> bool {
        self.skipped.iter().any(|row| row.test == name)
    }

    /// Returns the rows that match none of these tests.
    pub fn stale<'a>(&'a self, names: &[&str]) -> Vec<&'a str> {
        let needs = self.needs.iter().map(|row| row.tests.as_str());
        let rows = needs
            .chain(self.skipped.iter().map(|row| row.test.as_str()))
            .chain(self.never_flaky.iter().map(String::as_str));
        rows.filter(|row| !names.iter().any(|name| name.starts_with(row)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        skipped = [{ test = "mrt/files::dumps", reason = "recordings" }]
        never_flaky = ["felix/netns::guard::"]
        [[needs]]
        tests = "felix/"
        lab = true
        cores = 0.3
        [[needs]]
        tests = "felix/netns::start::"
        alone = true
    "#;

    #[test]
    fn longest_row_that_fits_holds() {
        let table: Table = toml::from_str(TEXT).expect("a table");
        assert_eq!(table.needs("felix::calc::x"), Needs::default());
        let guard = table.needs("felix/netns::guard::y");
        assert!(guard.lab && guard.never_flaky);
        assert!(!table.needs("felix/netns::policy::y").never_flaky);
        let start = table.needs("felix/netns::start::z");
        assert!(start.alone && !start.lab);
    }

    #[test]
    fn row_about_no_test_is_found() {
        let table: Table = toml::from_str(TEXT).expect("a table");
        let stale = table.stale(&["felix/netns::start::z"]);
        assert_eq!(stale, ["mrt/files::dumps", "felix/netns::guard::"]);
        assert!(table.may_skip("mrt/files::dumps") && !table.may_skip("felix/netns::start::z"));
    }

    #[test]
    fn attacks_on_the_fabric_are_never_flaky() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let table = Table::read(&root).expect("a table");
        for name in [
            "interop-tests/labs::takeover::live_session_outlives_valid_opens_on_a_lossy_path",
            "interop-tests/labs::host_guard::another_user_never_speaks_bgp_as_its_host",
            "interop-tests/store::origins::x",
            "felix/netns::guard::workload_reaches_no_control_port_of_the_fabric",
        ] {
            let needs = table.needs(name);
            assert!(needs.never_flaky && needs.lab, "{name}: {needs:?}");
        }
        assert!(!table.needs("interop-tests/labs::restart::x").never_flaky);
    }

    #[test]
    fn unknown_word_in_the_table_is_refused() {
        let text = "skipped = []\nnever_flaky = []\n[[needs]]\ntests = \"a\"\nalon = true\n";
        toml::from_str::<Table>(text).expect_err("a mistake");
    }
}
