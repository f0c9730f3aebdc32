//! How many routes a second, against the fastest loop there is.

use std::time::{Duration, Instant};

use fib_sync::netlink::{NetlinkConfig, NetlinkFib};
use fib_sync::{Command, Event, Fib, PutMode, RouteKey};

use crate::host::{Host, US, in_namespace, ip, via};

const ROUTES: u32 = 100_000;

fn keys() -> impl Iterator<Item = RouteKey> {
    (0..ROUTES).map(|i| {
        let address = std::net::Ipv4Addr::from(0x0a41_0000 + i);
        RouteKey::new(254, ipnet::IpNet::new(address.into(), 32).unwrap(), 1024, 0)
    })
}

/// Commands straight to the driver, as many as fit: what the kernel and the encoding cost.
async fn bare(commands: impl Iterator<Item = Command>) -> Duration {
    let mut fib = NetlinkFib::open(NetlinkConfig::default()).unwrap();
    let begun = Instant::now();
    let (mut sent, mut answered) = (0, 0);
    for command in commands {
        fib.submit(command);
        sent += 1;
        if sent % 4096 == 0 {
            answered += answers(&mut fib, sent - answered).await;
        }
    }
    answers(&mut fib, sent - answered).await;
    begun.elapsed()
}

async fn answers(fib: &mut NetlinkFib, count: usize) -> usize {
    let mut left = count;
    while left > 0 {
        if let Event::Applied(key, result) = fib.event().await {
            result.unwrap_or_else(|error| panic!("{key}: {error}"));
            left -= 1;
        }
    }
    count
}

#[test]
fn a_hundred_thousand_routes() {
    in_namespace(async || {
        let put = |key| Command::Put(key, via(&["10.0.0.12"]), PutMode::Create);
        let bare_add = bare(keys().map(put)).await;
        let bare_delete = bare(keys().map(|key| Command::Delete(key, US))).await;
        assert_eq!(ip("route show proto 119"), "");

        let mut host = Host::new();
        host.until_in_sync().await;
        let begun = Instant::now();
        for key in keys() {
            host.reconciler.want(key, via(&["10.0.0.12"]));
        }
        host.until_in_sync().await;
        let add = begun.elapsed();

        // A restart finds them all, and has nothing to do.
        let mut second = Host::new();
        for key in keys() {
            second.reconciler.want(key, via(&["10.0.0.12"]));
        }
        let begun = Instant::now();
        second.until_in_sync().await;
        let adopt = begun.elapsed();
        assert_eq!(second.reconciler.summary().puts, 0);
        drop(second);

        let begun = Instant::now();
        for key in keys() {
            host.reconciler.unwant(&key);
        }
        host.until_in_sync().await;
        let delete = begun.elapsed();
        let rate = |time: Duration| (f64::from(ROUTES) / time.as_secs_f64()) as u64;
        println!("install: {}/s, bare loop {}/s", rate(add), rate(bare_add));
        println!(
            "delete:  {}/s, bare loop {}/s",
            rate(delete),
            rate(bare_delete)
        );
        println!("adopt (dump and compare): {}/s", rate(adopt));
        assert!(
            add < bare_add * 4,
            "install: {add:?}, bare loop {bare_add:?}"
        );
        assert!(
            delete < bare_delete * 4,
            "delete: {delete:?}, bare loop {bare_delete:?}"
        );
    });
}
