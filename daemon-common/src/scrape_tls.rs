//! TLS for scrapers of metrics.
//!
//! The files are read for each connection, so a renewed certificate needs no restart.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::limits::{METRICS_READ, TLS_FILE_OCTETS_MAX};

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
    pub(crate) fn acceptor(&self) -> Result<TlsAcceptor, String> {
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

    /// Performs the handshake with a scraper, which has a bounded time for it.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let acceptor = self.acceptor();
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

/// Reads a file of a bounded size.
fn read(file: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read as _;

    let opened = std::fs::File::open(file).map_err(|error| at(file, error))?;
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
