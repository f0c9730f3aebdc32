//! The settings of peers for the validation of the origin of their paths.

/// The consequence for a path whose origin is not confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OriginMode {
    /// None: paths are not compared with the records.
    #[default]
    Off,
    /// It is reported.
    Warn,
    /// It is not used, and reported.
    Enforce,
}

impl OriginMode {
    /// All of them, in the order of their consequences.
    pub const ALL: [Self; 3] = [Self::Off, Self::Warn, Self::Enforce];

    /// Returns the name in configuration files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Enforce => "enforce",
        }
    }

    /// Returns the mode with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The settings of a peer for the validation of the origin of its paths ([`OriginCheck`](crate::OriginCheck)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginRules {
    /// The mode for its paths; `None` for that of the check.
    pub mode: Option<OriginMode>,
    /// Whether it passes on paths of other origins, as the switch of a rack.
    pub is_transit: bool,
}
