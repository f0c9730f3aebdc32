//! The client driver against an etcd with users, and one with TLS.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Etcd, Picture, certificates, command, insist, program, soon, tls, users};
use calico_store::{
    Error, EtcdOptions, EtcdStore, Follower, KeyRange, LeaseId, Status, Store, TlsFiles,
    WatchRequest, follow,
};

#[tokio::test]
async fn users_may_do_what_they_may_do() {
    let Some(mut etcd) = Etcd::start().await else {
        return;
    };
    let files = tempfile::tempdir().unwrap();
    let Some(options) = users(&etcd, files.path(), "/calico/").await else {
        return;
    };
    let anonymous = EtcdOptions::new(etcd.urls());
    let unauthenticated = EtcdStore::connect(&anonymous).await.unwrap();
    let error = unauthenticated.get("/calico/a".into()).await.unwrap_err();
    assert!(matches!(error, Error::Denied(_)), "{error}");

    let felix = EtcdStore::connect(&options).await.unwrap();
    felix
        .put("/calico/a".into(), "x".into(), LeaseId::NONE)
        .await
        .unwrap();
    assert!(felix.get("/calico/a".into()).await.unwrap().is_some());
    let error = felix
        .put("/other".into(), "x".into(), LeaseId::NONE)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Denied(_)), "{error}");
    let watch = |range| WatchRequest {
        range,
        from: None,
        previous: false,
    };
    felix
        .watch(watch(KeyRange::prefix("/calico/")))
        .await
        .unwrap();
    let refused = match felix.watch(watch(KeyRange::all())).await {
        Ok(mut watch) => soon("the end of the watch", watch.next()).await.map(|_| ()),
        Err(error) => Err(error),
    };
    assert!(matches!(refused, Err(Error::Denied(_))), "{refused:?}");

    // A restarted member has forgotten its tokens: the client requests another one.
    etcd.members[0].kill().await;
    assert!(etcd.members[0].start().await);
    let again = insist("a read", async || felix.get("/calico/a".into()).await).await;
    assert!(again.is_some());

    // No error quotes the password.
    for wrong in ["QXZQXZQXZQXZ", "QXZQXZ\nQXZQXZ", "QXZ\u{0}QXZ"] {
        std::fs::write(files.path().join("password"), wrong).unwrap();
        let error = match EtcdStore::connect(&options).await {
            Ok(stranger) => stranger.get("/calico/a".into()).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(error, Error::Denied(_)), "{error}");
        let outputs = format!("{error}\n{error:?}\n{options:?}");
        assert!(!outputs.contains("QXZ"), "{outputs}");
    }
}

/// A role created for Calico alone, and a mirror that needs more permissions.
#[tokio::test]
async fn missing_permission_of_a_role_is_named() {
    let Some(etcd) = Etcd::start().await else {
        return;
    };
    let (files, ctl) = (tempfile::tempdir().unwrap(), program("etcdctl"));
    let options = users(&etcd, files.path(), "/calico/").await;
    let (Some(options), Some(ctl)) = (options, ctl) else {
        return;
    };
    let store = Arc::new(EtcdStore::connect(&options).await.unwrap());
    let ranges = ["/calico/", "/cambric/"].map(KeyRange::prefix);
    let mut follower = follow(store, ranges, 1);
    let denied = |troubles: &[String]| match troubles {
        [trouble] => trouble.contains("/cambric/") && trouble.contains("permission denied"),
        _ => false,
    };
    wait_for_troubles(&follower, denied).await;
    let mut picture = Picture::default();
    let syncing = |picture: &Picture| picture.status == Some(Status::Syncing);
    picture.until(&mut follower, "its beginning", syncing).await;

    let grant = "role grant-permission agent readwrite /cambric/ --prefix=true";
    let user = format!("--endpoints {} --user root:rootword", etcd.url());
    command(&ctl, files.path(), &format!("{user} {grant}")).await;
    let in_sync = |picture: &Picture| picture.status == Some(Status::InSync);
    picture.until(&mut follower, "the rest", in_sync).await;
    wait_for_troubles(&follower, <[_]>::is_empty).await;
}

async fn wait_for_troubles(follower: &Follower, done: impl Fn(&[String]) -> bool) {
    let reported = async {
        while !done(&follower.troubles()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the reported troubles", reported).await;
}

#[tokio::test]
async fn both_ends_check_certificates() {
    let Some(files) = certificates().await else {
        return;
    };
    let Some(etcd) = Etcd::start_tls(files.path()).await else {
        return;
    };
    let file = |name| files.path().join(name);
    let tls = tls(files.path());
    let connect = async |tls: TlsFiles| {
        let mut options = EtcdOptions::new(etcd.urls());
        options.tls = Some(tls);
        EtcdStore::connect(&options).await.unwrap()
    };
    let store = connect(tls.clone()).await;
    store
        .put("/a".into(), "x".into(), LeaseId::NONE)
        .await
        .unwrap();
    assert!(store.get("/a".into()).await.unwrap().is_some());

    let refused = async |tls: TlsFiles| connect(tls).await.get("/a".into()).await.unwrap_err();
    // The server's certificate is not for that name; another authority signed it; and a client
    // without a certificate is rejected.
    let elsewhere = TlsFiles {
        server_name: Some("elsewhere.example".into()),
        ..tls.clone()
    };
    let error = refused(elsewhere).await.to_string();
    assert!(error.contains("certificate"), "{error}");
    let error = refused(TlsFiles {
        ca_file: file("client.pem"),
        ..tls.clone()
    })
    .await
    .to_string();
    assert!(error.contains("certificate"), "{error}");
    let error = refused(TlsFiles {
        cert_file: None,
        key_file: None,
        ..tls
    })
    .await;
    assert!(error.is_transient(), "{error}");
}

#[tokio::test]
async fn tls_files_that_do_not_fit_are_faults() {
    let Some(files) = certificates().await else {
        return;
    };
    let files = files.path();
    let faults = |change: &dyn Fn(&mut TlsFiles)| {
        let mut options = EtcdOptions::new(["https://127.0.0.1:2379"]);
        let mut tls = tls(files);
        change(&mut tls);
        options.tls = Some(tls);
        let faults = options.file_faults().into_iter();
        let faults = faults.map(|fault| (fault.keys.join("."), fault.message));
        faults.collect::<Vec<_>>()
    };
    assert_eq!(faults(&|_| ()), []);
    std::fs::write(files.join("empty.pem"), "").unwrap();
    let key = |name: &str| Some(files.join(name));
    for (change, place, words) in [
        (
            &(|tls: &mut TlsFiles| tls.key_file = key("server.key")) as &dyn Fn(&mut TlsFiles),
            "tls.key_file",
            "not that of the certificate",
        ),
        (
            &|tls: &mut TlsFiles| tls.key_file = key("client.pem"),
            "tls.key_file",
            "no private key in PEM",
        ),
        (
            &|tls: &mut TlsFiles| tls.cert_file = key("client.key"),
            "tls.cert_file",
            "no certificate in PEM",
        ),
        (
            &|tls: &mut TlsFiles| tls.ca_file = files.join("empty.pem"),
            "tls.ca_file",
            "no certificate in PEM",
        ),
        (
            &|tls: &mut TlsFiles| tls.ca_file = files.join("absent.pem"),
            "tls.ca_file",
            "no such file",
        ),
    ] {
        let faults = faults(change);
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].0, place);
        assert!(faults[0].1.contains(words), "{faults:?}");
    }
}
