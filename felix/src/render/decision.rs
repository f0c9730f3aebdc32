//! The actions of rules that allow and deny, and their reports.

/// The action for packets that a policy allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Allowance {
    /// They are accepted.
    #[default]
    Accept,
    /// They are accepted, and host endpoints evaluate no other policy for them (`preDNAT`).
    Mark,
    /// The same, and connection tracking leaves them out (`doNotTrack`).
    Untrack,
}

/// The action for denied packets (`nftablesFilterDenyAction`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Denial {
    /// They are dropped.
    #[default]
    Drop,
    /// They are rejected.
    Reject,
}

/// The packet log to which the rules that decide report, while the flow log is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PacketLog {
    /// The group of the kernel's packet log (NFLOG).
    pub group: u16,
    /// Records in a second of the packets of one input interface; 0: any number.
    pub records_per_second: u32,
}

/// A report of a packet to the kernel's packet log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The group of the packet log.
    pub group: u16,
    /// The prefix: it names the decision.
    pub prefix: String,
}
