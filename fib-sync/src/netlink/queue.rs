//! Commands not yet started, in order, and which of them are overtaken by changes of other
//! programs.

use std::collections::{BTreeSet, VecDeque};

use crate::port::{Command, Event};
use crate::route::RouteKey;

/// A command, and whether the key it replaces changed before its caller was notified of the change.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) command: Command,
    pub(super) overtaken: bool,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    commands: VecDeque<Queued>,
    /// Number of commands that replace.
    replaces: usize,
}

impl Queue {
    /// Adds a command; `unreported` are events that its caller has not received yet.
    pub(super) fn push<'a>(
        &mut self,
        command: Command,
        mut unreported: impl Iterator<Item = &'a Event>,
    ) {
        let mut overtaken = false;
        if let Some(key) = command.replaced_key() {
            self.replaces += 1;
            overtaken = unreported.any(|event| match event.changed_key() {
                Some(changed) => changed == key,
                None => *event == Event::Overrun,
            });
        }
        self.commands.push_back(Queued { command, overtaken });
    }

    /// Marks the commands for keys that these events report as changed; an overrun marks all.
    pub(super) fn overtake<'a>(&mut self, events: impl Iterator<Item = &'a Event>) {
        if self.replaces == 0 {
            return;
        }
        let mut all = false;
        let mut changed: BTreeSet<&RouteKey> = BTreeSet::new();
        for event in events {
            all |= *event == Event::Overrun;
            changed.extend(event.changed_key());
        }
        if !all && changed.is_empty() {
            return;
        }
        for queued in &mut self.commands {
            let key = queued.command.replaced_key();
            queued.overtaken |= key.is_some_and(|key| all || changed.contains(key));
        }
    }

    pub(super) fn front(&self) -> Option<&Queued> {
        self.commands.front()
    }

    pub(super) fn pop(&mut self) -> Option<Queued> {
        let queued = self.commands.pop_front()?;
        self.replaces -= usize::from(queued.command.replaced_key().is_some());
        Some(queued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Owner;
    use crate::port::PutMode;
    use crate::route::Route;

    #[test]
    fn only_replaces_of_changed_keys_are_overtaken() {
        let key = |text: &str| RouteKey::new(254, text.parse().unwrap(), 1, 0);
        let (a, b) = (key("10.0.0.0/24"), key("10.0.1.0/24"));
        let route = Route::blackhole(Owner(1));
        let put = |key, mode| Command::Put(key, route.clone(), mode);
        let mut queue = Queue::default();
        let gone = Event::Removed(a, route.clone());
        queue.push(put(a, PutMode::Replace), [gone.clone()].iter());
        queue.push(put(a, PutMode::Create), [].iter());
        queue.push(put(a, PutMode::Replace), [].iter());
        queue.push(put(b, PutMode::Replace), [].iter());
        let overtaken = |queue: &Queue| -> Vec<bool> {
            queue
                .commands
                .iter()
                .map(|queued| queued.overtaken)
                .collect()
        };
        assert_eq!(overtaken(&queue), [true, false, false, false]);
        queue.overtake([&gone].into_iter());
        assert_eq!(overtaken(&queue), [true, false, true, false]);
        queue.overtake([&Event::Overrun].into_iter());
        assert_eq!(overtaken(&queue), [true, false, true, true]);
        while queue.pop().is_some() {}
        assert_eq!(queue.replaces, 0);
    }
}
