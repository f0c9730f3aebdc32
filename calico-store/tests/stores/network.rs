//! The client driver and mirrors over a real network, through restarts of the store.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Counted, Picture, Served, insist, put, soon};
use bytes::Bytes;
use calico_store::{
    Error, EtcdOptions, EtcdStore, KeyRange, LeaseId, Status, Store, WatchRequest, follow,
};
use etcd_lite::serve::{ServeConfig, ServeError, Server};

#[tokio::test]
async fn a_follower_survives_restarts_of_the_store() {
    let served = Served::start().await;
    let address = served.address;
    let client = served.client().await;
    put(&client, "/a/1", "one").await;
    put(&client, "/b/1", "one").await;
    put(&client, "/c/1", "not mirrored").await;
    let ranges = ["/a/", "/b/"].map(KeyRange::prefix);
    let mut follower = follow(Arc::new(client.clone()), ranges, 1);
    let mut picture = Picture::default();
    picture
        .until(&mut follower, "the first picture", |p| {
            p.status == Some(Status::InSync)
        })
        .await;
    assert_eq!(picture.state.len(), 2);
    let change = client.put("/a/2".into(), "two".into(), LeaseId::NONE);
    let as_of = change.await.unwrap();
    picture
        .until(&mut follower, "a change", |p| p.holds("/a/2", "two"))
        .await;

    let applied = async {
        while follower.revision() != Some(as_of) {
            tokio::task::yield_now().await;
        }
    };
    soon("the revision of the change", applied).await;
    assert!(follower.last_answer().is_some(), "it has answered");

    served.stop().await;
    picture
        .until(&mut follower, "the loss", |p| {
            p.status == Some(Status::Lost)
        })
        .await;
    assert_eq!(picture.state.len(), 3, "nothing is forgotten");
    assert_eq!(
        follower.revision(),
        Some(as_of),
        "the reported state is kept"
    );
    // It reported no change until it was lost.
    assert!(follower.last_answer() > Some(Duration::from_secs(3)));

    // The store in memory is empty after the restart, has another history, and gets other content.
    let served = Served::at(address).await;
    put(&served.client().await, "/a/1", "new").await;
    let done = |p: &Picture| p.status == Some(Status::InSync) && p.holds("/a/1", "new");
    picture
        .until(&mut follower, "the new history", |p| {
            done(p) && p.state.len() == 1
        })
        .await;
    // The old client recovers by itself.
    put(&client, "/b/2", "two").await;
    picture
        .until(&mut follower, "a change of the new history", |p| {
            p.holds("/b/2", "two")
        })
        .await;
    drop(follower);
    served.stop().await;
}

#[tokio::test]
async fn store_with_a_file_continues_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let data = Some(directory.path().join("store"));
    let served = Served::keeping("127.0.0.1:0".parse().unwrap(), data.clone()).await;
    let address = served.address;
    let client = served.client().await;
    let asked = Counted::new(Arc::new(client.clone()));
    put(&client, "/a/1", "one").await;
    let lease = client.lease_grant(600).await.unwrap();
    let leased = client.put("/b/1".into(), "leased".into(), lease.id);
    let revision = leased.await.unwrap();
    let ranges = ["/a/", "/b/"].map(KeyRange::prefix);
    let mut follower = follow(Arc::clone(&asked) as Arc<dyn Store>, ranges, 1);
    let mut picture = Picture::default();
    let in_sync = |p: &Picture| p.status == Some(Status::InSync);
    picture.until(&mut follower, "sync", in_sync).await;
    let reads = asked.reads();
    served.stop().await;

    let served = Served::keeping(address, data).await;
    put(&client, "/a/1", "two").await;
    let read = insist("a read", async || client.get("/a/1".into()).await);
    let item = read.await.unwrap();
    assert_eq!((item.mod_revision, item.version), (revision.next(), 2));
    assert_eq!(client.lease_keep_alive(lease.id).await, Ok(600));
    picture
        .until(&mut follower, "a change", |p| p.holds("/a/1", "two"))
        .await;
    assert_eq!(
        asked.reads(),
        reads,
        "the history is the same: no need to read again"
    );
    client.lease_revoke(lease.id).await.unwrap();
    picture
        .until(&mut follower, "the end of the lease", |p| {
            p.state.len() == 1
        })
        .await;
    served.stop().await;
}

#[tokio::test]
async fn watch_of_a_stopped_server_ends_with_an_error() {
    let served = Served::start().await;
    let client = served.client().await;
    let request = WatchRequest {
        range: KeyRange::all(),
        from: None,
        previous: false,
    };
    let mut watch = client.watch(request).await.unwrap();
    served.stop().await;
    let error = soon("the end", watch.next()).await.unwrap_err();
    assert!(
        matches!(error, Error::WatchLost(_) | Error::Unavailable(_)),
        "{error}"
    );
    let error = client.get("/a".into()).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
}

#[tokio::test]
async fn many_watchers_see_every_change() {
    let served = Served::start().await;
    let client = served.client().await;
    let mut watches = Vec::new();
    for _ in 0..20 {
        let request = WatchRequest {
            range: KeyRange::prefix("/n/"),
            from: None,
            previous: false,
        };
        watches.push(client.watch(request).await.unwrap());
    }
    for nth in 0..500 {
        client
            .put(format!("/n/{nth}").into(), "x".into(), LeaseId::NONE)
            .await
            .unwrap();
    }
    for watch in &mut watches {
        let mut seen = 0;
        while seen < 500 {
            seen += soon("all events", watch.next()).await.unwrap().events.len();
        }
    }
    served.stop().await;
}

#[tokio::test]
async fn port_in_use_is_reported() {
    let served = Served::start().await;
    let config = ServeConfig {
        listen: vec![served.address],
        manifests: None,
        data: None,
    };
    let error = Server::bind(config).await.err().unwrap();
    assert!(matches!(error, ServeError::Listen { .. }), "{error}");
    assert!(
        error.to_string().contains(&served.address.to_string()),
        "{error}"
    );
    served.stop().await;
}

#[tokio::test]
async fn unreachable_store_is_reported() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let options = EtcdOptions::new([format!("http://{free}")]);
    let client = EtcdStore::connect(&options).await.unwrap();
    let error = client.get("/a".into()).await.unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("refused"),
        "{error}"
    );
    let error = EtcdStore::connect(&EtcdOptions::new(["not a url"]))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Options(_)), "{error}");
}

#[tokio::test]
async fn store_serves_a_directory_of_manifests() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tier.yaml");
    std::fs::write(&file, "kind: Tier\nmetadata: {name: t}\nspec: {order: 1}\n").unwrap();
    let listen = ["127.0.0.1:0", "[::1]:0"]
        .map(|address| address.parse().unwrap())
        .to_vec();
    let config = ServeConfig {
        listen,
        manifests: Some(directory.path().to_owned()),
        data: None,
    };
    let server = Server::bind(config).await.unwrap();
    let urls = server
        .addresses()
        .iter()
        .map(|address| format!("http://{address}"));
    let clients: Vec<EtcdOptions> = urls.map(|url| EtcdOptions::new([url])).collect();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    for options in clients {
        let client = EtcdStore::connect(&options).await.unwrap();
        let key = Bytes::from_static(b"/calico/resources/v3/projectcalico.org/tiers/t");
        assert!(client.get(key).await.unwrap().is_some());
    }
    drop(stop);
    soon("the end", task).await.unwrap().unwrap();
}
