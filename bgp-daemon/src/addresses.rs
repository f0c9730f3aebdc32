//! The addresses of the machine's interfaces, for the speaker's checks of next hops.

use std::net::IpAddr;

use bgp_io::bgp_fsm::Instant;
use bgp_io::bgp_speaker::{self, InterfaceAddress};
use bgp_io::{Event, Speaker};
use daemon_common::events::{self, Text, emit};
use nix::ifaddrs::{InterfaceAddress as Found, getifaddrs};
use nix::sys::socket::SockaddrStorage;

use crate::limits::{ADDRESSES_DELAY, ADDRESSES_INTERVAL};
use crate::{Driver, DriverError, Round, Settings};

/// Reads the interface addresses at intervals. The kernel reports them to every program, without a
/// privilege.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// When to read the addresses again.
    due: Option<Instant>,
    /// Whether the last reading failed, which is logged once.
    failed: bool,
}

impl Addresses {
    /// Schedules a reading soon: a session has come up, perhaps over a new address. Many sessions
    /// that come up together cause one reading.
    fn hasten(&mut self, now: Instant) {
        let soon = now + ADDRESSES_DELAY;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// Returns the addresses if a reading is due. `None` also if the kernel does not report them:
    /// the previous addresses then remain valid.
    fn read(&mut self, now: Instant) -> Option<Vec<InterfaceAddress>> {
        if self.due.is_some_and(|due| now < due) {
            return None;
        }
        self.due = Some(now + ADDRESSES_INTERVAL);
        match getifaddrs() {
            Ok(found) => {
                self.failed = false;
                Some(found.filter_map(address).collect())
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failed, true) {
                    let reason = Text::new(error);
                    emit(events::Event::KernelAddressesFailed { reason });
                }
                None
            }
        }
    }
}

impl<S: Settings> Driver<S> for Addresses {
    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        if let Some(addresses) = self.read(round.now) {
            round.io.speaker_mut().set_addresses(addresses);
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    fn observe(&mut self, now: Instant, _: &Speaker, event: &Event) {
        if matches!(event, Event::Speaker(bgp_speaker::Event::Up { .. })) {
            self.hasten(now);
        }
    }
}

/// The address and its subnet; `None` for an interface without one.
fn address(found: Found) -> Option<InterfaceAddress> {
    let address = ip(found.address?)?;
    let prefix_len = match ip(found.netmask?)? {
        IpAddr::V4(mask) => u32::from(mask).leading_ones(),
        IpAddr::V6(mask) => u128::from(mask).leading_ones(),
    };
    Some(InterfaceAddress::new(
        found.interface_name,
        address,
        u8::try_from(prefix_len).ok()?,
    ))
}

fn ip(address: SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_address_is_read_with_its_subnet() {
        let mut addresses = Addresses::default();
        let now = Instant::from_secs(1);
        let found = addresses.read(now).expect("due at first");
        let loopback = InterfaceAddress::new("lo".to_owned(), IpAddr::from([127, 0, 0, 1]), 8);
        assert!(found.contains(&loopback), "{found:?}");
        assert_eq!(addresses.read(now), None, "not due again");
        addresses.hasten(now);
        assert!(addresses.read(now + ADDRESSES_DELAY).is_some());
    }
}
