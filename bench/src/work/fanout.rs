//! s3 and s3b: a reflector and its clients, all to all.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use lab::Lab;

use crate::chance::Chance;
use crate::daemons::Kind;
use crate::ledger::NOBODY;
use crate::limits::{LATENCY_GAP, LATENCY_ROUNDS, LATENCY_WITHIN, PHASE_WITHIN};
use crate::routes::{Bundle, CLIENTS, NONE, Passing, Prefixes, Routes, Set, Sets, Tag};
use crate::stage::{DAEMON_AS, Measured, Measures, Options, Part, Stage, passing, quantiles};
use crate::wire::{Attributes, Prefix, announce, withdraw};

/// Where the routes are: 100.64.0.0/10, one in every block of 64 addresses.
const ROUTES: u32 = u32::from_be_bytes([100, 64, 0, 0]);

/// The routes of `clients`, `each` of them; and one more for each client that nobody announces
/// at first.
pub fn routes(seed: u64, clients: usize, each: usize, passing: Passing) -> Routes {
    let mut chance = Chance::new(seed);
    let mut blocks: Vec<_> = (0..(clients * (each + 1)) as u32).collect();
    chance.shuffle(&mut blocks);
    let prefixes = blocks.iter().enumerate().map(|(number, block)| {
        let address = ROUTES + (block << 6);
        // Blocks of a node are /26, its other routes single addresses.
        if number % 5 == 0 && number < clients * each {
            Prefix::V4(address, 26)
        } else {
            Prefix::V4(address + chance.below(64) as u32, 32)
        }
    });
    let prefixes = Prefixes::new(prefixes.collect(), 6, 0);
    let sets = (0..clients).map(|source| Set {
        source,
        sent: Attributes {
            next_hop: (CLIENTS + source as u32).to_be_bytes(),
            local_pref: Some(100),
            ..Attributes::default()
        },
    });
    let bundles = (0..clients).map(|client| Bundle {
        tag: client as Tag + 1,
        numbers: (client * each..(client + 1) * each).collect(),
    });
    let bundles: Vec<_> = bundles.collect();
    let mut winners = vec![NONE; prefixes.count()];
    for bundle in &bundles {
        bundle
            .numbers
            .iter()
            .for_each(|&number| winners[number] = bundle.tag);
    }
    Routes {
        prefixes,
        sets: Sets::new(sets.collect(), passing),
        bundles,
        winners,
    }
}

/// All clients send, and all receive.
pub(super) fn parts(clients: usize) -> Vec<Part> {
    let part = Part {
        asn: DAEMON_AS,
        receives: true,
    };
    vec![part; clients]
}

/// A reflector with its clients, who have said nothing yet.
async fn stage(
    lab: &Lab,
    kind: Kind,
    options: &Options,
    clients: usize,
    each: usize,
) -> Result<Stage> {
    let routes = routes(options.seed, clients, each, passing(kind, true));
    Stage::set(lab, kind, options, &parts(clients), Rc::new(routes)).await
}

/// All clients announce all; measured until all hold all.
fn converge(stage: &mut Stage) -> Result<Measured> {
    let routes = stage.generator.routes();
    let all = |_| true;
    let messages: Vec<_> = (0..stage.generator.sessions())
        .map(|client| Bytes::from(routes.announcements(client, all, None)))
        .collect();
    let owner = |tag| routes.sets.get(tag).map_or(NOBODY, |set| set.source);
    let winners = routes.winners.iter().enumerate();
    let news: Vec<_> = winners
        .map(|(number, &tag)| (number, tag, owner(tag)))
        .collect();
    stage.generator.ledger().expect_all(&news);
    stage.measure("all hold all", PHASE_WITHIN, |generator| {
        let mut messages = messages.into_iter().enumerate();
        messages.try_for_each(|(client, message)| generator.send(client, message))
    })
}

/// One route announced, then withdrawn, at a time, by one client after the other: milliseconds
/// until all have it.
struct Latency {
    announce: Vec<f64>,
    withdraw: Vec<f64>,
}

fn latency(stage: &mut Stage, gap: Duration, rounds: usize) -> Result<Latency> {
    let routes = stage.generator.routes();
    let clients = stage.generator.sessions();
    let first = routes.prefixes.count() - clients;
    let mut latency = Latency {
        announce: vec![],
        withdraw: vec![],
    };
    let deadline = Instant::now() + LATENCY_WITHIN;
    for round in 0..rounds {
        let client = round * 7 % clients;
        let (number, tag) = (first + client, client as Tag + 1);
        let prefix = [routes.prefixes.get(number)];
        let Some(set) = routes.sets.get(tag) else {
            continue;
        };
        for (message, tag, samples) in [
            (
                announce(&set.sent, &prefix, None),
                tag,
                &mut latency.announce,
            ),
            (withdraw(&prefix, None), NONE, &mut latency.withdraw),
        ] {
            if !gap.is_zero() {
                stage.generator.run_for(gap)?;
            }
            stage.generator.ledger().expect(number, tag, client);
            let began = stage.generator.begin();
            stage.generator.send(client, message.into())?;
            let at = stage.generator.until_right("one route", LATENCY_WITHIN);
            samples.push((stage.told(at)? - began).as_secs_f64() * 1e3);
        }
        if Instant::now() > deadline {
            break;
        }
    }
    Ok(latency)
}

/// s3: 200 clients of 250 routes.
pub(super) async fn s3(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let (clients, each, rounds) = if options.quick {
        (20, 50, 10)
    } else {
        (200, 250, LATENCY_ROUNDS)
    };
    let mut stage = stage(lab, kind, options, clients, each).await?;
    let mut measures = converge(&mut stage)?.measures();
    let back_to_back = latency(&mut stage, Duration::ZERO, rounds)?;
    let with_gaps = latency(&mut stage, LATENCY_GAP, rounds)?;
    for (names, samples) in [
        (
            ["announce_p50_ms", "announce_p99_ms"],
            back_to_back.announce,
        ),
        (
            ["withdraw_p50_ms", "withdraw_p99_ms"],
            back_to_back.withdraw,
        ),
        (
            ["gap_announce_p50_ms", "gap_announce_p99_ms"],
            with_gaps.announce,
        ),
        (
            ["gap_withdraw_p50_ms", "gap_withdraw_p99_ms"],
            with_gaps.withdraw,
        ),
    ] {
        measures.extend(names.into_iter().zip(quantiles(samples, [0.5, 0.99])?));
    }
    stage.strike().await?;
    Ok(measures)
}

/// s3b: 1,000 clients of 64 routes.
pub(super) async fn s3b(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let (clients, each) = if options.quick { (100, 8) } else { (1000, 64) };
    let mut stage = stage(lab, kind, options, clients, each).await?;
    let measured = converge(&mut stage)?;
    stage.strike().await?;
    Ok(measured.measures())
}
