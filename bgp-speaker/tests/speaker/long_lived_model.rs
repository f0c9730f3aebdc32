//! Long-lived graceful restart as a helper, compared with a naive model that is written from the words of
//! RFC 9494 §4.2, §4.3 and §4.4.

use std::collections::{BTreeMap, BTreeSet};

use bgp_fsm::GracefulRestartConfig;
use bgp_proto::{AttrCode, Capability, Community, Family, LongLivedEntry, Open};
use proptest::prelude::*;
use rib::PeerId;
use testkit::fixture::{clients, graceful_open, open, prefix, speaker_config};
use testkit::{EndOfRib, OPTIONAL_TRANSITIVE, Received, Update, WELL_KNOWN};

use super::long_lived::{of_other_as, with_externals};
use super::wire::Wire;

const V4: Family = Family::IPV4_UNICAST;
const NETS: [&str; 3] = ["10.65.0.1/32", "10.65.0.2/32", "10.65.0.3/32"];
/// The prefix that another client announces too, with a lower LOCAL_PREF.
const SHARED: usize = 0;
/// The restart time of [`graceful_open`].
const RESTART_S: u64 = 60;
/// The local stale time.
const STALE_S: u64 = 1000;
/// A stale time of the peer that is shorter.
const SHORT_S: u64 = 300;
/// How long a session waits for the End-of-RIB marker at most: less than the limit for a missing marker.
const WAIT_S: u64 = 300;

/// The capabilities in an OPEN of the restarting peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting {
    /// Long-lived graceful restart with this stale time and F bit.
    LongLived(u64, bool),
    /// Graceful restart only, if the peer supports it for the family.
    Short,
    Neither,
}

#[derive(Clone, Debug)]
enum Op {
    Announce(usize, Option<Community>),
    Withdraw(usize),
    EndOfRib,
    Lose,
    Return(Greeting),
    Pass(u64),
}

/// A path of the peer.
#[derive(Clone, Copy, Debug)]
struct Held {
    community: Option<Community>,
    is_stale: bool,
    /// The helper has added LLGR_STALE.
    is_marked: bool,
}

impl Held {
    fn is_llgr_stale(&self) -> bool {
        self.is_marked || self.community == Some(Community::LLGR_STALE)
    }
}

#[derive(Clone, Copy, Debug)]
struct Session {
    greeting: Greeting,
    /// When it was established, unless the End-of-RIB marker was received.
    unsynchronized_since: Option<u64>,
    /// The stale time has expired before the End-of-RIB marker.
    has_expired: bool,
}

/// The helper's Adj-RIB-In of the peer.
#[derive(Clone, Debug)]
struct Model {
    /// Whether the family is in the peer's graceful restart capability.
    has_restart_time: bool,
    now: u64,
    session: Option<Session>,
    paths: BTreeMap<usize, Held>,
    restart_until: Option<u64>,
    /// The Long-Lived Stale Time that begins with the end of the restart time.
    stale_time: Option<u64>,
    stale_until: Option<u64>,
}

impl Model {
    const fn new(has_restart_time: bool) -> Self {
        Self {
            has_restart_time,
            now: 0,
            session: None,
            paths: BTreeMap::new(),
            restart_until: None,
            stale_time: None,
            stale_until: None,
        }
    }

    fn drop_stale(&mut self) {
        self.paths.retain(|_, path| !path.is_stale);
    }

    /// Removes everything that is retained.
    fn forget(&mut self) {
        self.drop_stale();
        (self.restart_until, self.stale_until) = (None, None);
    }

    fn open(&mut self, greeting: Greeting) {
        // The restart time has ended once the stale time runs: then the F bit of the long-lived
        // capability decides, before that the one of graceful restart, which is always set here.
        let is_kept = match (self.stale_until, greeting) {
            (_, Greeting::Neither) => false,
            (Some(_), greeting) => matches!(greeting, Greeting::LongLived(_, true)),
            (None, _) => true,
        };
        if !is_kept {
            self.forget();
        }
        self.restart_until = None;
        self.session = Some(Session {
            greeting,
            unsynchronized_since: Some(self.now),
            has_expired: false,
        });
    }

    fn lose(&mut self) {
        let session = self.session.take().expect("a session");
        self.stale_time = match session.greeting {
            Greeting::LongLived(stale_s, _) => Some(stale_s.min(STALE_S)),
            Greeting::Short | Greeting::Neither => None,
        };
        let restarts = self.has_restart_time && session.greeting != Greeting::Neither;
        if session.has_expired || !restarts && self.stale_time.is_none() {
            self.paths.clear();
            self.forget();
            return;
        }
        if self.stale_time.is_none() {
            // RFC 4724 §4.2: paths that were stale before a second restart are removed.
            self.drop_stale();
        }
        for path in self.paths.values_mut() {
            path.is_stale = true;
        }
        let restart_s = if restarts { RESTART_S } else { 0 };
        self.restart_until = Some(self.now + restart_s);
        self.expire();
    }

    /// Handles the timers that have expired.
    fn expire(&mut self) {
        if self.stale_until.is_some_and(|until| until <= self.now) {
            self.forget();
            if let Some(session) = &mut self.session {
                session.has_expired = session.unsynchronized_since.is_some();
            }
        }
        if self.restart_until.is_some_and(|until| until <= self.now) {
            self.restart_until = None;
            let Some(stale_s) = self.stale_time else {
                self.forget();
                return;
            };
            self.paths
                .retain(|_, path| !path.is_stale || path.community != Some(Community::NO_LLGR));
            for path in self.paths.values_mut() {
                path.is_marked = true;
            }
            // A timer that runs is not changed.
            self.stale_until.get_or_insert(self.now + stale_s);
        }
    }

    fn pass(&mut self, seconds: u64) {
        let end = self.now + seconds;
        loop {
            let timers = [self.restart_until, self.stale_until].into_iter().flatten();
            let Some(next) = timers.min().filter(|next| *next <= end) else {
                break;
            };
            self.now = next;
            self.expire();
        }
        self.now = end;
    }

    fn synchronize(&mut self) {
        if let Some(session) = &mut self.session {
            (session.unsynchronized_since, session.has_expired) = (None, false);
        }
        self.forget();
    }
}

/// The speaker, with the restarting peer and others.
struct Helper {
    wire: Wire,
    client: Option<PeerId>,
    /// The other client with a path to the shared prefix.
    rival: PeerId,
    /// Peers that receive routes, whether they get those with LLGR_STALE, and their Adj-RIBs-In.
    receivers: Vec<(PeerId, bool, BTreeSet<String>)>,
}

fn long_lived(open: &mut Open, stale_s: u64, forwarding: bool) {
    let entry = LongLivedEntry {
        family: V4,
        forwarding,
        stale_time_s: u32::try_from(stale_s).expect("a short time"),
    };
    let capability = Capability::LongLivedGracefulRestart(vec![entry]);
    open.capabilities.push(capability);
}

impl Helper {
    fn new() -> Self {
        let mut config = speaker_config(1);
        let mut range = clients(1, 4);
        let session = &mut range.template.session;
        session.graceful_restart = Some(GracefulRestartConfig::default());
        session.long_lived_stale_time_s = [(V4, STALE_S as u32)].into();
        config.ranges.push(range);
        let mut wire = Wire::new(with_externals(config));
        let plain = wire.connect(3, &of_other_as(3, open(3)));
        let mut capable = of_other_as(4, graceful_open(4, |_| {}));
        long_lived(&mut capable, SHORT_S, true);
        let capable = wire.connect(4, &capable);
        let internal = wire.connect(5, &open(5));
        let rival = wire.connect(6, &open(6));
        let lower = 1_u32.to_be_bytes();
        let update = Update::reach([NETS[SHARED]]);
        let update = update.replacing(WELL_KNOWN, AttrCode::LocalPref, &lower);
        wire.send(rival, update);
        let receivers = [(plain, false), (capable, true), (internal, true)];
        Self {
            wire,
            client: None,
            rival,
            receivers: receivers
                .map(|(peer, gets)| (peer, gets, BTreeSet::new()))
                .into(),
        }
    }

    fn open(&mut self, greeting: Greeting, has_restart_time: bool) {
        let mut open = match greeting {
            Greeting::Neither => open(2),
            _ => graceful_open(2, |graceful| {
                if !has_restart_time {
                    graceful.families.clear();
                }
            }),
        };
        if let Greeting::LongLived(stale_s, forwarding) = greeting {
            long_lived(&mut open, stale_s, forwarding);
        }
        self.client = Some(self.wire.connect(2, &open));
    }

    fn pass(&mut self, seconds: u64) {
        let mut alive: Vec<PeerId> = self.receivers.iter().map(|one| one.0).collect();
        alive.push(self.rival);
        alive.extend(self.client);
        self.wire.pass(seconds, &alive);
    }

    /// Compares all paths, the best ones, and the routes that the receivers have.
    fn compare(&mut self, model: &Model) -> Result<(), TestCaseError> {
        self.wire.settle();
        let mut tables = [BTreeSet::new(), BTreeSet::new()];
        for (number, net) in NETS.iter().enumerate() {
            let wanted = model.paths.get(&number);
            let view = self.wire.speaker().rib().lookup(V4, prefix(net));
            let paths = view.as_ref().map_or(&[][..], |view| &view.paths);
            let own = paths.iter().find(|path| path.peer != self.rival);
            let found = own.map(|path| {
                let accepted = path.accepted.as_ref().expect("accepted");
                let communities = &accepted.communities;
                (path.stale, communities.contains(&Community::LLGR_STALE))
            });
            let expected = wanted.map(|path| (path.is_stale, path.is_llgr_stale()));
            prop_assert_eq!(found, expected, "{}: stale, LLGR_STALE; {:?}", net, model);
            let is_fresh = wanted.is_some_and(|path| !path.is_llgr_stale());
            let is_shared = number == SHARED;
            if is_shared {
                let is_best = paths.first().is_some_and(|path| path.peer != self.rival);
                prop_assert_eq!(is_best, is_fresh, "{:?}", model);
            }
            let has = [is_fresh || is_shared, wanted.is_some() || is_shared];
            for (table, _) in tables.iter_mut().zip(has).filter(|(_, has)| *has) {
                table.insert((*net).to_owned());
            }
        }
        for (peer, gets_stale, table) in &mut self.receivers {
            for received in self.wire.received(*peer) {
                match received {
                    Received::Reach(nets) => table.extend(nets),
                    Received::Unreach(nets) => table.retain(|net| !nets.contains(net)),
                    _ => {}
                }
            }
            let wanted = &tables[usize::from(*gets_stale)];
            prop_assert_eq!(&*table, wanted, "of {:?}: {:?}", peer, model);
        }
        Ok(())
    }

    /// Performs an operation, if it is possible.
    fn run(&mut self, model: &mut Model, op: &Op) {
        match (op, self.client) {
            (Op::Announce(number, community), Some(client)) => {
                let mut update = Update::reach([NETS[*number]]);
                if let Some(community) = community {
                    let value = community.0.to_be_bytes();
                    update = update.with(OPTIONAL_TRANSITIVE, AttrCode::Communities, &value);
                }
                self.wire.send(client, update);
                let held = Held {
                    community: *community,
                    is_stale: false,
                    is_marked: false,
                };
                model.paths.insert(*number, held);
            }
            (Op::Withdraw(number), Some(client)) => {
                self.wire.send(client, Update::unreach([NETS[*number]]));
                model.paths.remove(number);
            }
            (Op::EndOfRib, Some(client)) => {
                self.wire.send(client, EndOfRib(V4));
                model.synchronize();
            }
            (Op::Lose, Some(client)) => {
                self.wire.lose(client);
                self.client = None;
                model.lose();
            }
            (Op::Return(greeting), None) => {
                self.open(*greeting, model.has_restart_time);
                model.open(*greeting);
            }
            (Op::Pass(seconds), _) => {
                let since = model
                    .session
                    .and_then(|session| session.unsynchronized_since);
                let left = since.map(|since| (since + WAIT_S).saturating_sub(model.now));
                let seconds = left.map_or(*seconds, |left| left.min(*seconds));
                self.pass(seconds);
                model.pass(seconds);
            }
            _ => {}
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    let community = prop_oneof![
        2 => Just(None),
        1 => Just(Some(Community::NO_LLGR)),
        1 => Just(Some(Community::LLGR_STALE)),
    ];
    let greeting = prop_oneof![
        3 => Just(Greeting::LongLived(86_400, true)),
        2 => Just(Greeting::LongLived(SHORT_S, true)),
        1 => Just(Greeting::LongLived(86_400, false)),
        1 => Just(Greeting::Short),
        1 => Just(Greeting::Neither),
    ];
    let seconds = prop_oneof![
        Just(1),
        Just(RESTART_S - 1),
        Just(RESTART_S),
        Just(SHORT_S - 1),
        Just(SHORT_S),
        1..STALE_S,
    ];
    prop_oneof![
        4 => (0..NETS.len(), community).prop_map(|(number, of)| Op::Announce(number, of)),
        1 => (0..NETS.len()).prop_map(Op::Withdraw),
        1 => Just(Op::EndOfRib),
        3 => Just(Op::Lose),
        3 => greeting.prop_map(Op::Return),
        4 => seconds.prop_map(Op::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn retained_paths_are_those_of_a_naive_helper(
        has_restart_time: bool,
        ops in prop::collection::vec(op(), 1..40),
    ) {
        let mut helper = Helper::new();
        let mut model = Model::new(has_restart_time);
        helper.run(&mut model, &Op::Return(Greeting::LongLived(86_400, true)));
        for op in &ops {
            helper.run(&mut model, op);
            helper.compare(&model)?;
        }
    }
}
