//! Properties, simulations and fuzz targets with random seeds, for a given time: `make soak MINUTES=60`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::fuzz;
use crate::runner::{self, Setting, Table, Verdict};

/// Runs all properties, all tests of `tests.toml` that draw, and the fuzz targets, round by round, until the time is over or one fails: its seed
/// is printed then, and `CAMBRIC_SEED` and `PROPTEST_RNG_SEED` reproduce the failure.
///
/// # Errors
/// If the build fails.
pub fn run(root: &Path, minutes: u64) -> Result<bool> {
    let until = Instant::now() + Duration::from_secs(60 * minutes);
    let (table, mut setting) = (Table::read(root)?, Setting::new(root));
    setting.is_long = true;
    let executables = runner::build(root)?;
    let targets = fuzz::build(root)?;
    let mut rounds = 0;
    while Instant::now() < until {
        setting.seed = runner::random()?;
        let mut jobs = runner::jobs(&setting, &table, &executables)?;
        jobs.retain(|job| job.needs.drawn);
        jobs.extend(fuzz::jobs(&setting, &table, &targets, fuzz::Begin::Found)?);
        println!("seed {}: {} tests", setting.seed, jobs.len());
        let outcomes = runner::run(&setting, jobs)?;
        if outcomes
            .iter()
            .any(|outcome| outcome.verdict == Verdict::Failed)
        {
            let seed = setting.seed;
            println!("failed with CAMBRIC_SEED={seed} PROPTEST_RNG_SEED={seed}");
            return Ok(false);
        }
        rounds += 1;
    }
    println!("{rounds} rounds, all well");
    Ok(true)
}
