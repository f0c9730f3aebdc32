//! keep: neighbors with the shortest allowed hold time, during announcements and withdrawals of a
//! whole table.

use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use netns_lab::{Host, Lab};

use super::internet::{self, All, FIRST_AS};
use crate::daemons::Kind;
use crate::limits::HOLD_TIME_S;
use crate::stage::{Measures, Options, Part, Stage, client, passing};

/// The sender of the table, and the receiver that must hold it.
const SENDER: usize = 0;
const MONITOR: usize = 1;
/// The first of the neighbors with a short hold time.
const FIRST: usize = 2;
const NEIGHBORS: usize = 20;
/// Hold time of the neighbors, in seconds (RFC 4271 §4.2: at least three).
const HOLD_S: u16 = 3;
/// The interval of samples of the daemon's sockets.
const LOOK: Duration = Duration::from_millis(5);
/// The least duration of the announcements and withdrawals: many hold times.
const TIME: Duration = Duration::from_secs(30);
const TIME_QUICK: Duration = Duration::from_secs(8);

/// Announces and withdraws the table for the duration, and measures: lost sessions, the longest
/// time without a message of the daemon at a neighbor, and without a KEEPALIVE, and the longest
/// time that octets of a neighbor (only KEEPALIVEs) were unread in the daemon's socket.
pub(super) async fn keep(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let (count, time) = if options.quick {
        (20_000, TIME_QUICK)
    } else {
        (1_000_000, TIME)
    };
    // The neighbors receive the table, too.
    let part = |at| Part {
        asn: FIRST_AS + at as u32,
        receives: at == MONITOR,
        hold_time_s: if at < FIRST { HOLD_TIME_S } else { HOLD_S },
    };
    let parts: Vec<_> = (0..FIRST + NEIGHBORS).map(part).collect();
    let routes = internet::routes(options.seed, count, 1, passing(kind, false));
    let mut stage = Stage::set(lab, kind, options, &parts, Rc::new(routes)).await?;
    stage.generator.redials = true;
    let mut unread = Unread::default();
    let began = Instant::now();
    let mut tables = 0;
    while tables < 2 || began.elapsed() < time {
        for all in [All::Announce, All::Withdraw] {
            let watched = turn(&mut stage, all, &mut unread);
            stage.with_logs(watched)?;
        }
        tables += 1;
    }
    let lost = stage.generator.lost;
    let (mut gap, mut silence) = (Duration::ZERO, Duration::ZERO);
    for at in FIRST..parts.len() {
        let session = stage.generator.session(at);
        gap = gap.max(session.keepalives.longest());
        silence = silence.max(session.signs.longest());
    }
    stage.strike().await?;
    Ok(Measures::from([
        ("keep_tables", tables.into()),
        ("keep_lost", lost as f64),
        ("keep_gap_s", gap.as_secs_f64()),
        ("keep_silent_s", silence.as_secs_f64()),
        ("keep_unread_s", unread.longest.as_secs_f64()),
    ]))
}

/// Announces or withdraws the whole table, and samples the daemon's sockets at the same time.
fn turn(stage: &mut Stage, all: All, unread: &mut Unread) -> Result<()> {
    let messages = all.messages(&stage.generator.routes(), SENDER);
    all.expect(stage);
    let began = stage.generator.begin();
    stage.generator.send(SENDER, messages)?;
    while stage.generator.right_at().is_none() {
        stage.generator.turn(LOOK)?;
        unread.look(&stage.host)?;
        ensure!(
            began.elapsed() < stage.patience,
            "the monitor does not hold the table: {}",
            stage.generator.intake.fault()
        );
    }
    Ok(())
}

/// How long octets of the neighbors stay unread in the daemon's sockets.
#[derive(Default)]
struct Unread {
    since: [Option<Instant>; NEIGHBORS],
    longest: Duration,
}

impl Unread {
    fn look(&mut self, host: &Host) -> Result<()> {
        let table = host.run(|| fs::read_to_string("/proc/thread-self/net/tcp"))??;
        let now = Instant::now();
        for (at, since) in self.since.iter_mut().enumerate() {
            let waits = waiting(&table, at).is_some_and(|octets| octets > 0);
            let began = *since.get_or_insert(now);
            self.longest = self.longest.max(now - began);
            if !waits {
                *since = None;
            }
        }
        Ok(())
    }
}

/// Returns how many octets of a neighbor the daemon has not read, by the kernel's table of sockets.
fn waiting(table: &str, neighbor: usize) -> Option<u64> {
    // In the machine's byte order, as the kernel prints it.
    let address = u32::from_ne_bytes(client(FIRST + neighbor).octets());
    let remote = format!("{address:08X}:");
    // sl local_address rem_address st tx_queue:rx_queue
    let mut rows = table.lines().map(|line| line.split_whitespace());
    rows.find_map(|mut words| {
        let [local, other, _, queues] =
            [words.nth(1)?, words.next()?, words.next()?, words.next()?];
        if !local.ends_with(":00B3") || !other.starts_with(&remote) {
            return None;
        }
        u64::from_str_radix(queues.split_once(':')?.1, 16).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_octets_are_found_in_the_kernels_table() {
        let address = u32::from_ne_bytes(client(FIRST).octets());
        let table = format!(
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n\
             0: 0100400A:00B3 00000000:0000 0A 00000000:00000003 00:00000000 00000000\n\
             1: {address:08X}:8001 0100400A:00B3 01 00000000:00000007 00:00000000 00000000\n\
             2: 0100400A:00B3 {address:08X}:8001 01 00000000:00000013 00:00000000 00000000\n"
        );
        assert_eq!(waiting(&table, 0), Some(0x13));
        assert_eq!(waiting(&table, 1), None);
    }
}
