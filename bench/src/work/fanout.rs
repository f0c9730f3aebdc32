//! A reflector and its clients, all to all: s3 and s3b, and the fleet of further workloads.

use std::ops::Range;
use std::rc::Rc;

use anyhow::Result;
use bytes::Bytes;
use netns_lab::Lab;

use crate::chance::Chance;
use crate::daemons::Kind;
use crate::generator::Generator;
use crate::ledger::NO_SOURCE;
use crate::limits::HOLD_TIME_S;
use crate::routes::{Bundle, CLIENTS, NONE, Passing, Prefixes, Routes, Set, Sets, Tag};
use crate::stage::{DAEMON_AS, Measured, Options, Part, Stage, passing, scene};
use crate::wire::{Attributes, Prefix};

/// The IPv4 routes: in 100.64.0.0/10, one in every block of 64 addresses.
const ROUTES: u32 = u32::from_be_bytes([100, 64, 0, 0]);

/// The clients of a reflector, and how many routes each has.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// The number of clients.
    pub clients: usize,
    /// IPv4 routes of each; every fifth is a /26, the others are /32.
    pub each: usize,
    /// IPv6 routes of each, all /64.
    pub each_v6: usize,
}

impl Fleet {
    /// Returns the numbers of a client's IPv4 routes.
    pub const fn own(self, client: usize) -> Range<usize> {
        client * self.each..(client + 1) * self.each
    }

    /// Returns the numbers of its IPv6 routes.
    pub const fn own_v6(self, client: usize) -> Range<usize> {
        let first = self.clients * (self.each + 1);
        first + client * self.each_v6..first + (client + 1) * self.each_v6
    }

    /// Returns the number of a client's IPv4 route that it does not announce at first.
    pub const fn spare(self, client: usize) -> usize {
        self.clients * self.each + client
    }

    /// Returns the attributes of a client, as a tag.
    pub const fn tag(client: usize) -> Tag {
        client as Tag + 1
    }

    /// Returns the routes of all clients.
    pub fn routes(self, seed: u64, passing: Passing) -> Routes {
        let mut chance = Chance::new(seed);
        let spares = self.clients * self.each;
        let mut blocks: Vec<_> = (0..(spares + self.clients) as u32).collect();
        chance.shuffle(&mut blocks);
        let prefixes = blocks.iter().enumerate().map(|(number, block)| {
            let address = ROUTES + (block << 6);
            if number % 5 == 0 && number < spares {
                Prefix::V4(address, 26)
            } else {
                Prefix::V4(address + chance.below(64) as u32, 32)
            }
        });
        let prefixes = Prefixes::new(prefixes.collect(), 6, self.clients * self.each_v6);
        let sets = (0..self.clients).map(|source| Set {
            source,
            sent: Attributes {
                next_hop: (CLIENTS + source as u32).to_be_bytes(),
                local_pref: Some(100),
                ..Attributes::default()
            },
        });
        let mut winners = vec![NONE; prefixes.count()];
        let mut bundles = vec![];
        for client in 0..self.clients {
            for numbers in [self.own(client), self.own_v6(client)] {
                let tag = Self::tag(client);
                winners[numbers.clone()].fill(tag);
                let numbers = numbers.collect();
                bundles.push(Bundle { tag, numbers });
            }
        }
        Routes {
            prefixes,
            sets: Sets::new(sets.collect(), passing),
            bundles,
            winners,
        }
    }

    /// Returns the sessions: all send, and all receive.
    pub fn parts(self) -> Vec<Part> {
        let part = Part {
            asn: DAEMON_AS,
            receives: true,
            hold_time_s: HOLD_TIME_S,
        };
        vec![part; self.clients]
    }

    /// Starts a reflector and establishes its clients, without routes.
    pub async fn stage(self, lab: &Lab, kind: Kind, options: &Options) -> Result<Stage> {
        self.stage_with(lab, kind, options, |_| {}).await
    }

    /// Does the same with sessions that are changed before they are dialed.
    pub async fn stage_with(
        self,
        lab: &Lab,
        kind: Kind,
        options: &Options,
        change: impl FnOnce(&mut Generator),
    ) -> Result<Stage> {
        let parts = self.parts();
        let routes = Rc::new(self.routes(options.seed, passing(kind, true)));
        let mut stage = Stage::prepare(lab, kind, options, scene(&parts), &parts, routes).await?;
        change(&mut stage.generator);
        stage.establish()?;
        Ok(stage)
    }
}

/// Expects the routes of all clients at all clients.
pub fn expect_all(stage: &mut Stage) {
    let routes = stage.generator.routes();
    let owner = |tag| routes.sets.get(tag).map_or(NO_SOURCE, |set| set.source);
    let winners = routes.winners.iter().enumerate();
    let news = winners.map(|(number, &tag)| (number, tag, owner(tag)));
    stage
        .generator
        .ledger()
        .expect_all(&news.collect::<Vec<_>>());
}

/// Announces all routes of all clients; measures until all clients hold all routes.
pub fn converge(stage: &mut Stage) -> Result<Measured> {
    let routes = stage.generator.routes();
    let every = |_| true;
    let messages: Vec<_> = (0..stage.generator.sessions())
        .map(|client| Bytes::from(routes.announcements(client, every, None)))
        .collect();
    expect_all(stage);
    stage.measure("all hold all", |generator| {
        let mut messages = messages.into_iter().enumerate();
        messages.try_for_each(|(client, message)| generator.send(client, message))
    })
}

/// Returns the fleet of s3.
pub const fn s3_fleet(options: &Options) -> Fleet {
    let (clients, each) = if options.quick { (20, 50) } else { (200, 250) };
    Fleet {
        clients,
        each,
        each_v6: 0,
    }
}

/// Returns the fleet of s3b.
pub const fn s3b_fleet(options: &Options) -> Fleet {
    let (clients, each) = if options.quick { (100, 8) } else { (1000, 64) };
    Fleet {
        clients,
        each,
        each_v6: 0,
    }
}
