//! Times of day.

use std::time::Duration;

use jiff::Timestamp;

/// A time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub(crate) Timestamp);

impl Time {
    /// Returns the current time.
    pub fn now() -> Self {
        Self(Timestamp::now())
    }

    /// Returns the time this long after the beginning of 1970.
    pub fn after_epoch(time: Duration) -> Self {
        let time = Timestamp::UNIX_EPOCH.checked_add(time);
        Self(time.unwrap_or(Timestamp::MAX))
    }

    pub(crate) fn nanoseconds(self) -> u64 {
        u64::try_from(self.0.as_nanosecond()).unwrap_or_default()
    }

    pub(crate) fn text(self) -> String {
        calico_model::rfc3339_utc(u64::try_from(self.0.as_second()).unwrap_or_default())
    }

    /// Returns the seconds from this time to a later one.
    pub(crate) fn seconds_to(self, later: Self) -> u64 {
        u64::try_from(later.0.as_second() - self.0.as_second()).unwrap_or_default()
    }
}

impl Time {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.parse::<Timestamp>().ok().map(Self)
    }
}
