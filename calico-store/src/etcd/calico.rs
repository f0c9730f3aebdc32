//! The choice of the datastore as Calico's programs have it: in variables, in calicoctl's file, and in the
//! CNI configuration.

use std::path::PathBuf;

use super::options::{EtcdOptions, Password, TlsFiles};

/// The values by which a program of Calico finds etcd. An empty one counts as missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CalicoEtcd {
    /// `DATASTORE_TYPE`: empty, or `etcdv3`.
    pub datastore_type: String,
    /// `ETCD_ENDPOINTS`: URLs with commas between them.
    pub endpoints: String,
    /// `ETCD_DISCOVERY_SRV`, which is not supported.
    pub discovery_srv: String,
    /// `ETCD_USERNAME`.
    pub username: String,
    /// `ETCD_PASSWORD`.
    pub password: Password,
    /// `ETCD_CA_CERT_FILE`.
    pub ca_file: String,
    /// `ETCD_CERT_FILE`.
    pub cert_file: String,
    /// `ETCD_KEY_FILE`.
    pub key_file: String,
    /// Whether a certificate or a key is given in place of a file, which is not supported.
    pub has_inline: bool,
}

/// A fault of these values. The text has the names of the variables, and no value but that of
/// `DATASTORE_TYPE`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalicoFault {
    /// The datastore is not etcd.
    #[error("DATASTORE_TYPE is \"{0}\": the store must be etcd (\"etcdv3\")")]
    DatastoreType(String),
    /// The members are those of a DNS record.
    #[error("ETCD_DISCOVERY_SRV is not supported: set ETCD_ENDPOINTS")]
    Discovery,
    /// A certificate or a key is no file.
    #[error("ETCD_KEY, ETCD_CERT and ETCD_CA_CERT are not supported: put them into files")]
    Inline,
    /// There is no URL.
    #[error("no datastore is configured: set ETCD_ENDPOINTS, such as http://127.0.0.1:2379")]
    NoEndpoint,
    /// A certificate or a key has no authority beside it.
    #[error("ETCD_CA_CERT_FILE is missing: ETCD_CERT_FILE and ETCD_KEY_FILE need it")]
    NoAuthority,
    /// A user is given without a password, or a password without a user.
    #[error("a user and a password go together: set ETCD_USERNAME and ETCD_PASSWORD, or neither")]
    User,
}

impl CalicoEtcd {
    /// Returns the values of the variables. `CALICO_ETCD_ENDPOINTS` precedes `ETCD_ENDPOINTS` unless it is empty, and
    /// so on.
    pub fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| {
            let prefixed = variable(&format!("CALICO_{name}"));
            let prefixed = prefixed.filter(|value| !value.is_empty());
            prefixed.or_else(|| variable(name)).unwrap_or_default()
        };
        let inline = ["ETCD_KEY", "ETCD_CERT", "ETCD_CA_CERT"];
        Self {
            datastore_type: set("DATASTORE_TYPE"),
            endpoints: set("ETCD_ENDPOINTS"),
            discovery_srv: set("ETCD_DISCOVERY_SRV"),
            username: set("ETCD_USERNAME"),
            password: Password(set("ETCD_PASSWORD")),
            ca_file: set("ETCD_CA_CERT_FILE"),
            cert_file: set("ETCD_CERT_FILE"),
            key_file: set("ETCD_KEY_FILE"),
            has_inline: inline.iter().any(|name| !set(name).is_empty()),
        }
    }

    /// Returns the options of a client.
    ///
    /// # Errors
    ///
    /// A value is missing or not supported.
    pub fn options(&self) -> Result<EtcdOptions, CalicoFault> {
        if !matches!(self.datastore_type.as_str(), "" | "etcdv3") {
            return Err(CalicoFault::DatastoreType(self.datastore_type.clone()));
        }
        if !self.discovery_srv.is_empty() {
            return Err(CalicoFault::Discovery);
        }
        if self.has_inline {
            return Err(CalicoFault::Inline);
        }
        let all = self.endpoints.split(',').map(str::trim);
        let mut options = EtcdOptions::new(all.filter(|endpoint| !endpoint.is_empty()));
        if options.endpoints.is_empty() {
            return Err(CalicoFault::NoEndpoint);
        }
        let given = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        let file = |text: &str| given(text).map(PathBuf::from);
        let (cert_file, key_file) = (file(&self.cert_file), file(&self.key_file));
        let is_client = cert_file.is_some() || key_file.is_some();
        options.tls = file(&self.ca_file).map(|ca_file| TlsFiles {
            ca_file,
            cert_file,
            key_file,
            server_name: None,
        });
        if options.tls.is_none() && is_client {
            return Err(CalicoFault::NoAuthority);
        }
        options.username = given(&self.username);
        options.password = Some(self.password.clone()).filter(|password| !password.0.is_empty());
        if options.username.is_some() != options.password.is_some() {
            return Err(CalicoFault::User);
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&str, &str)]) -> CalicoEtcd {
        CalicoEtcd::of_variables(|name| {
            let found = set.iter().find(|(key, _)| *key == name)?;
            Some(found.1.to_owned())
        })
    }

    #[test]
    fn variables_are_those_of_calico() {
        let options = of(&[
            ("ETCD_ENDPOINTS", "http://10.0.0.9:1"),
            (
                "CALICO_ETCD_ENDPOINTS",
                "https://10.0.0.1:2379, https://10.0.0.2:2379",
            ),
            ("DATASTORE_TYPE", "etcdv3"),
            ("ETCD_USERNAME", "admin"),
            ("ETCD_PASSWORD", "secret"),
            ("ETCD_CA_CERT_FILE", "/ca"),
            ("ETCD_CERT_FILE", "/cert"),
            ("ETCD_KEY_FILE", "/key"),
        ]);
        assert!(!format!("{options:?}").contains("secret"));
        let options = options.options().expect("options");
        let wanted = ["https://10.0.0.1:2379", "https://10.0.0.2:2379"];
        assert_eq!(options.endpoints, wanted);
        assert_eq!(options.username.as_deref(), Some("admin"));
        assert_eq!(options.password, Some(Password("secret".to_owned())));
        assert!(!format!("{options:?}").contains("secret"));
        let tls = options.tls.expect("tls");
        assert_eq!(tls.ca_file, PathBuf::from("/ca"));
        assert_eq!(tls.cert_file, Some(PathBuf::from("/cert")));
        assert_eq!(tls.key_file, Some(PathBuf::from("/key")));
    }

    #[test]
    fn fault_names_its_variable() {
        let url = ("ETCD_ENDPOINTS", "https://a:1");
        for (set, name) in [
            (&[][..], "ETCD_ENDPOINTS"),
            (&[("ETCD_ENDPOINTS", " , ")], "ETCD_ENDPOINTS"),
            (&[url, ("DATASTORE_TYPE", "kubernetes")], "kubernetes"),
            (&[url, ("ETCD_DISCOVERY_SRV", "a")], "ETCD_DISCOVERY_SRV"),
            (&[url, ("ETCD_KEY_FILE", "/key")], "ETCD_CA_CERT_FILE"),
            (&[url, ("ETCD_CERT", "QXZ")], "ETCD_CERT"),
            (&[url, ("ETCD_PASSWORD", "QXZ")], "ETCD_USERNAME"),
            (&[url, ("ETCD_USERNAME", "QXZ")], "ETCD_PASSWORD"),
        ] {
            let fault = of(set).options().expect_err(name).to_string();
            assert!(fault.contains(name) && !fault.contains("QXZ"), "{fault}");
        }
        let empty = of(&[url, ("ETCD_CERT_FILE", ""), ("ETCD_CA_CERT_FILE", "")]);
        assert_eq!(empty.options().expect("options").tls, None);
    }

    #[test]
    fn empty_prefixed_variable_counts_as_missing() {
        let url = ("ETCD_ENDPOINTS", "https://a:1");
        let empty = of(&[url, ("CALICO_ETCD_ENDPOINTS", "")]);
        let options = empty.options().expect("options");
        assert_eq!(options.endpoints, ["https://a:1"]);
        let key = of(&[url, ("CALICO_ETCD_KEY", ""), ("ETCD_KEY", "QXZ")]);
        assert_eq!(key.options(), Err(CalicoFault::Inline));
    }
}
