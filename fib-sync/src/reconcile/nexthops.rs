//! The own nexthop objects: which routes share which one, and what the kernel has of them.
//!
//! Routes refer to *sets*: an object for one next hop, or a group. The members of groups are further
//! objects that no route refers to. So a member can be deleted at any time: the kernel removes it from
//! all groups with one message, and deletes no route.
//!
//! An object is never changed otherwise. A route with another set of next hops is written again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::error::OpError;
use crate::limits::{NEXTHOP_ID_BITS, NEXTHOPS_MAX};
use crate::nexthop::{Member, Nexthop, NexthopCommand, NexthopContent};
use crate::owner::Owner;
use crate::route::{Hop, Route};

/// The treatment of nexthop objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum NexthopObjects {
    /// They are neither read nor written.
    #[default]
    Ignore,
    /// None are created; own ones of a former run are deleted as soon as no route uses them.
    Off,
    /// Routes with the same next hops share one, if the kernel has nexthop objects.
    Auto,
}

/// Own nexthop objects.
#[derive(Debug)]
pub(super) struct Nexthops {
    mode: NexthopObjects,
    owner: Owner,
    /// Whether the kernel has nexthop objects, once it has been asked.
    supported: Option<bool>,
    own: BTreeMap<u32, Own>,
    /// Numbers of the own range that other programs use.
    taken: BTreeSet<u32>,
    /// The members of groups, by their next hop.
    members: BTreeMap<Hop, u32>,
    /// The objects for routes, by their next hops.
    sets: BTreeMap<Vec<Hop>, BTreeSet<u32>>,
    /// The last number that was given.
    last: u32,
    /// Why the kernel refused an object with these next hops.
    refused: BTreeMap<Vec<Hop>, OpError>,
    /// Round of dumps.
    round: u32,
}

/// An own object.
#[derive(Clone, Debug)]
struct Own {
    kind: Kind,
    /// The next hops of a route that uses it, in canonical form.
    hops: Vec<Hop>,
    /// Round of dumps that last saw it, or in which it was written.
    seen: u32,
    /// Round of dumps that last saw a route that uses it.
    used: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A next hop that routes refer to.
    Single,
    /// A next hop that groups refer to.
    Member,
    /// The members of a group.
    Group(Vec<Member>),
}

impl Nexthops {
    pub(super) fn new(mode: NexthopObjects, owner: Owner) -> Self {
        Self {
            mode,
            owner,
            supported: None,
            own: BTreeMap::new(),
            taken: BTreeSet::new(),
            members: BTreeMap::new(),
            sets: BTreeMap::new(),
            last: 0,
            refused: BTreeMap::new(),
            round: 0,
        }
    }

    /// Returns whether objects are read at all.
    pub(super) fn is_read(&self) -> bool {
        self.mode != NexthopObjects::Ignore && self.supported != Some(false)
    }

    /// Returns whether routes use objects.
    pub(super) fn is_used(&self) -> bool {
        self.mode == NexthopObjects::Auto && self.supported == Some(true)
    }

    /// Returns whether the kernel has nexthop objects, once that is known.
    pub(super) const fn supported(&self) -> Option<bool> {
        self.supported
    }

    pub(super) fn len(&self) -> usize {
        self.own.len()
    }

    /// Marks a wanted route that is to use an object. A next hop needs a gateway and an interface.
    pub(super) fn mark(&self, route: &mut Route) {
        let is_whole = |hop: &Hop| hop.gateway.is_some() && hop.interface.is_some();
        let fits = route.kind.forwards()
            && !route.next_hops.is_empty()
            && route.next_hops.iter().all(is_whole);
        let is_used = self.is_used() && fits && self.has_room(&route.next_hops);
        route.nexthop = is_used.then_some(0);
    }

    fn has_room(&self, hops: &[Hop]) -> bool {
        self.own.len() + hops.len() < NEXTHOPS_MAX || self.sets.contains_key(&canonical(hops))
    }

    /// Sets the next hops of a route that uses an own object to those of the object. Another object
    /// has none.
    pub(super) fn resolve(&self, route: &mut Route) {
        if let Some(id) = route.nexthop {
            let own = self.own.get(&id);
            route.next_hops = own.map_or_else(Vec::new, |own| own.hops.clone());
        }
    }

    /// Returns whether an own object has exactly these next hops.
    pub(super) fn has(&self, id: u32, hops: &[Hop]) -> bool {
        self.own
            .get(&id)
            .is_some_and(|own| own.hops == canonical(hops))
    }

    /// Returns the object with these next hops. It is created, with its members, if there is none;
    /// `commands` gets the requests.
    pub(super) fn obtain(
        &mut self,
        hops: &[Hop],
        commands: &mut Vec<NexthopCommand>,
    ) -> Option<u32> {
        let hops = canonical(hops);
        if let Some(id) = self.sets.get(&hops).and_then(|ids| ids.first()) {
            return Some(*id);
        }
        let kind = match hops.as_slice() {
            [] => return None,
            [_] => Kind::Single,
            several => Kind::Group(
                several
                    .iter()
                    .map(|hop| self.member(hop, commands))
                    .collect::<Option<_>>()?,
            ),
        };
        self.create(kind, hops, commands)
    }

    fn member(&mut self, hop: &Hop, commands: &mut Vec<NexthopCommand>) -> Option<Member> {
        let plain = hop.weighted(1);
        let id = match self.members.get(&plain) {
            Some(id) => *id,
            None => self.create(Kind::Member, vec![plain], commands)?,
        };
        let weight = hop.weight;
        Some(Member { id, weight })
    }

    fn create(
        &mut self,
        kind: Kind,
        hops: Vec<Hop>,
        commands: &mut Vec<NexthopCommand>,
    ) -> Option<u32> {
        let id = self.free_id(kind == Kind::Member)?;
        let content = match &kind {
            Kind::Group(members) => NexthopContent::Group(members.clone()),
            Kind::Single | Kind::Member => NexthopContent::Hop(*hops.first()?),
        };
        let nexthop = Nexthop::new(id, self.owner, content);
        commands.push(NexthopCommand::Create(nexthop));
        self.insert(id, kind, hops);
        Some(id)
    }

    /// Returns a number that no object has. The numbers of members are odd.
    fn free_id(&mut self, is_member: bool) -> Option<u32> {
        let (first, mask) = (first_id(self.owner), (1 << NEXTHOP_ID_BITS) - 1);
        for _ in 0..=2 * NEXTHOPS_MAX {
            self.last = self.last.wrapping_add(1) & mask;
            let id = first | (self.last & !1) | u32::from(is_member);
            if id != 0 && !self.own.contains_key(&id) && !self.taken.contains(&id) {
                return Some(id);
            }
        }
        None
    }

    fn insert(&mut self, id: u32, kind: Kind, hops: Vec<Hop>) {
        self.remove(id);
        match kind {
            Kind::Member => drop(self.members.insert(*hops.first().unwrap_or(&NO_HOP), id)),
            _ if hops.is_empty() => {}
            _ => drop(self.sets.entry(hops.clone()).or_default().insert(id)),
        }
        let (seen, used) = (self.round, self.round);
        let own = Own {
            kind,
            hops,
            seen,
            used,
        };
        self.own.insert(id, own);
    }

    /// Forgets an object. Its groups are shortened by [`shorten`](Self::shorten).
    fn remove(&mut self, id: u32) -> Option<Own> {
        let own = self.own.remove(&id)?;
        match own.kind {
            Kind::Member => {
                if let Some(hop) = own.hops.first()
                    && self.members.get(hop) == Some(&id)
                {
                    self.members.remove(hop);
                }
            }
            Kind::Single | Kind::Group(_) => {
                if let Some(ids) = self.sets.get_mut(&own.hops) {
                    ids.remove(&id);
                    if ids.is_empty() {
                        self.sets.remove(&own.hops);
                    }
                }
            }
        }
        Some(own)
    }

    /// Removes an object from all groups, as the kernel does it when the object is deleted.
    fn shorten(&mut self, id: u32) {
        let has = |own: &Own| match &own.kind {
            Kind::Group(members) => members.iter().any(|member| member.id == id),
            Kind::Single | Kind::Member => false,
        };
        let groups = self.own.iter().filter(|(_, own)| has(own));
        let groups: Vec<u32> = groups.map(|(id, _)| *id).collect();
        for group in groups {
            let Some(Own {
                kind: Kind::Group(mut members),
                used,
                ..
            }) = self.remove(group)
            else {
                continue;
            };
            members.retain(|member| member.id != id);
            // The kernel deletes an empty group.
            if !members.is_empty() {
                let hops = self.hops_of(&members);
                self.insert(group, Kind::Group(members), hops);
                if let Some(own) = self.own.get_mut(&group) {
                    own.used = used;
                }
            }
        }
    }

    /// Returns the next hops of a group; none if a member is not an own object.
    fn hops_of(&self, members: &[Member]) -> Vec<Hop> {
        let hop = |member: &Member| match self.own.get(&member.id) {
            Some(Own {
                kind: Kind::Single | Kind::Member,
                hops,
                ..
            }) => hops.first().map(|hop| hop.weighted(member.weight)),
            _ => None,
        };
        let hops: Option<Vec<Hop>> = members.iter().map(hop).collect();
        canonical(&hops.unwrap_or_default())
    }

    /// Handles the outcome of a request. Returns whether the objects of the kernel are uncertain.
    pub(super) fn applied(&mut self, id: u32, result: &Result<(), OpError>) -> bool {
        let Err(error) = result else {
            return false;
        };
        if error.is_exists() {
            self.taken.insert(id);
        }
        if let Some(own) = self.remove(id) {
            // A create failed: the route that needs it fails too, and reports this error.
            if self.refused.len() >= NEXTHOPS_MAX {
                self.refused.clear();
            }
            self.refused.insert(own.hops, error.clone());
            self.shorten(id);
            return error.errno == libc::ENOBUFS;
        }
        // A delete failed.
        !error.is_absent()
    }

    /// Returns why the kernel refused an object for these next hops, or for one of them.
    pub(super) fn refusal(&self, hops: &[Hop]) -> Option<&OpError> {
        let one = |hop: &Hop| self.refused.get([hop.weighted(1)].as_slice());
        self.refused
            .get(&canonical(hops))
            .or_else(|| hops.iter().find_map(one))
    }

    /// Returns the requests that remove the failed gateways from all groups. A group that would become
    /// empty keeps its members, because the kernel would delete all its routes in one call.
    pub(super) fn fail(&mut self, failed: &BTreeSet<IpAddr>) -> Vec<NexthopCommand> {
        let is_failed = |hop: &Hop| is_failed(hop, failed);
        let mut kept = BTreeSet::new();
        for own in self.own.values() {
            if let Kind::Group(members) = &own.kind
                && own.hops.iter().all(is_failed)
            {
                kept.extend(members.iter().map(|member| member.id));
            }
        }
        let members = self.members.iter();
        let gone = members.filter(|(hop, id)| is_failed(hop) && !kept.contains(*id));
        let gone: Vec<u32> = gone.map(|(_, id)| *id).collect();
        for id in &gone {
            self.remove(*id);
            self.shorten(*id);
        }
        gone.into_iter().map(NexthopCommand::Delete).collect()
    }

    /// Forgets the objects of an interface without carrier: the kernel has deleted them, without a
    /// notification, or is about to.
    pub(super) fn link_lost(&mut self, interface: u32) {
        let is_over = |own: &Own| {
            let mut hops = own.hops.iter();
            !matches!(own.kind, Kind::Group(_)) && hops.any(|hop| hop.interface == Some(interface))
        };
        let gone = self.own.iter().filter(|(_, own)| is_over(own));
        let gone: Vec<u32> = gone.map(|(id, _)| *id).collect();
        for id in gone {
            self.remove(id);
            self.shorten(id);
        }
    }

    /// Starts a dump.
    pub(super) fn begin(&mut self, round: u32) {
        self.round = round;
        self.refused.clear();
    }

    /// Handles an object that a dump found, or that another program changed. Returns whether it is an
    /// own one.
    pub(super) fn found(&mut self, nexthop: &Nexthop) -> bool {
        let id = nexthop.id;
        if !self.is_own_id(id) {
            return false;
        }
        let kind = match &nexthop.content {
            _ if nexthop.owner != self.owner => None,
            NexthopContent::Hop(hop) if hop.gateway.is_some() && hop.interface.is_some() => {
                let is_member = id & 1 == 1;
                let kind = if is_member {
                    Kind::Member
                } else {
                    Kind::Single
                };
                Some((kind, vec![*hop]))
            }
            NexthopContent::Group(members) => {
                let hops = self.hops_of(members);
                Some((Kind::Group(members.clone()), hops))
            }
            _ => None,
        };
        let Some((kind, hops)) = kind else {
            self.remove(id);
            if self.taken.len() < NEXTHOPS_MAX {
                self.taken.insert(id);
            }
            return false;
        };
        self.taken.remove(&id);
        let used = self
            .own
            .get(&id)
            .map_or_else(|| self.round.wrapping_sub(1), |own| own.used);
        self.insert(id, kind, hops);
        if let Some(own) = self.own.get_mut(&id) {
            own.used = used;
        }
        true
    }

    /// Handles the deletion of an object by another program. Returns whether it was an own one.
    pub(super) fn removed(&mut self, id: u32) -> bool {
        self.taken.remove(&id);
        let was_own = self.remove(id).is_some();
        self.shorten(id);
        was_own
    }

    /// Ends a dump: objects that it has not seen do not exist. Returns whether routes may use objects
    /// from now on, if that has changed.
    pub(super) fn dumped(&mut self, supported: bool) -> Option<bool> {
        let before = self.is_used();
        self.supported = Some(supported);
        let round = self.round;
        let gone = self.own.iter().filter(|(_, own)| own.seen != round);
        let gone: Vec<u32> = gone.map(|(id, _)| *id).collect();
        for id in gone {
            self.remove(id);
        }
        // Members may have been read after their groups.
        let groups = self.own.iter().filter_map(|(id, own)| match &own.kind {
            Kind::Group(members) => Some((*id, members.clone(), own.used)),
            Kind::Single | Kind::Member => None,
        });
        let groups: Vec<_> = groups.collect();
        for (id, members, used) in groups {
            let hops = self.hops_of(&members);
            self.insert(id, Kind::Group(members), hops);
            if let Some(own) = self.own.get_mut(&id) {
                own.used = used;
            }
        }
        let after = self.is_used();
        (before != after).then_some(after)
    }

    /// Records that a route uses an object, if it uses one.
    pub(super) fn used(&mut self, nexthop: Option<u32>) {
        let round = self.round;
        if let Some(own) = nexthop.and_then(|id| self.own.get_mut(&id)) {
            own.used = round;
        }
    }

    /// Ends the dump of all routes: returns requests that delete the objects that no route uses.
    pub(super) fn sweep(&mut self) -> Vec<NexthopCommand> {
        let round = self.round;
        let unused = |own: &Own| own.kind != Kind::Member && own.used != round;
        let sets = self.own.iter().filter(|(_, own)| unused(own));
        let mut gone: Vec<u32> = sets.map(|(id, _)| *id).collect();
        for id in &gone {
            self.remove(*id);
        }
        let mut needed = BTreeSet::new();
        for own in self.own.values() {
            if let Kind::Group(members) = &own.kind {
                needed.extend(members.iter().map(|member| member.id));
            }
        }
        let members = self.own.iter().filter(|(id, own)| {
            own.kind == Kind::Member && own.used != round && !needed.contains(*id)
        });
        let members: Vec<u32> = members.map(|(id, _)| *id).collect();
        for id in &members {
            self.remove(*id);
        }
        gone.extend(members);
        gone.into_iter().map(NexthopCommand::Delete).collect()
    }

    fn is_own_id(&self, id: u32) -> bool {
        id >> NEXTHOP_ID_BITS == u32::from(self.owner.0)
    }
}

/// Never stored: objects of the kinds that need one have a next hop.
const NO_HOP: Hop = Hop {
    gateway: None,
    interface: None,
    weight: 1,
    onlink: false,
};

/// Returns the first number of an owner's objects.
pub(super) fn first_id(owner: Owner) -> u32 {
    u32::from(owner.0) << NEXTHOP_ID_BITS
}

/// Returns whether the gateway of a next hop has failed.
pub(super) fn is_failed(hop: &Hop, failed: &BTreeSet<IpAddr>) -> bool {
    hop.gateway
        .is_some_and(|gateway| failed.contains(&gateway.to_canonical()))
}

/// Returns next hops in the order of a canonical route; a single one has no weight.
fn canonical(hops: &[Hop]) -> Vec<Hop> {
    let mut hops = hops.to_vec();
    hops.sort_unstable();
    if let [hop] = hops.as_mut_slice() {
        hop.weight = 1;
    }
    hops
}
