//! storm: the reflector of 1,000 clients is killed and restarted, and all clients dial it at once.
//! Sessions carry IPv4 and IPv6 with ADD-PATH in both directions and TCP-MD5.

use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bgp_io::bgp_proto::Family;
use bytes::Bytes;
use netns_lab::{Host, Lab};
use testkit::{Encode, EndOfRib};

use super::fanout::{Fleet, expect_all, s3b_fleet};
use crate::daemons::{Daemon, Kind};
use crate::limits::STARTED_WITHIN;
use crate::stage::{Measures, Options, Stage, passing, scene};

/// IPv6 routes of each client.
const EACH_V6: usize = 16;

/// The key of all sessions.
const PASSWORD: &str = "storm-of-a-thousand";

/// The path identifier that clients give their paths.
const PATH_ID: Option<u32> = Some(1);

/// Measures from the start of the new process until all clients hold all routes again.
pub(super) async fn storm(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let fleet = Fleet {
        each_v6: EACH_V6,
        ..s3b_fleet(options)
    };
    let parts = fleet.parts();
    let mut scene = scene(&parts);
    scene.ipv6 = true;
    scene.add_path = true;
    scene.password = Some(PASSWORD);
    let routes = Rc::new(fleet.routes(options.seed, passing(kind, true)));
    let mut stage = Stage::prepare(lab, kind, options, scene, &parts, routes.clone()).await?;
    stage.establish()?;
    expect_all(&mut stage);
    for client in 0..fleet.clients {
        let mut table = routes.announcements(client, |_| true, PATH_ID);
        table.extend(EndOfRib(Family::IPV4_UNICAST).octets());
        let table = Bytes::from(table);
        stage.generator.session(client).greeting = table.clone();
        stage.generator.send(client, table)?;
    }
    let first = stage.generator.settle("all hold all", stage.patience);
    stage.with_logs(first)?;

    stage.daemon.kill().await?;
    (0..fleet.clients).for_each(|client| stage.generator.cut(client));
    stage.generator.redials = true;
    stage.generator.lost = 0;
    let began = stage.generator.begin();
    stage.daemon = Daemon::start(kind, &stage.host, &stage.scene, &options.wrap)?;
    let before = stage.daemon.used()?;
    let done = dial_at_once(&mut stage, began)
        .and_then(|()| stage.generator.settle("all hold all again", stage.patience));
    let at = stage.with_logs(done)?;
    let after = stage.daemon.used()?;
    let lost = stage.generator.lost;
    stage.strike().await?;
    Ok(Measures::from([
        ("storm_s", (at - began).as_secs_f64()),
        (
            "storm_cpu_s",
            after.daemon.saturating_sub(before.daemon).as_secs_f64(),
        ),
        (
            "storm_foreign_s",
            after.foreign_since(&before).as_secs_f64(),
        ),
        ("storm_lost", lost as f64),
        ("peak_mb", after.peak_octets as f64 / 1e6),
    ]))
}

/// Dials from all clients as soon as the daemon listens.
fn dial_at_once(stage: &mut Stage, began: Instant) -> Result<()> {
    while !is_listening(&stage.host)? {
        stage.generator.turn(Duration::from_millis(1))?;
        ensure!(
            began.elapsed() < STARTED_WITHIN,
            "no listener after {STARTED_WITHIN:?}"
        );
    }
    let all: Vec<_> = (0..stage.generator.sessions()).collect();
    stage.generator.dial(&all)
}

/// Returns whether a socket listens on port 179 of the host. The kernel's table is read, since a
/// client discards the unsigned reset that answers a SYN with TCP-MD5 to a closed port.
fn is_listening(host: &Host) -> Result<bool> {
    let tables = host.run(|| {
        let files = ["tcp", "tcp6"].map(|name| format!("/proc/thread-self/net/{name}"));
        files.map(|file| fs::read_to_string(file).unwrap_or_default())
    })?;
    // sl local_address rem_address st: port 179 in hexadecimal, state LISTEN.
    let listens = |line: &str| {
        let words: Vec<_> = line.split_whitespace().take(4).collect();
        matches!(words[..], [_, local, _, "0A"] if local.ends_with(":00B3"))
    };
    Ok(tables.iter().flat_map(|table| table.lines()).any(listens))
}
