//! Neighbors that an operator debugs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::field::Text;
use super::table::Event;
use crate::limits::{DEBUG_FOR_MAX, DEBUGGED_NEIGHBORS_MAX};

/// Neighbors with all events logged, each until its end time.
#[derive(Debug, Default)]
pub(super) struct Debugged(BTreeMap<IpAddr, Entry>);

#[derive(Debug)]
struct Entry {
    name: String,
    until: Instant,
}

impl Debugged {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Starts to debug a neighbor, or stops it if the time is zero. Returns the event that reports
    /// it.
    ///
    /// # Errors
    ///
    /// Too many neighbors are debugged already, or the time is too long.
    pub(super) fn set(
        &mut self,
        now: Instant,
        name: &str,
        address: IpAddr,
        time: Duration,
    ) -> Result<Event, String> {
        self.forget_past(now);
        let neighbor = Text::new(name);
        if time.is_zero() {
            self.0.remove(&address);
            return Ok(Event::DebugStopped { neighbor, address });
        }
        if time > DEBUG_FOR_MAX {
            let hours = DEBUG_FOR_MAX.as_secs() / 3600;
            return Err(format!("a neighbor can be debugged for at most {hours} h"));
        }
        if !self.0.contains_key(&address) && self.0.len() >= DEBUGGED_NEIGHBORS_MAX {
            let message = format!("{DEBUGGED_NEIGHBORS_MAX} neighbors are debugged already");
            return Err(message);
        }
        let entry = Entry {
            name: name.to_owned(),
            until: now + time,
        };
        self.0.insert(address, entry);
        Ok(Event::DebugStarted {
            neighbor,
            address,
            for_s: time.as_secs(),
        })
    }

    /// Whether a neighbor is debugged.
    pub(super) fn has(&self, now: Instant, address: IpAddr) -> bool {
        self.0.get(&address).is_some_and(|entry| entry.until > now)
    }

    /// The addresses of the neighbors.
    pub(super) fn addresses(&mut self, now: Instant) -> BTreeSet<IpAddr> {
        self.forget_past(now);
        self.0.keys().copied().collect()
    }

    /// Whether any neighbor is debugged.
    pub(super) fn is_any(&self, now: Instant) -> bool {
        self.0.values().any(|entry| entry.until > now)
    }

    /// The names of the neighbors, and for how long each is still debugged.
    pub(super) fn list(&mut self, now: Instant) -> Vec<(String, Duration)> {
        self.forget_past(now);
        let entries = self.0.values();
        entries
            .map(|entry| (entry.name.clone(), entry.until - now))
            .collect()
    }

    fn forget_past(&mut self, now: Instant) {
        self.0.retain(|_, entry| entry.until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn debugging_of_a_neighbor_ends_with_its_time() {
        let now = Instant::now();
        let mut debugged = Debugged::new();
        let minute = Duration::from_secs(60);
        debugged.set(now, "rr1", address(1), minute).expect("set");
        assert!(debugged.has(now, address(1)) && !debugged.has(now, address(2)));
        assert_eq!(debugged.list(now), [("rr1".to_owned(), minute)]);
        let later = now + minute;
        assert!(!debugged.has(later, address(1)) && !debugged.is_any(later));
        assert!(debugged.list(later).is_empty());
    }

    #[test]
    fn debugged_neighbors_are_bounded() {
        let now = Instant::now();
        let mut debugged = Debugged::new();
        let mut set = |at: usize, seconds| {
            let last = u8::try_from(at).expect("few");
            debugged.set(now, "n", address(last), Duration::from_secs(seconds))
        };
        for at in 0..DEBUGGED_NEIGHBORS_MAX {
            set(at, 9).expect("room");
        }
        set(DEBUGGED_NEIGHBORS_MAX, 9).expect_err("no room");
        set(0, 10).expect("it is debugged already");
        set(0, 0).expect("ended");
        set(DEBUGGED_NEIGHBORS_MAX, 9).expect("room again");
        set(0, DEBUG_FOR_MAX.as_secs() + 1).expect_err("too long");
    }
}
