//! Kernel settings of workload interfaces. They are made when an interface is up, checked at
//! intervals, and made again when its index changes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use daemon_common::events::{Event, Text, emit};
use fib_sync::{Instant, Link};
use tracing::debug;
use tracing::field::display;

use super::host::{Failed, HostCommand, Orders};
use super::links::{Links, is_up};
use super::retry::Retry;
use crate::calc::{Endpoint, EndpointId};

/// The interfaces that are set up, or in progress, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Interfaces {
    setups: BTreeMap<String, Setup>,
}

/// The settings made on an interface.
#[derive(Clone, Debug)]
struct Setup {
    /// The link's index.
    index: u32,
    /// Settings and addresses.
    configured: Retry,
    /// Whether it was set up for IPv6.
    ipv6: bool,
    /// Whether it was set up for sources that are not routed to it.
    spoofs: bool,
    /// Time of the last check of the settings.
    checked: Instant,
}

impl Interfaces {
    /// Returns the names of all these interfaces.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.setups.keys()
    }

    /// Returns the progress of an interface, if any command was issued for it.
    pub(super) fn configured(&self, name: &str) -> Option<&Retry> {
        self.setups.get(name).map(|setup| &setup.configured)
    }

    /// Issues the commands that are due for an endpoint's interface, and checks the settings in each
    /// time of `refresh`. Returns its index once it is configured.
    pub(super) fn configure(
        &mut self,
        now: Instant,
        endpoint: &Endpoint,
        refresh: Option<Duration>,
        links: &Links,
        orders: &mut Orders,
    ) -> Option<u32> {
        let name = &endpoint.interface;
        let link = links.named(name).filter(|link| is_up(link))?;
        let ipv6 = endpoint.addresses.iter().any(IpAddr::is_ipv6);
        let spoofs = endpoint.spoofed.iter().any(|net| net.addr().is_ipv4());
        let setup = self.setups.entry(name.clone()).or_insert_with(|| Setup {
            index: link.index,
            configured: Retry::default(),
            ipv6,
            spoofs,
            checked: now,
        });
        if spoofs != setup.spoofs {
            setup.configured.doubt();
            setup.spoofs = spoofs;
        }
        if ipv6 && !setup.ipv6 {
            // The pending command lacks the address of the IPv6 gateway; a failed one is repeated
            // with it.
            if setup.configured.timeout().is_none() {
                setup.configured = Retry::default();
            }
            (setup.ipv6, setup.checked) = (true, now);
        }
        if refresh.is_some_and(|refresh| setup.checked + refresh <= now) {
            setup.configured.again();
            (setup.ipv6, setup.checked) = (ipv6, now);
        }
        if setup.configured.is_due(now) {
            let link = link.clone();
            setup
                .configured
                .order(orders.push(HostCommand::ConfigureInterface { link, ipv6, spoofs }));
        }
        setup.configured.is_done().then_some(setup.index)
    }

    /// Handles the host's answer to a command; answers to earlier commands are ignored. `endpoint`
    /// is only for the log.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        command: u64,
        link: &Link,
        endpoint: Option<&EndpointId>,
        outcome: Result<(), Failed>,
    ) {
        let name = &link.name;
        let setup = self.setups.get_mut(name);
        let Some(setup) = setup.filter(|setup| setup.configured.awaits(command)) else {
            return;
        };
        let was_done = setup.configured.is_done();
        if let Some(reason) = setup.configured.note(now, outcome) {
            emit(Event::InterfaceFailed {
                interface: Text::new(name),
                reason: Text::new(reason),
            });
        } else if setup.configured.is_done() && !was_done {
            let endpoint = endpoint.map(display);
            debug!(interface = name, endpoint, "configured");
        }
    }

    /// Returns when an interface is retried or checked again.
    pub(super) fn timeout(&self, name: &str, refresh: Option<Duration>) -> Option<Instant> {
        let setup = self.setups.get(name)?;
        let check = refresh.map(|refresh| setup.checked + refresh);
        setup.configured.timeout().or(check)
    }

    /// Forgets the settings of an interface unless it has this index.
    pub(super) fn keep_only(&mut self, name: &str, index: Option<u32>) {
        if self
            .setups
            .get(name)
            .is_some_and(|setup| Some(setup.index) != index)
        {
            self.setups.remove(name);
        }
    }

    /// Forgets the settings of an interface if it had this index.
    pub(super) fn forget(&mut self, name: &str, index: u32) {
        if self
            .setups
            .get(name)
            .is_some_and(|setup| setup.index == index)
        {
            self.setups.remove(name);
        }
    }

    /// Schedules a check of the settings of all interfaces.
    pub(super) fn doubt(&mut self) {
        for setup in self.setups.values_mut() {
            setup.configured.doubt();
        }
    }
}
