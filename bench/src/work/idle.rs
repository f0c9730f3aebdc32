//! idle: the CPU time of Felix with policies and endpoints that do not change.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::felix::{local_labels, policy};
use crate::fabric::{self, Ground};
use crate::limits::SETTLED;
use crate::stage::{Measures, Options, Policies};

const NODE: usize = 0;
const SIZE: Policies = Policies {
    policies: 1_000,
    remote: 0,
    local: 200,
};
const IDLE: Duration = Duration::from_secs(30);
const IDLE_QUICK: Duration = Duration::from_secs(1);

/// Starts Felix, and measures its CPU time while nothing happens.
pub(super) fn idle(options: &Options) -> Result<Measures> {
    let (size, time) = match options.quick {
        true => (Policies::QUICK, IDLE_QUICK),
        false => (SIZE, IDLE),
    };
    fabric::apart(async |lab| {
        let mut ground = Ground::at_rest(lab, 1).await?;
        let measured = measure(&mut ground, size, time).await;
        ground.with_logs(measured)
    })
}

async fn measure(ground: &mut Ground, size: Policies, time: Duration) -> Result<Measures> {
    let local = ground.endpoints(NODE, size.local).await?;
    let mut puts = vec![];
    for number in 0..size.policies {
        puts.push(policy(number));
    }
    for (number, endpoint) in (0..).zip(&local) {
        puts.push(endpoint.labeled(&local_labels(number, size.policies))?);
    }
    fabric::fill(&*ground.etcd.store, puts).await?;
    ground.start_felix(NODE)?;
    ground.programmed(NODE, size.local).await?;
    // The first record of the packet filter is written.
    sleep(SETTLED).await;
    let before = ground.cpu("felix");
    sleep(time).await;
    let used = ground.cpu("felix").saturating_sub(before);
    ground.fabric.check()?;
    let share = used.as_secs_f64() / time.as_secs_f64();
    Ok(Measures::from([("idle_percent", share * 100.0)]))
}
