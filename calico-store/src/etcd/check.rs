//! Checks the options of a store before any connection.

use std::net::Ipv6Addr;
use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::options::{EtcdOptions, TlsFiles};

/// A fault of the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionFault {
    /// The keys of the value, from the section on.
    pub keys: &'static [&'static str],
    /// Index of the item, if the value is a list.
    pub index: Option<usize>,
    /// Description of the fault, without secrets.
    pub message: String,
    /// How to fix it.
    pub help: &'static str,
}

impl OptionFault {
    fn new(keys: &'static [&'static str], message: String, help: &'static str) -> Self {
        Self {
            keys,
            index: None,
            message,
            help,
        }
    }
}

const PAIR: &str = "a certificate and its key are given together: tls.cert_file and tls.key_file";

impl EtcdOptions {
    /// Returns the faults of the options themselves.
    pub fn faults(&self) -> Vec<OptionFault> {
        let mut faults = Vec::new();
        if self.endpoints.is_empty() {
            let message = "no endpoint of the store is given".to_owned();
            let help = "such as endpoints = [\"http://10.0.0.254:2379\"]";
            faults.push(OptionFault::new(&["endpoints"], message, help));
        }
        for (at, endpoint) in self.endpoints.iter().enumerate() {
            if let Err((message, help)) = check_endpoint(endpoint, self.tls.is_some()) {
                faults.push(OptionFault {
                    index: Some(at),
                    ..OptionFault::new(&["endpoints"], message, help)
                });
            }
        }
        let has_password = self.password_file.is_some() || self.password.is_some();
        if self.username.is_some() != has_password {
            let keys: &[&str] = match self.username {
                Some(_) => &["username"],
                None => &["password_file"],
            };
            let message = "a user and a password go together".to_owned();
            faults.push(OptionFault::new(
                keys,
                message,
                "give username and password_file",
            ));
        }
        match self.tls.as_ref().map(|tls| (&tls.cert_file, &tls.key_file)) {
            Some((Some(_), None)) => {
                let message = "a certificate without its key".to_owned();
                faults.push(OptionFault::new(&["tls", "cert_file"], message, PAIR));
            }
            Some((None, Some(_))) => {
                let message = "a key without its certificate".to_owned();
                faults.push(OptionFault::new(&["tls", "key_file"], message, PAIR));
            }
            _ => {}
        }
        faults
    }

    /// Returns the faults of the files named in the options.
    pub fn file_faults(&self) -> Vec<OptionFault> {
        let mut faults = Vec::new();
        if let Some(file) = &self.password_file {
            faults.extend(read(&["password_file"], file).err());
        }
        if let Some(tls) = &self.tls {
            tls.file_faults(&mut faults);
        }
        faults
    }
}

impl TlsFiles {
    fn file_faults(&self, faults: &mut Vec<OptionFault>) {
        let ca = certificates(&["tls", "ca_file"], &self.ca_file);
        faults.extend(ca.err());
        let certificates = self
            .cert_file
            .as_ref()
            .map(|file| certificates(&["tls", "cert_file"], file));
        let key = self.key_file.as_ref().map(|file| private_key(file));
        match (certificates, key) {
            (Some(Ok(certificates)), Some(Ok(key))) => {
                faults.extend(mismatch(certificates, key));
            }
            (certificates, key) => {
                faults.extend(certificates.and_then(Result::err));
                faults.extend(key.and_then(Result::err));
            }
        }
    }
}

/// Checks that a URL has a scheme, a host and a port, and nothing else.
fn check_endpoint(endpoint: &str, has_tls: bool) -> Result<(), (String, &'static str)> {
    const SHAPE: &str = "an endpoint is a URL such as https://10.0.0.254:2379";
    let (scheme, rest) = endpoint
        .split_once("://")
        .ok_or_else(|| ("the endpoint has no scheme".to_owned(), SHAPE))?;
    if !matches!(scheme, "http" | "https") {
        return Err((
            "the endpoint's scheme is neither http nor https".to_owned(),
            SHAPE,
        ));
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains('@') {
        return Err((
            "an endpoint holds no user and no password".to_owned(),
            "give them as username and password_file",
        ));
    }
    if authority.contains(['/', '?', '#']) {
        return Err((
            "the endpoint has more than a host and a port".to_owned(),
            SHAPE,
        ));
    }
    let (host, port) = authority
        .rsplit_once(':')
        .ok_or_else(|| ("the endpoint has no port".to_owned(), SHAPE))?;
    if !matches!(port.parse::<u16>(), Ok(1..)) {
        return Err((
            "the endpoint's port is not from 1 to 65535".to_owned(),
            SHAPE,
        ));
    }
    let is_host = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            !host.is_empty() && host.chars().all(part)
        }
    };
    if !is_host {
        return Err((
            "the endpoint's host is neither a name nor an address".to_owned(),
            "an IPv6 address needs brackets: https://[2001:db8::1]:2379",
        ));
    }
    match (scheme, has_tls) {
        ("https", false) => Err((
            "https needs the authority of the members' certificates".to_owned(),
            "add [datastore.tls] with ca_file",
        )),
        ("http", true) => Err((
            "TLS is configured, but this endpoint would be spoken to in clear text".to_owned(),
            "write https, or remove [datastore.tls]",
        )),
        _ => Ok(()),
    }
}

fn read(keys: &'static [&'static str], file: &Path) -> Result<Vec<u8>, OptionFault> {
    std::fs::read(file).map_err(|error| {
        let what = match error.kind() {
            std::io::ErrorKind::NotFound => "no such file".to_owned(),
            std::io::ErrorKind::PermissionDenied => "not readable for this user".to_owned(),
            _ => error.to_string(),
        };
        let message = format!("{}: {what}", file.display());
        OptionFault::new(
            keys,
            message,
            "the daemon's user must be able to read the file",
        )
    })
}

fn certificates(
    keys: &'static [&'static str],
    file: &Path,
) -> Result<Vec<CertificateDer<'static>>, OptionFault> {
    const HELP: &str = "the file holds certificates in PEM: -----BEGIN CERTIFICATE-----";
    let octets = read(keys, file)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&octets).collect();
    let certificates = read.unwrap_or_default();
    let fault = |what: &str| OptionFault::new(keys, format!("{}: {what}", file.display()), HELP);
    if certificates.is_empty() {
        return Err(fault("no certificate in PEM"));
    }
    for certificate in &certificates {
        if rustls::server::ParsedCertificate::try_from(certificate).is_err() {
            return Err(fault("a certificate in it cannot be read"));
        }
    }
    Ok(certificates)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, OptionFault> {
    let octets = read(&["tls", "key_file"], file)?;
    PrivateKeyDer::from_pem_slice(&octets).map_err(|_| {
        OptionFault::new(
            &["tls", "key_file"],
            format!("{}: no private key in PEM", file.display()),
            "the file holds an unencrypted key: -----BEGIN PRIVATE KEY-----",
        )
    })
}

/// Returns whether a key does not match the certificate.
fn mismatch(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Option<OptionFault> {
    let provider = rustls::crypto::ring::default_provider();
    let error = CertifiedKey::from_der(certificates, key, &provider).err()?;
    let message = match error {
        rustls::Error::InconsistentKeys(_) => "the key is not that of the certificate".to_owned(),
        other => format!("certificate and key cannot be used: {other}"),
    };
    Some(OptionFault::new(&["tls", "key_file"], message, PAIR))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(options: &EtcdOptions) -> String {
        let faults = options.faults();
        faults
            .first()
            .map_or_else(String::new, |one| one.message.clone())
    }

    #[test]
    fn endpoints_are_urls_with_host_and_port() {
        for (endpoint, expected) in [
            ("http://10.0.0.254:2379", ""),
            ("http://etcd-1.example:2379/", ""),
            ("http://[2001:db8::1]:2379", ""),
            ("10.0.0.254:2379", "no scheme"),
            ("ftp://10.0.0.254:2379", "neither http nor https"),
            ("http://10.0.0.254", "no port"),
            ("http://10.0.0.254:0", "not from 1"),
            ("http://10.0.0.254:70000", "not from 1"),
            ("http://:2379", "neither a name"),
            ("http://2001:db8::1:2379", "neither a name"),
            ("http://a b:2379", "neither a name"),
            ("http://10.0.0.254:2379/v3", "more than a host"),
            ("http://u:MARK@10.0.0.254:2379", "no user and no password"),
            ("https://10.0.0.254:2379", "https needs"),
            ("", "no scheme"),
        ] {
            let message = first(&EtcdOptions::new([endpoint]));
            assert!(message.contains(expected), "{endpoint}: {message}");
            assert_eq!(
                message.is_empty(),
                expected.is_empty(),
                "{endpoint}: {message}"
            );
            assert!(!message.contains("MARK"), "{message}");
        }
    }

    #[test]
    fn halves_of_pairs_are_faults() {
        let tls = |cert: bool, key: bool| EtcdOptions {
            tls: Some(TlsFiles {
                ca_file: "/ca".into(),
                cert_file: cert.then(|| "/cert".into()),
                key_file: key.then(|| "/key".into()),
                ..TlsFiles::default()
            }),
            ..EtcdOptions::new(["https://10.0.0.254:2379"])
        };
        assert_eq!(first(&tls(true, true)), "");
        assert!(first(&tls(true, false)).contains("without its key"));
        assert!(first(&tls(false, true)).contains("without its certificate"));
        let mut plain = tls(false, false);
        plain.endpoints = vec!["http://10.0.0.254:2379".into()];
        assert!(first(&plain).contains("in clear text"));
        let mut user = EtcdOptions::new(["http://10.0.0.254:2379"]);
        user.username = Some("felix".into());
        assert!(first(&user).contains("go together"));
    }
}
