//! The programs of the hooks: policies, and the services of the host that no policy decides about.

use std::net::IpAddr;

use super::endpoints::Endpoint;
use super::fabric::Fabric;
use super::hosts::{self, HostHook};
use super::passage::{Cache, passage};
use super::policies::Direction;
use super::values::DISCOVERY;
use crate::packet::{Family, Field, protocol, state};
use crate::ranges::{Ranges, number};
use crate::space::{Act, ConditionId, ProgramId, Space, Step};

const ROUTER_ADVERTISEMENT: u128 = 134;
const LINK_LOCAL: (u128, u128) = (0xfe80 << 112, (0xfec0 << 112) - 1);
const LINK_MULTICAST: (u128, u128) = (0xff02 << 112, (0xff03 << 112) - 1);

/// A base chain of Felix that policies or the addresses of an endpoint decide about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// The check of the source address of packets from a workload.
    Source,
    /// Packets from a workload to other hosts and workloads.
    Forward,
    /// Packets to a workload from other hosts and workloads.
    ForwardTo,
    /// Packets from a workload to the host: services of the host, then policies.
    Input,
    /// The same packets: the action for traffic to the host.
    InputToHost,
    /// Packets of the host to a workload.
    Output,
}

impl Hook {
    /// All hooks.
    pub const ALL: [Self; 6] = [
        Self::Source,
        Self::Forward,
        Self::Input,
        Self::InputToHost,
        Self::ForwardTo,
        Self::Output,
    ];

    /// Returns the chain, the kernel's hook and the priority.
    pub const fn chain(self) -> (&'static str, &'static str, i64) {
        match self {
            Self::Source => ("prerouting", "prerouting", -300),
            Self::Forward => ("forward", "forward", 0),
            Self::ForwardTo => ("forward-to", "forward", 1),
            Self::Input => ("input", "input", 0),
            Self::InputToHost => ("input-to-host", "input", 1),
            Self::Output => ("output", "output", 0),
        }
    }

    /// Returns whether its packets come from the workload.
    pub const fn is_from_workload(self) -> bool {
        !matches!(self, Self::ForwardTo | Self::Output)
    }
}

/// The programs of the datastore. They are kept, so the space must not forget them.
#[derive(Debug)]
pub struct Spec<'f> {
    fabric: &'f Fabric,
    cache: Cache,
}

impl<'f> Spec<'f> {
    /// Creates the programs of a fabric; they are made when they are needed.
    pub fn new(fabric: &'f Fabric) -> Self {
        Self {
            fabric,
            cache: Cache::default(),
        }
    }

    /// Returns the program of a hook for an endpoint.
    pub fn program(
        &mut self,
        space: &mut Space,
        endpoint: &Endpoint,
        hook: Hook,
        family: Family,
    ) -> ProgramId {
        let mut steps = Vec::new();
        let mut builder = Builder {
            space,
            family,
            steps: &mut steps,
        };
        match hook {
            Hook::Source => builder.sources(endpoint, self.fabric),
            Hook::Forward | Hook::ForwardTo => {}
            Hook::Input => {
                builder.discovery();
                builder.services_of_host(endpoint, self.fabric);
                if !self.fabric.settings.police_host {
                    builder.replies_to_host();
                }
            }
            Hook::InputToHost => {
                builder.discovery();
                builder.services_of_host(endpoint, self.fabric);
                builder.host_action(self.fabric.settings.to_host);
            }
            Hook::Output => {
                builder.discovery();
                builder.answers_of_host(endpoint);
                if !self.fabric.settings.police_host {
                    builder.own_packets();
                }
            }
        }
        let direction = match hook {
            Hook::Source | Hook::InputToHost => None,
            Hook::Forward | Hook::Input => Some(Direction::Egress),
            Hook::ForwardTo | Hook::Output => Some(Direction::Ingress),
        };
        if let Some(direction) = direction {
            let one = (endpoint, direction);
            let program = passage(self.fabric, &mut self.cache, space, one, family);
            let place = space.place("policies".to_owned());
            steps.push(Step {
                conditions: Vec::new(),
                act: Act::Call(program),
                place,
            });
        }
        space.program(steps)
    }
}

impl Spec<'_> {
    /// Returns the program of a hook of host endpoints for an interface.
    pub fn host_program(
        &mut self,
        space: &mut Space,
        interface: &str,
        hook: HostHook,
        family: Family,
    ) -> ProgramId {
        let builder = hosts::Builder {
            fabric: self.fabric,
            cache: &mut self.cache,
            space,
            family,
            steps: Vec::new(),
        };
        builder.program(hook, interface)
    }
}

struct Builder<'b> {
    space: &'b mut Space,
    family: Family,
    steps: &'b mut Vec<Step>,
}

impl Builder<'_> {
    fn add(&mut self, conditions: Vec<ConditionId>, act: Act, text: &str) {
        let place = self.space.place(text.to_owned());
        self.steps.push(Step {
            conditions,
            act,
            place,
        });
    }

    fn is_discovery(&mut self) -> Vec<ConditionId> {
        let types = Ranges::of(DISCOVERY.map(|kind| (kind, kind)));
        vec![
            self.space.is(Field::Protocol, protocol::ICMPV6),
            self.space.is_in(Field::IcmpType, types, true),
        ]
    }

    fn discovery(&mut self) {
        if self.family == Family::V6 {
            let conditions = self.is_discovery();
            self.add(conditions, Act::Accept, "neighbor discovery");
        }
    }

    fn datagrams(&mut self, from: u128, to: u128) -> Vec<ConditionId> {
        vec![
            self.space.is(Field::Protocol, protocol::UDP),
            self.space.is(Field::SourcePort, from),
            self.space.is(Field::DestinationPort, to),
        ]
    }

    fn sources(&mut self, endpoint: &Endpoint, fabric: &Fabric) {
        let is_own = |address: &&IpAddr| address.is_ipv4() == (self.family == Family::V4);
        let own = endpoint
            .addresses
            .iter()
            .filter(is_own)
            .map(|address| number(*address));
        let own = Ranges::of(own.map(|number| (number, number)));
        let is_own = self.space.is_in(Field::Source, own, true);
        self.add(vec![is_own], Act::Accept, "addresses of the endpoint");
        let link_local = self
            .space
            .is_in(Field::Source, Ranges::of([LINK_LOCAL]), true);
        let unspecified = self.space.is(Field::Source, 0);
        if self.family == Family::V6 {
            let mut conditions = self.is_discovery();
            conditions.push(link_local);
            self.add(conditions, Act::Accept, "neighbor discovery");
            let mut conditions = self.is_discovery();
            let multicast = Ranges::of([LINK_MULTICAST]);
            conditions.push(self.space.is_in(Field::Destination, multicast, true));
            conditions.push(unspecified);
            self.add(conditions, Act::Accept, "neighbor discovery");
        }
        if endpoint.is_openstack {
            let (source, ports) = match self.family {
                Family::V4 => (unspecified, (68, 67)),
                Family::V6 => (link_local, (546, 547)),
            };
            let mut conditions = self.datagrams(ports.0, ports.1);
            conditions.push(source);
            self.add(conditions, Act::Accept, "DHCP");
        }
        if fabric.settings.spoofing {
            self.further_sources(endpoint);
        }
        self.add(Vec::new(), Act::Drop, "source is not the endpoint's");
    }

    fn further_sources(&mut self, endpoint: &Endpoint) {
        let loopback = match self.family {
            Family::V4 => (127 << 24, (128 << 24) - 1),
            Family::V6 => (1, 1),
        };
        let loopback = self
            .space
            .is_in(Field::Source, Ranges::of([loopback]), true);
        self.add(vec![loopback], Act::Drop, "loopback addresses");
        let own = endpoint
            .spoofed
            .iter()
            .filter(|(family, _)| *family == self.family);
        let own = Ranges::of(own.map(|(_, range)| *range));
        let further = self.space.is_in(Field::Source, own, true);
        self.add(vec![further], Act::Accept, "allowSpoofedSourcePrefixes");
    }

    /// Adds the services of the host for workloads of OpenStack.
    fn services_of_host(&mut self, endpoint: &Endpoint, fabric: &Fabric) {
        if !endpoint.is_openstack {
            return;
        }
        let (from, to) = match self.family {
            Family::V4 => (68, 67),
            Family::V6 => (546, 547),
        };
        let conditions = self.datagrams(from, to);
        self.add(conditions, Act::Accept, "DHCP");
        for number in [protocol::UDP, protocol::TCP] {
            let conditions = vec![
                self.space.is(Field::Protocol, number),
                self.space.is(Field::DestinationPort, 53),
            ];
            self.add(conditions, Act::Accept, "DNS");
        }
        if let (Some((address, port)), Family::V4) = (fabric.settings.metadata, self.family) {
            let conditions = vec![
                self.space.is(Field::Destination, u32::from(address).into()),
                self.space.is(Field::Protocol, protocol::TCP),
                self.space.is(Field::DestinationPort, port.into()),
            ];
            self.add(conditions, Act::Accept, "metadata");
        }
    }

    fn answers_of_host(&mut self, endpoint: &Endpoint) {
        if !endpoint.is_openstack {
            return;
        }
        let (from, to) = match self.family {
            Family::V4 => (67, 68),
            Family::V6 => (547, 546),
        };
        let conditions = self.datagrams(from, to);
        self.add(conditions, Act::Accept, "DHCP");
        if self.family == Family::V6 {
            let conditions = vec![
                self.space.is(Field::Protocol, protocol::ICMPV6),
                self.space.is(Field::IcmpType, ROUTER_ADVERTISEMENT),
            ];
            self.add(conditions, Act::Accept, "router advertisement");
        }
    }

    fn replies_to_host(&mut self) {
        let conditions = vec![
            self.space.is(Field::State, state::ESTABLISHED),
            self.space.is(Field::Direction, 1),
        ];
        self.add(conditions, Act::Accept, "replies to the host");
    }

    fn own_packets(&mut self) {
        let local = self.space.is(Field::SourceLocal, 1);
        self.add(vec![local], Act::Accept, "packets of the host itself");
    }

    fn host_action(&mut self, passes: bool) {
        let states = Ranges::of([(state::ESTABLISHED, state::RELATED)]);
        let answers = self.space.is_in(Field::State, states, true);
        self.add(
            vec![answers],
            Act::Accept,
            "packets of established connections",
        );
        let act = if passes { Act::Accept } else { Act::Drop };
        self.add(Vec::new(), act, "defaultEndpointToHostAction");
    }
}
