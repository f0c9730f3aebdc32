//! Speed of the load generator alone: encoding and checking, without sockets, by CPU time.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use bgp_io::bgp_proto::HEADER_OCTETS;

use crate::intake::Intake;
use crate::ledger::{Ledger, NO_SOURCE};
use crate::meter::generator;
use crate::routes::{Passing, Routes};
use crate::work::fanout::Fleet;
use crate::work::internet;

/// How often one table is encoded and checked.
const TIMES: usize = 20;

/// Prints both for the tables of s1 and s3.
pub fn run(seed: u64) -> Result<()> {
    let fleet = Fleet {
        clients: 200,
        each: 250,
        each_v6: 0,
    };
    let full = internet::routes(seed, 1_000_000, 1, Passing::Copied);
    print("s1", full, 1)?;
    print("s3", fleet.routes(seed, Passing::Copied), fleet.clients)
}

fn print(name: &str, routes: Routes, senders: usize) -> Result<()> {
    let routes = Rc::new(routes);
    let sent: usize = routes
        .bundles
        .iter()
        .map(|bundle| bundle.numbers.len())
        .sum();
    let millions = |times: usize, since: Duration| -> Result<f64> {
        Ok((times * sent) as f64 / (generator()? - since).as_secs_f64() / 1e6)
    };
    let began = generator()?;
    let octets: Vec<_> = (0..senders)
        .map(|sender| routes.announcements(sender, |_| true, None))
        .collect();
    let encoded = millions(1, began)?;
    // A monitor that sends no routes receives all of them, repeatedly.
    let monitor = senders;
    let receivers: Vec<_> = (0..=senders).map(|session| session == monitor).collect();
    let mut ledger = Ledger::new(routes.prefixes.count(), &receivers);
    let winners = routes.winners.iter().enumerate();
    let news: Vec<_> = winners
        .map(|(number, &tag)| (number, tag, NO_SOURCE))
        .collect();
    ledger.expect_all(&news);
    let mut intake = Intake::new(routes.clone(), ledger, false, receivers);
    let began = generator()?;
    for _ in 0..TIMES {
        for mut octets in octets.iter().map(Vec::as_slice) {
            while let Some(length) = testkit::message_octets(octets)? {
                intake.update(monitor, &octets[HEADER_OCTETS..length])?;
                octets = &octets[length..];
            }
        }
    }
    let checked = millions(TIMES, began)?;
    anyhow::ensure!(intake.ledger.is_right(), "{}", intake.fault());
    println!(
        "{name}: {encoded:.1} M prefixes/s encoded, {checked:.1} M prefixes/s checked, by CPU time"
    );
    Ok(())
}
