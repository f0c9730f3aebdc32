//! The choice of the datastore: the file and the variables that calicoctl reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use calico_manifests::documents;
use calico_model::without_values;
use calico_store::resources::Resources;
use calico_store::{CalicoEtcd, CalicoFault, EtcdOptions, EtcdStore, Password};
use serde::Deserialize;
use serde_json::Value;

/// The file that is read by default, if it exists.
const CONFIG: &str = "/etc/calico/calicoctl.cfg";

/// The choice of the datastore.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Connection {
    /// The datastore, as a CalicoAPIConfig in YAML or JSON. Without a file, the variables
    /// ETCD_ENDPOINTS, ETCD_CA_CERT_FILE, … are used [default: /etc/calico/calicoctl.cfg, if it exists]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Accepted for calicoctl's sake
    #[arg(long, hide = true)]
    allow_version_mismatch: bool,
}

impl Connection {
    /// Returns the resources of the datastore. The first call shows whether it is reachable.
    pub(crate) async fn resources(&self) -> Result<Resources> {
        Ok(Resources::new(self.store().await?))
    }

    /// Returns the datastore.
    pub(crate) async fn store(&self) -> Result<EtcdStore> {
        let store = EtcdStore::connect(&self.options()?).await;
        store.context("the store")
    }

    /// Returns the access to the datastore.
    pub(crate) fn options(&self) -> Result<EtcdOptions> {
        options_of(&self.values(Path::new(CONFIG), |name| std::env::var(name).ok())?)
    }

    /// Returns the values of the given file; otherwise of the default file; otherwise of the
    /// variables.
    fn values(
        &self,
        default: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<CalicoEtcd> {
        match &self.config {
            Some(file) => Settings::read(file).map(Settings::etcd),
            None if default.exists() => Settings::read(default).map(Settings::etcd),
            None => Ok(CalicoEtcd::of_variables(variable)),
        }
    }
}

/// The settings of calicoctl for etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Settings {
    datastore_type: String,
    etcd_endpoints: String,
    etcd_discovery_srv: String,
    etcd_username: String,
    etcd_password: String,
    etcd_key_file: String,
    etcd_cert_file: String,
    #[serde(rename = "etcdCACertFile")]
    etcd_ca_cert_file: String,
    etcd_key: String,
    etcd_cert: String,
    #[serde(rename = "etcdCACert")]
    etcd_ca_cert: String,
    /// Settings for Kubernetes, which have no effect, and misspelled ones.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

/// Prefixes of the names of settings that are not about etcd.
const ELSEWHERE: [&str; 5] = [
    "k8s",
    "kubeconfig",
    "usePodCIDR",
    "calicoAPIGroup",
    "alphaFeatures",
];

impl Settings {
    fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("{} cannot be read", file.display()))?;
        let mut read = documents(file, &text).map_err(|mistakes| anyhow::anyhow!("{mistakes}"))?;
        let (Some(document), true) = (read.pop(), read.is_empty()) else {
            bail!("{}: one CalicoAPIConfig is expected", file.display());
        };
        let value = document.value();
        for (field, expected) in [
            ("kind", "CalicoAPIConfig"),
            ("apiVersion", "projectcalico.org/v3"),
        ] {
            if value[field] != expected {
                bail!(
                    "{}",
                    document.fault(field, format!("{field} must be {expected}"))
                );
            }
        }
        let spec = value.get("spec").cloned().unwrap_or_default();
        let settings: Self = match serde_json::from_value(spec) {
            Ok(settings) => settings,
            // One of the settings is a password, and the error does not name the setting.
            Err(error) => {
                let message = without_values(&error.to_string());
                bail!("{}", document.fault("spec", message))
            }
        };
        for name in settings.others.keys() {
            if !ELSEWHERE.iter().any(|known| name.starts_with(known)) {
                let fault = document.fault(&format!("spec.{name}"), "unknown setting".into());
                bail!("{fault}");
            }
        }
        Ok(settings)
    }

    /// Returns the values for the client of etcd.
    fn etcd(self) -> CalicoEtcd {
        let inline = [self.etcd_key, self.etcd_cert, self.etcd_ca_cert];
        CalicoEtcd {
            datastore_type: self.datastore_type,
            endpoints: self.etcd_endpoints,
            discovery_srv: self.etcd_discovery_srv,
            username: self.etcd_username,
            password: Password(self.etcd_password),
            ca_file: self.etcd_ca_cert_file,
            cert_file: self.etcd_cert_file,
            key_file: self.etcd_key_file,
            has_inline: inline.iter().any(|pem| !pem.is_empty()),
        }
    }
}

/// Returns the options of these values; or their fault, with the name of the field as well.
fn options_of(values: &CalicoEtcd) -> Result<EtcdOptions> {
    values.options().map_err(|fault| {
        let field = match fault {
            CalicoFault::DatastoreType(_) => "datastoreType",
            CalicoFault::Discovery => "etcdDiscoverySrv",
            CalicoFault::Inline => "etcdKey, etcdCert and etcdCACert",
            CalicoFault::NoEndpoint => "etcdEndpoints",
            CalicoFault::NoAuthority => "etcdCACertFile",
            CalicoFault::User => "etcdUsername and etcdPassword",
        };
        anyhow::anyhow!("{fault} (in {CONFIG}: {field})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<CalicoEtcd> {
        let directory = tempfile::tempdir().expect("directory");
        file_in(directory.path(), text)
    }

    fn file_in(directory: &Path, text: &str) -> Result<CalicoEtcd> {
        let path = directory.join("calicoctl.cfg");
        std::fs::write(&path, text).expect("written");
        let connection = Connection {
            config: None,
            allow_version_mismatch: false,
        };
        connection.values(&path, |_| None)
    }

    const SECRET_PART: &str = "QXZ";

    /// Returns whether the file is rejected; asserts that neither the report nor the debug form of
    /// accepted settings quotes the secret.
    fn is_rejected(text: &str) -> bool {
        let directory = tempfile::tempdir().expect("directory");
        let read = file_in(directory.path(), text).and_then(|values| options_of(&values));
        let report = match &read {
            Ok(options) => format!("{options:?}"),
            // Its debug form has a backtrace, whose symbols hold any three letters by chance.
            Err(error) => format!("{error:#}"),
        };
        // The random name of the directory holds any three letters by chance, too.
        let report = report.replace(&*directory.path().to_string_lossy(), "");
        assert!(
            !report.contains(SECRET_PART),
            "a secret is quoted:\n{report}\nof:\n{text}"
        );
        read.is_err()
    }

    fn with_password(password: &str) -> String {
        format!(
            "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n  \
             etcdEndpoints: http://10.0.0.1:2379\n  etcdUsername: admin\n  {password}\n  \
             etcdKeyFile: \"\"\n"
        )
    }

    #[test]
    fn password_in_the_file_is_not_quoted_in_any_mistake() {
        assert!(!is_rejected(&with_password("etcdPassword: QXZQXZQXZ")));
        for password in [
            "etcdPassword: [QXZQXZQXZ]",
            "etcdPassword: {QXZQXZQXZ: 1}",
            "etcdPassword:\n    key: QXZQXZQXZ",
            "etcdPassword: \"QXZQXZQXZ",
            "etcdPassword: *QXZQXZQXZ",
            "etcdPassword: @QXZQXZQXZ",
            "etcdPassword QXZQXZQXZ",
            "etcdPasword: QXZQXZQXZ",
            "etcdpassword: QXZQXZQXZ",
            "etcdSecret: QXZQXZQXZ",
            "etcdUsername: {etcdPassword: QXZQXZQXZ}",
            "etcdPassword: QXZQXZQXZ etcdKeyFile: x",
            "etcdPassword: QXZQXZQXZ\n  etcdKeyFle: x",
            "etcdKey: [QXZQXZQXZ]",
        ] {
            let text = with_password(password);
            assert!(is_rejected(&text), "accepted: {text}");
        }
    }

    #[test]
    fn password_is_not_quoted_wherever_the_file_is_damaged() {
        let good = with_password("etcdPassword: \"QXZQXZQXZ\"");
        let rejected = testkit::damaged(&good).filter(|text| is_rejected(text));
        let rejected = rejected.count();
        assert!(rejected > 100, "{rejected}");
    }

    #[test]
    fn unusable_setting_has_its_reason_and_field() {
        let head = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec:\n";
        let url = "  etcdEndpoints: https://a:1\n";
        for (rest, parts) in [
            ("  {}\n", ["ETCD_ENDPOINTS", "etcdEndpoints"]),
            (
                "  datastoreType: kubernetes\n",
                ["kubernetes", "datastoreType"],
            ),
            (
                "  etcdDiscoverySrv: example.org\n",
                ["ETCD_DISCOVERY_SRV", "etcdDiscoverySrv"],
            ),
            (
                "  etcdEndpoints: https://a:1\n  etcdKeyFile: /key\n",
                ["ETCD_CA_CERT_FILE", "etcdCACertFile"],
            ),
            ("  etcdCert: QXZ\n", ["into files", "etcdCert"]),
            (
                "  etcdEndpoints: https://a:1\n  etcdPassword: QXZ\n",
                ["ETCD_USERNAME", "etcdUsername"],
            ),
        ] {
            let read = file(&format!("{head}{rest}"));
            let error = read.and_then(|values| options_of(&values));
            let error = error.expect_err("refused").to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            assert!(!error.contains("QXZ"), "{error}");
        }
        assert!(file(&format!("{head}{url}")).is_ok());
    }

    #[test]
    fn the_file_is_calicoctls_and_its_mistakes_have_a_place() {
        let head = "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n";
        let settings = file(&format!(
            "{head}  datastoreType: etcdv3\n  etcdEndpoints: http://10.0.0.1:2379\n  k8sAPIEndpoint: x\n"
        ));
        let options = settings
            .and_then(|values| options_of(&values))
            .expect("options");
        assert_eq!(options.endpoints, ["http://10.0.0.1:2379"]);
        for (text, part) in [
            (
                format!("{head}  etcdEndpoint: x\n"),
                "calicoctl.cfg:5:3: unknown setting",
            ),
            (head.replace("CalicoAPIConfig", "Node"), "calicoctl.cfg:2:"),
            (format!("{head}  etcdEndpoints: [a]\n"), "calicoctl.cfg:4:"),
            (String::new(), "one CalicoAPIConfig"),
        ] {
            let error = file(&text).expect_err("refused").to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
