//! The table `[budgets]` of the file.

use daemon_common::config::Problem;
use serde::Deserialize;
use toml::Spanned;

use crate::limits::{WORKLOAD_BUDGET_MAX, WORKLOAD_SEEN_MAX};
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
        let (any, seen) = (WORKLOAD_BUDGET_MAX, WORKLOAD_SEEN_MAX);
        let all = [
            (&self.connections, &mut budgets.connections, any),
            (
                &self.fragments_per_second,
                &mut budgets.fragments_per_second,
                any,
            ),
            (
                &self.next_hops_per_minute,
                &mut budgets.next_hops_per_minute,
                seen,
            ),
            (
                &self.link_local_per_minute,
                &mut budgets.link_local_per_minute,
                seen,
            ),
        ];
        for (written, budget, max) in all {
            let Some(written) = written else {
                continue;
            };
            *budget = *written.get_ref();
            if *budget > max {
                let message = format!("the budget is above {max}");
                let problem = Problem::at(written.span(), message);
                return Some(problem.help("0 means that there is no limit"));
            }
        }
        None
    }
}
