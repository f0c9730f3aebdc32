//! The contents of the datastore that Felix of a node has received, as the stored octets.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use calico_store::Status;
use rule_audit::Fabric;

use crate::limits::VIEWS_MAX;
use crate::policies::PREFIX;
use crate::scenario::is_broken;

/// One content, and the evaluation of it.
pub(crate) struct View {
    stored: BTreeMap<String, Vec<u8>>,
    /// A policy is invalid, and never was valid. It closes what it may apply to, except established
    /// connections.
    pub(crate) is_closing: bool,
    fabric: OnceCell<Fabric>,
}

impl View {
    /// Returns the evaluation for a node.
    pub(crate) fn fabric(&self, node: &str) -> &Fabric {
        self.fabric
            .get_or_init(|| Fabric::read(&self.stored, node, |_| {}))
    }
}

/// The contents that the packet filter of a node may have: those since the last one that was written
/// completely.
#[derive(Default)]
pub(crate) struct Views {
    all: Vec<Rc<View>>,
    /// Some contents were left out, because there were too many.
    is_full: bool,
    /// The packet filter has all of the last one.
    is_complete: bool,
}

impl std::fmt::Debug for Views {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Views")
            .field("len", &self.all.len())
            .field("is_full", &self.is_full)
            .finish()
    }
}

impl Views {
    /// Removes all.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    fn push(&mut self, view: Rc<View>) {
        self.all.push(view);
        self.is_complete = false;
        if self.all.len() > VIEWS_MAX {
            self.all.remove(0);
            self.is_full = true;
        }
    }

    /// Keeps the last one: the packet filter is complete.
    fn complete(&mut self) {
        self.all.drain(..self.all.len().saturating_sub(1));
        (self.is_full, self.is_complete) = (false, true);
    }

    /// Returns the content that the packet filter has completely.
    pub(crate) fn complete_one(&self) -> Option<&View> {
        let last = self.all.last().filter(|_| self.is_complete);
        last.map(|view| &**view)
    }

    /// Returns the contents; `None` if some were left out.
    pub(crate) fn all(&self) -> Option<&[Rc<View>]> {
        (!self.is_full).then_some(&self.all)
    }
}

/// The content that a run of Felix has received.
#[derive(Debug, Default)]
pub(crate) struct Received {
    stored: BTreeMap<String, Vec<u8>>,
    /// The keys with an invalid value that never had a valid one.
    closing: BTreeSet<String>,
    is_in_sync: bool,
    has_changed: bool,
}

impl Received {
    /// Records a change. An invalid value leaves the last valid one in effect.
    pub(crate) fn change(&mut self, key: &str, value: Option<&[u8]>) {
        if !key.starts_with(PREFIX) {
            return;
        }
        self.has_changed = true;
        match value {
            Some(value) if is_broken(value) => {
                if !self.stored.contains_key(key) {
                    self.closing.insert(key.to_owned());
                }
            }
            Some(value) => {
                self.closing.remove(key);
                self.stored.insert(key.to_owned(), value.to_vec());
            }
            None => {
                self.closing.remove(key);
                self.stored.remove(key);
            }
        }
    }

    /// Records whether the content is complete.
    pub(crate) fn status(&mut self, status: Status, views: &mut Views) {
        match status {
            Status::InSync => (self.is_in_sync, self.has_changed) = (true, true),
            Status::Snapshot { .. } | Status::Syncing | Status::Lost | Status::Unready(_) => {
                self.offer(views);
                self.is_in_sync = false;
            }
        }
    }

    /// Adds the content to those that Felix may apply.
    pub(crate) fn offer(&mut self, views: &mut Views) {
        if self.is_in_sync && std::mem::take(&mut self.has_changed) {
            views.push(Rc::new(View {
                stored: self.stored.clone(),
                is_closing: !self.closing.is_empty(),
                fabric: OnceCell::new(),
            }));
        }
    }

    /// Records that Felix has written all of the content.
    pub(crate) fn written(&self, views: &mut Views) {
        if self.is_in_sync && !self.has_changed {
            views.complete();
        }
    }
}
