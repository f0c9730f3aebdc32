//! The address of the API server, and the credentials of the controller.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::limits::TOKEN_OCTETS_MAX;

/// The files of the controller's credentials. They are read again for each connection or request, so
/// that replaced files take effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The authority of the server's certificate, as PEM.
    pub ca_file: Option<PathBuf>,
    /// The token.
    pub token_file: Option<PathBuf>,
    /// The certificate of the controller, as PEM.
    pub cert_file: Option<PathBuf>,
    /// Its key, as PEM.
    pub key_file: Option<PathBuf>,
}

/// The address of the server and the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    is_tls: bool,
    host: String,
    port: u16,
    trust: Trust,
}

/// Why an address of a server is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Its form is wrong.
    #[error("the address of the API server is not a URL such as https://10.96.0.1:443")]
    Form,
    /// The token would be readable on the network.
    #[error("a token is never sent without TLS: use an https URL")]
    PlainToken,
    /// The authority is missing.
    #[error("an https URL requires `ca_file`")]
    NoAuthority,
    /// The certificate or its key is missing.
    #[error("`cert_file` and `key_file` are given together")]
    Pair,
}

impl Access {
    /// Returns the access to a server with this URL.
    ///
    /// # Errors
    ///
    /// The URL is invalid, or the credentials do not fit it.
    pub fn new(url: &str, trust: Trust) -> Result<Self, AccessError> {
        let (scheme, rest) = url.split_once("://").ok_or(AccessError::Form)?;
        let is_tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(AccessError::Form),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let is_name = |host: &str| {
            let fits = |octet: u8| octet.is_ascii_alphanumeric() || b"-.:%_".contains(&octet);
            !host.is_empty() && host.bytes().all(fits)
        };
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or(AccessError::Form)?;
                (host, port.strip_prefix(':'))
            }
            None => match authority.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') => (host, Some(port)),
                Some(_) => return Err(AccessError::Form),
                None => (authority, None),
            },
        };
        let default = if is_tls { "443" } else { "80" };
        let port = port.unwrap_or(default).parse();
        let (true, Ok(port)) = (is_name(host), port) else {
            return Err(AccessError::Form);
        };
        match (is_tls, &trust) {
            (
                false,
                Trust {
                    token_file: Some(_),
                    ..
                },
            ) => return Err(AccessError::PlainToken),
            (true, Trust { ca_file: None, .. }) => return Err(AccessError::NoAuthority),
            _ => {}
        }
        if trust.cert_file.is_some() != trust.key_file.is_some() {
            return Err(AccessError::Pair);
        }
        Ok(Self {
            is_tls,
            host: host.to_owned(),
            port,
            trust,
        })
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// Returns host and port, as in a URL.
    pub(crate) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Reads the token.
    pub(super) fn token(&self) -> io::Result<Option<String>> {
        let Some(path) = &self.trust.token_file else {
            return Ok(None);
        };
        let octets = read(path, TOKEN_OCTETS_MAX)?;
        let text = String::from_utf8(octets).map_err(|_| of_file(path, "it is not text"))?;
        match text.trim() {
            "" => Err(of_file(path, "it is empty")),
            token => Ok(Some(token.to_owned())),
        }
    }

    /// Reads the files, and returns the mistakes with the keys of their table.
    pub(crate) fn file_faults(&self) -> Vec<(&'static str, String)> {
        let trust = &self.trust;
        let mut faults = Vec::new();
        let mut note = |key, read: io::Result<()>| {
            if let Err(error) = read {
                faults.push((key, error.to_string()));
            }
        };
        if let Some(path) = &trust.ca_file {
            note("ca_file", roots(path).map(drop));
        }
        note("token_file", self.token().map(drop));
        if let Some(path) = &trust.cert_file {
            note("cert_file", certificates(path).map(drop));
        }
        if let Some(path) = &trust.key_file {
            note("key_file", key(path).map(drop));
        }
        if faults.is_empty()
            && let Err(error) = self.tls()
        {
            let key = if trust.cert_file.is_some() {
                "cert_file"
            } else {
                "server"
            };
            faults.push((key, error.to_string()));
        }
        faults
    }

    /// Returns the configuration of TLS and the name of the server; `None` without TLS.
    pub(super) fn tls(&self) -> io::Result<Option<(Arc<ClientConfig>, ServerName<'static>)>> {
        let (true, Some(ca_file)) = (self.is_tls, &self.trust.ca_file) else {
            return Ok(None);
        };
        let config = ClientConfig::builder().with_root_certificates(roots(ca_file)?);
        let config = match (&self.trust.cert_file, &self.trust.key_file) {
            (Some(cert_file), Some(key_file)) => config
                .with_client_auth_cert(certificates(cert_file)?, key(key_file)?)
                .map_err(|error| of_file(cert_file, &error.to_string()))?,
            _ => config.with_no_client_auth(),
        };
        let name = ServerName::try_from(self.host.clone())
            .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        Ok(Some((Arc::new(config), name)))
    }
}

fn roots(path: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| of_file(path, &error.to_string()))?;
    }
    Ok(roots)
}

fn key(path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| of_file(path, &error.to_string()))
}

fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let failed = |error: rustls::pki_types::pem::Error| of_file(path, &error.to_string());
    let all = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    match all.is_empty() {
        true => Err(of_file(path, "it has no certificate")),
        false => Ok(all),
    }
}

fn read(path: &Path, octets_max: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path).map_err(|error| of_file(path, &error.to_string()))?;
    let mut octets = Vec::new();
    let limit = u64::try_from(octets_max).unwrap_or(u64::MAX);
    file.take(limit)
        .read_to_end(&mut octets)
        .map_err(|error| of_file(path, &error.to_string()))?;
    match octets.len() < octets_max {
        true => Ok(octets),
        false => Err(of_file(path, "it is too long")),
    }
}

fn of_file(path: &Path, reason: &str) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("{}: {reason}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(url: &str) -> Result<String, AccessError> {
        let trust = Trust {
            ca_file: Some("/ca.pem".into()),
            ..Trust::default()
        };
        Access::new(url, trust).map(|access| access.authority())
    }

    #[test]
    fn urls_of_a_server_are_read_strictly() {
        for (url, wanted) in [
            ("https://10.96.0.1", "10.96.0.1:443"),
            ("https://10.96.0.1:6443/", "10.96.0.1:6443"),
            ("http://localhost:8001", "localhost:8001"),
            ("https://[fd00::1]:6443", "[fd00::1]:6443"),
            ("https://[fd00::1]", "[fd00::1]:443"),
        ] {
            assert_eq!(authority(url).as_deref(), Ok(wanted), "{url}");
        }
        for url in [
            "",
            "10.96.0.1:443",
            "ftp://a",
            "https://",
            "https://a:b",
            "https://a:99999",
            "https://fd00::1",
            "https://[fd00::1",
            "https://user@a",
            "https://a/api",
            "https://a b",
        ] {
            assert_eq!(authority(url), Err(AccessError::Form), "{url}");
        }
    }

    #[test]
    fn credentials_must_fit_the_url() {
        let token = Trust {
            token_file: Some("/token".into()),
            ..Trust::default()
        };
        let access = |url, trust: &Trust| Access::new(url, trust.clone());
        assert_eq!(access("http://a", &token), Err(AccessError::PlainToken));
        assert_eq!(access("https://a", &token), Err(AccessError::NoAuthority));
        let pair = Trust {
            cert_file: Some("/cert.pem".into()),
            ..Trust::default()
        };
        assert_eq!(access("http://a", &pair), Err(AccessError::Pair));
    }
}
