//! The table `[cutting]` of the file.

use daemon_common::config::Problem;
use serde::Deserialize;
use toml::Spanned;

use crate::limits::CUT_MARK;

/// The table as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    #[serde(default)]
    enabled: bool,
    mark: Option<Spanned<u32>>,
}

impl Table {
    /// Sets the bit if connections are cut. Returns the problem of a mark that is no single bit.
    pub(super) fn take(&self, cut_mark: &mut Option<u32>) -> Option<Problem> {
        let mark = self.mark.as_ref().map_or(CUT_MARK, |mark| *mark.get_ref());
        *cut_mark = self.enabled.then_some(mark);
        let written = self.mark.as_ref().filter(|_| !mark.is_power_of_two())?;
        let problem = Problem::at(written.span(), "the mark is not one bit");
        Some(problem.help("for example 0x40000000, the default"))
    }
}
