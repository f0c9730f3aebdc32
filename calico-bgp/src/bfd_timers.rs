//! The timers of BFD by interface.

/// The timers of BFD on matching interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BfdTimers {
    /// The name of an interface, or the beginning of names before a final `*`.
    pub pattern: String,
    /// The interval of sent packets, in milliseconds.
    pub send_ms: u32,
    /// The shortest interval of received packets, in milliseconds.
    pub receive_ms: u32,
    /// The interval of sent packets while a session is not up, in milliseconds.
    pub idle_ms: u32,
    /// How many packets may be missing.
    pub multiplier: u8,
}

impl BfdTimers {
    /// Returns the first timers that match the interface of a session. A path over routers, and one that
    /// is not found yet, has no interface: only `*` matches it.
    #[must_use]
    pub fn of<'t>(all: &'t [Self], interface: Option<&str>) -> Option<&'t Self> {
        all.iter().find(|timers| timers.matches(interface))
    }

    fn matches(&self, interface: Option<&str>) -> bool {
        match (self.pattern.strip_suffix('*'), interface) {
            (Some(""), _) => true,
            (Some(start), Some(name)) => name.starts_with(start),
            (None, Some(name)) => self.pattern == name,
            (_, None) => false,
        }
    }

    /// Returns whether these timers match all interfaces that `other` matches.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(start) => other.pattern.starts_with(start),
            None => self.pattern == other.pattern,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timers(pattern: &str) -> BfdTimers {
        BfdTimers {
            pattern: pattern.to_owned(),
            send_ms: 100,
            receive_ms: 10,
            idle_ms: 60_000,
            multiplier: 5,
        }
    }

    #[test]
    fn first_matching_timers_are_those_of_an_interface() {
        let all = ["eth0", "eth*", "bond0.7", "*"].map(timers);
        let of = |interface| BfdTimers::of(&all, interface).map(|found| &*found.pattern);
        assert_eq!(of(Some("eth0")), Some("eth0"));
        assert_eq!(of(Some("eth00")), Some("eth*"));
        assert_eq!(of(Some("bond0")), Some("*"));
        assert_eq!(of(None), Some("*"));
        assert_eq!(BfdTimers::of(&all[..3], None), None);
        assert_eq!(BfdTimers::of(&all[..3], Some("lo")), None);
    }

    #[test]
    fn pattern_covers_longer_patterns_with_its_start() {
        for (one, other, covers) in [
            ("*", "eth0", true),
            ("*", "*", true),
            ("eth*", "eth1*", true),
            ("eth*", "eth*", true),
            ("eth1*", "eth*", false),
            ("eth0", "eth0", true),
            ("eth0", "eth0*", false),
        ] {
            assert_eq!(timers(one).covers(&timers(other)), covers, "{one} {other}");
        }
    }
}
