//! Octets of writes, and a gate against a naive model of the kernel.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::nexthop::{Member, Nexthop, NexthopCommand, NexthopContent, NexthopEvent};
use crate::{Command, Event, Hop, OpError, Owner, PutMode, Route, RouteKey, RouteKind};

const US: Owner = Owner(119);
const TABLE: u32 = 254;

fn bounds() -> Bounds {
    Bounds {
        owner: US,
        table: TABLE,
        metrics: vec![1024..=1024, 7..=9],
        signs: None,
    }
}

fn hop() -> impl Strategy<Value = Hop> {
    let gateway = prop::option::of(any::<std::net::IpAddr>());
    let all = (gateway, any::<Option<u32>>(), any::<u16>(), any::<bool>());
    all.prop_map(|(gateway, interface, weight, onlink)| Hop {
        gateway,
        interface,
        weight,
        onlink,
    })
}

fn route() -> impl Strategy<Value = Route> {
    let kinds = [
        RouteKind::Unicast,
        RouteKind::Local,
        RouteKind::Blackhole,
        RouteKind::Other(77),
    ];
    let kind = prop::sample::select(kinds.to_vec());
    let protocol = prop::sample::select([119, 119, 119, 80, 2].as_slice());
    let source = prop::option::of(any::<std::net::IpAddr>());
    let hops = prop::collection::vec(hop(), 0..3);
    (kind, protocol, source, hops).prop_map(|(kind, protocol, source, next_hops)| Route {
        kind,
        source,
        nexthop: None,
        ..Route::unicast(Owner(protocol), next_hops)
    })
}

/// Few keys, so that programs meet.
fn key() -> impl Strategy<Value = RouteKey> {
    let prefixes = ["10.0.0.0/24", "10.0.0.0/25", "fd65::/64"];
    let prefix = prop::sample::select(prefixes.to_vec());
    let table = prop::sample::select([TABLE, TABLE, TABLE, 255].as_slice());
    let metric = prop::sample::select([1024, 1024, 8, 256].as_slice());
    let all = (prefix, table, metric, 0..2_u8);
    all.prop_map(|(prefix, table, metric, tos)| {
        RouteKey::new(table, prefix.parse().unwrap(), metric, tos)
    })
}

fn command() -> impl Strategy<Value = Command> {
    let mode = prop::sample::select([PutMode::Create, PutMode::Replace].as_slice());
    let owner = prop::sample::select([US, US, Owner(80)].as_slice());
    prop_oneof![
        3 => (key(), route(), mode).prop_map(|(key, route, mode)| Command::Put(key, route, mode)),
        1 => (key(), owner).prop_map(|(key, owner)| Command::Delete(key, owner)),
        1 => nexthop().prop_map(|one| Command::Nexthop(NexthopCommand::Create(one))),
        1 => id().prop_map(|id| Command::Nexthop(NexthopCommand::Delete(id))),
    ]
}

/// Few numbers, of this program and of others.
fn id() -> impl Strategy<Value = u32> {
    prop::sample::select([1, 2, 0x7700_0001, 0x7700_0002].as_slice())
}

fn nexthop() -> impl Strategy<Value = Nexthop> {
    let member = (id(), any::<u16>()).prop_map(|(id, weight)| Member { id, weight });
    let group = prop::collection::vec(member, 0..3).prop_map(NexthopContent::Group);
    let content = prop_oneof![hop().prop_map(NexthopContent::Hop), group];
    let owner = prop::sample::select([US, US, Owner(80)].as_slice());
    (id(), owner, content).prop_map(|(id, owner, content)| Nexthop::new(id, owner, content))
}

/// The kernel, as far as routes have a protocol.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Model(BTreeMap<RouteKey, Owner>, BTreeMap<u32, Owner>);

impl Model {
    fn carry_out(&mut self, command: &Command) -> Result<(), OpError> {
        match command {
            Command::Put(key, route, PutMode::Create) => {
                if self.0.contains_key(key) {
                    return Err(OpError::new(libc::EEXIST));
                }
                self.0.insert(*key, route.owner());
            }
            Command::Put(key, route, PutMode::Replace) => {
                let found = self
                    .0
                    .get_mut(key)
                    .ok_or_else(|| OpError::new(libc::ENOENT))?;
                *found = route.owner();
            }
            Command::Delete(key, owner) => {
                if self.0.get(key) != Some(owner) {
                    return Err(OpError::new(libc::ESRCH));
                }
                self.0.remove(key);
            }
            Command::Nexthop(NexthopCommand::Create(one)) => {
                if self.1.contains_key(&one.id) {
                    return Err(OpError::new(libc::EEXIST));
                }
                self.1.insert(one.id, one.owner);
            }
            Command::Nexthop(NexthopCommand::Delete(id)) => {
                let gone = self.1.remove(id);
                return gone.map(drop).ok_or_else(|| OpError::new(libc::ENOENT));
            }
            Command::Nexthop(NexthopCommand::Dump) | Command::Dump { .. } => {}
        }
        Ok(())
    }

    /// Returns the routes that a program within the bounds may not alter.
    fn foreign(&self) -> Self {
        let is_foreign =
            |(key, owner): &(&RouteKey, &Owner)| **owner != US || !bounds().covers(key);
        let foreign = self.0.iter().filter(is_foreign);
        let is_own = |id: u32, owner: Owner| owner == US && id >> 24 == u32::from(US.0);
        let nexthops = self.1.iter().map(|(id, owner)| (*id, *owner));
        Self(
            foreign.map(|(key, owner)| (*key, *owner)).collect(),
            nexthops
                .filter(|(id, owner)| !is_own(*id, *owner))
                .collect(),
        )
    }
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// The sender, whoever controls it, sends these writes at once.
    Send(Vec<Command>),
    /// Another program carries out this write.
    Other(Command),
    /// Messages of the kernel are lost.
    Lost,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec(command(), 1..4).prop_map(Step::Send),
        3 => command().prop_map(Step::Other),
        1 => Just(Step::Lost),
    ]
}

/// Executes writes as the process that may write does. Returns how many were refused.
fn execute(gate: &mut Gate, kernel: &mut Model, commands: &[Command]) -> usize {
    if commands.iter().any(|command| gate.needs_reading(command)) {
        gate.reading();
        for (key, owner) in &kernel.0 {
            gate.seen(key, *owner);
        }
        for (id, owner) in &kernel.1 {
            gate.seen_nexthop(&Nexthop::new(*id, *owner, NexthopContent::Blackhole));
        }
    }
    let decided: Vec<bool> = commands.iter().map(|one| gate.admit(one).is_ok()).collect();
    for (command, admitted) in commands.iter().zip(&decided) {
        if *admitted {
            let result = kernel.carry_out(command);
            gate.applied(command, &result);
        }
    }
    decided.iter().filter(|admitted| !**admitted).count()
}

proptest! {
    #[test]
    fn writes_are_read_as_they_were_written(commands in prop::collection::vec(command(), 0..8)) {
        let mut writes = Writes::default();
        for command in &commands {
            prop_assert!(writes.push(command));
        }
        prop_assert_eq!(Writes::parse(&writes.into_octets()), Some(commands));
    }

    #[test]
    fn outcomes_are_read_as_they_were_written(
        errors in prop::collection::vec((0..9_u16, 1..200_u16, "[a-z ]{0,30}"), 0..5),
    ) {
        let errors = errors.into_iter().map(|(position, errno, text)| {
            let text = (!text.is_empty()).then(|| text.into());
            (position, OpError { errno: errno.into(), text })
        });
        let outcomes = Outcomes { count: 9, errors: errors.collect() };
        prop_assert_eq!(Outcomes::parse(&outcomes.to_octets()), Some(outcomes));
    }

    #[test]
    fn octets_are_writes_or_rejected(octets in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = Outcomes::parse(&octets);
        let mut gate = Gate::new(bounds());
        for command in Writes::parse(&octets).unwrap_or_default() {
            let _ = gate.admit(&command);
        }
    }

    /// The same with the octets of writes that were changed.
    #[test]
    fn admitted_write_is_within_the_bounds(
        commands in prop::collection::vec(command(), 1..5),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut writes = Writes::default();
        commands.iter().for_each(|command| assert!(writes.push(command)));
        let mut octets = writes.into_octets();
        for (at, octet) in changes {
            let at = at.index(octets.len());
            octets[at] = octet;
        }
        let mut gate = Gate::new(bounds());
        for command in Writes::parse(&octets).unwrap_or_default() {
            let is_admitted = gate.admit(&command).is_ok();
            let (key, owner) = match &command {
                Command::Put(key, route, _) => (key, route.owner()),
                Command::Delete(key, owner) => (key, *owner),
                Command::Nexthop(NexthopCommand::Create(one)) => {
                    let is_own = one.owner == US && one.id >> 24 == u32::from(US.0);
                    prop_assert!(!is_admitted || is_own);
                    continue;
                }
                // Nothing is known as an own object.
                Command::Nexthop(_) => {
                    prop_assert!(!is_admitted);
                    continue;
                }
                Command::Dump { .. } => unreachable!("no write"),
            };
            prop_assert!(!is_admitted || (owner == US && bounds().covers(key)));
        }
    }

    // Promise (Kernel routes): A compromised BGP process alters only routes of its own protocol, table
    // and metrics.
    #[test]
    fn sender_of_any_writes_alters_no_foreign_route(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let (mut kernel, mut gate) = (Model::default(), Gate::new(bounds()));
        for step in steps {
            match step {
                Step::Send(commands) => {
                    let before = kernel.foreign();
                    execute(&mut gate, &mut kernel, &commands);
                    prop_assert_eq!(kernel.foreign(), before);
                }
                Step::Other(Command::Nexthop(command)) => {
                    let done = kernel.carry_out(&Command::Nexthop(command.clone())).is_ok();
                    if done {
                        gate.observe(&Event::Nexthop(match command {
                            NexthopCommand::Create(one) => NexthopEvent::Changed(one),
                            NexthopCommand::Delete(id) => NexthopEvent::Removed(id),
                            NexthopCommand::Dump => unreachable!("no write"),
                        }));
                    }
                }
                Step::Other(command) => {
                    let key = *match &command {
                        Command::Put(key, ..) | Command::Delete(key, _) => key,
                        _ => unreachable!("no write"),
                    };
                    if kernel.carry_out(&command).is_ok() {
                        let route = Route::blackhole(kernel.0.get(&key).copied().unwrap_or(US));
                        gate.observe(&match command {
                            Command::Delete(..) => Event::Removed(key, route),
                            _ => Event::Changed { key, route, replaced: false },
                        });
                    }
                }
                Step::Lost => gate.observe(&Event::Overrun),
            }
        }
    }

    /// A sender that replaces only its own routes is never refused.
    #[test]
    fn honest_writes_are_admitted(
        steps in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..40),
    ) {
        let prefixes = ["10.0.0.0/24", "10.0.1.0/24", "fd65::/64"];
        let keys = prefixes.map(|prefix| RouteKey::new(TABLE, prefix.parse().unwrap(), 1024, 0));
        let (mut kernel, mut gate) = (Model::default(), Gate::new(bounds()));
        for (which, want) in steps {
            let key = keys[which.index(keys.len())];
            let mode = match kernel.0.contains_key(&key) {
                true => PutMode::Replace,
                false => PutMode::Create,
            };
            let command = match want {
                true => Command::Put(key, Route::blackhole(US), mode),
                false => Command::Delete(key, US),
            };
            prop_assert_eq!(execute(&mut gate, &mut kernel, &[command]), 0);
        }
    }
}

#[test]
fn message_of_writes_is_bounded() {
    let hops = (0..=255).map(Hop::device).collect();
    let put = Command::Put(
        RouteKey::new(TABLE, "10.0.0.0/8".parse().unwrap(), 1024, 0),
        Route::unicast(US, hops),
        PutMode::Create,
    );
    let mut writes = Writes::default();
    while writes.push(&put) {}
    let count = writes.len();
    let octets = writes.into_octets();
    assert!(count > 10 && octets.len() <= crate::limits::WRITES_OCTETS_MAX);
    assert_eq!(
        Writes::parse(&octets).map(|commands| commands.len()),
        Some(count)
    );
    let dump = Command::Dump {
        table: TABLE,
        owner: None,
    };
    assert!(!Writes::default().push(&dump), "no write");
}

#[test]
fn signs_are_created_and_deleted_but_not_replaced() {
    let mut gate = Gate::new(bounds().with_signs(80_119, 1024));
    let prefix = "10.65.0.1/32".parse().unwrap();
    let key = RouteKey::new(80_119, prefix, 1024, 0);
    let sign = Route::blackhole(US);
    let put = |key, route: &Route, mode| Command::Put(key, route.clone(), mode);
    assert!(gate.admit(&put(key, &sign, PutMode::Create)).is_ok());
    assert!(gate.admit(&Command::Delete(key, US)).is_ok());
    let elsewhere = RouteKey::new(80_119, prefix, 256, 0);
    let other = RouteKey::new(80_118, prefix, 1024, 0);
    let forwarding = Route::unicast(US, vec![Hop::device(3)]);
    for refused in [
        put(key, &sign, PutMode::Replace),
        put(key, &forwarding, PutMode::Create),
        put(key, &Route::blackhole(Owner(80)), PutMode::Create),
        put(elsewhere, &sign, PutMode::Create),
        put(other, &sign, PutMode::Create),
        Command::Delete(elsewhere, US),
        Command::Delete(key, Owner(80)),
    ] {
        assert!(gate.admit(&refused).is_err(), "{refused:?}");
    }
    // A sign is not one of the routes that may be replaced.
    let route = RouteKey::new(TABLE, prefix, 1024, 0);
    gate.applied(&put(key, &sign, PutMode::Create), &Ok(()));
    gate.reading();
    assert!(gate.admit(&put(route, &sign, PutMode::Replace)).is_err());
}
