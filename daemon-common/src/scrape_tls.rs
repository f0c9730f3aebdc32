//! TLS for scrapers of metrics.
//!
//! Changed files are read again at the next connection, so a renewed certificate needs no restart.

use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::OFlag;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::limits::{METRICS_READ, TLS_FILE_OCTETS_MAX, TLS_FILES_CHECK};

#[cfg(test)]
mod tests;

/// The files and rules of TLS for scrapers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeTls {
    /// The certificate of the daemon, with those between it and its authority (PEM).
    pub cert_file: PathBuf,
    /// Its key (PEM).
    pub key_file: PathBuf,
    /// The certificates of scrapers.
    pub clients: ScrapeClients,
}

/// The certificates of scrapers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScrapeClients {
    /// None is requested.
    Unknown,
    /// One that a scraper has must be of this authority (PEM).
    Verified(PathBuf),
    /// Each scraper must have one of this authority (PEM).
    Required(PathBuf),
}

impl ScrapeTls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// A sentence with the file that cannot be used.
    fn acceptor(&self) -> Result<TlsAcceptor, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let verifier = |authority: &Path, is_required| {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(authority)? {
                let added = roots.add(certificate);
                added.map_err(|error| at(authority, error))?;
            }
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
            let verifier = match is_required {
                true => verifier,
                false => verifier.allow_unauthenticated(),
            };
            verifier.build().map_err(|error| at(authority, error))
        };
        let builder = match &self.clients {
            ScrapeClients::Unknown => builder.with_no_client_auth(),
            ScrapeClients::Verified(authority) => {
                builder.with_client_cert_verifier(verifier(authority, false)?)
            }
            ScrapeClients::Required(authority) => {
                builder.with_client_cert_verifier(verifier(authority, true)?)
            }
        };
        let chain = certificates(&self.cert_file)?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key_file)?);
        let key = key.map_err(|error| at(&self.key_file, error))?;
        let config = builder.with_single_cert(chain, key);
        let config = config.map_err(|error| at(&self.cert_file, error))?;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    fn stamps(&self) -> Stamps {
        let authority = match &self.clients {
            ScrapeClients::Unknown => None,
            ScrapeClients::Verified(authority) | ScrapeClients::Required(authority) => {
                Some(authority)
            }
        };
        let files = [Some(&self.cert_file), Some(&self.key_file), authority];
        files.map(|file| Stamp::of(file?))
    }
}

/// TLS for scrapers with the files as they were read last.
#[derive(Debug)]
pub(crate) struct Acceptor {
    tls: ScrapeTls,
    held: Mutex<Held>,
}

struct Held {
    acceptor: Result<TlsAcceptor, String>,
    stamps: Stamps,
    /// The time of the last check for changed files.
    checked: Instant,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held")
            .field("stamps", &self.stamps)
            .field("checked", &self.checked)
            .finish_non_exhaustive()
    }
}

/// Certificate, key and authority.
type Stamps = [Option<Stamp>; 3];

/// The state of a file that changes with its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    octets: u64,
    /// Seconds and nanoseconds of the last change of the content, and of the inode.
    changed: [(i64, i64); 2],
}

impl Stamp {
    fn of(file: &Path) -> Option<Self> {
        let found = std::fs::metadata(file).ok()?;
        Some(Self {
            device: found.dev(),
            inode: found.ino(),
            octets: found.size(),
            changed: [
                (found.mtime(), found.mtime_nsec()),
                (found.ctime(), found.ctime_nsec()),
            ],
        })
    }
}

impl Held {
    fn read(tls: &ScrapeTls, now: Instant) -> Self {
        // The states before the read: a later change is found by the next check.
        let stamps = tls.stamps();
        Self {
            acceptor: tls.acceptor(),
            stamps,
            checked: now,
        }
    }
}

impl Acceptor {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// A sentence with the file that cannot be used.
    pub(crate) fn open(tls: ScrapeTls) -> Result<Self, String> {
        let held = Held::read(&tls, Instant::now());
        held.acceptor.clone()?;
        Ok(Self {
            tls,
            held: Mutex::new(held),
        })
    }

    /// Returns the acceptor. Files that have changed are read again, after one check at most in each
    /// [`TLS_FILES_CHECK`].
    fn at(&self, now: Instant) -> Result<TlsAcceptor, String> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.checked + TLS_FILES_CHECK <= now {
            held.checked = now;
            if held.stamps != self.tls.stamps() {
                *held = Held::read(&self.tls, now);
            }
        }
        held.acceptor.clone()
    }

    /// Performs the handshake with a scraper, which has a bounded time for it.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let acceptor = self.at(Instant::now());
        let acceptor = acceptor
            .inspect_err(|reason| tracing::debug!(reason, "no TLS for a scraper"))
            .ok()?;
        let accepted = timeout(METRICS_READ, acceptor.accept(stream)).await;
        accepted.ok()?.ok()
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = read(file)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| at(file, error))?;
    match all.is_empty() {
        true => Err(at(file, "no certificate")),
        false => Ok(all),
    }
}

/// Reads a regular file of a bounded size. The open of a named pipe does not wait for a writer.
fn read(file: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;

    let mut options = std::fs::OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let opened = options.open(file).map_err(|error| at(file, error))?;
    let found = opened.metadata().map_err(|error| at(file, error))?;
    if !found.is_file() {
        return Err(at(file, "not a regular file"));
    }
    let mut octets = Vec::new();
    let limit = TLS_FILE_OCTETS_MAX.saturating_add(1);
    let read = opened.take(limit).read_to_end(&mut octets);
    read.map_err(|error| at(file, error))?;
    match octets.len() as u64 > TLS_FILE_OCTETS_MAX {
        true => Err(at(file, format!("more than {TLS_FILE_OCTETS_MAX} octets"))),
        false => Ok(octets),
    }
}

fn at(file: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", file.display())
}
