//! The programs of address translation.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::fabric::Fabric;
use crate::packet::{Family, Field, protocol};
use crate::ranges::{Ranges, number};
use crate::space::{Act, ConditionId, ProgramId, Space, Step, translation};

/// Address and port of the metadata service that workloads use.
const METADATA: (Ipv4Addr, u128) = (Ipv4Addr::new(169, 254, 169, 254), 80);

/// A base chain of Felix that translates addresses of the first packet of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Translation {
    /// The destination of packets that arrive.
    Destination,
    /// The destination of packets of the host.
    OwnDestination,
    /// The source of packets that leave.
    Source,
}

impl Translation {
    /// All chains.
    pub const ALL: [Self; 3] = [Self::Destination, Self::OwnDestination, Self::Source];

    /// Returns the chain, the kernel's hook and the priority.
    pub const fn chain(self) -> (&'static str, &'static str, i64) {
        match self {
            Self::Destination => ("translate", "prerouting", -100),
            Self::OwnDestination => ("translate-own", "output", -100),
            Self::Source => ("translate-source", "postrouting", 100),
        }
    }

    /// Returns whether its packets are known by the interface on which they arrive.
    pub const fn is_inbound(self) -> bool {
        matches!(self, Self::Destination)
    }
}

impl Fabric {
    /// Returns the program of a chain for an interface.
    pub fn translation(
        &self,
        space: &mut Space,
        interface: &str,
        chain: Translation,
        family: Family,
    ) -> ProgramId {
        let mut builder = Builder {
            fabric: self,
            space,
            family,
            steps: Vec::new(),
        };
        match chain {
            Translation::Destination => {
                builder.metadata(interface);
                builder.floating();
            }
            Translation::OwnDestination => builder.floating(),
            Translation::Source => {
                builder.own_connections();
                builder.outgoing(interface);
            }
        }
        let place = builder.space.place("no translation".to_owned());
        builder.steps.push(Step {
            conditions: Vec::new(),
            act: Act::Accept,
            place,
        });
        let steps = builder.steps;
        space.program(steps)
    }
}

struct Builder<'b> {
    fabric: &'b Fabric,
    space: &'b mut Space,
    family: Family,
    steps: Vec<Step>,
}

impl Builder<'_> {
    fn add(&mut self, conditions: Vec<ConditionId>, act: String, text: &str) {
        let act = Act::Translated(self.space.place(act));
        let place = self.space.place(text.to_owned());
        self.steps.push(Step {
            conditions,
            act,
            place,
        });
    }

    fn metadata(&mut self, interface: &str) {
        let mut endpoints = self.fabric.endpoints.iter();
        let is_openstack = endpoints.any(|one| one.interface == interface && one.is_openstack);
        let metadata = self.fabric.settings.metadata;
        if let (Some((address, port)), true, Family::V4) = (metadata, is_openstack, self.family) {
            let conditions = vec![
                self.space.is(Field::Destination, number(METADATA.0.into())),
                self.space.is(Field::Protocol, protocol::TCP),
                self.space.is(Field::DestinationPort, METADATA.1),
            ];
            let port = u64::from(port);
            let act = translation(true, Some(address.into()), Some((port, port)));
            self.add(conditions, act, "metadata");
        }
    }

    /// Returns floating addresses of the family, each with the address of the endpoint.
    fn addresses(&self) -> Vec<(IpAddr, IpAddr)> {
        let all = self
            .fabric
            .endpoints
            .iter()
            .flat_map(|endpoint| &endpoint.floating);
        let is_own = |pair: &&(IpAddr, IpAddr)| pair.0.is_ipv4() == (self.family == Family::V4);
        all.filter(is_own).copied().collect()
    }

    fn floating(&mut self) {
        for (outside, inside) in self.addresses() {
            let conditions = vec![self.space.is(Field::Destination, number(outside))];
            self.add(conditions, translation(true, Some(inside), None), "ipNATs");
        }
    }

    /// Adds the source of a workload that connects to its own floating address: the least one.
    fn own_connections(&mut self) {
        let mut own: BTreeMap<IpAddr, IpAddr> = BTreeMap::new();
        for (outside, inside) in self.addresses() {
            let first = own.entry(inside).or_insert(outside);
            *first = outside.min(*first);
        }
        for (inside, outside) in own {
            let conditions = vec![
                self.space.is(Field::Source, number(inside)),
                self.space.is(Field::Destination, number(inside)),
            ];
            let act = translation(false, Some(outside), None);
            self.add(conditions, act, "ipNATs: to itself");
        }
    }

    fn outgoing(&mut self, interface: &str) {
        let settings = &self.fabric.settings;
        let is_interface = |wanted: &String| match wanted.strip_suffix('*') {
            Some(prefix) => interface.starts_with(prefix),
            None => interface == wanted,
        };
        if !settings.nat_interface.as_ref().is_none_or(is_interface) {
            return;
        }
        let pools = &self.fabric.pools;
        let mut conditions = vec![
            self.space
                .is_in(Field::Source, pools.outgoing(self.family), true),
            self.space
                .is_in(Field::Destination, pools.all(self.family), false),
        ];
        if settings.nat_spares_nodes {
            let nodes = self.fabric.tunnels.nodes(self.family);
            conditions.push(self.space.is_in(Field::Destination, nodes, false));
        }
        let address = settings.nat_address.filter(|_| self.family == Family::V4);
        let address = address.map(IpAddr::from);
        if let Some((first, last)) = settings.nat_ports {
            let numbers = [protocol::TCP, protocol::UDP].map(|number| (number, number));
            let mut conditions = conditions.clone();
            conditions.push(self.space.is_in(Field::Protocol, Ranges::of(numbers), true));
            let act = translation(false, address, Some((first.into(), last.into())));
            self.add(conditions, act, "natOutgoing");
        }
        self.add(conditions, translation(false, address, None), "natOutgoing");
    }
}
