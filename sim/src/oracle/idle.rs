//! In a stable state a reconciler that reads its kernel again has nothing to write.

use std::fmt;

use crate::world::World;

/// The numbers of kernel writes and reads by the daemons of each node, and of transactions of its packet
/// filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writes(Vec<(String, u64, u64, u64, u64)>);

impl Writes {
    /// Returns the current numbers.
    #[must_use]
    pub fn of(world: &World) -> Self {
        let nodes = world
            .machines
            .iter()
            .filter(|machine| machine.node.is_some());
        let counts = nodes.map(|machine| {
            let (puts, deletes, dumps) = machine.kernel_writes();
            let node = machine.node.as_ref();
            let rules = node.map_or(0, |node| node.host.filter.writes);
            (machine.name.clone(), puts, deletes, dumps, rules)
        });
        Self(counts.collect())
    }

    /// Returns whether nothing was written in between.
    #[must_use]
    pub fn same_writes(&self, other: &Self) -> bool {
        let writes = |all: &Self| {
            all.0
                .iter()
                .map(|(_, puts, deletes, _, rules)| (*puts, *deletes, *rules))
                .collect::<Vec<_>>()
        };
        writes(self) == writes(other)
    }

    /// Returns the writes since then, one line per node. A node that has not read its kernel proves
    /// nothing, and is listed, too.
    #[must_use]
    pub fn since(&self, now: &Self) -> Vec<String> {
        let mut wrong = Vec::new();
        for ((name, puts, deletes, dumps, rules), (_, more, less, read, written)) in
            self.0.iter().zip(&now.0)
        {
            if rules != written {
                wrong.push(format!("{name}: transactions {rules} to {written}"));
            }
            if (puts, deletes) != (more, less) {
                wrong.push(format!(
                    "{name}: puts {puts} to {more}, deletes {deletes} to {less}"
                ));
            }
            if read <= dumps {
                wrong.push(format!("{name}: a reconciler has not read its kernel"));
            }
        }
        wrong
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, puts, deletes, dumps, rules) in &self.0 {
            writeln!(
                f,
                "{name}: {puts} puts, {deletes} deletes, {dumps} reads, {rules} transactions"
            )?;
        }
        Ok(())
    }
}
