//! A BGP speaker on a host of the lab, for every program.

use std::net::SocketAddr;
use std::time::Duration;

use daemon_common::report;
use ipnet::IpNet;
use netns_lab::{Error, Process, until};
use nix::sys::signal::Signal;

use crate::{
    Kind, PATIENCE, Route, Setup, Site, Table, bird, cambric, differences, frr, gobgp, openbgpd,
    setup::Own,
};

/// A running speaker.
#[derive(Debug)]
pub struct Speaker {
    /// Which program it is.
    pub kind: Kind,
    /// Where it runs.
    pub site: Site,
    process: Process,
}

impl Speaker {
    /// Starts a speaker.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn start(kind: Kind, site: Site, setup: &Setup) -> Result<Self, Error> {
        let process = match kind {
            Kind::Client | Kind::Reflector => cambric::start(kind, &site, setup).await?,
            Kind::Bird => bird::start(&site, setup)?,
            Kind::Gobgp => gobgp::start(&site, setup).await?,
            Kind::Frr => frr::start(&site, setup)?,
            Kind::Openbgpd => openbgpd::start(&site, setup)?,
        };
        let speaker = Self {
            kind,
            site,
            process,
        };
        if kind == Kind::Openbgpd {
            speaker.writes(openbgpd::READY).await;
        }
        Ok(speaker)
    }

    /// Starts one of Cambric's programs with the configuration in the datastore at these addresses,
    /// as the node with its host's name.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_stored(kind: Kind, site: Site, stores: &[SocketAddr]) -> Result<Self, Error> {
        Self::start_stored_with(kind, site, stores, "")
    }

    /// Does the same, with further lines at the top of the configuration file.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_stored_with(
        kind: Kind,
        site: Site,
        stores: &[SocketAddr],
        keys: &str,
    ) -> Result<Self, Error> {
        let process = cambric::start_stored(kind, &site, stores, keys)?;
        Ok(Self {
            kind,
            site,
            process,
        })
    }

    /// Does the same for a program that starts from its snapshot, unless the snapshot is older than
    /// so many seconds.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_keeping(
        kind: Kind,
        site: Site,
        stores: &[SocketAddr],
        max_age_s: u32,
    ) -> Result<Self, Error> {
        let keys = cambric::keeping(kind, &site, max_age_s);
        Self::start_stored_with(kind, site, stores, &keys)
    }

    /// Returns the age of the program's snapshot; `None` if there is none.
    pub fn kept_for(&self) -> Option<Duration> {
        let file = std::fs::metadata(cambric::snapshot(self.kind, &self.site)).ok()?;
        file.modified().ok()?.elapsed().ok()
    }

    /// Returns the content of the program's snapshot, empty if there is none.
    pub fn kept(&self) -> Vec<u8> {
        std::fs::read(cambric::snapshot(self.kind, &self.site)).unwrap_or_default()
    }

    /// Waits until one of Cambric's programs reports a status that satisfies `wanted`.
    ///
    /// # Panics
    /// If it does not in time, with the last status and the end of its log.
    pub async fn reports(&self, what: &str, wanted: impl Fn(&report::Status) -> bool) {
        let waited = until(PATIENCE, what, async || {
            Ok::<_, Error>(match cambric::status(self.kind, &self.site).await {
                Ok(status) if wanted(&status) => Ok(()),
                Ok(status) => Err(format!("{status:?}")),
                Err(silent) => Err(silent),
            })
        });
        if let Err(error) = waited.await {
            panic!("{error}\n{}", self.log_tail());
        }
    }

    /// Returns its best routes, without the routes that it originates.
    ///
    /// # Errors
    /// If the program does not answer.
    pub async fn learned(&self) -> Result<Table, String> {
        self.learned_paths(false).await.map(Table::from_iter)
    }

    /// Returns all its paths, without the routes that it originates.
    ///
    /// # Errors
    /// If the program does not answer.
    pub async fn all_paths(&self) -> Result<Vec<(IpNet, Route)>, String> {
        self.learned_paths(true).await
    }

    async fn learned_paths(&self, all: bool) -> Result<Vec<(IpNet, Route)>, String> {
        match self.kind {
            Kind::Client | Kind::Reflector => {
                cambric::learned_paths(self.kind, &self.site, all).await
            }
            Kind::Bird => bird::learned_paths(&self.site, all).await,
            Kind::Gobgp => gobgp::learned_paths(&self.site, all).await,
            Kind::Frr => frr::learned_paths(&self.site, all).await,
            Kind::Openbgpd => openbgpd::learned_paths(&self.site, all).await,
        }
    }

    /// Returns the neighbors that one of Cambric's programs reports.
    ///
    /// # Panics
    /// If it does not answer in time.
    pub async fn neighbors(&self) -> report::Neighbors {
        let asked = until(PATIENCE, "an answer", async || {
            Ok::<_, Error>(cambric::neighbors(self.kind, &self.site).await)
        });
        let (answer, _) = asked.await.unwrap_or_else(|error| panic!("{error}"));
        answer
    }

    /// Has one of Cambric's programs send a ROUTE-REFRESH to a neighbor.
    ///
    /// # Panics
    /// If the program reports an error.
    pub async fn refresh(&self, neighbor: &str) {
        cambric::refresh(self.kind, &self.site, neighbor).await;
    }

    /// Asserts that one of Cambric's programs has lost none of these sessions. When two connections
    /// were opened at the same time, the other side closes one, sometimes after it was taken for
    /// the session: that is no loss.
    ///
    /// # Panics
    /// If a session was lost.
    pub async fn stood(&self, these: impl Fn(&report::Neighbor) -> bool) {
        let neighbors = self.neighbors().await.neighbors.into_iter();
        for neighbor in neighbors.filter(these) {
            let (name, down) = (neighbor.name, neighbor.last_down.unwrap_or_default());
            let collided = down.contains("Connection Collision Resolution");
            assert!(neighbor.flaps == 0 || collided, "{name}: {down}");
            assert_eq!(neighbor.state, "Established", "{name}: {down}");
        }
    }

    /// Waits until all sessions of one of Cambric's programs are up.
    ///
    /// # Panics
    /// If they are not in time.
    pub async fn is_up(&self) {
        self.has_up(|_| true).await;
    }

    /// Waits until these sessions of one of Cambric's programs are up.
    ///
    /// # Panics
    /// If they are not in time.
    pub async fn has_up(&self, these: impl Fn(&report::Neighbor) -> bool) {
        let waited = until(PATIENCE, "all sessions", async || {
            let answer = match cambric::neighbors(self.kind, &self.site).await {
                Ok(answer) => answer,
                Err(starting) => return Ok(Err(starting)),
            };
            let neighbors = answer.neighbors.into_iter().filter(&these);
            let mut down = neighbors.filter(|neighbor| neighbor.state != "Established");
            Ok::<_, Error>(match down.next() {
                None => Ok(()),
                Some(neighbor) => Err(format!("{} is {}", neighbor.name, neighbor.state)),
            })
        });
        if let Err(error) = waited.await {
            panic!("{error}\n{}", self.log_tail());
        }
    }

    /// Returns the malformed messages that one of Cambric's programs has recorded.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn malformed(&self) -> report::Malformed {
        cambric::malformed(self.kind, &self.site).await
    }

    /// Returns the paths to `net` that one of Cambric's programs reports.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn paths(&self, net: IpNet) -> Vec<report::Path> {
        cambric::paths(self.kind, &self.site, Some(net), None).await
    }

    /// Returns the paths of the first routes of a family that one of Cambric's programs reports.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn paths_of(&self, family: &str) -> Vec<report::Path> {
        cambric::paths(self.kind, &self.site, None, Some(family.to_owned())).await
    }

    /// Runs a command of a foreign program and returns its output. FRR takes several lines at once.
    ///
    /// # Errors
    /// If the command fails.
    pub async fn command(&self, words: &str) -> Result<String, Error> {
        match self.kind {
            Kind::Client | Kind::Reflector => panic!("Cambric's programs are asked otherwise"),
            Kind::Bird => bird::ask(&self.site, &words.split(' ').collect::<Vec<_>>()).await,
            Kind::Gobgp => gobgp::ask(&self.site, words).await,
            Kind::Frr => {
                let lines = words.lines().map(str::to_owned);
                frr::ask(&self.site, &lines.collect::<Vec<_>>()).await
            }
            Kind::Openbgpd => openbgpd::ask(&self.site, words).await,
        }
    }

    /// Originates one more route.
    ///
    /// # Errors
    /// If the command fails.
    pub async fn announce(&self, own: &Own) -> Result<(), Error> {
        match self.kind {
            Kind::Client => cambric::announce(&self.site, own.net).await,
            Kind::Reflector => panic!("a reflector has no routes of its own"),
            Kind::Bird => bird::announce(&self.site, own).await,
            Kind::Gobgp => gobgp::announce(&self.site, own).await,
            Kind::Frr => frr::announce(&self.site, own).await,
            Kind::Openbgpd => openbgpd::announce(&self.site, own).await,
        }
    }

    /// Withdraws a route that it originates.
    ///
    /// # Errors
    /// If the command fails.
    pub async fn withdraw(&self, net: IpNet) -> Result<(), Error> {
        match self.kind {
            Kind::Client => cambric::withdraw(&self.site, net).await,
            Kind::Reflector => panic!("a reflector has no routes of its own"),
            Kind::Bird => bird::withdraw(&self.site, net).await,
            Kind::Gobgp => gobgp::withdraw(&self.site, net).await,
            Kind::Frr => frr::withdraw(&self.site, net).await,
            Kind::Openbgpd => openbgpd::withdraw(&self.site, net).await,
        }
    }

    /// Waits until it has learned exactly `expected`.
    ///
    /// # Panics
    /// If it does not in time, with what differs and the end of its log.
    pub async fn holds(&self, expected: &Table) {
        self.holds_as(expected, |_, _| {}).await;
    }

    /// Does the same as [`Self::holds`], after `mend` has corrected a known difference in its
    /// routes.
    ///
    /// # Panics
    /// As [`Self::holds`].
    pub async fn holds_as(&self, expected: &Table, mend: impl Fn(&IpNet, &mut Route)) {
        let what = format!("{:?} on host {}", self.kind, self.site.number);
        let waited = until(PATIENCE, &what, async || {
            Ok::<_, Error>(match self.learned().await {
                Ok(mut found) => {
                    found.iter_mut().for_each(|(net, route)| mend(net, route));
                    match differences(expected, &found) {
                        none if none.is_empty() => Ok(()),
                        differences => Err(differences),
                    }
                }
                Err(silent) => Err(silent),
            })
        });
        if let Err(error) = waited.await {
            panic!("{error}\n{}", self.log_tail());
        }
    }

    /// Waits until its log contains `words`.
    ///
    /// # Panics
    /// If it does not in time, with the end of its log.
    pub async fn writes(&self, words: &str) {
        let waited = until(PATIENCE, words, async || {
            let written = self.log().contains(words);
            Ok::<_, Error>(written.then_some(()).ok_or_else(String::new))
        });
        if let Err(error) = waited.await {
            panic!("{:?}: {error}\n{}", self.kind, self.log_tail());
        }
    }

    /// Edits the configuration of one of Cambric's programs and has the program reload it.
    ///
    /// # Panics
    /// If the program does not apply it in time, with the end of its log.
    pub async fn reconfigure(&self, edit: impl FnOnce(String) -> String) {
        let file = cambric::file(self.kind);
        let answered = self.answers("configuration applied", async || {
            self.site.save(&file, &edit(self.site.load(&file)));
            self.process.signal(Signal::SIGHUP).expect("it runs");
        });
        answered.await;
    }

    /// Makes a change and waits until `words` are logged one more time.
    ///
    /// # Panics
    /// If it does not in time, with the end of its log.
    pub async fn answers(&self, words: &str, change: impl AsyncFnOnce()) {
        let count = || self.log().matches(words).count();
        let before = count();
        change().await;
        let waited = until(PATIENCE, words, async || {
            let written = count() > before;
            Ok::<_, Error>(written.then_some(()).ok_or_else(String::new))
        });
        if let Err(error) = waited.await {
            panic!("{error}\n{}", self.log_tail());
        }
    }

    /// Waits until the process has ended, with any exit status.
    ///
    /// # Errors
    /// If it has not ended in time.
    pub async fn ends(&mut self) -> Result<(), Error> {
        self.process.wait(PATIENCE).await.map(drop)
    }

    /// Returns its whole log; invalid UTF-8 is replaced.
    fn log(&self) -> String {
        let octets = std::fs::read(self.process.log()).unwrap_or_default();
        String::from_utf8_lossy(&octets).into_owned()
    }

    /// Returns the end of its log.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Stops it gracefully, with a NOTIFICATION to its peers.
    ///
    /// # Errors
    /// If it has not ended in time.
    pub async fn stop(&mut self) -> Result<(), Error> {
        self.process.signal(Signal::SIGTERM)?;
        self.process.wait(PATIENCE).await.map(drop)
    }

    /// Starts it again on the same host, after its end.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn start_again(self, setup: &Setup) -> Result<Self, Error> {
        let Self {
            kind,
            site,
            process,
        } = self;
        drop(process);
        Self::start(kind, site, setup).await
    }

    /// Does the same for a program with its configuration in the datastore, with its existing file.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_stored_again(&mut self) -> Result<(), Error> {
        self.process = cambric::run(self.kind, &self.site)?;
        Ok(())
    }

    /// Does the same for a program that starts from its snapshot, unless the snapshot is older than
    /// so many seconds.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_keeping_again(
        &mut self,
        stores: &[SocketAddr],
        max_age_s: u32,
    ) -> Result<(), Error> {
        let keys = cambric::keeping(self.kind, &self.site, max_age_s);
        self.process = cambric::start_stored(self.kind, &self.site, stores, &keys)?;
        Ok(())
    }

    /// Kills it, without a NOTIFICATION to its peers.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub async fn kill(&mut self) -> Result<(), Error> {
        self.process.kill().await
    }
}
