//! stall: one client of 200 stops reading while the others continue.

use anyhow::{Context, Result};
use bytes::Bytes;
use netns_lab::Lab;

use super::fanout::{Fleet, converge, expect_all, s3_fleet};
use super::latency::latency;
use crate::daemons::Kind;
use crate::limits::LATENCY_ROUNDS;
use crate::routes::NONE;
use crate::stage::{Measures, Options, Stage, quantiles};

/// The client that stops reading.
const STALLED: usize = 0;

/// Receive buffer of that client, in octets: small, so that it is soon full.
const WINDOW: usize = 4096;

/// Whole tables withdrawn and announced again before memory is measured: buffers are full, twice as
/// long, four times as long.
const ROUNDS: [usize; 3] = [12, 24, 48];

/// Measures the others' latency compared with that without a stalled client, and the daemon's
/// growth over time; at the end the client resumes reading, and must reach the correct table.
pub(super) async fn stall(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let fleet = s3_fleet(options);
    let mut stage = fleet
        .stage_with(lab, kind, options, |generator| {
            generator.session(STALLED).window = Some(WINDOW);
        })
        .await?;
    converge(&mut stage)?;
    let rounds = if options.quick {
        20
    } else {
        2 * LATENCY_ROUNDS
    };
    let free = latency(&mut stage, fleet, None, rounds, Some(STALLED))?;

    // Once with all clients reading, so that the memory left by changing tables is not attributed
    // to the stalled client.
    turn_over(&mut stage, fleet, ROUNDS[0])?;
    stage.generator.reads(STALLED, false)?;
    stage.generator.ledger().count(STALLED, false);
    let before = stage.daemon.used()?;
    let mut done = 0;
    let mut grown = [0.0; ROUNDS.len()];
    for (grown, rounds) in grown.iter_mut().zip(ROUNDS) {
        turn_over(&mut stage, fleet, rounds - done)?;
        done = rounds;
        let now = stage.daemon.used()?.resident_octets as f64;
        *grown = (now - before.resident_octets as f64) / 1e6;
    }
    let after = stage.daemon.used()?;
    let held_up = latency(&mut stage, fleet, None, rounds, Some(STALLED))?;

    stage.generator.ledger().count(STALLED, true);
    stage.generator.reads(STALLED, true)?;
    let whole = stage
        .generator
        .settle("the stalled client holds all again", stage.patience);
    stage.with_logs(whole)?;
    stage.strike().await?;
    let ratio = |free, held_up| -> Result<f64> {
        let ([free], [held_up]) = (quantiles(free, [0.99])?, quantiles(held_up, [0.99])?);
        Ok(held_up / free)
    };
    Ok(Measures::from([
        (
            "stall_announce_p99_ratio",
            ratio(free.announce, held_up.announce)?,
        ),
        (
            "stall_withdraw_p99_ratio",
            ratio(free.withdraw, held_up.withdraw)?,
        ),
        ("stall_mb", grown[0]),
        ("stall_2x_mb", grown[1]),
        ("stall_4x_mb", grown[2]),
        ("stall_creep_mb", grown[2] - grown[1]),
        ("peak_mb", after.peak_octets as f64 / 1e6),
    ]))
}

/// All clients except the stalled one withdraw all their routes and announce them again, several
/// times.
fn turn_over(stage: &mut Stage, fleet: Fleet, rounds: usize) -> Result<()> {
    let routes = stage.generator.routes();
    let senders = || (0..fleet.clients).filter(|&client| client != STALLED);
    let every = |_| true;
    let messages = |write: &dyn Fn(usize) -> Vec<u8>| -> Vec<_> {
        senders()
            .map(|client| (client, Bytes::from(write(client))))
            .collect()
    };
    let announce = messages(&|client| routes.announcements(client, every, None));
    let withdraw = messages(&|client| routes.withdrawals(client, every, None));
    let nothing = senders().flat_map(|client| {
        let own = fleet.own(client);
        own.map(move |number| (number, NONE, client))
    });
    let nothing: Vec<_> = nothing.collect();
    for round in 0..rounds {
        for messages in [&withdraw, &announce] {
            if std::ptr::eq(messages, &raw const withdraw) {
                stage.generator.ledger().expect_all(&nothing);
            } else {
                expect_all(stage);
            }
            stage.generator.begin();
            for (client, message) in messages {
                stage.generator.send(*client, message.clone())?;
            }
            let done = stage
                .generator
                .until_right("all others hold it", stage.patience);
            stage
                .with_logs(done)
                .with_context(|| format!("round {round}"))?;
        }
    }
    Ok(())
}
