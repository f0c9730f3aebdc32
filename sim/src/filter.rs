//! The packet filter of a simulated host: the kernel's table and its record, and how the run of Felix
//! that writes it follows them, as `felix::apply` does.

use cambric_felix::agent::{Checked, Failed};
use cambric_felix::render::Change;

use crate::chance::Chance;
use crate::limits::RECORD_AFTER;
use crate::plants::Comparison;
use crate::table::{Table, transact};
use crate::time::nanos;

/// The packet filter.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// The kernel's table.
    pub(crate) table: Option<Table>,
    /// The kernel's record of it for the next run.
    record: Option<Record>,
    /// Another program has changed the table since Felix wrote it as a whole.
    pub(crate) is_tampered: bool,
    /// Transactions that were carried out.
    pub(crate) writes: u64,
    /// The first transaction that the kernel rejects although no fault was drawn.
    pub(crate) rejected: Option<String>,
    /// How it is compared.
    pub(crate) comparison: Comparison,
    run: Run,
}

/// The table as a run has listed it.
#[derive(Debug)]
struct Record {
    listed: Table,
    /// The run was stopped, and has written all of it.
    is_whole: bool,
}

/// The knowledge of one run.
#[derive(Debug, Default)]
struct Run {
    known: Known,
    /// A transaction of this run was carried out, or its answer was lost.
    has_written: bool,
    /// An answer was lost or negative: the content is not known.
    is_uncertain: bool,
    /// When the table is recorded.
    record_at: Option<u64>,
    /// Another program has changed the table, and Felix does not know it yet.
    notice: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Known {
    /// Nothing was written or listed yet.
    #[default]
    Unwritten,
    /// It is as own transactions have left it, or as it was listed.
    Followed,
    /// Another program has changed it.
    Changed,
}

impl Filter {
    /// Begins a run of Felix.
    pub(crate) fn begin_run(&mut self) {
        self.run = Run::default();
    }

    /// Ends a run that was stopped by a signal: it records its table.
    pub(crate) fn finish_run(&mut self) {
        let Some(table) = self.table.as_ref() else {
            return;
        };
        if self.run.known == Known::Followed {
            self.record = Some(Record {
                listed: table.clone(),
                is_whole: self.run.has_written && !self.run.is_uncertain,
            });
        }
    }

    /// Removes everything, as a reboot does.
    pub(crate) fn wipe(&mut self) {
        (self.table, self.record, self.is_tampered) = (None, None, false);
        self.begin_run();
    }

    /// Records the table if that is due.
    pub(crate) fn settle(&mut self, now: u64) {
        if self.run.record_at.is_some_and(|at| at <= now) {
            self.run.record_at = None;
            if let (Some(table), Known::Followed) = (&self.table, self.run.known) {
                let listed = table.clone();
                self.record = Some(Record {
                    listed,
                    is_whole: false,
                });
            }
        }
    }

    /// Returns when the table is recorded.
    pub(crate) const fn timeout(&self) -> Option<u64> {
        self.run.record_at
    }

    /// Takes the notice that another program has changed the table.
    pub(crate) fn take_notice(&mut self) -> bool {
        std::mem::take(&mut self.run.notice)
    }

    /// Returns whether Felix has such a notice to read.
    pub(crate) const fn has_notice(&self) -> bool {
        self.run.notice
    }

    /// Carries a transaction out. Its answer may be lost.
    pub(crate) fn write(
        &mut self,
        now: u64,
        steps: &[Change],
        loses_answer: bool,
    ) -> Result<(), Failed> {
        let replaces = matches!(steps.first(), Some(Change::AddTable));
        if !replaces && self.run.known == Known::Changed {
            let reason = "another program has changed table inet cambric-felix";
            return Err(Failed(reason.to_owned()));
        }
        let after = match transact(self.table.as_ref(), steps) {
            Ok(after) => after,
            Err(reason) => {
                self.run.is_uncertain = true;
                let rejected = self.rejected.get_or_insert(reason);
                return Err(Failed(rejected.clone()));
            }
        };
        // The first transaction of a run keeps a table that it would write in the same way.
        if replaces && !self.run.has_written && self.is_kept(after.as_ref()) {
            (self.run.known, self.run.has_written) = (Known::Followed, true);
            return Ok(());
        }
        self.table = after;
        self.record = None;
        self.writes += 1;
        self.run.has_written = true;
        self.run.record_at = Some(now + nanos(RECORD_AFTER));
        if replaces {
            self.run.known = Known::Followed;
            (self.is_tampered, self.run.is_uncertain) = (false, false);
        }
        if loses_answer {
            self.run.is_uncertain = true;
            return Err(Failed("the answer of the kernel was lost".to_owned()));
        }
        Ok(())
    }

    fn is_kept(&self, wanted: Option<&Table>) -> bool {
        let (Some(record), Some(wanted), Some(table)) = (&self.record, wanted, &self.table) else {
            return false;
        };
        let is_same = match self.comparison {
            Comparison::Exact | Comparison::Doubting => record.listed == *table,
            Comparison::Trusting => true,
        };
        record.is_whole && record.listed == *wanted && is_same
    }

    /// Compares the table with the written one, or with the record of an earlier run.
    pub(crate) fn check(&mut self) -> Checked {
        match self.run.known {
            Known::Changed => Checked::Changed,
            Known::Followed if self.comparison == Comparison::Doubting => Checked::Changed,
            Known::Followed => Checked::Intact,
            Known::Unwritten => self.adopt(),
        }
    }

    fn adopt(&mut self) -> Checked {
        let Some(table) = &self.table else {
            return Checked::Nothing;
        };
        let is_same = self.record.as_ref().map(|record| record.listed == *table);
        if is_same == Some(false) && self.comparison == Comparison::Exact {
            return Checked::Changed;
        }
        self.run.known = Known::Followed;
        match is_same {
            None => Checked::Unrecorded,
            Some(_) => Checked::Intact,
        }
    }

    /// Changes the table as another program does. Returns the change; `None` if there is no table.
    pub(crate) fn tamper(&mut self, chance: &mut Chance) -> Option<String> {
        let change = crate::tamper::tamper(&mut self.table, chance)?;
        self.is_tampered = true;
        if self.run.known == Known::Followed {
            self.run.known = Known::Changed;
            self.run.notice = true;
        }
        Some(change)
    }
}
