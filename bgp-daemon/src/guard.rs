//! The host guard on behalf of a daemon: in force before a port opens where the daemon may load it,
//! looked after, and reported.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use admin::report::Fact;
use host_guard::{Cover, Guard, GuardError, Holder, Loaded, record};
use intent::Intent;
use nix::unistd::geteuid;

use crate::limits::GUARD_CHECK;
use crate::{Config, Settings};

/// The last port that only privileged processes can listen on.
const PRIVILEGED_MAX: u16 = 1023;

/// The guard as a daemon wants it, and as it was found last.
#[derive(Debug)]
pub(crate) struct HostGuard {
    holder: Holder,
    /// What a load by another process leaves for this one.
    record: PathBuf,
    enabled: bool,
    /// Users and ports that the file adds.
    added: Cover,
    wanted: Cover,
    /// Ports that the daemon listens on.
    listens: BTreeSet<u16>,
    state: State,
    checked: Instant,
}

/// What is known of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The file says that there is to be none.
    Off,
    /// The kernel has it; so many segments were dropped.
    InForce { dropped: u64 },
    /// Another process has loaded it. Whether it is still there, this daemon may not read.
    Recorded,
    /// It is missing, or lacks something.
    Missing(String),
}

impl HostGuard {
    /// Nothing is loaded yet.
    pub(crate) fn new<S: Settings>(config: &Config<S>) -> Self {
        let holder = if S::REFLECTS {
            Holder::RouteReflector
        } else {
            Holder::BgpClient
        };
        let mut guard = Self {
            holder,
            record: record::path(&config.control()),
            enabled: true,
            added: Cover::default(),
            wanted: Cover::default(),
            listens: BTreeSet::new(),
            state: State::Off,
            checked: Instant::now(),
        };
        guard.configure(config);
        guard
    }

    /// Takes over the section of a file; in force by the next [`cover`](Self::cover).
    pub(crate) fn configure<S: Settings>(&mut self, config: &Config<S>) {
        let section = &config.file.guard;
        self.enabled = section.enabled;
        let users = section.users.iter();
        let users = users.filter_map(|user| host_guard::user_id(&user.get_ref().0).ok());
        let ports = section.ports.iter().map(|port| port.get_ref().get());
        self.added = Cover {
            ports: ports.collect(),
            users: users.collect(),
        };
    }

    /// Covers the ports of an intent, before they are opened.
    pub(crate) fn cover(&mut self, intent: &Intent) {
        let listens = intent.listen.iter().map(std::net::SocketAddr::port);
        self.listens = listens.collect();
        let mut wanted = self.added.clone();
        wanted.ports.extend(intent.ports());
        wanted.users.extend([0, geteuid().as_raw()]);
        let is_new = std::mem::replace(&mut self.wanted, wanted) != self.wanted;
        let is_off = self.state == State::Off;
        if is_new || self.enabled == is_off {
            let state = self.load();
            self.settle(state);
        }
    }

    /// Looks whether the table is still there, if it is time, and loads it again if not.
    pub(crate) fn look(&mut self) {
        if !self.rest().is_zero() {
            return;
        }
        self.checked = Instant::now();
        let state = match self.inspect() {
            State::Missing(why) => {
                let again = self.load();
                if matches!(again, State::InForce { .. }) {
                    tracing::warn!(found = why, "host guard was changed; loaded again");
                }
                again
            }
            found => found,
        };
        self.settle(state);
    }

    /// How long until it is time to [`look`](Self::look).
    pub(crate) fn rest(&self) -> Duration {
        GUARD_CHECK.saturating_sub(self.checked.elapsed())
    }

    /// What `show status` says of it, and what an operator should know.
    pub(crate) fn report(&self) -> (Fact, Vec<String>) {
        let found = self.inspect();
        let value = match &found {
            State::InForce { .. } | State::Recorded => format!("{found}: {}", self.wanted),
            State::Off | State::Missing(_) => found.to_string(),
        };
        let fact = Fact {
            name: "host guard".to_owned(),
            value,
        };
        (fact, self.warnings(&found))
    }

    /// Loads the table, where this process may.
    fn load(&self) -> State {
        let opened = Guard::open();
        if !self.enabled {
            if let Ok(mut guard) = opened
                && let Err(error) = guard.withdraw(self.holder)
            {
                tracing::warn!(%error, "host guard is switched off, and its entries stay");
            }
            return State::Off;
        }
        let loaded = opened.and_then(|mut guard| guard.load(self.holder, &self.wanted));
        match loaded {
            Ok(()) => self.inspect(),
            Err(error) => self.without(&error),
        }
    }

    /// What the kernel says now, or what another process has left about it.
    fn inspect(&self) -> State {
        if !self.enabled {
            return State::Off;
        }
        match Guard::open().and_then(|mut guard| guard.read()) {
            Ok(loaded) => self.judge(loaded),
            Err(error) => self.without(&error),
        }
    }

    fn judge(&self, loaded: Option<Loaded>) -> State {
        let Some(loaded) = loaded else {
            return State::Missing("the kernel has no such table".to_owned());
        };
        match loaded.lacks(self.holder, &self.wanted) {
            Some(why) => State::Missing(why),
            None => State::InForce {
                dropped: loaded.dropped,
            },
        }
    }

    fn without(&self, error: &GuardError) -> State {
        if !error.is_permission() {
            return State::Missing(error.to_string());
        }
        let Some(recorded) = record::read(&self.record) else {
            let why = "this daemon has no CAP_NET_ADMIN to load it, and `cambric guard` has not \
                       loaded it for this daemon since the host started";
            return State::Missing(why.to_owned());
        };
        match recorded.lacks(&self.wanted) {
            None => State::Recorded,
            Some(why) => {
                let why = format!(
                    "{why}, as `cambric guard` loaded it, and this daemon has no CAP_NET_ADMIN to \
                     change it: name it in [guard] and restart the daemon"
                );
                State::Missing(why)
            }
        }
    }

    /// Takes note of a state, and logs one that is another.
    fn settle(&mut self, state: State) {
        let before = std::mem::replace(&mut self.state, state);
        if std::mem::discriminant(&before) == std::mem::discriminant(&self.state)
            && !matches!(self.state, State::Missing(_))
            || before == self.state
        {
            return;
        }
        for warning in self.warnings(&self.state) {
            tracing::warn!("{warning}");
        }
        if !matches!(self.state, State::Missing(_)) {
            tracing::info!(cover = %self.wanted, "host guard: {}", self.state);
        }
    }

    fn warnings(&self, state: &State) -> Vec<String> {
        let State::Missing(why) = state else {
            return Vec::new();
        };
        let mut warnings = vec![format!(
            "host guard not in force: {why}. Any user of this host can open BGP sessions from its \
             addresses ({}); run `cambric guard` as root",
            self.wanted
        )];
        let open = self.listens.iter().filter(|port| **port > PRIVILEGED_MAX);
        warnings.extend(open.map(|port| {
            format!(
                "BGP port {port} is open to local users: it is above {PRIVILEGED_MAX} and the host \
                 guard is not in force, so any of them can listen there while the daemon is down"
            )
        }));
        warnings
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off, by the configuration"),
            Self::InForce { dropped } => write!(f, "in force, {dropped} segments dropped"),
            Self::Recorded => f.write_str(
                "loaded by `cambric guard`, not verified since (that needs CAP_NET_ADMIN)",
            ),
            Self::Missing(why) => write!(f, "not in force: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(directory: &std::path::Path) -> HostGuard {
        HostGuard {
            holder: Holder::RouteReflector,
            record: directory.join("rr.guard"),
            enabled: true,
            added: Cover::default(),
            wanted: Cover {
                ports: [179, 1790].into(),
                users: [0].into(),
            },
            listens: [1790].into(),
            state: State::Off,
            checked: Instant::now(),
        }
    }

    fn refused() -> GuardError {
        GuardError::NotPermitted(netlink::Refused::of(1))
    }

    #[test]
    fn unprivileged_daemon_never_says_in_force() {
        let directory = tempfile::tempdir().expect("a directory");
        let guard = guard(directory.path());
        let State::Missing(why) = guard.without(&refused()) else {
            panic!("nothing is recorded");
        };
        assert!(why.contains("cambric guard"), "{why}");
        let narrow = Cover {
            ports: [179].into(),
            users: [0].into(),
        };
        record::write(&guard.record, &narrow).expect("written");
        let State::Missing(why) = guard.without(&refused()) else {
            panic!("a port is missing");
        };
        assert!(why.contains("port 1790"), "{why}");
        record::write(&guard.record, &guard.wanted).expect("written");
        let state = guard.without(&refused());
        assert_eq!(state, State::Recorded);
        assert!(state.to_string().contains("not verified"), "{state}");
        assert!(guard.warnings(&state).is_empty());
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
        assert!(guard.warnings(&State::InForce { dropped: 0 }).is_empty());
    }

    #[test]
    fn table_that_lacks_a_port_is_not_in_force() {
        let directory = tempfile::tempdir().expect("a directory");
        let guard = guard(directory.path());
        assert!(matches!(guard.judge(None), State::Missing(_)));
        let mut loaded = Loaded::default();
        loaded
            .entries
            .insert(Holder::BgpClient, guard.wanted.clone());
        assert!(matches!(
            guard.judge(Some(loaded.clone())),
            State::Missing(_)
        ));
        let own = guard.wanted.clone();
        loaded.entries.insert(Holder::RouteReflector, own);
        let found = guard.judge(Some(loaded.clone()));
        assert_eq!(found, State::InForce { dropped: 0 });
        loaded.broken = Some("it is dormant".to_owned());
        assert!(matches!(guard.judge(Some(loaded)), State::Missing(_)));
    }
}
