//! The address of the API server, and the credentials of the client.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use crate::limits::CREDENTIAL_OCTETS_MAX;

/// A token, a certificate or a key. Files are read again for each connection or request, so that
/// replaced files take effect.
#[derive(Clone, PartialEq, Eq)]
pub enum Credential {
    /// A file.
    File(PathBuf),
    /// The octets themselves.
    Given(Vec<u8>),
}

/// Octets are never shown: they may be secret.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Given(_) => f.write_str("Given(..)"),
        }
    }
}

impl From<PathBuf> for Credential {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

/// The credentials of the client, and those that it requires of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The authority of the server's certificate, as PEM.
    pub ca: Option<Credential>,
    /// The token.
    pub token: Option<Credential>,
    /// The certificate of the client, as PEM.
    pub cert: Option<Credential>,
    /// Its key, as PEM.
    pub key: Option<Credential>,
    /// The name in the certificate of the server, if it is not that of the URL.
    pub server_name: Option<String>,
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
    #[error("an https URL requires the certificate of an authority")]
    NoAuthority,
    /// The certificate or its key is missing.
    #[error("a certificate of the client requires its key, and the key its certificate")]
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
            (false, Trust { token: Some(_), .. }) => return Err(AccessError::PlainToken),
            (true, Trust { ca: None, .. }) => return Err(AccessError::NoAuthority),
            _ => {}
        }
        if trust.cert.is_some() != trust.key.is_some() {
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
    #[must_use]
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Reads the token.
    pub(super) fn token(&self) -> io::Result<Option<String>> {
        let Some(credential) = &self.trust.token else {
            return Ok(None);
        };
        let octets = credential.octets()?;
        let text = String::from_utf8(octets).map_err(|_| credential.fault("it is not text"))?;
        match text.trim() {
            "" => Err(credential.fault("it is empty")),
            token => Ok(Some(token.to_owned())),
        }
    }

    /// Reads the certificates of the authority, as PEM; empty without TLS.
    ///
    /// # Errors
    ///
    /// The file is unreadable.
    pub fn authority_certificates(&self) -> io::Result<Vec<u8>> {
        let ca = self.trust.ca.as_ref();
        ca.map_or_else(|| Ok(Vec::new()), Credential::octets)
    }

    /// Reads the credentials, and returns the mistakes with the names of their fields in [`Trust`].
    /// `server` is the field of a mistake in the name of the server.
    #[must_use]
    pub fn faults(&self) -> Vec<(&'static str, String)> {
        let trust = &self.trust;
        let mut faults = Vec::new();
        let mut note = |key, read: io::Result<()>| {
            if let Err(error) = read {
                faults.push((key, error.to_string()));
            }
        };
        if let Some(ca) = &trust.ca {
            note("ca", roots(ca).map(drop));
        }
        note("token", self.token().map(drop));
        if let Some(cert) = &trust.cert {
            note("cert", certificates(cert).map(drop));
        }
        if let Some(own) = &trust.key {
            note("key", key(own).map(drop));
        }
        if faults.is_empty()
            && let Err(error) = self.tls()
        {
            let key = if trust.cert.is_some() {
                "cert"
            } else {
                "server"
            };
            faults.push((key, error.to_string()));
        }
        faults
    }

    /// Returns the configuration of TLS and the name of the server; `None` without TLS.
    pub(super) fn tls(&self) -> io::Result<Option<(Arc<ClientConfig>, ServerName<'static>)>> {
        let (true, Some(ca)) = (self.is_tls, &self.trust.ca) else {
            return Ok(None);
        };
        let config = ClientConfig::builder().with_root_certificates(roots(ca)?);
        let config = match (&self.trust.cert, &self.trust.key) {
            (Some(cert), Some(own)) => config
                .with_client_auth_cert(certificates(cert)?, key(own)?)
                .map_err(|error| cert.fault(&error.to_string()))?,
            _ => config.with_no_client_auth(),
        };
        let name = self.trust.server_name.as_ref().unwrap_or(&self.host);
        let name = ServerName::try_from(name.clone())
            .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        Ok(Some((Arc::new(config), name)))
    }
}

impl Credential {
    /// Reads it, up to a limit.
    fn octets(&self) -> io::Result<Vec<u8>> {
        let octets = match self {
            Self::Given(octets) => octets.clone(),
            Self::File(path) => {
                let file = File::open(path).map_err(|error| self.fault(&error.to_string()))?;
                let limit = u64::try_from(CREDENTIAL_OCTETS_MAX).unwrap_or(u64::MAX);
                let mut octets = Vec::new();
                file.take(limit)
                    .read_to_end(&mut octets)
                    .map_err(|error| self.fault(&error.to_string()))?;
                octets
            }
        };
        match octets.len() < CREDENTIAL_OCTETS_MAX {
            true => Ok(octets),
            false => Err(self.fault("it is too long")),
        }
    }

    /// Returns the error of a mistake, with the file and without its content.
    fn fault(&self, reason: &str) -> io::Error {
        let text = match self {
            Self::File(path) => format!("{}: {reason}", path.display()),
            Self::Given(_) => reason.to_owned(),
        };
        io::Error::new(ErrorKind::InvalidData, text)
    }
}

fn roots(ca: &Credential) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        let added = roots.add(certificate);
        added.map_err(|error| ca.fault(&error.to_string()))?;
    }
    Ok(roots)
}

fn key(own: &Credential) -> io::Result<PrivateKeyDer<'static>> {
    // The error of the parser may quote the text.
    PrivateKeyDer::from_pem_slice(&own.octets()?).map_err(|_| own.fault("it has no private key"))
}

fn certificates(of: &Credential) -> io::Result<Vec<CertificateDer<'static>>> {
    let octets = of.octets()?;
    let all = CertificateDer::pem_slice_iter(&octets);
    let all = all
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| of.fault(&error.to_string()))?;
    match all.is_empty() {
        true => Err(of.fault("it has no certificate")),
        false => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(url: &str) -> Result<String, AccessError> {
        let trust = Trust {
            ca: Some(Credential::File("/ca.pem".into())),
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
            token: Some(Credential::File("/token".into())),
            ..Trust::default()
        };
        let access = |url, trust: &Trust| Access::new(url, trust.clone());
        assert_eq!(access("http://a", &token), Err(AccessError::PlainToken));
        assert_eq!(access("https://a", &token), Err(AccessError::NoAuthority));
        let pair = Trust {
            cert: Some(Credential::File("/cert.pem".into())),
            ..Trust::default()
        };
        assert_eq!(access("http://a", &pair), Err(AccessError::Pair));
    }
}
