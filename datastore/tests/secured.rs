//! The client driver against an etcd with users, and one with TLS.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::Path;

use common::{Etcd, program, soon};
use datastore::{Error, EtcdOptions, EtcdStore, KeyRange, LeaseId, Store, TlsFiles, WatchRequest};
use tokio::process::Command;

async fn etcdctl(program: &Path, etcd: &Etcd, arguments: &str) {
    let mut command = Command::new(program);
    command
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &etcd.url])
        .args(arguments.split(' '));
    let output = soon("etcdctl", command.output()).await.unwrap();
    assert!(
        output.status.success(),
        "{arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn users_may_do_what_they_may_do() {
    let (Some(ctl), Some(etcd)) = (program("etcdctl"), Etcd::start().await) else {
        return;
    };
    for arguments in [
        "user add root:rootword",
        "user grant-role root root",
        "user add felix:secret",
        "role add agent",
        "role grant-permission agent readwrite /calico/ --prefix=true",
        "user grant-role felix agent",
        "auth enable",
    ] {
        etcdctl(&ctl, &etcd, arguments).await;
    }
    let password = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(password.path(), "secret\n").unwrap();
    let mut options = EtcdOptions::new([etcd.url.clone()]);

    let nobody = EtcdStore::connect(&options).await.unwrap();
    let error = nobody.get("/calico/a".into()).await.unwrap_err();
    assert!(matches!(error, Error::Denied(_)), "{error}");

    options.username = Some("felix".into());
    options.password_file = Some(password.path().to_owned());
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

    std::fs::write(password.path(), "wrong").unwrap();
    let error = EtcdStore::connect(&options).await.unwrap_err();
    assert!(matches!(error, Error::Denied(_)), "{error}");
}

/// An authority, and certificates of it for a server on loopback and for a client.
async fn certificates(openssl: &Path, directory: &Path) {
    let request = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let signed = "-x509 -days 2 -CA ca.pem -CAkey ca.key";
    let server = "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    let client = "-addext basicConstraints=critical,CA:FALSE";
    for arguments in [
        format!("{request} -x509 -days 2 -subj /CN=authority -keyout ca.key -out ca.pem"),
        format!("{request} {signed} {server} -subj /CN=server -keyout server.key -out server.pem"),
        format!("{request} {signed} {client} -subj /CN=client -keyout client.key -out client.pem"),
    ] {
        let mut command = Command::new(openssl);
        command.current_dir(directory).args(arguments.split(' '));
        let output = soon("openssl", command.output()).await.unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[tokio::test]
async fn both_ends_check_certificates() {
    let Some(openssl) = program("openssl") else {
        return;
    };
    let files = tempfile::tempdir().unwrap();
    certificates(&openssl, files.path()).await;
    let Some(etcd) = Etcd::start_tls(files.path()).await else {
        return;
    };
    let file = |name| files.path().join(name);
    let tls = TlsFiles {
        ca_file: file("ca.pem"),
        cert_file: Some(file("client.pem")),
        key_file: Some(file("client.key")),
        server_name: None,
    };
    let connect = async |tls: TlsFiles| {
        let mut options = EtcdOptions::new([etcd.url.clone()]);
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
    // without a certificate is not let in.
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
