//! The programs that speak BGP in a lab.

use crate::{bird, frr, gobgp, openbgpd};

/// A BGP implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `cambric-bgp-client`: announces routes from its kernel and installs learned routes.
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
    /// Returns whether the program is installed; prints one line if not.
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
