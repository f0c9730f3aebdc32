//! Certificates and users.

use std::path::Path;

use calico_store::{EtcdOptions, TlsFiles};
use tempfile::TempDir;

use super::{Etcd, command, program};

/// Creates an authority, and certificates of it for a server on loopback and for a client; `None`
/// without the program for it.
pub(crate) async fn certificates() -> Option<TempDir> {
    let openssl = program("openssl")?;
    let directory = tempfile::tempdir().unwrap();
    let request = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let signed = "-x509 -days 2 -CA ca.pem -CAkey ca.key";
    let server = "-addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE";
    // Without a common name: etcd takes it for the user name.
    let client = "-addext basicConstraints=critical,CA:FALSE";
    for arguments in [
        format!("{request} -x509 -days 2 -subj /CN=authority -keyout ca.key -out ca.pem"),
        format!("{request} {signed} {server} -subj /CN=server -keyout server.key -out server.pem"),
        format!("{request} {signed} {client} -subj /O=client -keyout client.key -out client.pem"),
    ] {
        command(&openssl, directory.path(), &arguments).await;
    }
    Some(directory)
}

/// Returns the files of a client with certificates in a directory.
pub(crate) fn tls(files: &Path) -> TlsFiles {
    TlsFiles {
        ca_file: files.join("ca.pem"),
        cert_file: Some(files.join("client.pem")),
        key_file: Some(files.join("client.key")),
        server_name: None,
    }
}

/// Enables users, with one that may read and write below a prefix; `None` without the program for
/// it. The password is written to the directory.
pub(crate) async fn users(etcd: &Etcd, files: &Path, prefix: &str) -> Option<EtcdOptions> {
    let ctl = program("etcdctl")?;
    let mut options = EtcdOptions::new(etcd.urls());
    let mut flags = format!("--endpoints {}", etcd.url());
    if etcd.url().starts_with("https") {
        options.tls = Some(tls(files));
        flags += " --cacert ca.pem --cert client.pem --key client.key";
    }
    let grant = format!("role grant-permission agent readwrite {prefix} --prefix=true");
    for arguments in [
        "user add root:rootword",
        "user grant-role root root",
        "user add felix:secret",
        "role add agent",
        &grant,
        "user grant-role felix agent",
        "auth enable",
    ] {
        command(&ctl, files, &format!("{flags} {arguments}")).await;
    }
    let password = files.join("password");
    std::fs::write(&password, "secret\n").unwrap();
    options.username = Some("felix".into());
    options.password_file = Some(password);
    Some(options)
}
