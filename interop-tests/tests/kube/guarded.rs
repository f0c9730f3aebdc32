//! Deletions that a wrong, empty or restored API server must not cause.

use calico_store::{LeaseId, Store as _};
use cambric_kube::{CONFIRMED_KEY, Controller, Held, SERVER_KEY};
use etcd_lite::Local;
use interop_tests::ApiServer;
use serde_json::Value;

use crate::rig::{
    LOOPBACK, access, get, namespace, policy, put, ready_store, run, settle, start, until,
    until_stored,
};

const CLOSED: &str = "networkpolicies/prod/knp.default.closed";

async fn filled(identity: u64) -> ApiServer {
    let server = ApiServer::start(LOOPBACK, identity).await;
    server.apply(namespace("prod"));
    server.apply(policy("closed"));
    server
}

async fn record(store: &Local) -> Value {
    let found = store.get(SERVER_KEY.into()).await.expect("an answer");
    serde_json::from_slice(&found.expect("a record").value).expect("JSON")
}

/// Runs the controller until deletions are held, and the reason is stored.
async fn until_held(controller: &mut Controller, store: &Local) -> Held {
    let is_held = |controller: &Controller| {
        let held = controller.held();
        let stored = controller.stored().record();
        let is_stored =
            |value: &cambric_kube::Value| value.octets.windows(6).any(|part| part == b"\"held\"");
        held.is_some_and(Held::needs_confirmation) && stored.is_some_and(is_stored)
    };
    until(controller, "deletions are held", is_held).await;
    assert!(record(store).await["held"].is_string());
    controller.held().cloned().expect("a reason")
}

async fn confirm(store: &Local, uid: &str) {
    let value = format!("{uid}\n").into();
    let written = store.put(CONFIRMED_KEY.into(), value, LeaseId::NONE).await;
    written.expect("written");
}

fn uid(server: &ApiServer) -> String {
    let namespace = server.apply(namespace("kube-system"));
    namespace["metadata"]["uid"]
        .as_str()
        .expect("a UID")
        .to_owned()
}

// Promise (Kubernetes): An API server that was created again deletes nothing until an operator
// confirms it.
#[test]
fn other_server_deletes_nothing_until_confirmed() {
    run(async {
        let first = filled(1).await;
        let store = ready_store().await;
        let mut controller = start(&store, access(&first));
        settle(&mut controller).await;
        assert_eq!(record(&store).await["uid"], uid(&first));
        drop((controller, first));

        let empty = ApiServer::start(LOOPBACK, 2).await;
        let mut controller = start(&store, access(&empty));
        assert_eq!(until_held(&mut controller, &store).await, Held::OtherServer);
        assert!(get(&store, CLOSED).await.is_some());
        assert!(get(&store, "profiles/kns.prod").await.is_some());
        // New objects are written nevertheless.
        empty.apply(namespace("fresh"));
        let fresh = crate::rig::key("profiles/kns.fresh");
        let is_written = |controller: &Controller| controller.stored().get(&fresh).is_some();
        until(&mut controller, "a new profile", is_written).await;
        // Neither another UID nor a restart of the controller confirms it.
        confirm(&store, "other").await;
        drop(controller);
        let mut controller = start(&store, access(&empty));
        until_held(&mut controller, &store).await;
        assert!(get(&store, CLOSED).await.is_some());

        confirm(&store, &uid(&empty)).await;
        until_stored(&mut controller, CLOSED, false).await;
        assert_eq!(get(&store, CLOSED).await, None);
        let record = record(&store).await;
        assert_eq!(record["uid"], uid(&empty));
        assert_eq!(record["held"], Value::Null);
        let confirmation = store.get(CONFIRMED_KEY.into()).await.expect("an answer");
        assert_eq!(confirmation, None, "it counts once");
    });
}

// Promise (Kubernetes): An API server that was restored from a backup deletes nothing until an
// operator confirms it.
#[test]
fn restored_server_deletes_nothing_until_confirmed() {
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        server.apply(namespace("prod"));
        let backup = server.revision();
        server.apply(policy("closed"));
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        server.restore(backup);
        let held = until_held(&mut controller, &store).await;
        assert!(matches!(held, Held::OlderRevision { .. }), "{held:?}");
        assert!(get(&store, CLOSED).await.is_some());
        // The server grows beyond the known revision, and the controller starts again.
        for at in 0..20 {
            server.apply(namespace(&format!("n{at}")));
        }
        drop(controller);
        let mut controller = start(&store, access(&server));
        let held = until_held(&mut controller, &store).await;
        assert!(matches!(held, Held::Earlier(_)), "{held:?}");
        assert!(get(&store, CLOSED).await.is_some());
        confirm(&store, &uid(&server)).await;
        until_stored(&mut controller, CLOSED, false).await;
    });
}

#[test]
fn first_server_does_not_delete_what_others_have_written() {
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        let store = ready_store().await;
        // As Calico's controllers have left it.
        put(&store, CLOSED, "{}").await;
        let mut controller = start(&store, access(&server));
        let is_held = |controller: &Controller| controller.held() == Some(&Held::Unconfirmed);
        until(&mut controller, "deletions are held", is_held).await;
        assert!(get(&store, CLOSED).await.is_some());
        confirm(&store, &uid(&server)).await;
        until_stored(&mut controller, CLOSED, false).await;
    });
}

#[test]
fn server_that_changes_behind_its_address_is_noticed() {
    run(async {
        let mut first = filled(1).await;
        let store = ready_store().await;
        let mut controller = start(&store, access(&first));
        settle(&mut controller).await;
        // The watches continue at the address, at a server with a longer history.
        let address = first.address();
        first.stop().await;
        let second = ApiServer::start(address, 2).await;
        for at in 0..50 {
            second.apply(namespace(&format!("n{at}")));
        }
        second.apply(namespace("prod"));
        second.apply(policy("closed"));
        second.remove("NetworkPolicy", "prod", "closed");
        assert_eq!(until_held(&mut controller, &store).await, Held::OtherServer);
        assert!(get(&store, CLOSED).await.is_some());
    });
}
