//! Failures of the API server and of the datastore.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use calico_model::Kind;
use calico_store::{
    Answer, Error, Lease, LeaseId, LeaseState, Listing, Query, Revision, Store, Txn, TxnReply,
    Watch, WatchRequest,
};
use cambric_kube::{Access, Completeness, Controller, Failure, Options, Trust, Watched};
use etcd_lite::Local;
use interop_tests::{ApiServer, Certificates};
use serde_json::json;
use tokio::net::TcpListener;

use crate::rig::{
    LOOPBACK, access, account, get, namespace, policy, put, ready_store, revision, run, settle,
    start, until, until_stored,
};

async fn filled() -> ApiServer {
    let server = ApiServer::start(LOOPBACK, 1).await;
    server.apply(namespace("prod"));
    server.apply(account("web"));
    server.apply(policy("closed"));
    server
}

const CLOSED: &str = "networkpolicies/prod/knp.default.closed";

// Promise (Kubernetes): An API server that does not answer costs at most one request per second
// for each kind.
#[test]
fn absent_server_costs_one_request_per_second_and_kind() {
    run(async {
        let listener = TcpListener::bind(LOOPBACK).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let attempts = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&attempts);
        let accepting = tokio::spawn(async move {
            // Each connection is closed at once.
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let store = ready_store().await;
        let begun = Instant::now();
        let access = Access::new(&format!("http://{address}"), Trust::default());
        let mut controller = start(&store, access.expect("a URL"));
        let kinds = Watched::ALL.len() as u64;
        let wanted = 3 * kinds;
        let has_tried = |_: &Controller| attempts.load(Ordering::Relaxed) >= wanted;
        until(&mut controller, "three attempts of each kind", has_tried).await;
        let elapsed_s = begun.elapsed().as_secs();
        let attempts = attempts.load(Ordering::Relaxed);
        assert!(
            attempts <= kinds * (elapsed_s + 1),
            "{attempts} attempts in {elapsed_s} s"
        );
        assert!(controller.failure(Watched::Pod).is_some());
        accepting.abort();
    });
}

// Promise (Kubernetes): While the API server is unreachable, nothing is deleted or changed; its
// changes follow once it answers.
#[test]
fn unreachable_server_deletes_nothing() {
    run(async {
        let mut server = filled().await;
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        let before = revision(&store).await;
        server.stop().await;
        server.remove("NetworkPolicy", "prod", "closed");
        server.apply(policy("second"));
        let is_lost = |controller: &Controller| {
            let mut kinds = Watched::ALL.into_iter();
            kinds.all(|kind| kind.is_optional() || controller.failure(kind).is_some())
        };
        until(&mut controller, "the server is unreachable", is_lost).await;
        assert_eq!(revision(&store).await, before);
        let requests = |server: &ApiServer| {
            ["list", "watch"].map(|verb| server.count("networkpolicies", verb))
        };
        let [lists, watches] = requests(&server);
        server.resume().await;
        until_stored(
            &mut controller,
            "networkpolicies/prod/knp.default.second",
            true,
        )
        .await;
        until_stored(&mut controller, CLOSED, false).await;
        // The watch continued where it was, after a look at the revision.
        let [lists_after, watches_after] = requests(&server);
        assert_eq!(lists_after - lists, watches_after - watches);
    });
}

#[test]
fn expired_watch_is_followed_by_a_list() {
    run(async {
        let server = filled().await;
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        let lists = server.count("networkpolicies", "list");
        // The revision of the policies' watch falls behind, and is then removed.
        server.apply(namespace("a"));
        until_stored(&mut controller, "profiles/kns.a", true).await;
        server.compact();
        server.cut_watches();
        let listed = |_: &Controller| server.count("networkpolicies", "list") > lists;
        until(&mut controller, "another list", listed).await;
        server.remove("NetworkPolicy", "prod", "closed");
        until_stored(&mut controller, CLOSED, false).await;
    });
}

#[test]
fn bookmark_avoids_a_list_after_a_cut() {
    run(async {
        let server = filled().await;
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        let count = |verb| server.count("networkpolicies", verb);
        let (lists, watches) = (count("list"), count("watch"));
        server.apply(namespace("a"));
        until_stored(&mut controller, "profiles/kns.a", true).await;
        server.send_bookmarks();
        // The bookmark precedes this event in the stream.
        server.apply(policy("second"));
        until_stored(
            &mut controller,
            "networkpolicies/prod/knp.default.second",
            true,
        )
        .await;
        server.compact();
        server.cut_watches();
        let is_open = |_: &Controller| count("watch") > watches;
        until(&mut controller, "another watch", is_open).await;
        server.apply(policy("third"));
        until_stored(
            &mut controller,
            "networkpolicies/prod/knp.default.third",
            true,
        )
        .await;
        // Each further watch has a look at the revision before it.
        assert_eq!(count("list") - lists, count("watch") - watches);
    });
}

#[test]
fn list_in_pages_survives_an_expired_page() {
    run(async {
        let server = filled().await;
        for at in 0..1200 {
            server.apply(namespace(&format!("n{at}")));
        }
        server.expire_page();
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        // One page, an expired one, and all at once.
        assert_eq!(server.count("namespaces", "list"), 3);
        assert_eq!(controller.objects().count(Watched::Namespace), 1205);
        assert!(get(&store, "profiles/kns.n1199").await.is_some());
    });
}

#[test]
fn page_that_is_too_long_is_read_in_smaller_ones() {
    run(async {
        let server = filled().await;
        let octets = kube_client::limits::PAGE_OCTETS_MAX / 300;
        let note = "x".repeat(octets);
        for at in 0..320 {
            let name = format!("n{at}");
            server.apply(json!({"kind": "Namespace",
                "metadata": {"name": name, "annotations": {"note": note}}}));
        }
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        assert_eq!(controller.objects().count(Watched::Namespace), 325);
        // A page of all that is too long, and two smaller ones.
        assert_eq!(server.count("namespaces", "list"), 3);
    });
}

#[test]
fn denied_kind_deletes_nothing_and_others_work() {
    run(async {
        let server = filled().await;
        let store = ready_store().await;
        put(&store, "profiles/ksa.prod.old", "{}").await;
        server.deny("list", "serviceaccounts", true);
        let mut controller = start(&store, access(&server));
        let others = |controller: &Controller| {
            let known = |kind| controller.objects().completeness(kind) == Completeness::Complete;
            let is_denied = matches!(
                controller.failure(Watched::ServiceAccount),
                Some(Failure::Rejected { code: 403, .. })
            );
            let policy = controller.stored().get(&crate::rig::key(CLOSED));
            is_denied && known(Watched::NetworkPolicy) && policy.is_some()
        };
        until(&mut controller, "other kinds", others).await;
        assert!(get(&store, "profiles/ksa.prod.old").await.is_some());
        assert!(!controller.is_settled());
        server.deny("list", "serviceaccounts", false);
        let own = crate::rig::key("profiles/ksa.prod.web");
        let is_written = |controller: &Controller| controller.stored().get(&own).is_some();
        until(&mut controller, "the profile", is_written).await;
    });
}

#[test]
fn throttled_requests_are_repeated() {
    run(async {
        let server = filled().await;
        server.throttle(4);
        let store = ready_store().await;
        let mut controller = start(&store, access(&server));
        settle(&mut controller).await;
        assert!(get(&store, CLOSED).await.is_some());
    });
}

#[test]
fn secured_server_is_reached_with_token_and_authority() {
    run(async {
        let directory = tempfile::tempdir().expect("a directory");
        let IpAddr::V4(own) = LOOPBACK.ip() else {
            panic!("IPv6");
        };
        let Some(certificates) = Certificates::make(directory.path(), own) else {
            return;
        };
        let server = ApiServer::start_secured(LOOPBACK, 1, &certificates).await;
        server.apply(namespace("prod"));
        server.require_token("secret");
        let token_file = directory.path().join("token");
        std::fs::write(&token_file, "wrong\n").expect("written");
        let trust = Trust {
            ca: Some(directory.path().join("ca.pem").into()),
            token: Some(token_file.clone().into()),
            ..Trust::default()
        };
        let access = Access::new(&server.url(), trust).expect("a URL");
        let store = ready_store().await;
        let mut controller = start(&store, access);
        let is_rejected = |controller: &Controller| {
            let failure = controller.failure(Watched::Namespace);
            matches!(failure, Some(Failure::Rejected { code: 401, .. }))
        };
        until(&mut controller, "a wrong token", is_rejected).await;
        // A replaced token takes effect without a restart.
        std::fs::write(&token_file, "secret\n").expect("written");
        settle(&mut controller).await;
        assert!(get(&store, "profiles/kns.prod").await.is_some());
        drop(controller);
        // A server with a certificate of another authority is not trusted.
        let other = tempfile::tempdir().expect("a directory");
        Certificates::make(other.path(), own).expect("OpenSSL");
        let trust = Trust {
            ca: Some(other.path().join("ca.pem").into()),
            token: Some(token_file.into()),
            ..Trust::default()
        };
        let access = Access::new(&server.url(), trust).expect("a URL");
        let before = server.count("namespaces", "list");
        let mut controller = start(&store, access);
        let is_refused = |controller: &Controller| {
            let failure = controller.failure(Watched::Namespace);
            matches!(failure, Some(Failure::Connection(_)))
        };
        until(&mut controller, "no trust", is_refused).await;
        assert_eq!(server.count("namespaces", "list"), before);
    });
}

#[test]
fn datastore_that_is_not_ready_is_not_written() {
    run(async {
        let server = filled().await;
        let store = Local::empty();
        let locked = json!({"spec": {"clusterGUID": "lab", "datastoreReady": false}});
        put(&store, "clusterinformations/default", locked).await;
        let mut controller = start(&store, access(&server));
        let is_read = |controller: &Controller| {
            let known =
                |kind: Watched| controller.objects().completeness(kind) != Completeness::Unknown;
            Watched::ALL.into_iter().all(known)
        };
        until(&mut controller, "the objects", is_read).await;
        assert_eq!(revision(&store).await, 2, "only the lock");
        put(&store, "clusterinformations/default", interop_tests::READY).await;
        settle(&mut controller).await;
        assert!(get(&store, CLOSED).await.is_some());
    });
}

/// A store whose role does not grant tiers. Counts the writes of them.
struct NoTiers {
    store: Local,
    attempts: Arc<AtomicU64>,
}

impl Store for NoTiers {
    fn range(&self, query: Query) -> Answer<'_, Listing> {
        self.store.range(query)
    }

    fn txn(&self, txn: Txn) -> Answer<'_, TxnReply> {
        let prefix = Kind::Tier.prefix();
        let mut keys = txn.compares.iter().map(|compare| &compare.range);
        if keys.any(|range| range.to_string().contains(&prefix)) {
            self.attempts.fetch_add(1, Ordering::Relaxed);
            return Box::pin(async { Err(Error::Denied("permission denied".to_owned())) });
        }
        self.store.txn(txn)
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch> {
        self.store.watch(request)
    }

    fn compact(&self, at: Revision) -> Answer<'_, ()> {
        self.store.compact(at)
    }

    fn lease_grant(&self, ttl_s: i64) -> Answer<'_, Lease> {
        self.store.lease_grant(ttl_s)
    }

    fn lease_keep_alive(&self, id: LeaseId) -> Answer<'_, i64> {
        self.store.lease_keep_alive(id)
    }

    fn lease_revoke(&self, id: LeaseId) -> Answer<'_, ()> {
        self.store.lease_revoke(id)
    }

    fn lease_state(&self, id: LeaseId) -> Answer<'_, LeaseState> {
        self.store.lease_state(id)
    }
}

#[test]
fn refused_write_is_tried_again_after_a_delay() {
    run(async {
        let server = filled().await;
        server.define("ClusterNetworkPolicy");
        let rule = json!({"action": "Deny", "from": [{"namespaces": {}}]});
        let cluster_policy = |name: &str| {
            json!({"kind": "ClusterNetworkPolicy", "metadata": {"name": name}, "spec": {
                "tier": "Admin", "priority": 1, "subject": {"namespaces": {}}, "ingress": [rule]}})
        };
        server.apply(cluster_policy("first"));
        let store = ready_store().await;
        let attempts = Arc::new(AtomicU64::new(0));
        let refusing = NoTiers {
            store: store.clone(),
            attempts: Arc::clone(&attempts),
        };
        let begun = Instant::now();
        let mut controller =
            Controller::start(Arc::new(refusing), access(&server), Options::default());
        let path = |name: &str| format!("globalnetworkpolicies/kcnp.kube-admin.{name}");
        until_stored(&mut controller, &path("first"), true).await;
        for name in ["second", "third"] {
            server.apply(cluster_policy(name));
            until_stored(&mut controller, &path(name), true).await;
        }
        let (attempts, elapsed_s) = (attempts.load(Ordering::Relaxed), begun.elapsed().as_secs());
        assert!(attempts >= 2, "both tiers");
        let allowed = 2 * (1 + elapsed_s / cambric_kube::limits::WRITE_RETRY_MAX.as_secs());
        assert!(
            attempts <= allowed,
            "{attempts} attempts in {elapsed_s} s, allowed {allowed}"
        );
    });
}
