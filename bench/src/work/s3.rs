//! s3 and s3b: a reflector and its clients, all to all.

use anyhow::Result;
use netns_lab::Lab;

use super::fanout::{converge, s3_fleet, s3b_fleet};
use super::latency::latency;
use crate::daemons::Kind;
use crate::limits::{LATENCY_GAP, LATENCY_ROUNDS};
use crate::stage::{Measures, Options, quantiles};

/// s3: 200 clients of 250 routes.
pub(super) async fn s3(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let fleet = s3_fleet(options);
    let mut stage = fleet.stage(lab, kind, options).await?;
    let mut measures = converge(&mut stage)?.measures();
    let rounds = if options.quick { 10 } else { LATENCY_ROUNDS };
    for (gap, announce, withdraw) in [
        (
            None,
            ["announce_p50_ms", "announce_p99_ms"],
            ["withdraw_p50_ms", "withdraw_p99_ms"],
        ),
        (
            Some(LATENCY_GAP),
            ["gap_announce_p50_ms", "gap_announce_p99_ms"],
            ["gap_withdraw_p50_ms", "gap_withdraw_p99_ms"],
        ),
    ] {
        let latency = latency(&mut stage, fleet, gap, rounds, None)?;
        for (names, samples) in [(announce, latency.announce), (withdraw, latency.withdraw)] {
            measures.extend(names.into_iter().zip(quantiles(samples, [0.5, 0.99])?));
        }
    }
    stage.strike().await?;
    Ok(measures)
}

/// s3b: 1,000 clients of 64 routes.
pub(super) async fn s3b(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let mut stage = s3b_fleet(options).stage(lab, kind, options).await?;
    let measured = converge(&mut stage)?;
    stage.strike().await?;
    Ok(measured.measures())
}
