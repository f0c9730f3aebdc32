//! One route announced, then withdrawn, at a time, by one client after the other.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::fanout::Fleet;
use crate::limits::LATENCY_WITHIN;
use crate::routes::NONE;
use crate::stage::Stage;
use crate::wire::{announce, withdraw};

/// Milliseconds until all receivers have it, or have removed it.
#[derive(Debug, Default)]
pub struct Latency {
    /// Samples of announcements.
    pub announce: Vec<f64>,
    /// Samples of withdrawals.
    pub withdraw: Vec<f64>,
}

/// Measures at most so many rounds. Each message follows at once after the previous one has reached
/// all receivers, or after a pause; the client `without` sends none.
pub fn latency(
    stage: &mut Stage,
    fleet: Fleet,
    gap: Option<Duration>,
    rounds: usize,
    without: Option<usize>,
) -> Result<Latency> {
    let routes = stage.generator.routes();
    let mut latency = Latency::default();
    let deadline = Instant::now() + LATENCY_WITHIN;
    let clients = (0..rounds).map(|round| round * 7 % fleet.clients);
    for client in clients.filter(|&client| Some(client) != without) {
        let (number, tag) = (fleet.spare(client), Fleet::tag(client));
        let prefix = [routes.prefixes.get(number)];
        let Some(set) = routes.sets.get(tag) else {
            continue;
        };
        let announced = (
            announce(&set.sent, &prefix, None),
            tag,
            &mut latency.announce,
        );
        let withdrawn = (withdraw(&prefix, None), NONE, &mut latency.withdraw);
        for (message, tag, samples) in [announced, withdrawn] {
            if let Some(gap) = gap {
                stage.generator.run_for(gap)?;
            }
            stage.generator.ledger().expect(number, tag, client);
            let began = stage.generator.begin();
            stage.generator.send(client, message.into())?;
            let at = stage.generator.until_right("one route", LATENCY_WITHIN);
            samples.push((stage.with_logs(at)? - began).as_secs_f64() * 1e3);
        }
        if Instant::now() > deadline {
            break;
        }
    }
    Ok(latency)
}
