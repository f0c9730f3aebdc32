//! The same routes in the kernel by BIRD, which writes each of them.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use netns_lab::{Host, Process, Program};
use nix::sys::socket::SockProtocol;
use tokio::time::sleep;

use super::{FAILS, FIRST, STAYS, milliseconds};
use crate::bare::{Listener, RTMGRP_IPV4_ROUTE};
use crate::daemons::Kind;
use crate::stage::Measures;

/// How long BIRD may take for all routes.
const INSTALLED_WITHIN: Duration = Duration::from_secs(120);
/// Without a notification for this time, BIRD has written all.
const QUIET: Duration = Duration::from_secs(1);
/// `RTPROT_BIRD`.
const PROTOCOL: u8 = 12;

/// Measures how long all routes take to leave a gateway, and the remaining one. Each gateway has a
/// protocol of its own, which is disabled.
pub(super) async fn measure(host: &Host, count: u32) -> Result<Measures> {
    let control = host.directory().join("nexthop.ctl");
    let _bird = start(host, &control, count)?;
    let both = 2 * u64::from(count);
    netns_lab::until(INSTALLED_WITHIN, "BIRD has written all", async || {
        let hops = next_hops(host, FAILS).await? + next_hops(host, STAYS).await?;
        let missing = format!("{hops} of {both} next hops");
        Ok::<_, anyhow::Error>(if hops == both { Ok(()) } else { Err(missing) })
    })
    .await?;
    let moved = disable(host, &control, "fails").await?;
    ensure!(next_hops(host, FAILS).await? == 0, "a route has not moved");
    ensure!(next_hops(host, STAYS).await? == u64::from(count));
    let gone = disable(host, &control, "stays").await?;
    ensure!(next_hops(host, STAYS).await? == 0, "a route is left");
    Ok(Measures::from([
        ("nexthop_move_ms", milliseconds(moved)),
        ("nexthop_gone_ms", milliseconds(gone)),
    ]))
}

fn start(host: &Host, control: &Path, count: u32) -> Result<Process> {
    let mut text = String::from(
        "log stderr all;\nrouter id 10.64.0.1;\nprotocol device {}\n\
         protocol kernel { scan time 3600; merge paths yes; ipv4 { import none; export all; }; }\n",
    );
    for (name, gateway) in [("fails", FAILS), ("stays", STAYS)] {
        let _ = writeln!(text, "protocol static {name} {{ ipv4;");
        for number in 0..count {
            let net = Ipv4Addr::from_bits(FIRST + (number << 8));
            let _ = writeln!(text, "route {net}/24 via {gateway};");
        }
        text.push_str("}\n");
    }
    let config = host.directory().join("nexthop.conf");
    std::fs::write(&config, text)?;
    let program = Kind::Bird.program().context("BIRD is not installed")?;
    let words = ["-f", "-c"].map(PathBuf::from).into_iter();
    let words = words.chain([config, "-s".into(), control.into()]);
    Ok(host.spawn("bird", &Program::new(program).args(words))?)
}

/// Disables a protocol, and returns the time until the last change of a route by BIRD.
async fn disable(host: &Host, control: &Path, protocol: &str) -> Result<Duration> {
    let changes = Changes::listen(host)?;
    let words = ["-s".into(), control.display().to_string()];
    let program = Program::new("/usr/sbin/birdc").args(words);
    let program = program.args(["disable", protocol]);
    let began = Instant::now();
    let (status, output) = host.output(&program).await?;
    ensure!(
        status.success(),
        "birdc: {}",
        String::from_utf8_lossy(&output)
    );
    let mut before = 0;
    loop {
        sleep(QUIET).await;
        let now = changes.count.load(Ordering::Relaxed);
        if now == before && now > 0 {
            let last = *changes.last.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(last.saturating_duration_since(began));
        }
        ensure!(
            began.elapsed() < INSTALLED_WITHIN,
            "BIRD has written nothing"
        );
        before = now;
    }
}

/// The changes of BIRD's routes.
struct Changes {
    count: Arc<AtomicU64>,
    last: Arc<Mutex<Instant>>,
    _listener: Listener,
}

impl Changes {
    fn listen(host: &Host) -> Result<Self> {
        let count = Arc::new(AtomicU64::new(0));
        let last = Arc::new(Mutex::new(Instant::now()));
        let (counted, latest) = (count.clone(), last.clone());
        let listener = host.run(|| {
            Listener::start(
                SockProtocol::NetlinkRoute,
                RTMGRP_IPV4_ROUTE,
                move |octets, at| {
                    // A notification has its own datagram: 16 octets of header, then `rtm_protocol` is the
                    // sixth octet.
                    if octets.get(21) == Some(&PROTOCOL) {
                        counted.fetch_add(1, Ordering::Relaxed);
                        *latest.lock().unwrap_or_else(PoisonError::into_inner) = at;
                    }
                },
            )
        })??;
        Ok(Self {
            count,
            last,
            _listener: listener,
        })
    }
}

/// Returns how often a gateway occurs in BIRD's routes.
async fn next_hops(host: &Host, gateway: Ipv4Addr) -> Result<u64> {
    let program = Program::new("ip").args(["-4", "route", "show", "proto", "bird"]);
    let (status, output) = host.output(&program).await?;
    ensure!(status.success(), "ip route: {status}");
    let via = format!("via {gateway} ");
    let found = String::from_utf8_lossy(&output).matches(&via).count();
    Ok(u64::try_from(found)?)
}
