//! The guard: the control ports of the fabric that workloads must not reach.
//!
//! A port of the fabric is closed whatever policies allow, to all sources but the exceptions. Only
//! this is stated here: the guard may drop other packets too.

mod control;

use std::net::{IpAddr, SocketAddr};

use super::fabric::Fabric;
use super::host_guard::BFD;
use crate::packet::{Family, Field, protocol};
use crate::ranges::{Ranges, number};
use crate::space::{Act, ConditionId, ProgramId, Row, Space, Step};

use control::BGP;

pub use control::Control;

const LOOPBACK_V4: (u128, u128) = (127 << 24, (128 << 24) - 1);
const LOOPBACK_V6: (u128, u128) = (1, 1);
const LINK_LOCAL: (u128, u128) = (0xfe80 << 112, (0xfec0 << 112) - 1);

/// A base chain of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Guard {
    /// Packets of workloads, before address translation.
    Untranslated,
    /// Packets of workloads through the host.
    Forward,
    /// Packets of workloads to the host.
    Input,
}

impl Guard {
    /// All chains.
    pub const ALL: [Self; 3] = [Self::Untranslated, Self::Forward, Self::Input];

    /// Returns the chain, the kernel's hook and the priority.
    pub const fn chain(self) -> (&'static str, &'static str, i64) {
        match self {
            Self::Untranslated => ("guard", "prerouting", -299),
            Self::Forward => ("guard-forward", "forward", -1),
            Self::Input => ("guard-input", "input", -1),
        }
    }
}

/// Returns whether each host has an address, so that only the port of a service is known.
fn is_of_each_host(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified()
}

impl Fabric {
    /// Returns the program of a chain of the guard for packets of a workload.
    pub fn guard(&self, space: &mut Space, chain: Guard, family: Family) -> ProgramId {
        let builder = Builder {
            fabric: self,
            space,
            family,
            steps: Vec::new(),
        };
        builder.program(chain)
    }
}

struct Builder<'b> {
    fabric: &'b Fabric,
    space: &'b mut Space,
    family: Family,
    steps: Vec<Step>,
}

impl Builder<'_> {
    fn program(mut self, chain: Guard) -> ProgramId {
        if chain != Guard::Forward {
            self.loopback(chain);
        }
        // Only the gateway's is open, which depends on the addresses of the interface.
        if (chain, self.family) == (Guard::Untranslated, Family::V6) {
            let link_local = self.is_in(Field::Destination, [LINK_LOCAL]);
            self.add(vec![link_local], Act::Either, "link-local destination");
        }
        let exceptions = self.fabric.control.exceptions.iter();
        let exceptions = exceptions.filter_map(|(first, last)| {
            Some((self.of_family(*first)?.0, self.of_family(*last)?.1))
        });
        let exceptions: Vec<(u128, u128)> = exceptions.collect();
        let is_exception = self.is_in(Field::Source, exceptions);
        let closed = match chain {
            Guard::Input => self.of_host(),
            Guard::Untranslated | Guard::Forward => self.of_others(),
        };
        for conditions in closed {
            let mut open = conditions.clone();
            open.push(is_exception);
            self.add(open, Act::Accept, "exception of control ports");
            self.add(conditions, Act::Drop, "control port of the fabric");
        }
        self.add(Vec::new(), Act::Either, "no control port");
        self.space.program(self.steps)
    }

    fn add(&mut self, conditions: Vec<ConditionId>, act: Act, text: &str) {
        let place = self.space.place(text.to_owned());
        self.steps.push(Step {
            conditions,
            act,
            place,
        });
    }

    fn is_in(
        &mut self,
        field: Field,
        ranges: impl IntoIterator<Item = (u128, u128)>,
    ) -> ConditionId {
        self.space.is_in(field, Ranges::of(ranges), true)
    }

    /// Returns the range of an address, if it is of the IP version.
    fn of_family(&self, address: IpAddr) -> Option<(u128, u128)> {
        let is_own = address.is_ipv4() == (self.family == Family::V4);
        is_own.then(|| (number(address), number(address)))
    }

    /// Adds the loopback addresses of the host. Only OpenStack's metadata service is reachable there, after
    /// its translation.
    fn loopback(&mut self, chain: Guard) {
        if let (Guard::Input, Some((address, port))) = (chain, self.fabric.settings.metadata)
            && let Some(range) = self.of_family(address.into())
        {
            let conditions = vec![
                self.is_in(Field::Destination, [range]),
                self.space.is(Field::Protocol, protocol::TCP),
                self.space.is(Field::DestinationPort, port.into()),
            ];
            self.add(conditions, Act::Either, "metadata");
        }
        let loopback = match self.family {
            Family::V4 => LOOPBACK_V4,
            Family::V6 => LOOPBACK_V6,
        };
        let loopback = self.is_in(Field::Destination, [loopback]);
        self.add(vec![loopback], Act::Drop, "loopback address of the host");
    }

    fn ports(&mut self, number: u128, ports: &[u16]) -> Vec<ConditionId> {
        let ports = ports
            .iter()
            .map(|port| (u128::from(*port), u128::from(*port)));
        vec![
            self.space.is(Field::Protocol, number),
            self.is_in(Field::DestinationPort, ports),
        ]
    }

    /// Returns the ports that are closed at nodes and outside the pools, by protocol.
    fn closed(&self) -> [(u128, Vec<u16>); 2] {
        let mut tcp = vec![BGP];
        tcp.extend(&self.fabric.control.ports);
        [(protocol::TCP, tcp), (protocol::UDP, BFD.to_vec())]
    }

    /// Returns the ports of services at an address that all hosts have, or at one of a node.
    fn of_nodes(&self) -> Vec<u16> {
        let nodes = Family::ALL.map(|family| self.fabric.tunnels.nodes(family));
        let services = self.fabric.control.services.iter();
        let is_of_nodes = |service: &&SocketAddr| {
            let [v4, v6] = &nodes;
            let nodes = if service.is_ipv4() { v4 } else { v6 };
            let address = service.ip();
            is_of_each_host(address) || nodes.contains(number(address))
        };
        services.filter(is_of_nodes).map(SocketAddr::port).collect()
    }

    /// Returns the condition of packets to single services.
    fn services(&mut self) -> Vec<ConditionId> {
        let control = &self.fabric.control;
        let services = control.services.iter().chain(&control.peers);
        let rows: Vec<Row> = services
            .filter(|service| !is_of_each_host(service.ip()))
            .filter_map(|service| {
                let port = service.port().into();
                Some(vec![self.of_family(service.ip())?, (port, port)])
            })
            .collect();
        let fields = vec![Field::Destination, Field::DestinationPort];
        vec![
            self.space.is(Field::Protocol, protocol::TCP),
            self.space.has_row(fields, rows, true),
        ]
    }

    /// Returns the packets to closed ports of other hosts.
    fn of_others(&mut self) -> Vec<Vec<ConditionId>> {
        let mut all = vec![self.services()];
        let nodes = self.fabric.tunnels.nodes(self.family);
        let of_nodes = self.of_nodes();
        let mut conditions = self.ports(protocol::TCP, &of_nodes);
        conditions.push(self.space.is_in(Field::Destination, nodes.clone(), true));
        all.push(conditions);
        let pools = self.fabric.pools.all(self.family);
        for (number, ports) in self.closed() {
            for (ranges, is) in [(nodes.clone(), true), (pools.clone(), false)] {
                let mut conditions = self.ports(number, &ports);
                conditions.push(self.space.is_in(Field::Destination, ranges, is));
                all.push(conditions);
            }
        }
        all
    }

    /// Returns the packets to closed ports of the host itself.
    fn of_host(&mut self) -> Vec<Vec<ConditionId>> {
        let of_nodes = self.of_nodes();
        let mut all = vec![self.services(), self.ports(protocol::TCP, &of_nodes)];
        for (number, ports) in self.closed() {
            all.push(self.ports(number, &ports));
        }
        all
    }
}
