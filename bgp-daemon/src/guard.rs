//! The host guard of a daemon: it loads the guard's table before a port opens, if it may, then
//! checks and reports it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use bgp_config::Intent;
use bgp_io::bgp_fsm::Instant;
use daemon_common::events::{Event, Text, emit};
use daemon_common::report::{Fact, Status};
use host_guard::{Cover, Holder, Loaded, record};
use nix::unistd::geteuid;

use crate::limits::GUARD_CHECK;
use crate::parent::command::Refusal;
use crate::parent::holder;
use crate::{Config, Driver, DriverError, Parent, Round, Settings};

mod table;

pub(crate) use table::Table;

/// The last port that only privileged processes can listen on.
const PRIVILEGED_MAX: u16 = 1023;

/// The guard as wanted, and as last found.
#[derive(Debug)]
pub(crate) struct HostGuard {
    holder: Holder,
    table: Table,
    /// Path of the record that a loading process leaves for this one.
    record: PathBuf,
    enabled: bool,
    /// Users and ports that the file adds.
    added: Cover,
    wanted: Cover,
    /// Number of peers at another port that do not fit into the table.
    left_out: usize,
    /// Ports that the daemon listens on.
    listens: BTreeSet<u16>,
    /// The BGP ports of the intent, and the peers that it connects to.
    ports: BTreeSet<u16>,
    dialed: Vec<SocketAddr>,
    state: State,
    /// When to check the table again.
    look_at: Instant,
}

/// State of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The guard is disabled in the file.
    Off,
    /// The kernel has the table; so many segments were dropped.
    InEffect { dropped: u64 },
    /// The table was loaded by another process, without these peers. This daemon has no privilege to
    /// read whether it is still there.
    Recorded { lacks: Option<String> },
    /// The table is missing or incomplete.
    Missing(String),
    /// It is loaded and does not allow this daemon's user: it drops the daemon's own segments.
    Blocks,
}

impl HostGuard {
    /// Creates the guard; loads nothing yet.
    pub(crate) fn new<S: Settings>(config: &Config<S>, parent: Option<Parent>) -> Self {
        let mut guard = Self {
            holder: holder::<S>(),
            table: parent.map_or(Table::Own, Table::Of),
            record: record::path(&config.control()),
            enabled: true,
            added: Cover::default(),
            wanted: Cover::default(),
            left_out: 0,
            listens: BTreeSet::new(),
            ports: BTreeSet::new(),
            dialed: Vec::new(),
            state: State::Off,
            look_at: Instant::ZERO + GUARD_CHECK,
        };
        guard.configure(config);
        guard
    }

    /// Reads the section of a file; applied by the next [`update`](Self::update).
    fn configure<S: Settings>(&mut self, config: &Config<S>) {
        let section = &config.file.guard;
        self.enabled = section.enabled;
        let users = section.users.iter();
        let users = users.filter_map(|user| host_guard::user_id(&user.get_ref().0).ok());
        let ports = section.ports.iter().map(|port| port.get_ref().get());
        self.added = Cover {
            ports: ports.collect(),
            users: users.collect(),
            ..Cover::default()
        };
    }

    /// Covers the ports of an intent, before they are opened.
    pub(crate) fn cover(&mut self, intent: &Intent) {
        self.note(intent);
        self.update();
    }

    /// Records the ports that an intent listens on and connects to.
    fn note(&mut self, intent: &Intent) {
        let listens = intent.listen.iter().map(SocketAddr::port);
        self.listens = listens.collect();
        self.ports = intent.ports();
        self.dialed = intent.dialed().collect();
    }

    /// Loads the table if it has to change.
    fn update(&mut self) {
        let is_new = self.want();
        let is_off = self.state == State::Off;
        if is_new || self.enabled == is_off {
            let state = self.load();
            self.settle(state);
        }
    }

    /// Computes the entries of the table. Returns false if they are unchanged.
    fn want(&mut self) -> bool {
        let mut wanted = self.added.clone();
        wanted.ports.extend(&self.ports);
        wanted.users.extend([0, geteuid().as_raw()]);
        self.left_out = wanted.dial(self.dialed.iter().copied());
        std::mem::replace(&mut self.wanted, wanted) != self.wanted
    }

    /// Checks whether the table is still there, and loads it again if not.
    fn look(&mut self) {
        let state = match self.inspect() {
            found @ (State::Missing(_) | State::Blocks) => {
                let again = self.load();
                if matches!(again, State::InEffect { .. }) {
                    let reason = Text::new(found);
                    emit(Event::HostGuardRepaired { reason });
                }
                again
            }
            found => found,
        };
        self.settle(state);
    }

    /// Returns the fact for `show status`, and the operator's notes.
    fn found(&self) -> (Fact, Vec<String>) {
        let found = self.inspect();
        let value = match &found {
            State::Recorded { lacks: Some(_) } => {
                // The note names the peers that the record lacks.
                let peers = BTreeSet::new();
                let ports_and_users = Cover {
                    peers,
                    ..self.wanted.clone()
                };
                format!("{found}: {ports_and_users}")
            }
            State::InEffect { .. } | State::Recorded { .. } => format!("{found}: {}", self.wanted),
            State::Off | State::Missing(_) | State::Blocks => found.to_string(),
        };
        let fact = Fact {
            name: "host guard".to_owned(),
            value,
        };
        (fact, self.warnings(&found))
    }

    /// Loads the table, if this process may.
    fn load(&self) -> State {
        if !self.enabled {
            if let Err(refusal) = self.table.withdraw(self.holder)
                && !refusal.is_permission
            {
                let reason = Text::new(refusal.why);
                emit(Event::HostGuardStays { reason });
            }
            return State::Off;
        }
        match self.table.load(self.holder, &self.wanted) {
            Ok(()) => self.inspect(),
            Err(refusal) => self.without(refusal),
        }
    }

    /// Returns the state in the kernel, or the state that another process has recorded.
    fn inspect(&self) -> State {
        if !self.enabled {
            return State::Off;
        }
        match self.table.read() {
            Ok(loaded) => self.state_of(loaded),
            Err(refusal) => self.without(refusal),
        }
    }

    fn state_of(&self, loaded: Option<Loaded>) -> State {
        let Some(loaded) = loaded else {
            return State::Missing("the kernel has no such table".to_owned());
        };
        match loaded.lacks(self.holder, &self.wanted) {
            Some(_) if is_blocked(&loaded) => State::Blocks,
            Some(why) => State::Missing(why),
            None => State::InEffect {
                dropped: loaded.dropped,
            },
        }
    }

    fn without(&self, refusal: Refusal) -> State {
        if !refusal.is_permission {
            return State::Missing(refusal.why);
        }
        let Some(recorded) = record::read(&self.record) else {
            let why = "this daemon has no CAP_NET_ADMIN to load it, and `cambric guard` has not \
                       loaded it for this daemon since the host started";
            return State::Missing(why.to_owned());
        };
        self.state_of_record(&recorded)
    }

    /// Returns the state by a record. Only ports and users count: peers of the datastore are
    /// covered only if the daemon loads the table.
    fn state_of_record(&self, recorded: &Cover) -> State {
        let peers = recorded.lacks_peers(&self.wanted);
        let why = match recorded.lacks(&self.wanted) {
            why if why == peers => {
                return State::Recorded { lacks: peers };
            }
            why => why.unwrap_or_default(),
        };
        if !recorded.users.contains(&geteuid().as_raw()) {
            return State::Blocks;
        }
        State::Missing(format!(
            "{why}, as `cambric guard` loaded it, and this daemon has no CAP_NET_ADMIN to change it: \
             name it in [guard] and restart the daemon"
        ))
    }

    /// Records a state, and logs a changed one.
    fn settle(&mut self, state: State) {
        let before = std::mem::replace(&mut self.state, state);
        if std::mem::discriminant(&before) == std::mem::discriminant(&self.state)
            && matches!(self.state, State::Off | State::InEffect { .. })
            || before == self.state
        {
            return;
        }
        self.events(&self.state).into_iter().for_each(emit);
    }

    /// Returns a state as events.
    fn events(&self, state: &State) -> Vec<Event> {
        let cover = Text::new(&self.wanted);
        let status = Text::new(state);
        let incomplete = |why: String| Event::HostGuardIncomplete {
            reason: Text::new(why),
        };
        let left_out = self.left_out().map(incomplete);
        match state {
            State::Off | State::InEffect { .. } => {
                let loaded = Event::HostGuardLoaded { status, cover };
                left_out.into_iter().chain([loaded]).collect()
            }
            State::Recorded { lacks } => {
                let lacks = lacks.clone().map(incomplete);
                let loaded = Event::HostGuardLoaded { status, cover };
                lacks.into_iter().chain(left_out).chain([loaded]).collect()
            }
            State::Blocks => {
                let user = geteuid().as_raw().into();
                vec![Event::HostGuardBlocks { user, cover }]
            }
            State::Missing(why) => {
                let reason = Text::new(why);
                let ports = self.open_ports();
                let ports = ports.map(|port| Event::HostGuardPortOpen { port: port.into() });
                let missing = Event::HostGuardMissing { reason, cover };
                [missing].into_iter().chain(ports).collect()
            }
        }
    }

    fn warnings(&self, state: &State) -> Vec<String> {
        match state {
            State::Off => Vec::new(),
            State::InEffect { .. } => self.left_out().into_iter().collect(),
            State::Recorded { lacks } => {
                let lacks = lacks.iter().map(|why| {
                    format!(
                        "host guard: {why}: any user of this host can dial it from the host's \
                         addresses. The table covers peers of the datastore at a port other than 179 \
                         only if the daemon has CAP_NET_ADMIN"
                    )
                });
                lacks.chain(self.left_out()).collect()
            }
            State::Blocks => vec![format!(
                "host guard {state}, so the kernel drops the daemon's own segments ({}); run `cambric \
                 guard --user {}` as root",
                self.wanted,
                geteuid()
            )],
            State::Missing(why) => self.open(why),
        }
    }

    /// Returns a note on the number of peers that do not fit into the table.
    fn left_out(&self) -> Option<String> {
        (self.left_out > 0).then(|| {
            format!(
                "host guard: {} peers at a port other than 179 are not covered, beyond the {} that it \
                 takes",
                self.left_out,
                host_guard::limits::PEERS_MAX
            )
        })
    }

    /// Returns notes on what is unprotected without the table.
    fn open(&self, why: &str) -> Vec<String> {
        let mut warnings = vec![format!(
            "host guard not in effect: {why}. Any user of this host can open BGP sessions from its \
             addresses ({}); run `cambric guard` as root",
            self.wanted
        )];
        warnings.extend(self.open_ports().map(|port| {
            format!(
                "BGP port {port} is open to local users: it is above {PRIVILEGED_MAX} and the host \
                 guard is not in effect, so any of them can listen there while the daemon is down"
            )
        }));
        warnings
    }

    /// Ports that another user can listen on while the daemon is down.
    fn open_ports(&self) -> impl Iterator<Item = u16> + '_ {
        let ports = self.listens.iter().copied();
        ports.filter(|port| *port > PRIVILEGED_MAX)
    }
}

impl<S: Settings> Driver<S> for HostGuard {
    fn turn(&mut self, round: &mut Round<'_>) -> Result<(), DriverError> {
        if self.look_at <= round.now {
            self.look_at = round.now + GUARD_CHECK;
            self.look();
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.look_at)
    }

    fn adopted(&mut self, _: Instant, intent: &Intent) {
        self.cover(intent);
    }

    fn reload(&mut self, config: &Config<S>) -> Vec<&'static str> {
        self.configure(config);
        self.update();
        Vec::new()
    }

    fn report(&self, status: &mut Status) {
        let (fact, notes) = self.found();
        status.facts.push(fact);
        status.notes.extend(notes);
    }
}

/// Returns whether the rules are loaded but no entry allows this daemon's user.
fn is_blocked(loaded: &Loaded) -> bool {
    let own = geteuid().as_raw();
    let mut entries = loaded.entries.values();
    loaded.broken.is_none()
        && entries.clone().any(|cover| !cover.ports.is_empty())
        && !entries.any(|cover| cover.users.contains(&own))
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off, by the configuration"),
            Self::InEffect { dropped } => write!(f, "in effect, {dropped} segments dropped"),
            Self::Recorded { .. } => f.write_str(
                "loaded by `cambric guard`, not verified since (that needs CAP_NET_ADMIN)",
            ),
            Self::Missing(why) => write!(f, "not in effect: {why}"),
            Self::Blocks => write!(
                f,
                "blocks this daemon: it does not allow user id {}",
                geteuid()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use bgp_config::{BgpFile, NextHops, NoKernel, Source};

    use super::*;

    fn guard(directory: &std::path::Path) -> HostGuard {
        HostGuard {
            holder: Holder::RouteReflector,
            table: Table::Own,
            record: directory.join("rr.guard"),
            enabled: true,
            added: Cover::default(),
            wanted: Cover {
                ports: [179, 1790].into(),
                users: [0].into(),
                ..Cover::default()
            },
            left_out: 0,
            listens: [1790].into(),
            ports: BTreeSet::new(),
            dialed: Vec::new(),
            state: State::Off,
            look_at: Instant::ZERO,
        }
    }

    /// The names of the events of a state.
    fn names(guard: &HostGuard, state: &State) -> Vec<&'static str> {
        let events = guard.events(state);
        events.iter().map(|event| event.kind().name).collect()
    }

    fn refused() -> Refusal {
        let error = netlink::nftables::OpenError::NotPermitted(netlink::Refused::of(1));
        host_guard::GuardError::from(error).into()
    }

    #[test]
    fn unprivileged_daemon_never_reports_guard_in_effect() {
        let directory = tempfile::tempdir().expect("a directory");
        let guard = guard(directory.path());
        let State::Missing(why) = guard.without(refused()) else {
            panic!("nothing is recorded");
        };
        assert!(why.contains("cambric guard"), "{why}");
        let narrow = Cover {
            ports: [179].into(),
            users: [0, geteuid().as_raw()].into(),
            ..Cover::default()
        };
        record::write(&guard.record, &narrow).expect("written");
        let State::Missing(why) = guard.without(refused()) else {
            panic!("a port is missing");
        };
        assert!(why.contains("port 1790"), "{why}");
        let missing = names(&guard, &State::Missing(why));
        assert_eq!(missing, ["host_guard.missing", "host_guard.port_open"]);
        record::write(&guard.record, &guard.wanted).expect("written");
        let state = guard.without(refused());
        assert_eq!(state, State::Recorded { lacks: None });
        assert!(state.to_string().contains("not verified"), "{state}");
        assert!(guard.warnings(&state).is_empty());
        assert_eq!(names(&guard, &state), ["host_guard.loaded"]);
    }

    #[test]
    fn port_above_1023_without_guard_is_open_to_local_users() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut guard = guard(directory.path());
        let missing = State::Missing("no nftables".to_owned());
        let warnings = guard.warnings(&missing);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("no nftables"), "{warnings:?}");
        assert!(warnings[1].starts_with("BGP port 1790 is open to local users"));
        guard.listens = [179].into();
        assert_eq!(guard.warnings(&missing).len(), 1);
        assert!(guard.warnings(&State::InEffect { dropped: 0 }).is_empty());
    }

    #[test]
    fn table_that_lacks_a_port_is_not_in_effect() {
        let directory = tempfile::tempdir().expect("a directory");
        let guard = guard(directory.path());
        assert!(matches!(guard.state_of(None), State::Missing(_)));
        let mut loaded = Loaded::default();
        loaded
            .entries
            .insert(Holder::BgpClient, guard.wanted.clone());
        assert!(matches!(
            guard.state_of(Some(loaded.clone())),
            State::Missing(_)
        ));
        let own = guard.wanted.clone();
        loaded.entries.insert(Holder::RouteReflector, own);
        let found = guard.state_of(Some(loaded.clone()));
        assert_eq!(found, State::InEffect { dropped: 0 });
        loaded.broken = Some("it is dormant".to_owned());
        assert!(matches!(guard.state_of(Some(loaded)), State::Missing(_)));
    }

    /// An intent that listens at 1790 and connects to these peers.
    fn intent(peers: &[SocketAddr]) -> Intent {
        let mut text =
            "asn = 64512\nrouter_id = \"10.0.0.1\"\nlisten = [\"10.0.0.1:1790\"]\n".to_owned();
        for peer in peers {
            let (address, port) = (peer.ip(), peer.port());
            text += &format!("[[neighbor]]\naddress = \"{address}\"\nport = {port}\nasn = 64513\n");
        }
        let source = Source::new("bgp.toml", text);
        let read = BgpFile::<NoKernel>::read(&source, NextHops::AssumeReachable);
        read.unwrap_or_else(|report| panic!("{report}")).1
    }

    #[test]
    fn dialed_port_is_guarded_at_its_peer_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut guard = guard(directory.path());
        guard.added.ports = [1791].into();
        let [etcd, https] =
            [2379, 443].map(|port| SocketAddr::from(([10, 0, 0, port as u8], port)));
        let own = SocketAddr::from(([10, 0, 0, 3], 1790));
        let listed = SocketAddr::from(([10, 0, 0, 4], 1791));
        guard.note(&intent(&[etcd, https, own, listed]));
        guard.want();
        assert_eq!(guard.wanted.ports, [179, 1790, 1791].into());
        assert_eq!(guard.wanted.peers, [etcd, https].into());
    }

    #[test]
    fn recorded_table_without_a_dialed_peer_has_a_note() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut guard = guard(directory.path());
        let recorded = guard.wanted.clone();
        guard.note(&intent(&[SocketAddr::from(([10, 0, 0, 9], 2379))]));
        guard.want();
        record::write(&guard.record, &guard.wanted).expect("written");
        assert_eq!(guard.without(refused()), State::Recorded { lacks: None });
        let recorded = Cover {
            users: guard.wanted.users.clone(),
            ..recorded
        };
        record::write(&guard.record, &recorded).expect("written");
        let state = guard.without(refused());
        assert!(matches!(state, State::Recorded { .. }), "{state:?}");
        let warnings = guard.warnings(&state).join("\n");
        assert!(warnings.contains("peer 10.0.0.9:2379"), "{warnings}");
        let expected = ["host_guard.incomplete", "host_guard.loaded"];
        assert_eq!(names(&guard, &state), expected);
    }

    #[test]
    fn table_that_does_not_allow_the_daemon_blocks_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let guard = guard(directory.path());
        let mut cover = guard.wanted.clone();
        cover.users.clear();
        let mut loaded = Loaded::default();
        loaded.entries.insert(Holder::RouteReflector, cover.clone());
        let state = guard.state_of(Some(loaded.clone()));
        let warnings = guard.warnings(&state);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_eq!(names(&guard, &state), ["host_guard.blocks"]);
        assert!(warnings[0].starts_with("host guard blocks this daemon"));
        assert!(!warnings[0].contains("Any user"), "{warnings:?}");
        record::write(&guard.record, &cover).expect("written");
        assert!(matches!(guard.without(refused()), State::Blocks));
        // The other daemon's entries allow it.
        cover.users.insert(geteuid().as_raw());
        loaded.entries.insert(Holder::BgpClient, cover);
        assert!(matches!(guard.state_of(Some(loaded)), State::Missing(_)));
    }
}
