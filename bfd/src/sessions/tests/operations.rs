//! Any sequence of operations on a set: its lists agree with its sessions.

use proptest::prelude::*;

use super::*;

const SESSIONS_MAX: usize = 4;

#[derive(Clone, Debug)]
enum Op {
    Add(u32),
    Remove(usize),
    Disable(usize),
    Enable(usize),
    Configure(usize, u32),
    /// The packet that a session has sent last, changed at some octets, on a path.
    Receive(usize, u32, Vec<(usize, u8)>),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let changes = prop::collection::vec((0_usize..24, any::<u8>()), 0..3);
    prop_oneof![
        3 => (2_u32..8).prop_map(Op::Add),
        1 => (0_usize..8).prop_map(Op::Remove),
        1 => (0_usize..8).prop_map(Op::Disable),
        1 => (0_usize..8).prop_map(Op::Enable),
        1 => (0_usize..8, 1_000_u32..2_000_000).prop_map(|(nth, us)| Op::Configure(nth, us)),
        8 => (0_usize..8, 2_u32..8, changes)
            .prop_map(|(nth, remote, changes)| Op::Receive(nth, remote, changes)),
        4 => (0_u64..4_000).prop_map(Op::Pass),
    ]
}

struct Rig {
    set: Set,
    now: Instant,
    ids: Vec<Discriminator>,
    sent: Vec<Encoded>,
}

impl Rig {
    fn perform(&mut self, op: Op) {
        let now = self.now;
        let id = |nth: usize| self.ids.get(nth % self.ids.len().max(1)).copied();
        match op {
            Op::Add(remote) => {
                let added = self
                    .set
                    .add(now, single(1, remote), SessionConfig::default());
                match added {
                    Ok(id) => {
                        assert!(!self.ids.contains(&id));
                        self.ids.push(id);
                    }
                    Err(AddError::PathInUse(id)) => assert!(self.set.get(id).is_some()),
                    Err(other) => {
                        assert_eq!(other, AddError::Full(SESSIONS_MAX));
                        assert_eq!(self.ids.len(), SESSIONS_MAX);
                    }
                }
            }
            Op::Remove(nth) => {
                if let Some(id) = id(nth) {
                    let change = self.set.remove(now, id).expect("a known session");
                    assert_eq!(change.to, State::AdminDown);
                    self.ids.retain(|known| *known != id);
                }
            }
            Op::Disable(nth) => {
                id(nth).and_then(|id| self.set.disable(now, id));
            }
            Op::Enable(nth) => {
                id(nth).and_then(|id| self.set.enable(now, id));
            }
            Op::Configure(nth, interval_us) => {
                let config = SessionConfig::default().with(|config| {
                    config.desired_min_tx_us = interval_us;
                });
                let result = id(nth).map(|id| self.set.configure(now, id, config));
                assert!(matches!(result, None | Some(Ok(true))));
            }
            Op::Receive(nth, remote, changes) => {
                let packet = self.sent.get(nth % self.sent.len().max(1));
                let mut octets = packet.map_or(Vec::new(), |packet| Vec::from(packet.octets()));
                if let (Some(yours), Some(id)) = (octets.get_mut(8..12), id(nth)) {
                    yours.copy_from_slice(&id.get().to_be_bytes());
                }
                for (at, octet) in changes {
                    if let Some(place) = octets.get_mut(at) {
                        *place = octet;
                    }
                }
                let arrival = arrival(Hops::Single, remote, 1);
                let result = self.set.receive(now, &arrival, &octets);
                if let Ok((id, Some(_))) = result {
                    assert!(self.ids.contains(&id), "a removed session has no changes");
                }
            }
            Op::Pass(millis) => self.now = now + Duration::from_millis(millis),
        }
        self.work();
        self.check();
    }

    fn work(&mut self) {
        for _ in 0..8 * SESSIONS_MAX {
            match self.set.step(self.now) {
                None => return,
                Some(Step::Send { packet, .. }) => self.sent.push(packet),
                Some(Step::Changed { id, .. }) => assert!(self.ids.contains(&id)),
            }
        }
        panic!("work that is done stays due");
    }

    /// Compares the lists of the set with its sessions.
    fn check(&self) {
        let set = &self.set;
        assert!(set.len() <= MEMBERS_FOR_EACH * SESSIONS_MAX);
        assert!(self.ids.len() <= SESSIONS_MAX);
        let removed = set.members.values().filter(|member| member.is_removed);
        assert_eq!(removed.count(), set.removed);
        let ids: Vec<_> = set
            .iter()
            .map(|(session, _)| session.local_discriminator())
            .collect();
        let mut known = self.ids.clone();
        known.sort_unstable();
        assert_eq!(ids, known);
        assert_eq!(set.paths.len(), set.members.len());
        for (id, member) in &set.members {
            assert_eq!(set.paths.get(&member.path.key()), Some(id));
        }
        let due = set.members.values().filter_map(Member::deadline);
        assert_eq!(set.poll_timeout(), due.min());
        assert!(set.poll_timeout().is_none_or(|at| at > self.now));
    }
}

proptest! {
    #[test]
    fn lists_of_a_set_agree_with_its_sessions(ops in prop::collection::vec(op(), 1..80)) {
        let mut rig = Rig {
            set: Sessions::new(Seeded::new(3), SESSIONS_MAX),
            now: Instant::ZERO,
            ids: Vec::new(),
            sent: Vec::new(),
        };
        for op in ops {
            rig.perform(op);
        }
    }
}
