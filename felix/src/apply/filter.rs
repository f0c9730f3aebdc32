//! The packet filter with its writer: a thread carries out large transactions, and the main loop
//! continues.

use std::future::pending;
use std::panic::resume_unwind;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::rules::{Rules, RulesError};
use crate::limits::WRITTEN_BY_LOOP_MAX;
use crate::render::Change;

/// The outcome of a transaction.
pub(super) type Written = Result<(), RulesError>;

/// The packet filter, or the thread that writes it.
#[derive(Debug)]
pub(super) struct Filter {
    /// `None` while a thread has them.
    rules: Option<Rules>,
    writer: Option<Writer>,
    /// Transactions carried out before that of the thread.
    transactions: u64,
}

/// The thread of one transaction.
#[derive(Debug)]
struct Writer {
    /// The number of its command.
    number: u64,
    thread: JoinHandle<(Rules, Written)>,
}

impl Filter {
    pub(super) const fn new(rules: Rules) -> Self {
        Self {
            rules: Some(rules),
            writer: None,
            transactions: 0,
        }
    }

    /// Returns the rules; `None` while a thread writes them.
    pub(super) const fn rules(&self) -> Option<&Rules> {
        self.rules.as_ref()
    }

    /// Returns the rules for requests; `None` while a thread writes them.
    pub(super) const fn rules_mut(&mut self) -> Option<&mut Rules> {
        self.rules.as_mut()
    }

    /// Returns the number of transactions carried out.
    pub(super) fn transactions(&self) -> u64 {
        let rules = self.rules.as_ref();
        rules.map_or(self.transactions, Rules::transactions)
    }

    /// Carries out steps in one transaction. In a runtime, a thread writes a large one, and its outcome
    /// is returned by [`written`](Self::written); that of any other one is returned at once.
    pub(super) fn write(&mut self, number: u64, steps: Vec<Change>) -> Option<Written> {
        let Some(mut rules) = self.rules.take() else {
            return Some(Err(RulesError::Busy));
        };
        if let Some(Ok(runtime)) = is_large(&steps).then(Handle::try_current) {
            self.transactions = rules.transactions();
            let thread = runtime.spawn_blocking(move || {
                let written = rules.write(&steps);
                (rules, written)
            });
            self.writer = Some(Writer { number, thread });
            return None;
        }
        let written = rules.write(&steps);
        self.rules = Some(rules);
        Some(written)
    }

    /// Waits until the thread has ended, and returns the number of its command and the outcome. Without
    /// a thread it waits forever. It may be canceled at any time.
    pub(super) async fn written(&mut self) -> (u64, Written) {
        let Some(Writer { number, thread }) = &mut self.writer else {
            return pending().await;
        };
        let (number, ended) = (*number, thread.await);
        self.writer = None;
        match ended {
            Ok((rules, written)) => {
                self.rules = Some(rules);
                (number, written)
            }
            // As if the loop itself had panicked.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime ends, and the loop with it.
                Err(_) => pending().await,
            },
        }
    }
}

/// Returns whether the kernel needs so long for a transaction that the loop may not wait.
fn is_large(steps: &[Change]) -> bool {
    let elements: usize = steps.iter().map(Change::elements).sum();
    steps.len() + elements > WRITTEN_BY_LOOP_MAX
}
