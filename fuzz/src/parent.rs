//! Messages of a BGP process to the process that executes them: any octets are a message or rejected,
//! and no message alters a route of another program.

use std::collections::BTreeMap;

use bgp_daemon::parent::command::{Answer, Command};
use fib_sync::nexthop::{Nexthop, NexthopCommand, NexthopContent};
use fib_sync::writer::{Bounds, Gate, Outcomes, Writes};
use fib_sync::{Command as Write, OpError, Owner, PutMode, RouteKey};

use crate::octets::Octets;

const OWN: Owner = Owner(119);
const FOREIGN: Owner = Owner(80);
const TABLE: u32 = 254;
const METRIC: u32 = 1024;

/// Parses a command, an answer, outcomes or writes, selected by the first octet, and executes writes.
pub fn parent(data: &[u8]) {
    let mut octets = Octets(data);
    match octets.octet() % 4 {
        0 => {
            if let Some(command) = Command::decode(octets.0) {
                assert_eq!(command.encode(), octets.0, "one text for each command");
            }
        }
        1 => {
            if let Some(answer) = Answer::decode(octets.0) {
                assert_eq!(Answer::decode(&answer.encode()), Some(answer));
            }
        }
        2 => {
            let _ = Outcomes::parse(octets.0);
        }
        _ => messages(octets),
    }
}

/// Executes messages of writes, each with its length before it.
fn messages(mut octets: Octets<'_>) {
    let mut gate = Gate::new(Bounds::new(OWN, TABLE, vec![METRIC..=METRIC]));
    let mut kernel = Kernel::default();
    for (prefix, owner) in [
        ("10.0.0.0/24", FOREIGN),
        ("10.0.1.0/24", OWN),
        ("fd65::/64", FOREIGN),
    ] {
        let prefix = prefix.parse().expect("a prefix");
        kernel
            .0
            .insert(RouteKey::new(TABLE, prefix, METRIC, 0), owner);
    }
    for (id, owner) in [(0x7700_0002, FOREIGN), (0x7700_0004, OWN), (5, OWN)] {
        kernel.1.insert(id, owner);
    }
    while !octets.is_empty() {
        let length = octets.short();
        let writes = Writes::parse(octets.take(length.into())).unwrap_or_default();
        if writes.iter().any(|write| gate.needs_reading(write)) {
            gate.reading();
            kernel
                .0
                .iter()
                .for_each(|(key, owner)| gate.seen(key, *owner));
            for (id, owner) in &kernel.1 {
                gate.seen_nexthop(&Nexthop::new(*id, *owner, NexthopContent::Blackhole));
            }
        }
        let before = kernel.foreign();
        let admitted: Vec<bool> = writes
            .iter()
            .map(|write| gate.admit(write).is_ok())
            .collect();
        for (write, _) in writes
            .iter()
            .zip(admitted)
            .filter(|(_, admitted)| *admitted)
        {
            let result = kernel.carry_out(write);
            gate.applied(write, &result);
        }
        assert_eq!(kernel.foreign(), before);
    }
}

/// Routes and nexthop objects with their owners.
type Foreign = (Vec<(RouteKey, Owner)>, Vec<(u32, Owner)>);

/// The owners of a kernel's routes, and of its nexthop objects.
#[derive(Debug, Default)]
struct Kernel(BTreeMap<RouteKey, Owner>, BTreeMap<u32, Owner>);

impl Kernel {
    fn carry_out(&mut self, write: &Write) -> Result<(), OpError> {
        match write {
            Write::Put(key, route, PutMode::Create) => match self.0.contains_key(key) {
                true => return Err(OpError::new(17)),
                false => drop(self.0.insert(*key, route.owner())),
            },
            Write::Put(key, route, PutMode::Replace) => match self.0.get_mut(key) {
                Some(owner) => *owner = route.owner(),
                None => return Err(OpError::new(2)),
            },
            Write::Delete(key, owner) => match self.0.get(key) == Some(owner) {
                true => drop(self.0.remove(key)),
                false => return Err(OpError::new(3)),
            },
            Write::Nexthop(NexthopCommand::Create(one)) => match self.1.contains_key(&one.id) {
                true => return Err(OpError::new(17)),
                false => drop(self.1.insert(one.id, one.owner)),
            },
            Write::Nexthop(NexthopCommand::Delete(id)) => {
                let gone = self.1.remove(id);
                return gone.map(drop).ok_or_else(|| OpError::new(2));
            }
            Write::Nexthop(NexthopCommand::Dump) | Write::Dump { .. } => unreachable!("no write"),
        }
        Ok(())
    }

    /// Returns the routes and nexthop objects that may not be altered.
    fn foreign(&self) -> Foreign {
        let is_own = |key: &RouteKey, owner: Owner| {
            owner == OWN && key.table == TABLE && key.metric == METRIC
        };
        let all = self.0.iter().map(|(key, owner)| (*key, *owner));
        let routes = all.filter(|(key, owner)| !is_own(key, *owner));
        let is_own = |id: u32, owner: Owner| owner == OWN && id >> 24 == u32::from(OWN.0);
        let nexthops = self.1.iter().map(|(id, owner)| (*id, *owner));
        let nexthops = nexthops.filter(|(id, owner)| !is_own(*id, *owner));
        (routes.collect(), nexthops.collect())
    }
}
