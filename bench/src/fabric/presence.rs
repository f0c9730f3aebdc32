//! The learned host routes of a node's kernel, by the host that announces them, with the times of changes.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use netns_lab::Host;
use nix::sys::socket::SockProtocol;

use super::notifications::host_routes;
use crate::bare::{Listener, RTMGRP_IPV4_ROUTE};

/// The first octet of the announced routes. The second one is the number of the host.
const FIRST_OCTET: u8 = 20;

/// The routes of one announcing host in a kernel.
#[derive(Clone, Debug, Default)]
struct Routes {
    present: BTreeSet<u16>,
    /// When the first route came after there was none, or the last one was deleted.
    turned: Turned,
}

/// The last changes between no routes and all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turned {
    /// When all routes were present last.
    pub full: Option<Instant>,
    /// When none was present last.
    pub empty: Option<Instant>,
}

/// A thread that follows the routes of one node's kernel.
#[derive(Debug)]
pub struct Presence {
    all: Arc<Mutex<Vec<Routes>>>,
    _listener: Listener,
}

impl Presence {
    /// Returns the route `number` of a host.
    #[must_use]
    pub fn route(host: u8, number: u16) -> Ipv4Addr {
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(FIRST_OCTET, host, high, low)
    }

    /// Starts to listen in a kernel without such routes. `count` is the number of routes of each host.
    pub fn listen(host: &Host, count: usize) -> Result<Self> {
        let all = Arc::new(Mutex::new(vec![
            Routes::default();
            usize::from(u8::MAX) + 1
        ]));
        let shared = Arc::clone(&all);
        let listener = host.run(|| {
            let on_message = move |octets: &[u8], at| {
                let mut all = shared.lock().unwrap_or_else(PoisonError::into_inner);
                for (is_new, address) in host_routes(octets) {
                    follow(&mut all, count, (is_new, address), at);
                }
            };
            Listener::start(SockProtocol::NetlinkRoute, RTMGRP_IPV4_ROUTE, on_message)
        })??;
        Ok(Self {
            all,
            _listener: listener,
        })
    }

    /// Returns when all routes of a host came, and when the last one was deleted, since an instant.
    #[must_use]
    pub fn since(&self, host: u8, since: Instant) -> Turned {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let turned = all.get(usize::from(host)).map(|routes| routes.turned);
        let Turned { full, empty } = turned.unwrap_or_default();
        let later = |at: &Instant| *at >= since;
        Turned {
            full: full.filter(later),
            empty: empty.filter(later),
        }
    }

    /// Returns the number of routes of a host.
    #[must_use]
    pub fn len(&self, host: u8) -> usize {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(usize::from(host))
            .map_or(0, |routes| routes.present.len())
    }
}

/// Notes one change.
fn follow(all: &mut [Routes], count: usize, (is_new, address): (bool, Ipv4Addr), at: Instant) {
    let [first, host, high, low] = address.octets();
    let Some(routes) = all
        .get_mut(usize::from(host))
        .filter(|_| first == FIRST_OCTET)
    else {
        return;
    };
    let number = u16::from_be_bytes([high, low]);
    let is_changed = match is_new {
        true => routes.present.insert(number),
        false => routes.present.remove(&number),
    };
    if is_changed && routes.present.is_empty() {
        routes.turned.empty = Some(at);
    }
    if is_changed && routes.present.len() == count {
        routes.turned.full = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_a_host_are_complete_then_removed() {
        let mut all = vec![Routes::default(); 3];
        let at = Instant::now();
        let mut change = |is_new, address| follow(&mut all, 2, (is_new, address), at);
        change(true, Presence::route(1, 0));
        change(true, Presence::route(1, 0));
        change(true, Presence::route(2, 1));
        change(true, Ipv4Addr::new(10, 1, 0, 1));
        change(true, Presence::route(1, 300));
        change(false, Presence::route(2, 1));
        let turned = |host: usize| (all[host].turned.full, all[host].turned.empty);
        assert_eq!(turned(1), (Some(at), None));
        assert_eq!(turned(2), (None, Some(at)));
    }
}
