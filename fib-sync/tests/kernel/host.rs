//! A network namespace on a thread of its own, and a reconciler and a watcher in it.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::Duration;

use fib_sync::netlink::{NetlinkConfig, NetlinkFib};
use fib_sync::watch::{WatchChange, Watcher, WatcherConfig};
use fib_sync::{
    Event, Fib, FibStatus, Hop, Instant, NexthopObjects, Owner, Reconciler, ReconcilerConfig,
    Route, RouteKey,
};

/// The protocol of the routes under test.
pub(crate) const US: Owner = Owner(119);

/// How long a test waits for anything.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs a test in a namespace of its own, with `lo`, `up0` and `up1` up.
pub(crate) fn in_namespace(test: impl AsyncFnOnce() + Send + 'static) {
    if !netns_lab::allowed("a test with a kernel of its own") {
        return;
    }
    let thread = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        // With duplicate address detection an address would not be usable for a second.
        std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0").unwrap();
        ip("link set lo up");
        for (link, v4, v6) in [
            ("up0", "10.0.0.11/24", "fd00::11/64"),
            ("up1", "10.1.0.11/24", "fd01::11/64"),
        ] {
            add_link(link);
            ip(&format!("addr add {v4} dev {link}"));
            ip(&format!("addr add {v6} dev {link} nodad"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::time::timeout(DEADLINE * 3, test())
                .await
                .expect("the test took too long");
        });
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Adds a link with carrier: one end of a veth pair whose other end is unused. The kernel processes
/// carrier changes with a delay, and IPv6 routes work only afterwards.
pub(crate) fn add_link(name: &str) {
    ip(&format!("link add {name} type veth peer name x{name}"));
    ip(&format!("link set x{name} up"));
    ip(&format!("link set {name} up"));
    let deadline = std::time::Instant::now() + DEADLINE;
    while !ip(&format!("-o link show {name}")).contains("state UP") {
        assert!(std::time::Instant::now() < deadline, "{name} is not up");
    }
}

/// Runs `ip` in this thread's namespace.
pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// A daemon's kernel half.
pub(crate) struct Host {
    pub(crate) fib: NetlinkFib,
    pub(crate) reconciler: Reconciler,
    pub(crate) watcher: Watcher,
    pub(crate) changes: Vec<WatchChange>,
    pub(crate) seen: Seen,
    origin: std::time::Instant,
}

/// Counts of events.
#[derive(Default, Debug)]
pub(crate) struct Seen {
    pub(crate) overruns: usize,
    pub(crate) others: usize,
}

impl Host {
    /// Returns a host without grace period and without periodic checks.
    pub(crate) fn new() -> Self {
        Self::with(|_| {}, |_| {})
    }

    pub(crate) fn with(
        reconciler: impl FnOnce(&mut ReconcilerConfig),
        netlink: impl FnOnce(&mut NetlinkConfig),
    ) -> Self {
        let mut config = ReconcilerConfig::new(US);
        config.grace = Duration::ZERO;
        config.period = Duration::ZERO;
        reconciler(&mut config);
        let mut driver = NetlinkConfig::new(config.tables.clone());
        netlink(&mut driver);
        Self::over(NetlinkFib::open(driver).unwrap(), config)
    }

    /// Returns a host that may not write routes itself, with the descriptors of a writer.
    pub(crate) fn delegated(descriptors: [OwnedFd; 2]) -> Self {
        let mut config = ReconcilerConfig::new(US);
        config.grace = Duration::ZERO;
        config.period = Duration::ZERO;
        config.nexthop_objects = NexthopObjects::Auto;
        let driver = NetlinkConfig::new(config.tables.clone());
        let fib = NetlinkFib::delegated(driver, descriptors, true).unwrap();
        Self::over(fib, config)
    }

    fn over(fib: NetlinkFib, config: ReconcilerConfig) -> Self {
        Self {
            fib,
            reconciler: Reconciler::new(Instant(0), config),
            watcher: Watcher::new(WatcherConfig::new(US)),
            changes: Vec::new(),
            seen: Seen::default(),
            origin: std::time::Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant(u64::try_from(self.origin.elapsed().as_nanos()).unwrap())
    }

    /// Handles events until `done`, or panics with a description of the missing condition.
    pub(crate) async fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = std::time::Instant::now() + DEADLINE;
        loop {
            let now = self.now();
            while let Some(command) = self.reconciler.poll_command(now) {
                self.fib.submit(command);
            }
            if done(self) {
                return;
            }
            let wake = self
                .reconciler
                .poll_timeout()
                .map(|at| at.saturating_duration_since(now));
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            assert!(
                !left.is_zero(),
                "never happened: {what}; {:?}",
                self.reconciler.summary()
            );
            let wait = wake.unwrap_or(left).min(left);
            if let Ok(event) = tokio::time::timeout(wait, self.fib.event()).await {
                self.take(&event);
            }
        }
    }

    pub(crate) async fn until_in_sync(&mut self) {
        self.until("in sync", |host| host.reconciler.in_sync())
            .await;
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::Overrun => self.seen.overruns += 1,
            Event::Changed { .. } | Event::Removed(..) => self.seen.others += 1,
            Event::Closed(error) => panic!("netlink: {error}"),
            _ => {}
        }
        let now = self.now();
        self.reconciler.handle(now, event);
        self.watcher.handle(event);
        while let Some(change) = self.watcher.poll_change() {
            self.changes.push(change);
        }
    }

    pub(crate) fn status(&self, key: RouteKey) -> Option<FibStatus> {
        self.reconciler.lookup(&key).map(|view| view.status)
    }
}

/// Returns a key in the main table with the metric of BGP routes.
pub(crate) fn key(prefix: &str) -> RouteKey {
    RouteKey::new(254, prefix.parse().unwrap(), 1024, 0)
}

/// Returns a route over gateways.
pub(crate) fn via(gateways: &[&str]) -> Route {
    Route::unicast(
        US,
        gateways
            .iter()
            .map(|text| Hop::via(address(text)))
            .collect(),
    )
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}
