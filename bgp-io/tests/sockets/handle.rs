//! A driver in a task of its own, with handles in other tasks.

use std::time::Duration;

use bgp_io::bgp_proto::{Attributes, NextHop, Notification, Prefix, notification::cease};
use bgp_io::{Closed, Driver, Event, Handle, StopMode};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::support::{self, host, io, is_up, neighbor, port, speaker};

/// Runs a driver; returns it at the end.
fn run(mut driver: Driver, events: mpsc::Sender<Event>) -> JoinHandle<Driver> {
    tokio::spawn(async move {
        while let Some(list) = driver.next().await {
            for event in list {
                // A full channel is for tests that do not look at events.
                drop(events.try_send(event));
            }
        }
        driver
    })
}

fn prefixes(from: u32, count: u32) -> impl Iterator<Item = Prefix> {
    (from..from + count).map(|number| Prefix::V4(support::prefix(number)))
}

/// Two drivers with a session between them that a handle has configured.
async fn pair(a: u8, b: u8) -> ([Handle; 2], [JoinHandle<Driver>; 2]) {
    let (one, two) = (io(a, speaker(a)), io(b, speaker(b)));
    let (port_one, port_two) = (port(&one), port(&two));
    let (handle_one, driver_one) = Driver::new(one);
    let (handle_two, driver_two) = Driver::new(two);
    let (events, mut came) = mpsc::channel(1000);
    let tasks = [run(driver_one, events.clone()), run(driver_two, events)];
    let peer = neighbor(a, host(b).into(), Some(port_two));
    handle_one
        .add_peer(peer)
        .await
        .expect("runs")
        .expect("taken");
    let peer = neighbor(b, host(a).into(), Some(port_one));
    handle_two
        .add_peer(peer)
        .await
        .expect("runs")
        .expect("taken");
    let mut ups = 0;
    while ups < 2 {
        let event = came.recv().await.expect("both run");
        ups += u32::from(matches!(
            event,
            Event::Speaker(bgp_speaker::Event::Up { .. })
        ));
    }
    ([handle_one, handle_two], tasks)
}

#[tokio::test]
async fn routes_of_several_tasks_are_all_sent() {
    const EACH: u32 = 5000;
    let ([one, two], tasks) = pair(70, 71).await;
    let tellers = (0..3).map(|number| {
        let handle = one.clone();
        tokio::spawn(async move {
            let all = prefixes(number * EACH, EACH);
            handle.announce(all, &Attributes::default()).await?;
            let some = prefixes(number * EACH, 10);
            handle.withdraw(some).await?;
            handle.all_sent().await
        })
    });
    for teller in tellers.collect::<Vec<_>>() {
        assert_eq!(teller.await.expect("ends"), Ok(()));
    }
    // All octets are in the kernel, so the end of the session comes behind them.
    let why = Notification::cease(cease::ADMINISTRATIVE_SHUTDOWN);
    assert!(one.remove_peer(host(71).into()).await.expect("runs"));
    assert!(
        !one.remove_peer(host(71).into()).await.expect("runs"),
        "it is gone"
    );
    two.shutdown(StopMode::Permanent, why.clone())
        .await
        .expect("runs");
    assert_eq!(two.all_sent().await, Err(Closed), "it has ended");
    one.shutdown(StopMode::Permanent, why).await.expect("runs");
    let [one, two] = tasks;
    let (one, two) = (one.await.expect("ends"), two.await.expect("ends"));
    assert!(!is_up(one.io()) && !is_up(two.io()));
    let announced = one.io().speaker().rib().stats().paths;
    assert_eq!(announced, (3 * (EACH - 10)) as usize);
}

/// The peers of the configuration stay where they are in memory, except when the list grows.
#[tokio::test]
async fn peers_added_one_by_one_copy_no_configuration() {
    const PEERS: u8 = 200;
    let (handle, mut driver) = Driver::new(io(77, speaker(77)));
    let (mut copies, mut peers) = (0, std::ptr::null());
    for number in 1..=PEERS {
        let mut peer = neighbor(77, host(77).into(), None);
        peer.remote = [192, 0, 2, number].into();
        peer.name = number.to_string();
        tokio::select! {
            added = handle.add_peer(peer) => added.expect("runs").expect("taken"),
            () = async { while driver.next().await.is_some() {} } => panic!("it has ended"),
        }
        let now = driver.io().speaker().config().peers.as_ptr();
        copies += u32::from(std::mem::replace(&mut peers, now) != now);
    }
    assert_eq!(driver.io().speaker().config().peers.len(), PEERS.into());
    assert!(copies <= 2 + u32::from(PEERS).ilog2(), "{copies}");
}

#[tokio::test]
async fn route_sent_is_a_route_received() {
    let ([one, two], tasks) = pair(72, 73).await;
    // A loopback address is not accepted as a next hop.
    let next_hop = Some(NextHop::V4([192, 0, 2, 1].into()));
    let attributes = Attributes {
        next_hop,
        ..Attributes::default()
    };
    one.announce(prefixes(0, 3000), &attributes)
        .await
        .expect("runs");
    one.all_sent().await.expect("runs");
    // Without handles the second driver ends, and is examined.
    drop(two);
    let [first, second] = tasks;
    let second = tokio::time::timeout(Duration::from_secs(30), second).await;
    let mut second = second.expect("it ends").expect("no panic");
    let reach = |driver: &Driver| -> u64 {
        let peers = driver.io().speaker().peers();
        peers
            .flat_map(|peer| peer.families)
            .map(|(_, counters)| counters.reach)
            .sum()
    };
    let all = async {
        while reach(&second) < 3000 {
            second.io_mut().next().await;
        }
    };
    let came = tokio::time::timeout(Duration::from_secs(30), all).await;
    assert!(came.is_ok(), "{} routes have come", reach(&second));
    drop(one);
    first.await.expect("no panic");
}

#[tokio::test]
async fn driver_without_handles_ends() {
    let (handle, mut driver) = Driver::new(io(74, speaker(74)));
    drop(handle);
    let end = async { while driver.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(30), end)
        .await
        .expect("it ends");
}
