//! Deletions that a wrong, empty or restored API server must not cause.

use calico_store::{LeaseId, Store as _};
use cambric_kube::{CONFIRMED_KEY, Controller, Held, SERVER_KEY, Watched};
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

// Promise: as interop-tests restored_server_deletes_nothing_until_confirmed
#[test]
fn server_restored_with_a_bump_deletes_nothing_until_confirmed() {
    run(async {
        let server = ApiServer::start(LOOPBACK, 1).await;
        server.apply(namespace("prod"));
        let backup = server.revision();
        server.apply(policy("closed"));
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        server.restore_bumped(backup, 1_000_000_000);
        let held = until_held(&mut controller, &store).await;
        assert!(matches!(held, Held::RevisionJump { .. }), "{held:?}");
        assert!(get(&store, CLOSED).await.is_some());
        drop(controller);
        let mut controller = start(&store, access(&server));
        let held = until_held(&mut controller, &store).await;
        assert!(matches!(held, Held::Earlier(_)), "{held:?}");
        confirm(&store, &uid(&server)).await;
        until_stored(&mut controller, CLOSED, false).await;
    });
}

fn path(at: usize) -> String {
    format!("networkpolicies/prod/knp.default.p{at}")
}

async fn with_policies(count: usize) -> ApiServer {
    let server = ApiServer::start(LOOPBACK, 1).await;
    server.apply(namespace("prod"));
    for at in 0..count {
        server.apply(policy(&format!("p{at}")));
    }
    server
}

fn remove(server: &ApiServer, policies: std::ops::Range<usize>) {
    for at in policies {
        server.remove("NetworkPolicy", "prod", &format!("p{at}"));
    }
}

#[test]
fn list_without_many_objects_deletes_nothing_until_confirmed() {
    run(async {
        let most = cambric_kube::limits::LOSSES_MAX;
        let server = with_policies(2 * most + 2).await;
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        // As many as the limit are deleted after a list.
        drop(controller);
        remove(&server, 0..most);
        let mut controller = start(&store, access(&server));
        for at in 0..most {
            until_stored(&mut controller, &path(at), false).await;
        }
        drop(controller);
        remove(&server, most..2 * most + 1);
        let mut controller = start(&store, access(&server));
        let held = until_held(&mut controller, &store).await;
        let wanted = Held::Losses {
            watched: Watched::NetworkPolicy,
            missing: most + 1,
            all: most + 2,
        };
        assert_eq!(held, wanted);
        assert!(get(&store, &path(most)).await.is_some());
        confirm(&store, &uid(&server)).await;
        until_stored(&mut controller, &path(most), false).await;
        assert!(get(&store, &path(2 * most)).await.is_none());
        assert!(get(&store, &path(2 * most + 1)).await.is_some());
    });
}

#[test]
fn many_deletion_events_need_no_confirmation() {
    run(async {
        let most = 2 * cambric_kube::limits::LOSSES_MAX;
        let server = with_policies(most).await;
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        let is_followed = |_: &Controller| server.count("networkpolicies", "watch") > 0;
        until(&mut controller, "a watch", is_followed).await;
        remove(&server, 0..most);
        for at in 0..most {
            until_stored(&mut controller, &path(at), false).await;
        }
        assert_eq!(controller.held(), None);
    });
}

#[test]
fn kind_without_a_watch_deletes_nothing() {
    run(async {
        let server = with_policies(2).await;
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        drop(controller);
        remove(&server, 0..1);
        server.apply(namespace("left"));
        server.deny("watch", "networkpolicies", true);
        let mut controller = start(&store, access(&server));
        let left = crate::rig::key("profiles/kns.left");
        let is_refused = |controller: &Controller| {
            controller.failure(Watched::NetworkPolicy).is_some()
                && controller.objects().count(Watched::NetworkPolicy) == 1
                && controller.stored().get(&left).is_some()
        };
        until(&mut controller, "a refused watch", is_refused).await;
        // Another kind is deleted meanwhile.
        server.remove("Namespace", "", "left");
        let is_deleted = |controller: &Controller| controller.stored().get(&left).is_none();
        until(&mut controller, "a deletion of another kind", is_deleted).await;
        assert!(get(&store, &path(0)).await.is_some());
        server.deny("watch", "networkpolicies", false);
        until_stored(&mut controller, &path(0), false).await;
        assert!(get(&store, &path(1)).await.is_some());
    });
}

#[test]
fn denied_kind_at_the_first_start_does_not_stop_deletions() {
    run(async {
        let server = filled(1).await;
        let store = ready_store().await;
        put(&store, "profiles/ksa.prod.old", "{}").await;
        server.deny("list", "serviceaccounts", true);
        let mut controller = start(&store, access(&server));
        let closed = crate::rig::key(CLOSED);
        let is_stored = |wanted: bool| {
            let closed = closed.clone();
            move |controller: &Controller| controller.stored().get(&closed).is_some() == wanted
        };
        until(&mut controller, "the policy", is_stored(true)).await;
        server.remove("NetworkPolicy", "prod", "closed");
        until(&mut controller, "its deletion", is_stored(false)).await;
        // The first list of the kind lacks an object: an operator confirms that.
        server.deny("list", "serviceaccounts", false);
        assert_eq!(until_held(&mut controller, &store).await, Held::Unconfirmed);
        assert!(get(&store, "profiles/ksa.prod.old").await.is_some());
        confirm(&store, &uid(&server)).await;
        until_stored(&mut controller, "profiles/ksa.prod.old", false).await;
    });
}

// Promise (Kubernetes): An API server that was created again replaces no resource until an operator
// confirms it.
#[test]
fn other_server_replaces_nothing_until_confirmed() {
    run(async {
        let first = filled(1).await;
        let store = ready_store().await;
        let mut controller = start(&store, access(&first));
        settle(&mut controller).await;
        let before = get(&store, CLOSED).await;
        drop((controller, first));

        let other = ApiServer::start(LOOPBACK, 2).await;
        for name in ["prod", "fresh"] {
            other.apply(namespace(name));
        }
        let mut open = policy("closed");
        open["spec"]["ingress"] = serde_json::json!([{}]);
        other.apply(open);
        let mut controller = start(&store, access(&other));
        let fresh = crate::rig::key("profiles/kns.fresh");
        let is_written = |controller: &Controller| {
            let known = controller.objects().count(Watched::NetworkPolicy);
            known == 1 && controller.stored().get(&fresh).is_some()
        };
        until(&mut controller, "a missing profile", is_written).await;
        until_held(&mut controller, &store).await;
        assert_eq!(get(&store, CLOSED).await, before);
        confirm(&store, &uid(&other)).await;
        settle(&mut controller).await;
        assert_ne!(get(&store, CLOSED).await, before);
    });
}
