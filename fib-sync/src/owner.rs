//! The owner of a route: the kernel stores one octet per route for it, `rtm_protocol`.

use core::fmt;

/// The `rtm_protocol` under which one program installs its routes.
///
/// A route that carries another value is *foreign*: this crate reads it, reports it in a conflict,
/// and never changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u8);

/// Names of `rtm_protocol` values as `ip route` prints them (`/etc/iproute2/rt_protos`), and the
/// two that Calico's programs use (Felix 80).
const NAMES: &[(u8, &str)] = &[
    (1, "redirect"),
    (2, "kernel"),
    (3, "boot"),
    (4, "static"),
    (8, "gated"),
    (9, "ra"),
    (11, "zebra"),
    (12, "bird"),
    (16, "dhcp"),
    (18, "keepalived"),
    (42, "babel"),
    (80, "felix"),
    (186, "bgp"),
    (187, "isis"),
    (188, "ospf"),
    (189, "rip"),
    (192, "eigrp"),
];

impl Owner {
    /// Returns the protocol's usual name, if it has one.
    pub fn name(self) -> Option<&'static str> {
        NAMES
            .iter()
            .find(|(number, _)| *number == self.0)
            .map(|(_, name)| *name)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}
