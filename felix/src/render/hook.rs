//! The hooks of base chains, with their priorities.

/// The hook of a base chain. The policy of every base chain is `accept`: traffic of other
/// interfaces is not filtered. A packet that one base chain accepts continues with the next at the
/// same hook; so the egress of the sender, the ingress of the receiver, and the input of the host
/// are evaluated one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    /// ARP that the host receives, in the table of the family `arp`.
    Arp,
    /// Before fragments are reassembled.
    Fragments,
    /// Before routing and before connection tracking.
    Prerouting,
    /// The same, after the check of the source address: packets that no workload may send.
    Guard,
    /// The same for packets to the host itself, after their destination was translated.
    GuardInput,
    /// The same for packets through the host.
    GuardForward,
    /// Before routing: where the destination of a new connection is translated.
    TranslateDestination,
    /// The same for connections of the host itself.
    TranslateOwnDestination,
    /// After routing: where the source of a new connection is translated.
    TranslateSource,
    /// Packets to the host itself: egress of the workload.
    Input,
    /// Packets to the host itself: input of the host.
    InputToHost,
    /// Packets through the host, before all filters: where their DSCP is set.
    MarkForward,
    /// Packets through the host: egress of the workload.
    Forward,
    /// Packets through the host: ingress of the workload.
    ForwardTo,
    /// Packets through the host that both directions accept.
    ForwardLast,
    /// Packets from the host itself.
    Output,
    /// Packets through the host that policies allow: the budgets of the workload.
    BudgetForward,
    /// The same for packets to the host itself.
    BudgetInput,
    /// Packets to the host itself: policies of host endpoints.
    HostInput,
    /// Packets of the host itself: policies of host endpoints.
    HostOutput,
    /// Packets through the host: policies of the host endpoint where they arrive.
    HostForward,
    /// Packets through the host: policies of the host endpoint where they leave.
    HostForwardTo,
    /// Before address translation: policies of host endpoints with `preDNAT`.
    HostUntranslated,
    /// Before connection tracking: policies of host endpoints with `doNotTrack`.
    HostUntracked,
    /// The same for packets of the host itself.
    HostUntrackedOutput,
    /// Packets through the host: those of cut connections.
    CutForward,
    /// The same for packets to the host itself.
    CutInput,
    /// The same for packets from the host itself.
    CutOutput,
}

impl Hook {
    /// Returns the hook's priority among all chains at the hook.
    pub const fn priority(self) -> i32 {
        match self {
            // Before NF_IP_PRI_CONNTRACK_DEFRAG, -400.
            Self::Fragments => -450,
            Self::Prerouting | Self::HostUntracked | Self::HostUntrackedOutput => -300,
            Self::Guard => -299,
            Self::MarkForward | Self::HostUntranslated => -150,
            Self::TranslateDestination | Self::TranslateOwnDestination => -100,
            Self::TranslateSource => 100,
            Self::CutForward | Self::CutInput | Self::CutOutput => -2,
            Self::GuardInput | Self::GuardForward => -1,
            Self::Arp | Self::Input | Self::Forward | Self::Output => 0,
            Self::HostInput | Self::HostForward | Self::HostOutput => 0,
            Self::InputToHost | Self::ForwardTo | Self::HostForwardTo => 1,
            Self::BudgetForward | Self::BudgetInput | Self::ForwardLast => 2,
        }
    }

    /// Returns whether addresses are translated there.
    pub const fn translates(self) -> bool {
        matches!(
            self,
            Self::TranslateDestination | Self::TranslateOwnDestination | Self::TranslateSource
        )
    }
}
