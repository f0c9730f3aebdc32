//! A BGP speaker on a host of the lab, whichever program it is.

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

    /// Starts one of Cambric's programs as the store behind these addresses has it: the node of
    /// its host's name.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_stored(kind: Kind, site: Site, stores: &[SocketAddr]) -> Result<Self, Error> {
        Self::start_stored_with(kind, site, stores, "")
    }

    /// The same, with further lines at the top of its file.
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

    /// The same for one that begins with what it knew, if that is not older than so many seconds.
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

    /// How long ago one of these has written its file; `None` if there is none.
    pub fn kept_for(&self) -> Option<Duration> {
        let file = std::fs::metadata(cambric::snapshot(self.kind, &self.site)).ok()?;
        file.modified().ok()?.elapsed().ok()
    }

    /// What one of these has in its file, if there is one.
    pub fn kept(&self) -> Vec<u8> {
        std::fs::read(cambric::snapshot(self.kind, &self.site)).unwrap_or_default()
    }

    /// Waits until one of Cambric's programs reports a status that is as wanted.
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

    /// Its best routes, its own ones left out.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub async fn learned(&self) -> Result<Table, String> {
        self.heard(false).await.map(Table::from_iter)
    }

    /// Every path that it holds, its own ones left out.
    ///
    /// # Errors
    /// If it cannot be asked.
    pub async fn all_paths(&self) -> Result<Vec<(IpNet, Route)>, String> {
        self.heard(true).await
    }

    async fn heard(&self, all: bool) -> Result<Vec<(IpNet, Route)>, String> {
        match self.kind {
            Kind::Client | Kind::Reflector => cambric::heard(self.kind, &self.site, all).await,
            Kind::Bird => bird::heard(&self.site, all).await,
            Kind::Gobgp => gobgp::heard(&self.site, all).await,
            Kind::Frr => frr::heard(&self.site, all).await,
            Kind::Openbgpd => openbgpd::heard(&self.site, all).await,
        }
    }

    /// What one of Cambric's programs reports of its neighbours.
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

    /// Has one of Cambric's programs ask a neighbour for its routes again.
    ///
    /// # Panics
    /// If it does not.
    pub async fn refresh(&self, neighbor: &str) {
        cambric::refresh(self.kind, &self.site, neighbor).await;
    }

    /// Asserts that one of Cambric's programs has lost none of these sessions. That of two
    /// connections opened at once the other side closes one, now and then a moment after it was
    /// taken for the session, is no loss.
    ///
    /// # Panics
    /// If it has.
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

    /// The malformed messages that one of Cambric's programs keeps.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn malformed(&self) -> report::Malformed {
        cambric::malformed(self.kind, &self.site).await
    }

    /// What one of Cambric's programs reports of the paths to `net`.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn paths(&self, net: IpNet) -> Vec<report::Path> {
        cambric::paths(self.kind, &self.site, net).await
    }

    /// Says something to a foreign program in its own words, and returns what it answers. FRR is
    /// told several lines at once.
    ///
    /// # Errors
    /// If it cannot be told.
    pub async fn tell(&self, words: &str) -> Result<String, Error> {
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

    /// Announces one more route.
    ///
    /// # Errors
    /// If it cannot be told.
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

    /// Withdraws a route of its own.
    ///
    /// # Errors
    /// If it cannot be told.
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

    /// The same, where a known difference in what it holds is first put right by `mend`.
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

    /// Waits until it has written `words`.
    ///
    /// # Panics
    /// If it does not in time, with the end of what it wrote instead.
    pub async fn writes(&self, words: &str) {
        let waited = until(PATIENCE, words, async || {
            let written = self.log().contains(words);
            Ok::<_, Error>(written.then_some(()).ok_or_else(String::new))
        });
        if let Err(error) = waited.await {
            panic!("{:?}: {error}\n{}", self.kind, self.log_tail());
        }
    }

    /// Has one of Cambric's programs take over another configuration, made from the one it has.
    ///
    /// # Panics
    /// If it does not take it in time, with the end of its log.
    pub async fn reconfigure(&self, edit: impl FnOnce(String) -> String) {
        let file = cambric::file(self.kind);
        let answered = self.answers("configuration applied", async || {
            self.site.save(&file, &edit(self.site.load(&file)));
            self.process.signal(Signal::SIGHUP).expect("it runs");
        });
        answered.await;
    }

    /// Changes something and waits until it has written `words` once more.
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

    /// Waits until it has ended, in whatever way.
    ///
    /// # Errors
    /// If it does not in time.
    pub async fn ends(&mut self) -> Result<(), Error> {
        self.process.wait(PATIENCE).await.map(drop)
    }

    /// All that it wrote, whatever octets there are in it.
    fn log(&self) -> String {
        let octets = std::fs::read(self.process.log()).unwrap_or_default();
        String::from_utf8_lossy(&octets).into_owned()
    }

    /// The end of what it wrote.
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }

    /// Has it end in good order, with a word to its peers.
    ///
    /// # Errors
    /// If it does not end in time.
    pub async fn stop(&mut self) -> Result<(), Error> {
        self.process.signal(Signal::SIGTERM)?;
        self.process.wait(PATIENCE).await.map(drop)
    }

    /// Starts it again where it was, after its end.
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

    /// The same for one that the store tells everything, with the file that it had.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_stored_again(&mut self) -> Result<(), Error> {
        self.process = cambric::run(self.kind, &self.site)?;
        Ok(())
    }

    /// The same for one that begins with what it knew, if that is not older than so many seconds.
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

    /// Ends it without a word to its peers.
    ///
    /// # Errors
    /// If it cannot be ended.
    pub async fn kill(&mut self) -> Result<(), Error> {
        self.process.kill().await
    }
}
