//! The file with which clients of Kubernetes find their API server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

use crate::limits::{KUBECONFIG_LEVELS_MAX, KUBECONFIG_OCTETS_MAX, KUBECONFIG_VALUES_MAX};
use crate::server::{Access, AccessError, Credential, Trust};

/// The variables with the address of the API server, which each pod has.
const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";
const SERVICE_PORT: &str = "KUBERNETES_SERVICE_PORT";

/// The directory with the credentials of a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The mistake of a kubeconfig: the file, and the field if there is one. It never has a value, which
/// may be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", file.display())]
pub struct KubeconfigError {
    /// The file.
    pub file: PathBuf,
    /// The field and its mistake.
    pub problem: String,
}

/// Settings of another place that replace those of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The URL of the server.
    pub server: Option<String>,
    /// The credentials that are set replace those of the file.
    pub trust: Trust,
}

/// A kubeconfig. Relative paths in it begin at its directory.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Kubeconfig {
    current_context: String,
    contexts: Vec<Named<Context>>,
    clusters: Vec<Named<Cluster>>,
    users: Vec<Named<User>>,
    #[serde(skip)]
    file: PathBuf,
}

/// An entry of a list; its content has the name of its kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "context", alias = "cluster", alias = "user")]
    content: Option<T>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: String,
    certificate_authority_data: String,
    tls_server_name: String,
    #[serde(flatten)]
    further: BTreeMap<String, Value>,
}

#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    #[serde(flatten)]
    further: BTreeMap<String, Value>,
}

/// Values are never shown: they may be secret.
macro_rules! hide {
    ($($kind:ident),*) => {$(
        impl std::fmt::Debug for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($kind), "(..)"))
            }
        }
    )*};
}
hide!(Cluster, User);

/// Fields with a meaning that this client does not have, and the remedy. Other unknown fields have no
/// effect on the connection.
const UNSUPPORTED: [(&str, &str); 10] = [
    ("insecure-skip-tls-verify", "use certificate-authority"),
    ("proxy-url", "the server must be reachable without a proxy"),
    ("exec", "use a token, a tokenFile or a client-certificate"),
    (
        "auth-provider",
        "use a token, a tokenFile or a client-certificate",
    ),
    (
        "username",
        "use a token, a tokenFile or a client-certificate",
    ),
    (
        "password",
        "use a token, a tokenFile or a client-certificate",
    ),
    ("as", "use the credentials of that user"),
    ("as-uid", "use the credentials of that user"),
    ("as-groups", "use the credentials of that user"),
    ("as-user-extra", "use the credentials of that user"),
];

impl Kubeconfig {
    /// Reads a file, in YAML or JSON.
    ///
    /// # Errors
    ///
    /// The file is unreadable, too long, or not a kubeconfig.
    pub fn read(file: &Path) -> Result<Self, KubeconfigError> {
        let fault = |problem: String| KubeconfigError {
            file: file.to_owned(),
            problem,
        };
        let mut text = String::new();
        let limit = u64::try_from(KUBECONFIG_OCTETS_MAX).unwrap_or(u64::MAX);
        File::open(file)
            .and_then(|opened| opened.take(limit).read_to_string(&mut text))
            .map_err(|error| fault(error.to_string()))?;
        if text.len() >= KUBECONFIG_OCTETS_MAX {
            return Err(fault(format!("has {KUBECONFIG_OCTETS_MAX} octets or more")));
        }
        Self::parse(&text, file)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    ///
    /// The text is not a kubeconfig.
    pub fn parse(text: &str, file: &Path) -> Result<Self, KubeconfigError> {
        let options = serde_saphyr::options! {
            with_snippet: false,
            budget: serde_saphyr::budget! {
                max_documents: 1,
                max_nodes: KUBECONFIG_VALUES_MAX,
                max_depth: KUBECONFIG_LEVELS_MAX,
            },
        };
        let parsed = serde_saphyr::from_str_with_options::<Self>(text, options);
        let mut parsed = parsed.map_err(|error| {
            // The text of the error may quote a value.
            let place = error.location();
            let place = place.map_or_else(String::new, |at| {
                format!(" at line {} column {}", at.line(), at.column())
            });
            KubeconfigError {
                file: file.to_owned(),
                problem: format!("is not a kubeconfig: a value has another form{place}"),
            }
        })?;
        file.clone_into(&mut parsed.file);
        Ok(parsed)
    }

    /// Returns the server of the current context, with the overrides.
    ///
    /// # Errors
    ///
    /// The context, its cluster or its user is missing, or has an unsupported or invalid field.
    pub fn access(&self, overrides: &Overrides) -> Result<Access, KubeconfigError> {
        self.chosen(overrides).map_err(|problem| KubeconfigError {
            file: self.file.clone(),
            problem,
        })
    }

    fn chosen(&self, overrides: &Overrides) -> Result<Access, String> {
        let context = match self.current_context.as_str() {
            "" => return Err("current-context: is missing".to_owned()),
            name => find(&self.contexts, "contexts", name)?,
        };
        let cluster = find(&self.clusters, "clusters", &context.cluster)?;
        let user = match context.user.as_str() {
            "" => User::default(),
            name => find(&self.users, "users", name)?,
        };
        refuse("clusters", &context.cluster, &cluster.further)?;
        refuse("users", &context.user, &user.further)?;
        let either = |field: &str, data: &str, path: &str| self.either(field, data, path);
        let given = &overrides.trust;
        let read = |given: &Option<Credential>, of_file: Result<Option<Credential>, String>| {
            given.clone().map_or(of_file, |given| Ok(Some(given)))
        };
        // A file has precedence over the text beside it, as the server's own clients have it.
        let token = match user.token_file.as_str() {
            "" => Some(Credential::Given(user.token.clone().into_bytes()))
                .filter(|_| !user.token.is_empty()),
            path => Some(Credential::File(self.path(path))),
        };
        let trust = Trust {
            ca: read(
                &given.ca,
                either(
                    "certificate-authority",
                    &cluster.certificate_authority_data,
                    &cluster.certificate_authority,
                ),
            )?,
            token: read(&given.token, Ok(token))?,
            cert: read(
                &given.cert,
                either(
                    "client-certificate",
                    &user.client_certificate_data,
                    &user.client_certificate,
                ),
            )?,
            key: read(
                &given.key,
                either("client-key", &user.client_key_data, &user.client_key),
            )?,
            server_name: Some(cluster.tls_server_name.clone()).filter(|name| !name.is_empty()),
        };
        let url = overrides.server.as_ref().unwrap_or(&cluster.server);
        Access::new(url, trust).map_err(|error| match error {
            AccessError::Form => format!("server: {error}"),
            AccessError::PlainToken => format!("token: {error}"),
            AccessError::NoAuthority => format!("certificate-authority: {error}"),
            AccessError::Pair => format!("client-certificate: {error}"),
        })
    }

    /// Returns the octets of a field, or the file that is named beside it.
    fn either(&self, field: &str, data: &str, path: &str) -> Result<Option<Credential>, String> {
        match (data, path) {
            ("", "") => Ok(None),
            ("", path) => Ok(Some(Credential::File(self.path(path)))),
            (data, _) => match STANDARD.decode(data.trim()) {
                Ok(octets) => Ok(Some(Credential::Given(octets))),
                Err(_) => Err(format!("{field}-data: is not base64")),
            },
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        let directory = self.file.parent().unwrap_or_else(|| Path::new(""));
        directory.join(path)
    }
}

fn find<T: Clone>(all: &[Named<T>], list: &str, name: &str) -> Result<T, String> {
    let mut named = all.iter().filter(|entry| entry.name == name);
    let content = named.next().and_then(|entry| entry.content.clone());
    content.ok_or_else(|| format!("{list}: has no entry \"{name}\""))
}

/// Rejects fields that this client cannot follow, with their remedy.
fn refuse(list: &str, name: &str, further: &BTreeMap<String, Value>) -> Result<(), String> {
    let is_set = |value: &Value| !value.is_null() && *value != Value::Bool(false) && *value != "";
    let mut set = UNSUPPORTED.iter();
    let found = set.find(|(field, _)| further.get(*field).is_some_and(is_set));
    match found {
        Some((field, remedy)) => Err(format!(
            "{list}: entry \"{name}\": {field} is not supported; {remedy}"
        )),
        None => Ok(()),
    }
}

/// Returns the server of the pod in which this process runs, with the credentials of its service account;
/// `None` outside a pod. `variable` returns a variable of the environment.
///
/// # Errors
///
/// The address in the environment is invalid.
pub fn cluster_access(
    variable: impl Fn(&str) -> Option<String>,
    mut trust: Trust,
) -> Result<Option<Access>, AccessError> {
    let Some((host, port)) = variable(SERVICE_HOST).zip(variable(SERVICE_PORT)) else {
        return Ok(None);
    };
    let account = Path::new(ACCOUNT);
    trust
        .ca
        .get_or_insert_with(|| account.join("ca.crt").into());
    trust
        .token
        .get_or_insert_with(|| account.join("token").into());
    let url = match host.contains(':') {
        true => format!("https://[{host}]:{port}"),
        false => format!("https://{host}:{port}"),
    };
    Access::new(&url, trust).map(Some)
}

/// Returns whether this process runs in a pod. `variable` returns a variable of the environment.
#[must_use]
pub fn is_pod(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable(SERVICE_HOST).is_some()
}

/// Returns the namespace of the pod in which this process runs, if it is a pod.
#[must_use]
pub fn own_namespace() -> Option<String> {
    let file = Path::new(ACCOUNT).join("namespace");
    let text = std::fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALICO: &str = r#"
apiVersion: v1
kind: Config
clusters:
- name: local
  cluster:
    server: https://10.96.0.1:443
    certificate-authority-data: "LS0tLS0="
users:
- name: calico
  user:
    token: QXZQXZQXZQXZ
contexts:
- name: calico-context
  context: {cluster: local, user: calico}
current-context: calico-context
"#;

    fn access(text: &str) -> Result<Access, String> {
        let parsed = Kubeconfig::parse(text, Path::new("/etc/cni/net.d/k"));
        let access = parsed.and_then(|parsed| parsed.access(&Overrides::default()));
        access.map_err(|error| error.to_string())
    }

    #[test]
    fn kubeconfig_of_calico_is_read() {
        let trust = Trust {
            ca: Some(Credential::Given(b"-----".to_vec())),
            token: Some(Credential::Given(b"QXZQXZQXZQXZ".to_vec())),
            ..Trust::default()
        };
        assert_eq!(
            access(CALICO),
            Ok(Access::new("https://10.96.0.1", trust).unwrap())
        );
        let file = CALICO.replace("token: QXZQXZQXZQXZ", "tokenFile: token");
        let file = file.replace(
            "certificate-authority-data: \"LS0tLS0=\"",
            "certificate-authority: ../ca",
        );
        let trust = Trust {
            ca: Some(Credential::File("/etc/cni/net.d/../ca".into())),
            token: Some(Credential::File("/etc/cni/net.d/token".into())),
            ..Trust::default()
        };
        assert_eq!(
            access(&file),
            Ok(Access::new("https://10.96.0.1", trust).unwrap())
        );
    }

    #[test]
    fn overrides_replace_fields() {
        let parsed = Kubeconfig::parse(CALICO, Path::new("/k")).unwrap();
        let overrides = Overrides {
            server: Some("https://10.0.0.9:6443".into()),
            trust: Trust {
                token: Some(Credential::File("/token".into())),
                ..Trust::default()
            },
        };
        let access = parsed.access(&overrides).unwrap();
        assert_eq!(access.authority(), "10.0.0.9:6443");
        assert!(format!("{access:?}").contains("/token"), "{access:?}");
    }

    #[test]
    fn mistakes_name_file_and_field_without_values() {
        for (from, to, field) in [
            ("current-context: calico-context", "", "current-context"),
            (
                "current-context: calico-context",
                "current-context: x",
                "contexts",
            ),
            ("cluster: local,", "cluster: x,", "clusters"),
            ("user: calico}", "user: x}", "users"),
            ("LS0tLS0=", "QXZ*", "certificate-authority-data"),
            ("https://10.96.0.1:443", "QXZ", "server"),
            ("https://10.96.0.1:443", "http://a", "token"),
            ("token: QXZQXZQXZQXZ", "exec: {command: QXZ}", "exec"),
            (
                "token: QXZQXZQXZQXZ",
                "token: QXZQXZ\n    as: QXZ",
                "as is not",
            ),
            ("token: QXZQXZQXZQXZ", "username: QXZ", "username"),
            (
                "token: QXZQXZQXZQXZ",
                "client-certificate: /c",
                "client-certificate",
            ),
            ("token: QXZQXZQXZQXZ", "token: [QXZQXZ]", "line"),
            (
                "server: https",
                "insecure-skip-tls-verify: true\n    server: https",
                "insecure",
            ),
            (
                "certificate-authority-data: \"LS0tLS0=\"",
                "",
                "certificate-authority",
            ),
            ("users:", "users: QXZ\nx:", "not a kubeconfig"),
        ] {
            let text = CALICO.replace(from, to);
            assert_ne!(text, CALICO, "{from}");
            let error = access(&text).expect_err(to);
            assert!(error.starts_with("/etc/cni/net.d/k: "), "{error}");
            assert!(error.contains(field), "{field}: {error}");
            assert!(!error.contains("QXZ"), "{error}");
        }
        let error = Kubeconfig::read(Path::new("/nonexistent/k")).expect_err("no file");
        assert!(error.to_string().starts_with("/nonexistent/k: "), "{error}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let parsed = Kubeconfig::parse(CALICO, Path::new("/k")).unwrap();
        let access = parsed.access(&Overrides::default()).unwrap();
        let shown = format!("{parsed:?} {access:?}");
        assert!(!shown.contains("QXZ"), "{shown}");
        // Nor as a list of octets.
        assert!(!shown.contains("81, 88, 90"), "{shown}");
    }

    #[test]
    fn server_of_a_pod_is_in_its_environment() {
        for (host, wanted) in [("10.96.0.1", "10.96.0.1:443"), ("fd00::1", "[fd00::1]:443")] {
            let variable = |name: &str| match name {
                SERVICE_HOST => Some(host.to_owned()),
                SERVICE_PORT => Some("443".to_owned()),
                _ => None,
            };
            let access = cluster_access(variable, Trust::default()).unwrap();
            assert_eq!(access.unwrap().authority(), wanted);
        }
        assert_eq!(cluster_access(|_| None, Trust::default()), Ok(None));
    }
}
