//! Connection options.

use std::fs;
use std::path::PathBuf;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};
use serde::Deserialize;

use crate::error::Error;
use crate::limits::{CONNECT_TIMEOUT, PING_INTERVAL, PING_TIMEOUT};

/// Connection options of an etcd cluster; also a section of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EtcdOptions {
    /// URLs of the members, such as `http://10.0.0.254:2379`.
    pub endpoints: Vec<String>,
    /// Name of the user, if the cluster requires one.
    #[serde(default)]
    pub username: Option<String>,
    /// A file that holds the user's password.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// The user's password itself, if it does not come from a file.
    #[serde(skip)]
    pub password: Option<Password>,
    /// Certificates, for `https` URLs.
    #[serde(default)]
    pub tls: Option<TlsFiles>,
    /// Reject answers of members that have lost contact with their cluster; otherwise a watch at
    /// such a member stays open without events.
    #[serde(default = "yes")]
    pub require_leader: bool,
}

/// Files with certificates and keys, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The authorities that sign the members' certificates.
    pub ca_file: PathBuf,
    /// This client's certificate, if the cluster requires one.
    #[serde(default)]
    pub cert_file: Option<PathBuf>,
    /// This client's key.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// The server name in the members' certificates, if it differs from their URLs.
    #[serde(default)]
    pub server_name: Option<String>,
}

/// A password; omitted from debug output.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Password(pub String);

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

const fn yes() -> bool {
    true
}

impl EtcdOptions {
    /// Returns options with these URLs only.
    pub fn new<T: Into<String>>(endpoints: impl IntoIterator<Item = T>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            username: None,
            password_file: None,
            password: None,
            tls: None,
            require_leader: true,
        }
    }

    pub(super) fn connect(&self) -> Result<ConnectOptions, Error> {
        if self.endpoints.is_empty() {
            return Err(Error::Options("no endpoint of the store is given".into()));
        }
        // Pings detect a member that stops without closing the connection. None is sent while no
        // request is open: etcd treats that as abuse and closes the connection.
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(PING_INTERVAL, PING_TIMEOUT)
            .with_keep_alive_while_idle(false)
            .with_require_leader(self.require_leader);
        if let Some(tls) = &self.tls {
            options = options.with_tls(tls.options()?);
        }
        Ok(options)
    }

    /// Returns name and password of the user, if there is one.
    pub(super) fn user(&self) -> Result<Option<(String, String)>, Error> {
        match (&self.username, &self.password_file) {
            (None, None) if self.password.is_none() => Ok(None),
            (Some(name), None) if self.password.is_some() => {
                let Password(password) = self.password.clone().unwrap_or_default();
                Ok(Some((name.clone(), password)))
            }
            (Some(name), Some(file)) => {
                let password = read(file)?;
                let password = String::from_utf8_lossy(&password);
                let password = password.trim_end_matches(['\r', '\n']);
                Ok(Some((name.clone(), password.to_owned())))
            }
            _ => Err(Error::Options("a user and a password go together".into())),
        }
    }
}

impl TlsFiles {
    fn options(&self) -> Result<TlsOptions, Error> {
        let mut options =
            TlsOptions::new().ca_certificate(Certificate::from_pem(read(&self.ca_file)?));
        match (&self.cert_file, &self.key_file) {
            (None, None) => {}
            (Some(cert), Some(key)) => {
                options = options.identity(Identity::from_pem(read(cert)?, read(key)?));
            }
            _ => return Err(Error::Options("cert_file and key_file go together".into())),
        }
        if let Some(name) = &self.server_name {
            options = options.domain_name(name);
        }
        Ok(options)
    }
}

fn read(file: &PathBuf) -> Result<Vec<u8>, Error> {
    fs::read(file).map_err(|error| Error::Options(format!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_cannot_work_are_refused() {
        let refused = |options: &EtcdOptions| {
            let error = options.connect().err().or_else(|| options.user().err());
            error.unwrap().to_string()
        };
        assert!(refused(&EtcdOptions::new([""; 0])).contains("no endpoint"));
        let mut options = EtcdOptions::new(["http://127.0.0.1:1"]);
        options.username = Some("felix".into());
        assert!(refused(&options).contains("go together"));
        let alone = EtcdOptions {
            username: None,
            password: Some(Password("QXZ".into())),
            ..options.clone()
        };
        let error = refused(&alone);
        assert!(error.contains("go together") && !error.contains("QXZ"));
        options.password_file = Some("/nonexistent/password".into());
        assert!(refused(&options).starts_with("/nonexistent/password: "));
        options = EtcdOptions::new(["https://127.0.0.1:1"]);
        options.tls = Some(TlsFiles {
            ca_file: "/nonexistent/ca".into(),
            ..TlsFiles::default()
        });
        assert!(refused(&options).starts_with("/nonexistent/ca: "));
    }
}
