//! A scraper and the page of metrics over TLS. `files` has certificates of a test authority.

use std::net::SocketAddr;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::*;
use crate::control::{Control, Scrapes};
use crate::report::Status;
use crate::{Command, Reply};

fn file(name: &str) -> PathBuf {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/scrape_tls/files");
    Path::new(directory).join(name)
}

fn tls(clients: ScrapeClients) -> ScrapeTls {
    ScrapeTls {
        cert_file: file("server.pem"),
        key_file: file("server.key"),
        clients,
    }
}

/// A daemon that only serves metrics.
struct Daemon {
    _directory: tempfile::TempDir,
    _scrapes: Scrapes,
    at: SocketAddr,
}

fn daemon(tls: ScrapeTls) -> Daemon {
    let directory = tempfile::tempdir().unwrap();
    let mut control = Control::bind(directory.path().join("socket")).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let (scrapes, at) = control.scrapes(any, Some(tls)).unwrap();
    tokio::spawn(async move {
        loop {
            let request = control.next().await;
            let reply = match request.command {
                Command::Status {} => Reply::Status(Status::default()),
                _ => Reply::error("not here".to_owned()),
            };
            request.reply(reply);
        }
    });
    Daemon {
        _directory: directory,
        _scrapes: scrapes,
        at,
    }
}

/// Scrapes a daemon that must have a certificate of this authority.
async fn scrape(at: SocketAddr, authority: &str, own: Option<&str>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&file(authority)).unwrap() {
        roots.add(certificate).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = certificates(&file(&format!("{own}.pem"))).unwrap();
            let key = read(&file(&format!("{own}.key"))).unwrap();
            let key = PrivateKeyDer::from_pem_slice(&key).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let stream = TcpStream::connect(at).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await?;
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request).await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    Ok(page)
}

#[tokio::test]
async fn page_is_served_over_tls_only() {
    let daemon = daemon(tls(ScrapeClients::Unknown));
    let page = scrape(daemon.at, "ca.pem", None).await.unwrap();
    assert!(page.starts_with("HTTP/1.1 200 OK"), "{page}");
    assert!(page.contains("cambric_"), "{page}");
    let wrong = scrape(daemon.at, "other.pem", None).await;
    assert!(wrong.is_err(), "the daemon proves who it is: {wrong:?}");
    let mut plain = TcpStream::connect(daemon.at).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    plain.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1 200"));
}

#[tokio::test]
async fn required_certificate_of_a_scraper_is_verified() {
    for (clients, own, is_served) in [
        (
            ScrapeClients::Required(file("ca.pem")),
            Some("client"),
            true,
        ),
        (ScrapeClients::Required(file("ca.pem")), None, false),
        (
            ScrapeClients::Required(file("other.pem")),
            Some("client"),
            false,
        ),
        (ScrapeClients::Verified(file("ca.pem")), None, true),
        (
            ScrapeClients::Verified(file("ca.pem")),
            Some("client"),
            true,
        ),
        (
            ScrapeClients::Verified(file("other.pem")),
            Some("client"),
            false,
        ),
    ] {
        let words = format!("{clients:?} {own:?}");
        let daemon = daemon(tls(clients));
        let page = scrape(daemon.at, "ca.pem", own).await;
        let served = page.is_ok_and(|page| page.contains("200 OK"));
        assert_eq!(served, is_served, "{words}");
    }
}

#[tokio::test]
async fn unusable_files_are_reported_with_their_names() {
    let with = |cert: &str, key: &str| ScrapeTls {
        cert_file: file(cert),
        key_file: file(key),
        clients: ScrapeClients::Unknown,
    };
    for (tls, words) in [
        (with("gone.pem", "server.key"), "gone.pem: "),
        (
            with("server.key", "server.key"),
            "server.key: no certificate",
        ),
        (with("server.pem", "server.pem"), "server.pem: "),
        (with("server.pem", "client.key"), "server.pem: "),
        (tls(ScrapeClients::Required(file("gone.pem"))), "gone.pem: "),
    ] {
        let reason = tls.acceptor().map(drop).unwrap_err();
        assert!(reason.contains(words), "{reason}");
        let directory = tempfile::tempdir().unwrap();
        let control = Control::bind(directory.path().join("socket")).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let error = control.scrapes(any, Some(tls)).map(drop).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn changed_files_are_read_again_after_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let own = |name: &str| directory.path().join(name);
    let copy = |from: &str, to: &str| {
        let (made, target) = (own("new"), own(to));
        std::fs::copy(file(from), &made).unwrap();
        std::fs::rename(made, target).unwrap();
    };
    copy("server.pem", "cert");
    copy("server.key", "key");
    let acceptor = Acceptor::open(ScrapeTls {
        cert_file: own("cert"),
        key_file: own("key"),
        clients: ScrapeClients::Unknown,
    });
    let acceptor = acceptor.unwrap();
    let start = acceptor.held.lock().unwrap().checked;
    let at = |gaps: u32| acceptor.at(start + TLS_FILES_CHECK * gaps);
    let is_same =
        |one: &TlsAcceptor, other: &TlsAcceptor| Arc::ptr_eq(one.config(), other.config());
    let first = at(0).unwrap();
    assert!(is_same(&first, &at(1).unwrap()), "no file has changed");
    copy("client.pem", "cert");
    assert!(is_same(&first, &at(1).unwrap()), "no check is due");
    // Certificate and key belong to each other again after the second change only.
    assert!(at(2).map(drop).unwrap_err().contains("cert: "));
    copy("client.key", "key");
    assert!(!is_same(&first, &at(3).unwrap()));
    std::fs::remove_file(own("key")).unwrap();
    assert!(at(4).map(drop).unwrap_err().contains("key: "));
}

#[test]
fn named_pipe_is_rejected_without_a_wait() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for special in [pipe, PathBuf::from("/dev/zero")] {
        let reason = read(&special).unwrap_err();
        assert!(reason.ends_with(": not a regular file"), "{reason}");
    }
}
