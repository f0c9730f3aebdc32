//! nexthop: a gateway of 100,000 kernel routes fails; with nexthop objects, route by route, and by BIRD.

mod bird;
mod lateness;

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fib_sync::netlink::{NetlinkConfig, NetlinkFib};
use fib_sync::{
    Fib, Hop, NexthopObjects, Owner, Reconciler, ReconcilerConfig, Route, RouteKey, TABLE_MAIN,
};
use ipnet::{IpNet, Ipv4Net};
use netns_lab::{Lab, VethEnd};
use tokio::runtime::Builder;
use tokio::time::timeout;

use self::lateness::Lateness;
use crate::daemons::Kind;
use crate::stage::{Measures, Options};

const ROUTES: u32 = 100_000;
const ROUTES_QUICK: u32 = 5_000;
/// The first /24.
const FIRST: u32 = 0x1400_0000;
const METRIC: u32 = 1024;
const OWNER: Owner = Owner(119);
const FAILS: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 2);
const STAYS: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 3);
/// `net.ipv4.nexthop_compat_mode` of the namespace.
const COMPAT_MODE: &str = "/proc/sys/net/ipv4/nexthop_compat_mode";

/// The values of that setting, with the measures: until all routes have moved, the messages for that, until all
/// are deleted, and the longest delay of a thread with real-time priority.
const MODES: [(&str, [&str; 4]); 2] = [
    (
        "1",
        [
            "nexthop_move_compat_ms",
            "nexthop_messages_compat",
            "nexthop_gone_compat_ms",
            "nexthop_late_compat_ms",
        ],
    ),
    (
        "0",
        [
            "nexthop_move_ms",
            "nexthop_messages",
            "nexthop_gone_ms",
            "nexthop_late_ms",
        ],
    ),
];

/// Changes route by route: the wanted ones of both next hops, the time of the change, and the longest delay of
/// a thread with real-time priority.
const EACH: [(Range<usize>, &str, &str); 2] = [
    (1..2, "nexthop_each_move_ms", "nexthop_each_move_late_ms"),
    (2..2, "nexthop_each_gone_ms", "nexthop_each_gone_late_ms"),
];

/// Runs in one namespace, one after the other.
pub(super) async fn nexthop(lab: &Lab, kind: Kind, options: &Options) -> Result<Measures> {
    let host = lab.host("nexthop").await?;
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
    match kind {
        Kind::Bird => bird::measure(&host, count).await,
        _ => host.run(|| measure(count))?,
    }
}

fn measure(count: u32) -> Result<Measures> {
    let link = std::fs::read_to_string("/sys/class/net/up0/ifindex").or_else(|_| {
        // The namespace may have no sysfs of its own.
        nix::net::if_::if_nametoindex("up0").map(|index| index.to_string())
    })?;
    let link: u32 = link.trim().parse()?;
    let both = [FAILS, STAYS].map(|gateway| Hop::via(IpAddr::V4(gateway)).on(link));
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut measures = Measures::new();
        for (mode, [moved, messages, gone, late]) in MODES {
            std::fs::write(COMPAT_MODE, mode)?;
            let mut side = Side::open(NexthopObjects::Auto, count).await?;
            side.want(&both).await?;
            let lateness = Lateness::start()?;
            let (time, sent) = side.fail().await?;
            measures.insert(moved, milliseconds(time));
            measures.insert(messages, sent as f64);
            let longest = lateness.stop()?;
            // BGP follows: nothing is left to write.
            side.want(&both[1..]).await?;
            ensure!(side.sent == 0, "a route was written again");
            side.reconciler.restore_gateways();
            side.want(&both[..1]).await?;
            let lateness = Lateness::start()?;
            let (time, _) = side.fail().await?;
            measures.insert(gone, milliseconds(time));
            measures.insert(late, milliseconds(longest.max(lateness.stop()?)));
            side.want(&[]).await?;
        }
        let mut side = Side::open(NexthopObjects::Off, count).await?;
        side.want(&both).await?;
        for (hops, time, late) in EACH {
            let lateness = Lateness::start()?;
            let began = Instant::now();
            side.want(both.get(hops).unwrap_or_default()).await?;
            measures.insert(time, milliseconds(began.elapsed()));
            measures.insert(late, milliseconds(lateness.stop()?));
        }
        Ok(measures)
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The kernel side of a daemon.
struct Side {
    fib: NetlinkFib,
    reconciler: Reconciler,
    keys: Vec<RouteKey>,
    began: Instant,
    /// Commands since the last [`want`](Self::want) or [`fail`](Self::fail) began.
    sent: u64,
    /// When the last event of the kernel arrived.
    answered_at: Instant,
}

impl Side {
    /// Opens it, and waits for the first read, which shows whether the kernel has nexthop objects.
    async fn open(nexthop_objects: NexthopObjects, count: u32) -> Result<Self> {
        let mut config = ReconcilerConfig::new(OWNER);
        config.grace = Duration::ZERO;
        config.period = Duration::ZERO;
        config.nexthop_objects = nexthop_objects;
        let net = |number: u32| Ipv4Net::new(Ipv4Addr::from_bits(FIRST + (number << 8)), 24);
        let keys: Result<Vec<_>, _> = (0..count).map(net).collect();
        let key = |net| RouteKey::new(TABLE_MAIN, IpNet::V4(net), METRIC, 0);
        let mut side = Self {
            fib: NetlinkFib::open(NetlinkConfig::default())?,
            reconciler: Reconciler::new(fib_sync::Instant::default(), config),
            keys: keys?.into_iter().map(key).collect(),
            began: Instant::now(),
            sent: 0,
            answered_at: Instant::now(),
        };
        side.until(Reconciler::in_sync).await?;
        Ok(side)
    }

    /// Wants all routes over these next hops, or none, and waits until the kernel has exactly these. Routes over a
    /// failed gateway are not in the kernel, so there is nothing to wait for before.
    async fn want(&mut self, hops: &[Hop]) -> Result<()> {
        for key in &self.keys {
            match hops {
                [] => self.reconciler.unwant(key),
                hops => self
                    .reconciler
                    .want(*key, Route::unicast(OWNER, hops.to_vec())),
            }
        }
        self.sent = 0;
        self.until(Reconciler::in_sync).await
    }

    /// Fails a gateway: returns the time until the last answer, and the number of messages.
    async fn fail(&mut self) -> Result<(Duration, u64)> {
        let began = Instant::now();
        self.sent = 0;
        self.reconciler.fail_gateway(IpAddr::V4(FAILS));
        self.until(Reconciler::is_answered).await?;
        // The search for routes without another gateway is no part of it.
        Ok((self.answered_at.saturating_duration_since(began), self.sent))
    }

    async fn until(&mut self, done: impl Fn(&Reconciler) -> bool) -> Result<()> {
        loop {
            let now = self.now();
            while let Some(command) = self.reconciler.poll_command(now) {
                self.sent += 1;
                self.fib.submit(command);
            }
            if done(&self.reconciler) {
                let refused = self.reconciler.summary().refused;
                ensure!(refused == 0, "the kernel refused {refused} routes");
                return Ok(());
            }
            let now = self.now();
            // A change of a link is followed by a read that is due later.
            let left = self.reconciler.poll_timeout().map(|at| at - now);
            let event = self.fib.event();
            let event = match left {
                Some(left) => timeout(left, event).await.ok(),
                None => Some(event.await),
            };
            let now = self.now();
            if let Some(event) = event {
                self.answered_at = Instant::now();
                self.reconciler.handle(now, &event);
            }
        }
    }

    fn now(&self) -> fib_sync::Instant {
        fib_sync::Instant(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
