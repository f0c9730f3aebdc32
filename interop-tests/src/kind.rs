//! The programs that speak BGP in a lab.

use crate::{bird, frr, gobgp, openbgpd};

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `cambric-bgp-client`: announces what is in its kernel, installs what it learns.
    Client,
    /// `cambric-route-reflector`.
    Reflector,
    /// BIRD 2.
    Bird,
    /// GoBGP.
    Gobgp,
    /// FRR's bgpd, without zebra.
    Frr,
    /// OpenBGPD.
    Openbgpd,
}

impl Kind {
    /// Whether the program is installed; says so in one line if not.
    pub fn is_installed(self) -> bool {
        match self {
            Self::Client | Self::Reflector => true,
            Self::Bird => bird::installed(),
            Self::Gobgp => gobgp::installed(),
            Self::Frr => frr::installed(),
            Self::Openbgpd => openbgpd::installed(),
        }
    }
}
