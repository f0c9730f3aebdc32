//! s1 and s2: tables similar to the Internet's over external sessions.

use std::rc::Rc;

use anyhow::Result;
use bytes::Bytes;
use netns_lab::Lab;

use crate::chance::Chance;
use crate::daemons::Kind;
use crate::ledger::NO_SOURCE;
use crate::limits::HOLD_TIME_S;
use crate::routes::{
    Bundle, CLIENTS, NONE, Passing, Prefixes, Routes, Set, Sets, Tag, path_of_set,
};
use crate::stage::{Measures, Options, Part, Stage, passing};
use crate::wire::{Attributes, Prefix, mask};

/// The autonomous system of session 0; the others follow in order.
pub(super) const FIRST_AS: u32 = 65_001;

/// How many of 1,000 prefixes have this length: approximately as in the Internet's table.
const LENGTHS: [(usize, u8); 9] = [
    (600, 24),
    (120, 23),
    (120, 22),
    (50, 21),
    (40, 20),
    (30, 19),
    (20, 18),
    (5, 17),
    (15, 16),
];

/// How many of 100 bundles have at most this many prefixes, and more than the line above: 8.2 on
/// average.
const SIZES: [(usize, usize); 4] = [(51, 2), (30, 8), (15, 32), (4, 110)];

/// Returns the prefixes of a table, in the order of their addresses, with distinct first addresses.
fn prefixes(chance: &mut Chance, count: usize) -> Vec<Prefix> {
    let mut taken = vec![false; 1 << 24];
    // Excludes the addresses of the sessions, loopback addresses, and those beyond unicast.
    for (first, last) in [(0, 0), (10, 10), (127, 127), (224, 255)] {
        taken[first << 16..(last + 1) << 16].fill(true);
    }
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        let length = weighted(chance, &LENGTHS);
        let address = chance.next() as u32 & mask(length);
        let place = &mut taken[(address >> 8) as usize];
        if !*place {
            *place = true;
            all.push((address, length));
        }
    }
    all.sort_unstable();
    all.into_iter()
        .map(|(address, length)| Prefix::V4(address, length))
        .collect()
}

fn weighted<T: Copy>(chance: &mut Chance, rows: &[(usize, T)]) -> T {
    let all = rows.iter().map(|(weight, _)| weight).sum();
    let mut left = chance.below(all);
    let row = rows.iter().find(|(weight, _)| {
        let found = left < *weight;
        left = left.wrapping_sub(*weight);
        found
    });
    row.map_or(rows[0].1, |row| row.1)
}

/// Returns the numbers of prefixes with common attributes: few adjacent prefixes, from several
/// parts of the address space.
fn bundles(chance: &mut Chance, count: usize) -> Vec<Vec<usize>> {
    let mut runs = vec![];
    let mut next = 0;
    while next < count {
        let end = (next + 1 + chance.below(4)).min(count);
        runs.push(next..end);
        next = end;
    }
    chance.shuffle(&mut runs);
    let mut numbers = runs.into_iter().flatten();
    let mut bundles = vec![];
    loop {
        let most = weighted(chance, &SIZES);
        let least = SIZES
            .iter()
            .map(|row| row.1)
            .rfind(|size| *size < most)
            .unwrap_or(0);
        let size = least + 1 + chance.below(most - least);
        let bundle: Vec<_> = numbers.by_ref().take(size).collect();
        if bundle.is_empty() {
            return bundles;
        }
        bundles.push(bundle);
    }
}

/// Returns the same `count` prefixes from each of `senders`. Of each bundle one sender's path has 3
/// ASes, one has 4, the others 5; with a single sender it has 3 to 5.
pub fn routes(seed: u64, count: usize, senders: usize, passing: Passing) -> Routes {
    let mut chance = Chance::new(seed);
    let prefixes = Prefixes::new(prefixes(&mut chance, count), 8, 0);
    let (mut sets, mut sent) = (vec![], vec![]);
    let mut winners = vec![NONE; count];
    for numbers in bundles(&mut chance, count) {
        let winner = chance.below(senders);
        let second = (winner + 1 + chance.below(senders.max(2) - 1)) % senders;
        for source in 0..senders {
            let ases = match source {
                _ if senders == 1 => 3 + chance.below(3),
                _ if source == winner => 3,
                _ if source == second => 4,
                _ => 5,
            };
            let number = sets.len();
            sets.push(set(&mut chance, number, source, ases));
            let tag = number as Tag + 1;
            if source == winner {
                numbers.iter().for_each(|&number| winners[number] = tag);
            }
            sent.push(Bundle {
                tag,
                numbers: numbers.clone(),
            });
        }
    }
    // Every sender has its own order.
    chance.shuffle(&mut sent);
    Routes {
        prefixes,
        sets: Sets::new(sets, passing),
        bundles: sent,
        winners,
    }
}

fn set(chance: &mut Chance, number: usize, source: usize, ases: usize) -> Set {
    let between: Vec<_> = (2..ases)
        .map(|_| 1_000 + chance.below(20_000) as u32)
        .collect();
    let communities = (0..chance.below(4)).map(|_| chance.next() as u32 & 0x7fff_ffff);
    let mut communities: Vec<_> = communities.collect();
    communities.sort_unstable();
    Set {
        source,
        sent: Attributes {
            path: path_of_set(number, FIRST_AS + source as u32, &between),
            next_hop: (CLIENTS + source as u32).to_be_bytes(),
            local_pref: None,
            communities,
        },
    }
}

/// Returns the senders, then the monitors.
fn parts(senders: usize, monitors: usize) -> Vec<Part> {
    let part = |at| Part {
        asn: FIRST_AS + at as u32,
        receives: at >= senders,
        hold_time_s: HOLD_TIME_S,
    };
    (0..senders + monitors).map(part).collect()
}

async fn stage(
    lab: &Lab,
    kind: Kind,
    options: &Options,
    count: usize,
    senders: usize,
    monitors: usize,
) -> Result<Stage> {
    let routes = routes(options.seed, count, senders, passing(kind, false));
    Stage::set(
        lab,
        kind,
        options,
        &parts(senders, monitors),
        Rc::new(routes),
    )
    .await
}

/// An action of the senders on all routes at once.
#[derive(Clone, Copy)]
pub(super) enum All {
    Announce,
    Withdraw,
}

impl All {
    /// Returns the messages of a sender.
    pub(super) fn messages(self, routes: &Routes, sender: usize) -> Bytes {
        let every = |_| true;
        Bytes::from(match self {
            Self::Announce => routes.announcements(sender, every, None),
            Self::Withdraw => routes.withdrawals(sender, every, None),
        })
    }

    /// Expects all routes, or none, at every receiver.
    pub(super) fn expect(self, stage: &mut Stage) {
        let routes = stage.generator.routes();
        let tags = routes.winners.iter().map(|&winner| match self {
            Self::Announce => winner,
            Self::Withdraw => NONE,
        });
        let news = tags
            .enumerate()
            .map(|(number, tag)| (number, tag, NO_SOURCE));
        stage
            .generator
            .ledger()
            .expect_all(&news.collect::<Vec<_>>());
    }
}

fn phase(
    stage: &mut Stage,
    senders: usize,
    all: All,
    what: &str,
) -> Result<crate::stage::Measured> {
    let routes = stage.generator.routes();
    let messages: Vec<_> = (0..senders)
        .map(|sender| all.messages(&routes, sender))
        .collect();
    all.expect(stage);
    stage.measure(what, |generator| {
        let mut messages = messages.into_iter().enumerate();
        messages.try_for_each(|(sender, message)| generator.send(sender, message))
    })
}

/// s1: a million routes from one peer to one monitor; withdrawn; announced again.
pub(super) async fn s1(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let count = if options.quick { 20_000 } else { 1_000_000 };
    let mut stage = stage(lab, kind, options, count, 1, 1).await?;
    let conv = phase(&mut stage, 1, All::Announce, "the monitor holds all")?;
    let mut measures = conv.measures();
    let withdrawn = phase(&mut stage, 1, All::Withdraw, "the monitor holds nothing")?;
    let again = phase(&mut stage, 1, All::Announce, "the monitor holds all again")?;
    measures.extend([
        ("withdraw_s", withdrawn.seconds),
        ("withdraw_cpu_s", withdrawn.cpu),
        ("again_s", again.seconds),
        ("again_cpu_s", again.cpu),
    ]);
    stage.strike().await?;
    Ok(measures)
}

/// s2: the same routes from 20 peers, and two monitors.
pub(super) async fn s2(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let count = if options.quick { 2_000 } else { 100_000 };
    let senders = 20;
    let mut stage = stage(lab, kind, options, count, senders, 2).await?;
    let conv = phase(
        &mut stage,
        senders,
        All::Announce,
        "the monitors hold the best of all",
    )?;
    stage.strike().await?;
    Ok(conv.measures())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sender_has_the_shortest_path_of_each_prefix() {
        let routes = routes(3, 500, 20, Passing::Copied);
        let mut paths = vec![vec![]; 500];
        for bundle in &routes.bundles {
            let set = routes.sets.get(bundle.tag).expect("a set");
            for &number in &bundle.numbers {
                paths[number].push((set.sent.path.len(), bundle.tag));
            }
        }
        for (number, paths) in paths.iter_mut().enumerate() {
            paths.sort_unstable();
            assert_eq!(paths.len(), 20);
            assert_eq!(paths[0], (3, routes.winners[number]));
            assert_eq!((paths[1].0, paths[2].0), (4, 5));
        }
    }

    #[test]
    fn table_has_the_documented_shape() {
        let mut chance = Chance::new(1);
        let bundles = bundles(&mut chance, 100_000);
        assert!(
            (11_000..14_000).contains(&bundles.len()),
            "{}",
            bundles.len()
        );
        let mut numbers: Vec<_> = bundles.into_iter().flatten().collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..100_000));
        let prefixes = prefixes(&mut chance, 10_000);
        let long = prefixes
            .iter()
            .filter(|prefix| matches!(prefix, Prefix::V4(_, 24)));
        assert!((5_500..6_500).contains(&long.count()));
    }
}
