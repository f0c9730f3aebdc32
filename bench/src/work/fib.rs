//! fib: routes into a kernel's table, by `fib-sync` and by a bare netlink loop; the same table
//! after a restart.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fib_sync::netlink::{NetlinkConfig, NetlinkFib, RouteWriter};
use fib_sync::writer::Bounds;
use fib_sync::{Fib, Hop, Owner, Reconciler, ReconcilerConfig, Route, RouteKey, TABLE_MAIN};
use ipnet::{IpNet, Ipv4Net};
use netns_lab::{Lab, VethEnd};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::runtime::Builder;

use crate::bare::{self, Verb};
use crate::stage::{Measures, Options};

const ROUTES: u32 = 1_000_000;
const ROUTES_QUICK: u32 = 20_000;
/// The first /24.
const FIRST: u32 = 0x1400_0000;
/// Passes of the bare loop over the table.
const PASSES: usize = 16;
const METRIC: u32 = 1024;
const OWNER: Owner = Owner(119);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 2);

/// Runs in one namespace, one after the other; all routes are deleted in between.
pub(super) async fn fib(lab: &Lab, options: &Options) -> Result<Measures> {
    let host = lab.host("fib").await?;
    let links = host.links()?;
    let end = |name| VethEnd {
        host: &host,
        name,
        mac: None,
    };
    links.add_veth(end("up0"), end("far0")).await?;
    for name in ["far0", "up0"] {
        links.up(name).await?;
    }
    links.add_address("up0", "10.64.0.1/24".parse()?).await?;
    let count = if options.quick { ROUTES_QUICK } else { ROUTES };
    host.run(|| measure(count))?
}

fn measure(count: u32) -> Result<Measures> {
    let prefixes: Vec<_> = (0..count)
        .map(|number| Ipv4Addr::from_bits(FIRST + (number << 8)))
        .collect();
    // The fastest known order for the kernel: spread over the whole table.
    let passes = (0..PASSES).flat_map(|pass| prefixes.iter().skip(pass).step_by(PASSES));
    let order: Vec<_> = passes.copied().collect();
    let bare_add = bare::run(Verb::Add, &order, GATEWAY, METRIC)?;
    let bare_delete = bare::run(Verb::Delete, &order, GATEWAY, METRIC)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut ours = Side::open()?;
        ours.until_in_sync().await?;
        let add = ours.wanting(&prefixes, true).await?;
        ensure!(ours.writes() == u64::from(count), "each route once");
        drop(ours);
        // A restarted daemon finds its routes, wants the same ones, and has nothing to write.
        let mut again = Side::open()?;
        let adopt = again.wanting(&prefixes, true).await?;
        let adopt_writes = again.writes();
        let delete = again.wanting(&prefixes, false).await?;
        drop(again);
        // As the daemon does it: another process writes.
        let mut split = Side::split()?;
        split.until_in_sync().await?;
        let split_add = split.wanting(&prefixes, true).await?;
        let split_delete = split.wanting(&prefixes, false).await?;
        let ratio = |ours: Duration, bare: Duration| ours.as_secs_f64() / bare.as_secs_f64();
        Ok(Measures::from([
            ("fib_add_s", add.as_secs_f64()),
            ("fib_bare_add_s", bare_add.as_secs_f64()),
            ("fib_add_ratio", ratio(add, bare_add)),
            ("fib_delete_s", delete.as_secs_f64()),
            ("fib_bare_delete_s", bare_delete.as_secs_f64()),
            ("fib_delete_ratio", ratio(delete, bare_delete)),
            ("fib_split_add_s", split_add.as_secs_f64()),
            ("fib_split_add_ratio", ratio(split_add, bare_add)),
            ("fib_split_delete_s", split_delete.as_secs_f64()),
            ("fib_adopt_s", adopt.as_secs_f64()),
            ("fib_adopt_writes", adopt_writes as f64),
        ]))
    })
}

/// The kernel side of a daemon.
struct Side {
    fib: NetlinkFib,
    reconciler: Reconciler,
    began: Instant,
}

impl Side {
    fn open() -> Result<Self> {
        Self::over(NetlinkFib::open(NetlinkConfig::default())?)
    }

    /// Opens the same with a writer in a thread of its own, which ends with this side.
    fn split() -> Result<Self> {
        let bounds = Bounds::new(OWNER, TABLE_MAIN, vec![METRIC..=METRIC]);
        let mut writer = RouteWriter::open(Some(bounds))?;
        let (descriptors, is_large) = writer.connect()?;
        std::thread::spawn(move || {
            while writer.is_connected() {
                let descriptors = writer.descriptors().into_iter();
                let mut all: Vec<_> = descriptors
                    .map(|one| PollFd::new(one, PollFlags::POLLIN))
                    .collect();
                let _ = poll(&mut all, PollTimeout::NONE);
                writer.serve();
            }
        });
        let config = NetlinkConfig::default();
        Self::over(NetlinkFib::delegated(config, descriptors, is_large)?)
    }

    fn over(fib: NetlinkFib) -> Result<Self> {
        let mut config = ReconcilerConfig::new(OWNER);
        config.grace = Duration::ZERO;
        config.period = Duration::ZERO;
        Ok(Self {
            fib,
            reconciler: Reconciler::new(fib_sync::Instant::default(), config),
            began: Instant::now(),
        })
    }

    /// Wants all these routes, or none, and waits until the kernel has exactly these.
    async fn wanting(&mut self, prefixes: &[Ipv4Addr], want: bool) -> Result<Duration> {
        let route = Route::unicast(OWNER, vec![Hop::via(IpAddr::V4(GATEWAY))]);
        let began = Instant::now();
        for prefix in prefixes {
            let net = IpNet::V4(Ipv4Net::new(*prefix, 24)?);
            let key = RouteKey::new(TABLE_MAIN, net, METRIC, 0);
            if want {
                self.reconciler.want(key, route.clone());
            } else {
                self.reconciler.unwant(&key);
            }
        }
        self.until_in_sync().await?;
        Ok(began.elapsed())
    }

    async fn until_in_sync(&mut self) -> Result<()> {
        loop {
            let now = self.now();
            while let Some(command) = self.reconciler.poll_command(now) {
                self.fib.submit(command);
            }
            if self.reconciler.in_sync() {
                let refused = self.reconciler.summary().refused;
                ensure!(refused == 0, "the kernel refused {refused} routes");
                return Ok(());
            }
            let event = self.fib.event().await;
            let now = self.now();
            self.reconciler.handle(now, &event);
        }
    }

    fn writes(&self) -> u64 {
        let summary = self.reconciler.summary();
        summary.puts + summary.deletes
    }

    fn now(&self) -> fib_sync::Instant {
        fib_sync::Instant(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
