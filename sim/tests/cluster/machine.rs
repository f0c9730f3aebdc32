//! A machine: the cores of a BGP daemon with a datastore, connected as in the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use bgp_daemon::registrar::{Answer, Job, Registrar};
use bgp_daemon::resources::Resources;
use bgp_daemon::transition::Transition;
use bgp_daemon::{Forwarding, restart};
use bgp_proto::{Attributes, Family, FamilySet, Ipv4Prefix, Net};
use bgp_speaker::bgp_fsm::{Instant, State};
use bgp_speaker::rib::{NextHops, Progress};
use bgp_speaker::{Event, Input, Output as SpeakerOutput, Speaker};
use calico_bgp::{Derived, Host, Secrets, View};
use calico_store::mirror::{FeedId, Mirror, Output};
use calico_store::{Error, KeyRange, LeaseId};
use etcd_lite::Core;
use etcd_lite::core::{WatchCursor, WatchPoll};

/// How long a registration lasts without a keepalive.
const REGISTRATION_TTL: Duration = Duration::from_secs(15);

/// How long a reflector counts without a registration.
const ABSENCE_WAIT: Duration = Duration::from_secs(60);

/// The messages of a machine to the others, and its received ones.
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) run: Option<Run>,
    /// Whether the machine is cut off from the datastore.
    pub(crate) cut: bool,
    /// The peers with which sessions have ended.
    pub(crate) downs: BTreeSet<IpAddr>,
    former: Option<BTreeSet<IpAddr>>,
    reflects: bool,
    seed: u64,
}

/// A running daemon.
pub(crate) struct Run {
    pub(crate) speaker: Option<Speaker>,
    pub(crate) transition: Transition,
    mirror: Mirror,
    cursors: BTreeMap<usize, WatchCursor>,
    resources: Resources,
    registrar: Option<Registrar>,
}

impl Machine {
    pub(crate) fn new(name: String, address: Ipv4Addr, reflects: bool) -> Self {
        Self {
            seed: u64::from(u32::from(address)),
            name,
            address,
            run: None,
            cut: false,
            downs: BTreeSet::new(),
            former: None,
            reflects,
        }
    }

    pub(crate) fn start(&mut self) {
        self.seed += 1 << 32;
        let ranges = View::prefixes(&self.name).into_iter().map(KeyRange::prefix);
        self.run = Some(Run {
            speaker: None,
            transition: Transition::default(),
            mirror: Mirror::gated(ranges, self.seed),
            cursors: BTreeMap::new(),
            resources: Resources::new(self.host()),
            registrar: self
                .reflects
                .then(|| Registrar::new(&self.name, REGISTRATION_TTL)),
        });
    }

    /// Kills it; its files stay.
    pub(crate) fn kill(&mut self) {
        let run = self.run.take();
        self.former = run
            .and_then(|run| run.speaker)
            .map(|speaker| restart::remembered(&speaker));
    }

    /// Returns the route of a client.
    pub(crate) fn route(number: u16) -> Net<'static> {
        let [high, low] = number.to_be_bytes();
        Net::V4(Ipv4Prefix::host(Ipv4Addr::new(10, 65, high, low)))
    }

    /// Returns the prefixes with a path.
    pub(crate) fn prefixes(&self) -> usize {
        self.speaker()
            .map_or(0, |speaker| speaker.rib().stats().prefixes)
    }

    /// Returns the addresses of the peers of established sessions.
    pub(crate) fn sessions(&self) -> BTreeSet<IpAddr> {
        let peers = self.speaker().into_iter().flat_map(Speaker::peers);
        let up = peers.filter(|peer| peer.session.state() == State::Established);
        up.map(|peer| peer.config.remote).collect()
    }

    pub(crate) fn speaker(&self) -> Option<&Speaker> {
        self.run.as_ref()?.speaker.as_ref()
    }

    fn host(&self) -> Host {
        Host {
            name: self.name.clone(),
            families: FamilySet::from(Family::IPV4_UNICAST),
            multipath_max: 1,
            next_hops: NextHops::AssumeReachable,
            restart_wait: Duration::from_secs(90),
            reflects: self.reflects,
            reflectors: None,
            registration_ttl: REGISTRATION_TTL,
            absence_wait: ABSENCE_WAIT,
        }
    }

    /// Performs the pending work; a client announces its route when it starts.
    pub(crate) fn turn(&mut self, now: Instant, core: &mut Core, route: Option<u16>) {
        let (cut, seed) = (self.cut, self.seed);
        let Some(run) = &mut self.run else { return };
        run.follow(now, core, cut);
        if let Some(derived) = run.derive(now) {
            run.pursue(now, &derived);
            if run.speaker.is_none() && derived.intent.is_some() {
                run.begin(now, &derived, self.former.take(), seed, route);
            }
        }
        run.look(now);
        run.enrol(now, core, cut);
        if let Some(speaker) = &mut run.speaker
            && speaker.poll_timeout().is_some_and(|at| at <= now)
        {
            speaker.handle(now, Input::Timeout);
        }
    }
}

impl testkit::Node for Machine {
    fn speaker(&self) -> Option<&Speaker> {
        self.run.as_ref()?.speaker.as_ref()
    }

    fn speaker_mut(&mut self) -> Option<&mut Speaker> {
        self.run.as_mut()?.speaker.as_mut()
    }

    fn output(&mut self, output: SpeakerOutput) {
        let (Some(run), SpeakerOutput::Event(event)) = (&mut self.run, output) else {
            return;
        };
        run.transition.observe(&event);
        if let (Event::Down { peer, .. }, Some(speaker)) = (&event, &run.speaker)
            && let Some(config) = speaker.peer_config(*peer)
        {
            self.downs.insert(config.remote);
        }
    }

    /// Its timers are checked in each turn.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

impl Run {
    /// Lets the mirror send requests, which the datastore answers at once or not at all.
    fn follow(&mut self, now: Instant, core: &Core, cut: bool) {
        let time = now.saturating_duration_since(Instant::ZERO);
        let away = || Error::Unavailable("cut off".into());
        self.mirror.handle_timeout(time);
        loop {
            let Some(output) = self.mirror.poll_output() else {
                break;
            };
            match output {
                Output::List { feed, query } => {
                    let page = if cut { Err(away()) } else { core.range(&query) };
                    self.mirror.listed(time, feed, page);
                }
                Output::Watch { feed, request } => {
                    let cursor = if cut {
                        Err(away())
                    } else {
                        core.watch(request)
                    };
                    let opened = cursor.map(|cursor| {
                        self.cursors.insert(feed.0, cursor);
                        core.header()
                    });
                    self.mirror.opened(time, feed, opened);
                }
                Output::Probe { feed } => {
                    if let (false, Some(batch)) = (cut, core.progress()) {
                        self.mirror.watched(time, feed, Ok(batch));
                    }
                }
                Output::Cancel { feed } => {
                    self.cursors.remove(&feed.0);
                }
            }
        }
        let feeds: Vec<usize> = self.cursors.keys().copied().collect();
        for feed in feeds.into_iter().filter(|_| !cut) {
            while let Some(cursor) = self.cursors.get_mut(&feed) {
                let batch = match core.poll_watch(cursor) {
                    WatchPoll::Idle => break,
                    WatchPoll::Events(batch) => Ok(batch),
                    WatchPoll::Ended(error) => {
                        self.cursors.remove(&feed);
                        Err(error)
                    }
                };
                self.mirror.watched(time, FeedId(feed), batch);
            }
        }
        for update in self.mirror.take(time, usize::MAX) {
            self.resources.take(update);
        }
    }

    fn derive(&mut self, now: Instant) -> Option<Derived> {
        if let Some(speaker) = &self.speaker {
            self.resources.look(now, speaker);
        }
        self.resources.derive(&Secrets::new(), &self.transition)
    }

    fn pursue(&mut self, now: Instant, derived: &Derived) {
        let config = self.transition.want(now, derived);
        if let (Some(speaker), Some(config)) = (&mut self.speaker, config) {
            let done = speaker
                .reconfigure(now, config)
                .expect("it is the same speaker");
            assert!(done.reset.is_empty(), "{done:?}");
        }
        if let (Some(registrar), Some(wish), None) =
            (&mut self.registrar, &derived.wish, &self.speaker)
        {
            registrar.claim(wish.clone());
        }
    }

    fn begin(
        &mut self,
        now: Instant,
        derived: &Derived,
        former: Option<BTreeSet<IpAddr>>,
        seed: u64,
        route: Option<u16>,
    ) {
        let Some(config) = self.transition.want(now, derived) else {
            return;
        };
        let mut speaker = Speaker::new(config, seed);
        restart::begin(
            &mut speaker,
            former,
            Duration::from_secs(90),
            Forwarding::Others,
        );
        speaker.start(now);
        if let Some(number) = route {
            let input = Input::Local {
                family: Family::IPV4_UNICAST,
                net: Machine::route(number),
                attributes: Some(Attributes::default()),
                interface: None,
            };
            speaker.handle(now, input);
        }
        self.speaker = Some(speaker);
    }

    fn look(&mut self, now: Instant) {
        let Some(speaker) = &mut self.speaker else {
            return;
        };
        while self.transition.poll_timeout().is_some_and(|at| at <= now) {
            let look = self.transition.look(now, speaker);
            if let Some(why) = &look.farewell {
                speaker.stop_all(now, why);
            }
            if let Some(config) = look.config {
                speaker
                    .reconfigure(now, config)
                    .expect("it is the same speaker");
            }
            if look.progress == Progress::Done {
                break;
            }
        }
    }

    fn enrol(&mut self, now: Instant, core: &mut Core, cut: bool) {
        let Some(registrar) = &mut self.registrar else {
            return;
        };
        if let Some(wish) = self
            .speaker
            .as_ref()
            .and_then(|speaker| self.transition.wish(speaker))
        {
            registrar.want(wish);
        }
        let time = now.saturating_duration_since(Instant::ZERO);
        let away = || Error::Unavailable("cut off".into());
        while let Some(job) = registrar.poll(now) {
            let answer = match job {
                Job::Grant(_) if cut => Answer::Granted(Err(away())),
                Job::KeepAlive(_) if cut => Answer::KeptAlive(Err(away())),
                Job::Txn(_) if cut => Answer::Done(Err(away())),
                Job::Grant(ttl_s) => Answer::Granted(core.lease_grant(time, LeaseId::NONE, ttl_s)),
                Job::KeepAlive(lease) => Answer::KeptAlive(core.lease_keep_alive(time, lease)),
                Job::Txn(txn) => Answer::Done(core.txn(&txn)),
            };
            registrar.done(now, answer);
        }
    }
}
