//! Several replicas with a lease: one writes.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use calico_store::Store as _;
use cambric_kube::{Access, Controller, LEADER_KEY, LeaseName, Options};
use etcd_lite::Local;
use interop_tests::ApiServer;
use serde_json::json;

use crate::rig::{
    LOOPBACK, access, get, key, namespace, policy, put, ready_store, revision, run, settle, until,
    until_stored,
};

/// The time in which another replica takes over: the duration of the lease, and two turns of the
/// election.
const TAKE_OVER: Duration = Duration::from_secs(15 + 2 * 2);

/// Delay of a loaded machine.
const LOADED: Duration = Duration::from_secs(5);

/// Time for which a test waits for writes that must not come.
const QUIET: Duration = Duration::from_secs(2);

const CLOSED: &str = "networkpolicies/prod/knp.default.closed";

fn replica(store: &Local, access: Access, identity: &str) -> Controller {
    let lease = LeaseName {
        namespace: "kube-system".into(),
        name: "cambric-kube".into(),
        identity: identity.into(),
    };
    let options = Options {
        lease: Some(lease),
        ..Options::default()
    };
    Controller::start(Arc::new(store.clone()), access, options)
}

async fn until_leading(controller: &mut Controller) {
    until(controller, "it leads", |controller| {
        controller.is_leading() && controller.is_settled()
    })
    .await;
}

/// Runs a controller for a time.
async fn run_for(controller: &mut Controller, time: Duration) {
    let end = Instant::now() + time;
    until(controller, "the end of a time", |_| Instant::now() >= end).await;
}

// Promise (Kubernetes): Of two replicas, only the holder of the lease writes; after it was killed, the
// other one writes within 19 s.
#[test]
fn killed_leader_is_replaced_in_the_stated_time() {
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        server.apply(namespace("prod"));
        let store = ready_store().await;
        let mut first = replica(&store, access(&server), "a");
        until_leading(&mut first).await;
        let mut second = replica(&store, access(&server), "b");
        settle(&mut second).await;
        // The first replica does not run: its lease is renewed nevertheless.
        server.apply(policy("closed"));
        run_for(&mut second, QUIET).await;
        assert!(!second.is_leading());
        assert_eq!(get(&store, CLOSED).await, None);
        drop(first);
        let killed = Instant::now();
        until_stored(&mut second, CLOSED, true).await;
        let elapsed = killed.elapsed();
        assert!(elapsed < TAKE_OVER + LOADED, "{elapsed:?}");
        println!("take-over after a kill: {elapsed:?}");
        let leader = store.get(LEADER_KEY.into()).await.expect("an answer");
        let leader = leader.expect("a leader").value;
        assert!(String::from_utf8_lossy(&leader).contains("\"b\""));
    });
}

#[test]
fn leader_that_ends_gives_its_lease_back() {
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        let store = ready_store().await;
        let mut first = replica(&store, access(&server), "a");
        until_leading(&mut first).await;
        let mut second = replica(&store, access(&server), "b");
        settle(&mut second).await;
        first.end().await;
        let ended = Instant::now();
        until_leading(&mut second).await;
        // Less than the duration of a lease.
        assert!(
            ended.elapsed() < Duration::from_secs(10),
            "{:?}",
            ended.elapsed()
        );
    });
}

// Promise (Kubernetes): A leader that was paused during a take-over writes nothing when it continues.
#[test]
fn paused_leader_writes_nothing_after_a_take_over() {
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        server.apply(namespace("prod"));
        let store = ready_store().await;
        let (paused, wait_paused) = sync_channel(1);
        let (go_on, wait_go_on) = sync_channel::<()>(1);
        let (of_first, its_access) = (store.clone(), access(&server));
        // Its thread blocks with the runtime of its election, as a stopped process does.
        let thread = std::thread::spawn(move || {
            run(async move {
                let mut first = replica(&of_first, its_access, "a");
                until_leading(&mut first).await;
                paused.send(()).expect("the test");
                wait_go_on.recv().expect("the test");
                let before = first.counts();
                run_for(&mut first, QUIET).await;
                assert_eq!(first.counts(), before, "a late write");
                assert!(!first.is_leading());
            });
        });
        let is_paused = tokio::task::spawn_blocking(move || wait_paused.recv());
        is_paused.await.expect("a thread").expect("the first one");
        let mut second = replica(&store, access(&server), "b");
        until_leading(&mut second).await;
        server.apply(policy("closed"));
        until_stored(&mut second, CLOSED, true).await;
        go_on.send(()).expect("the first replica");
        while !thread.is_finished() {
            run_for(&mut second, Duration::from_millis(50)).await;
        }
        thread.join().expect("no late write");
        assert!(get(&store, CLOSED).await.is_some());
    });
}

// Promise (Kubernetes): A leader that cannot renew its lease stops writing before the lease ends.
#[test]
fn leader_without_its_server_stops_writing() {
    run(async {
        let mut server = ApiServer::start(LOOPBACK, 1).await;
        server.apply(namespace("prod"));
        let store = ready_store().await;
        let mut leader = replica(&store, access(&server), "a");
        until_leading(&mut leader).await;
        server.stop().await;
        let stopped = Instant::now();
        until(&mut leader, "it stops", |leader| !leader.is_leading()).await;
        assert!(
            stopped.elapsed() < Duration::from_secs(12),
            "{:?}",
            stopped.elapsed()
        );
        // A difference that it would repair.
        put(&store, "profiles/kns.prod", json!({"spec": {}})).await;
        let before = revision(&store).await;
        run_for(&mut leader, QUIET).await;
        assert_eq!(revision(&store).await, before);
        server.resume().await;
        let profile = key("profiles/kns.prod");
        let is_repaired = |leader: &Controller| {
            let found = leader.stored().get(&profile);
            found.is_some_and(|found| found.revision.0 > before)
        };
        until(&mut leader, "repaired", is_repaired).await;
    });
}
