//! churn: clients of s3 withdraw, announce and disconnect at random for the given time.

use std::time::Instant;

use anyhow::{Context, Result};
use bytes::Bytes;
use netns_lab::Lab;

use super::fanout::{Fleet, converge, s3_fleet};
use crate::chance::Chance;
use crate::daemons::Kind;
use crate::routes::NONE;
use crate::stage::{Measures, Options, Stage};
use crate::wire::{announce, withdraw};

/// The announced part of a client's routes.
type Share = std::ops::Range<usize>;

/// Measures how much the daemon's memory grows from the first half of the time to the second, each
/// with the whole table; every intermediate state is checked.
pub(super) async fn churn(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let fleet = s3_fleet(options);
    let mut stage = fleet.stage(lab, kind, options).await?;
    converge(&mut stage)?;
    let began = Instant::now();
    let mut churn = Churn {
        shares: vec![0..fleet.each; fleet.clients],
        chance: Chance::new(options.seed),
        fleet,
        rounds: 0,
    };
    let mut halves = [0, 0];
    for (half, most) in halves.iter_mut().enumerate() {
        let end = began + options.churn * (half as u32 + 1) / 2;
        // At least once, even if the time is short.
        while *most == 0 || Instant::now() < end {
            for _ in 0..ROUNDS_BETWEEN {
                churn.round(&mut stage)?;
            }
            churn.whole(&mut stage)?;
            *most = stage.daemon.used()?.resident_octets.max(*most);
        }
    }
    stage.strike().await?;
    Ok(Measures::from([
        ("churn_rounds", churn.rounds as f64),
        ("churn_growth", halves[1] as f64 / halves[0] as f64),
        (
            "churn_grown_mb",
            (halves[1] as f64 - halves[0] as f64) / 1e6,
        ),
    ]))
}

/// Rounds of changes between two whole tables.
const ROUNDS_BETWEEN: usize = 5;

/// The announced routes of each client.
struct Churn {
    fleet: Fleet,
    shares: Vec<Share>,
    chance: Chance,
    rounds: usize,
}

impl Churn {
    /// A tenth of the clients change their announcements, one disconnects and reconnects; then
    /// waits until the state is correct.
    fn round(&mut self, stage: &mut Stage) -> Result<()> {
        self.rounds += 1;
        stage.generator.begin();
        for _ in 0..self.fleet.clients.div_ceil(10) {
            let client = self.chance.below(self.fleet.clients);
            let mut ends = [0; 2].map(|_| self.chance.below(self.fleet.each + 1));
            ends.sort_unstable();
            self.change(stage, client, ends[0]..ends[1])?;
        }
        let client = self.chance.below(self.fleet.clients);
        self.bounce(stage, client)?;
        let done = stage
            .generator
            .settle("all hold what is announced", stage.patience);
        stage
            .with_logs(done)
            .with_context(|| format!("round {}", self.rounds))
            .map(drop)
    }

    /// All clients announce all routes.
    fn whole(&mut self, stage: &mut Stage) -> Result<()> {
        stage.generator.begin();
        for client in 0..self.fleet.clients {
            self.change(stage, client, 0..self.fleet.each)?;
        }
        let done = stage.generator.settle("all hold all", stage.patience);
        stage.with_logs(done).map(drop)
    }

    fn change(&mut self, stage: &mut Stage, client: usize, share: Share) -> Result<()> {
        let before = std::mem::replace(&mut self.shares[client], share.clone());
        let routes = stage.generator.routes();
        let first = self.fleet.own(client).start;
        let only = |these: &Share, others: &Share| -> Vec<_> {
            these
                .clone()
                .filter(|at| !others.contains(at))
                .map(|at| first + at)
                .collect()
        };
        let (less, more) = (only(&before, &share), only(&share, &before));
        let prefixes = |numbers: &[usize]| -> Vec<_> {
            numbers
                .iter()
                .map(|&number| routes.prefixes.get(number))
                .collect()
        };
        let tag = Fleet::tag(client);
        let mut octets = withdraw(&prefixes(&less), None);
        if let Some(set) = routes.sets.get(tag) {
            octets.extend(announce(&set.sent, &prefixes(&more), None));
        }
        let news = less.into_iter().map(|number| (number, NONE, client));
        let news = news.chain(more.into_iter().map(|number| (number, tag, client)));
        stage
            .generator
            .ledger()
            .expect_all(&news.collect::<Vec<_>>());
        stage.generator.send(client, Bytes::from(octets))
    }

    /// Closes a client's session and lets it dial again, to announce its routes.
    fn bounce(&self, stage: &mut Stage, client: usize) -> Result<()> {
        let routes = stage.generator.routes();
        let first = self.fleet.own(client).start;
        let prefixes = self.shares[client]
            .clone()
            .map(|at| routes.prefixes.get(first + at));
        let prefixes: Vec<_> = prefixes.collect();
        if let Some(set) = routes.sets.get(Fleet::tag(client)) {
            let table = announce(&set.sent, &prefixes, None);
            stage.generator.session(client).greeting = Bytes::from(table);
        }
        stage.generator.redials = true;
        stage.generator.cut(client);
        stage.generator.dial(&[client])
    }
}
