//! rack: 40 of 1,000 clients disconnect at once.

use anyhow::Result;
use netns_lab::Lab;

use super::fanout::{converge, s3b_fleet};
use crate::daemons::Kind;
use crate::ledger::NO_SOURCE;
use crate::routes::NONE;
use crate::stage::{Measures, Options};

/// Measures from the end of the connections until the other clients hold all withdrawals.
pub(super) async fn rack(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let fleet = s3b_fleet(options);
    let mut stage = fleet.stage(lab, kind, options).await?;
    converge(&mut stage)?;
    let gone = || (0..fleet.clients).step_by(25);
    let ledger = stage.generator.ledger();
    gone().for_each(|client| ledger.count(client, false));
    let lost = gone()
        .flat_map(|client| fleet.own(client))
        .map(|number| (number, NONE, NO_SOURCE));
    ledger.expect_all(&lost.collect::<Vec<_>>());
    let measured = stage.measure("the others hold all withdrawals", |generator| {
        gone().for_each(|client| generator.cut(client));
        Ok(())
    })?;
    stage.strike().await?;
    Ok(Measures::from([
        ("rack_s", measured.seconds),
        ("rack_cpu_s", measured.cpu),
        ("rack_foreign_s", measured.foreign),
        ("peak_mb", measured.peak),
    ]))
}
