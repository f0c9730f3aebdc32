//! The table `[budgets]` of the file.

use daemon_common::config::Problem;
use serde::Deserialize;
use toml::Spanned;

use crate::limits::WORKLOAD_BUDGET_MAX;
use crate::render::Budgets;

/// The table as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    connections: Option<Spanned<u32>>,
    fragments_per_second: Option<Spanned<u32>>,
    next_hops_per_minute: Option<Spanned<u32>>,
    link_local_per_minute: Option<Spanned<u32>>,
}

impl Table {
    /// Sets the budgets that the table has. Returns the first one that is too large.
    pub(super) fn take(&self, budgets: &mut Budgets) -> Option<Problem> {
        let all = [
            (&self.connections, &mut budgets.connections),
            (
                &self.fragments_per_second,
                &mut budgets.fragments_per_second,
            ),
            (
                &self.next_hops_per_minute,
                &mut budgets.next_hops_per_minute,
            ),
            (
                &self.link_local_per_minute,
                &mut budgets.link_local_per_minute,
            ),
        ];
        for (written, budget) in all {
            let Some(written) = written else {
                continue;
            };
            *budget = *written.get_ref();
            if *budget > WORKLOAD_BUDGET_MAX {
                let message = format!("the budget is above {WORKLOAD_BUDGET_MAX}");
                let problem = Problem::at(written.span(), message);
                return Some(problem.help("0 means that there is no limit"));
            }
        }
        None
    }
}
