//! The interfaces of locally originated routes, beside the table: learned routes use no memory
//! here.

use alloc::collections::BTreeMap;

use crate::path::Path;
use crate::peer::PeerId;
use crate::policy::InterfaceName;

/// By slot: the interface of its locally originated route.
#[derive(Debug, Default)]
pub(crate) struct Interfaces(BTreeMap<u32, InterfaceName>);

impl Interfaces {
    /// Sets the interface of a slot's route. Returns whether it changed.
    pub(crate) fn keep(&mut self, slot: u32, interface: Option<InterfaceName>) -> bool {
        let before = match interface {
            Some(interface) => self.0.insert(slot, interface),
            None => self.0.remove(&slot),
        };
        before != interface
    }

    /// Returns the interface of a slot's path, if it is locally originated.
    pub(crate) fn of(&self, slot: u32, path: &Path) -> Option<InterfaceName> {
        if path.peer() != PeerId::LOCAL {
            return None;
        }
        self.0.get(&slot).copied()
    }
}
