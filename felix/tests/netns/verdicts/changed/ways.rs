//! All packets from one place to another at once: the base chains of a listing that they pass, in the order
//! of the kernel, as one program.
//!
//! The chains of the guard and of budgets are left out: `guarded.rs` changes those of the guard.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rule_audit::Listing;
use rule_audit::packet::{Family, Field, state};
use rule_audit::ranges::number;
use rule_audit::ruleset::{Compiler, Table, View};
use rule_audit::space::{Act, Outcome, Place, ProgramId, Space, Step};

use super::FELIX;
use crate::verdicts::wires::{ALL_WORKLOADS, Party};

/// A sender and a receiver of packets of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) sender: Party,
    pub(super) receiver: Party,
    pub(super) family: Family,
}

impl Way {
    /// Returns all ways, also those of workload interfaces without an endpoint.
    pub(super) fn all() -> Vec<Self> {
        let workloads = (1..=ALL_WORKLOADS).map(Party::Workload);
        let others = [Party::Far, Party::Side, Party::Host];
        let parties: Vec<Party> = workloads.chain(others).collect();
        let mut all = Vec::new();
        for family in Family::ALL {
            for sender in &parties {
                let receivers = parties.iter();
                let receivers = receivers.filter(|one| *one != sender || **one == Party::Host);
                all.extend(receivers.map(|receiver| Self {
                    sender: *sender,
                    receiver: *receiver,
                    family,
                }));
            }
        }
        all
    }
}

/// The place where a packet arrives, and its addresses there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) receiver: Party,
    /// The translated destination, and its port if that is translated, too.
    pub(super) to: Option<(IpAddr, Option<u16>)>,
    /// The range of ports of a translated source.
    pub(super) source: Option<(u16, u16)>,
}

impl Arrival {
    /// Returns whether another arrival has only a smaller range of ports, so that no packet shows the
    /// difference.
    pub(super) fn includes(&self, other: &Self) -> bool {
        let (Some((first, last)), Some((from, to))) = (self.source, other.source) else {
            return false;
        };
        let other = Self {
            source: self.source,
            ..*other
        };
        *self == other && first <= from && to <= last
    }

    const fn at(receiver: Party) -> Self {
        Self {
            receiver,
            to: None,
            source: None,
        }
    }
}

/// The programs of several listings.
pub(super) struct World<'w> {
    pub(super) space: Space,
    /// The places of floating addresses.
    routes: &'w BTreeMap<IpAddr, Party>,
    /// The arrivals of packets with a translated address.
    arrivals: BTreeMap<Place, Arrival>,
}

impl<'w> World<'w> {
    pub(super) fn new(routes: &'w BTreeMap<IpAddr, Party>) -> Self {
        Self {
            space: Space::new(),
            routes,
            arrivals: BTreeMap::new(),
        }
    }

    /// Returns the floating addresses of a place, or of all places.
    pub(super) fn floating(&self, of: Option<Party>) -> impl Iterator<Item = IpAddr> + use<'_> {
        let all = self.routes.iter();
        let own = all.filter(move |(_, place)| of.is_none_or(|of| of == **place));
        own.map(|(address, _)| *address)
    }

    /// Returns the arrival for an outcome; `None` if the packet is dropped.
    pub(super) fn arrival(&self, way: &Way, outcome: Outcome) -> Option<Arrival> {
        match outcome {
            Outcome::Accept => Some(Arrival::at(way.receiver)),
            Outcome::Translated(place) => Some(self.arrivals[&place]),
            Outcome::Drop => None,
            other => panic!("{way:?} has the outcome {other:?}"),
        }
    }

    fn place(&self, address: IpAddr) -> Party {
        let floating = self.routes.get(&address);
        floating.copied().unwrap_or_else(|| Party::of(address))
    }

    fn end(&mut self, arrival: Arrival) -> ProgramId {
        if arrival.to.is_none() && arrival.source.is_none() {
            return self.space.always(Act::Accept, Place::default());
        }
        let place = self.space.place(format!("{arrival:?}"));
        self.arrivals.insert(place, arrival);
        self.space.always(Act::Translated(place), Place::default())
    }

    /// Returns a program for new packets, and another one for all others.
    fn of_new(&mut self, new: ProgramId, others: ProgramId) -> ProgramId {
        let is_new = self.space.is(Field::State, state::NEW);
        let step = |conditions, program| Step {
            conditions,
            act: Act::Tail(program),
            place: Place::default(),
        };
        self.space
            .program([step(vec![is_new], new), step(Vec::new(), others)])
    }

    /// Returns the translated destination in a text of the listing's reader.
    fn destination(&self, text: Place) -> Option<(IpAddr, Option<u16>)> {
        let text = self.space.text(text);
        let to = text.strip_prefix("translate the destination to ")?;
        let mut words = to.split(' ');
        let address = words.next()?.parse().ok()?;
        let port = words.nth(1).and_then(|word| word.parse().ok());
        Some((address, port))
    }

    /// Returns the range of ports of a translated source.
    fn source_ports(&self, text: Place) -> (u16, u16) {
        let text = self.space.text(text);
        let range = text.split(" port ").nth(1).and_then(|ports| {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            Some((first.parse().ok()?, last.parse().ok()?))
        });
        range.unwrap_or((0, u16::MAX))
    }
}

/// The chains of a listing.
pub(super) struct Chains<'l> {
    table: &'l Table,
    compiler: Compiler,
}

/// Where packets come from, and where they leave, if rules may match it.
type Ends = (Option<Party>, Option<Party>);

impl<'l> Chains<'l> {
    pub(super) fn new(listing: &'l Listing) -> Self {
        let key = ("inet".to_owned(), FELIX.to_owned());
        Self {
            table: &listing.tables[&key],
            compiler: Compiler::default(),
        }
    }

    /// Returns the program of all packets on a way. Equal programs have equal ids.
    pub(super) fn way(&mut self, world: &mut World<'_>, way: &Way) -> ProgramId {
        let arrival = Arrival::at(way.receiver);
        match way.sender {
            Party::Host => self.sent(world, way, arrival),
            _ => self.received(world, way, arrival),
        }
    }

    /// Packets of the host itself.
    fn sent(&mut self, world: &mut World<'_>, way: &Way, arrival: Arrival) -> ProgramId {
        let ends = (None, Some(way.receiver));
        let chains = ["output", "host-output"];
        let next = self.leaving(world, way, arrival);
        let next = self.chains(world, way.family, &chains, ends, next);
        let next = self.translated(
            world,
            (way.family, "translate-own", ends),
            next,
            |own, world, arrival| {
                let next = own.leaving(world, way, arrival);
                // The kernel finds the new route behind these chains.
                own.chains(world, way.family, &chains, ends, next)
            },
        );
        self.chains(world, way.family, &["host-untracked-output"], ends, next)
    }

    fn leaving(&mut self, world: &mut World<'_>, way: &Way, arrival: Arrival) -> ProgramId {
        match arrival.receiver {
            Party::Host => self.received(world, way, arrival),
            _ => self.source(world, way.family, arrival),
        }
    }

    /// Packets that arrive at the host.
    fn received(&mut self, world: &mut World<'_>, way: &Way, arrival: Arrival) -> ProgramId {
        let ends = (Some(way.sender), None);
        let mut next = self.delivered(world, way, arrival);
        // The address of a packet of the host was translated before, or stays.
        if way.sender != Party::Host {
            next = self.translated(
                world,
                (way.family, "translate", ends),
                next,
                |own, world, arrival| own.delivered(world, way, arrival),
            );
        }
        let chains = ["prerouting", "host-untracked", "host-untranslated"];
        self.chains(world, way.family, &chains, ends, next)
    }

    fn delivered(&mut self, world: &mut World<'_>, way: &Way, arrival: Arrival) -> ProgramId {
        let input = Some(way.sender);
        if arrival.receiver == Party::Host {
            let end = world.end(arrival);
            let chains = ["input", "host-input", "input-to-host"];
            return self.chains(world, way.family, &chains, (input, None), end);
        }
        let ends = (input, Some(arrival.receiver));
        let next = self.source(world, way.family, arrival);
        let chains = ["forward", "host-forward", "forward-to", "host-forward-to"];
        self.chains(world, way.family, &chains, ends, next)
    }

    /// The translation of the source of packets that leave.
    fn source(&mut self, world: &mut World<'_>, family: Family, arrival: Arrival) -> ProgramId {
        let plain = world.end(arrival);
        let ends = (None, Some(arrival.receiver));
        let Some(program) = self.compiled(world, family, "translate-source", ends) else {
            return plain;
        };
        let mut acts = BTreeMap::from([(Act::Accept, Act::Tail(plain))]);
        for act in world.space.passing(program) {
            if let Act::Translated(text) = act {
                let source = Some(world.source_ports(text));
                let end = world.end(Arrival { source, ..arrival });
                acts.insert(act, Act::Tail(end));
            }
        }
        let made = world.space.continued(program, &acts);
        world.of_new(made, plain)
    }

    /// The translation of the destination, of new packets only.
    fn translated(
        &mut self,
        world: &mut World<'_>,
        (family, chain, ends): (Family, &'static str, Ends),
        plain: ProgramId,
        mut next: impl FnMut(&mut Self, &mut World<'_>, Arrival) -> ProgramId,
    ) -> ProgramId {
        let Some(program) = self.compiled(world, family, chain, ends) else {
            return plain;
        };
        let mut acts = BTreeMap::from([(Act::Accept, Act::Tail(plain))]);
        for act in world.space.passing(program) {
            let Act::Translated(text) = act else {
                continue;
            };
            let Some((to, port)) = world.destination(text) else {
                acts.insert(act, Act::Unknown);
                continue;
            };
            let receiver = world.place(to);
            let arrival = Arrival {
                to: Some((to, port)),
                ..Arrival::at(receiver)
            };
            let behind = next(self, world, arrival);
            let mut fixed = vec![
                (Field::Destination, number(to)),
                (Field::ReplySource, number(to)),
            ];
            fixed.extend(port.map(|port| (Field::DestinationPort, port.into())));
            if chain == "translate-own" {
                fixed.push((Field::Translated, 1));
            }
            acts.insert(act, Act::Tail(world.fixed(behind, &fixed)));
        }
        let made = world.space.continued(program, &acts);
        world.of_new(made, plain)
    }

    /// The base chains of filters, in order, before the next program.
    fn chains(
        &mut self,
        world: &mut World<'_>,
        family: Family,
        names: &[&'static str],
        ends: Ends,
        mut next: ProgramId,
    ) -> ProgramId {
        for name in names.iter().rev() {
            let Some(program) = self.compiled(world, family, name, ends) else {
                continue;
            };
            let marked = world.fixed(next, &[(Field::Marked, 1)]);
            let untracked = [(Field::State, state::UNTRACKED), (Field::Direction, 0)];
            let untracked = world.fixed(marked, &untracked);
            let acts = BTreeMap::from([
                (Act::Accept, Act::Tail(next)),
                (Act::Marked, Act::Tail(marked)),
                (Act::Untracked, Act::Tail(untracked)),
            ]);
            next = world.space.continued(program, &acts);
        }
        next
    }

    /// Returns the program of a base chain, if it exists.
    fn compiled(
        &mut self,
        world: &mut World<'_>,
        family: Family,
        chain: &'static str,
        (input, output): Ends,
    ) -> Option<ProgramId> {
        if !self.table.chains.contains_key(chain) {
            return None;
        }
        let view = View {
            family,
            input: input.map(Party::interface),
            output: output.map(Party::interface),
        };
        let of = (FELIX, self.table);
        Some(self.compiler.chain(&mut world.space, of, chain, &view))
    }
}

impl World<'_> {
    fn fixed(&mut self, program: ProgramId, fields: &[(Field, u128)]) -> ProgramId {
        fields.iter().fold(program, |program, (field, value)| {
            self.space.fix_field(program, *field, *value)
        })
    }
}
