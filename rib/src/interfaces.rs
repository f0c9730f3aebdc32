//! The interfaces of our own routes, beside the table: learned routes take no room here.

use alloc::collections::BTreeMap;

use crate::path::Path;
use crate::peer::PeerId;
use crate::policy::InterfaceName;

/// By slot: where our own route of it leads to.
#[derive(Debug, Default)]
pub(crate) struct Interfaces(BTreeMap<u32, InterfaceName>);

impl Interfaces {
    /// Keeps what is known of the route of a slot. Returns whether it is another than before.
    pub(crate) fn keep(&mut self, slot: u32, interface: Option<InterfaceName>) -> bool {
        let before = match interface {
            Some(interface) => self.0.insert(slot, interface),
            None => self.0.remove(&slot),
        };
        before != interface
    }

    /// Where a path of a slot leads to, if it is our own.
    pub(crate) fn of(&self, slot: u32, path: &Path) -> Option<InterfaceName> {
        if path.peer() != PeerId::LOCAL {
            return None;
        }
        self.0.get(&slot).copied()
    }
}
