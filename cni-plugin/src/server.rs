//! The place of the API server of Kubernetes in a configuration.

use std::path::PathBuf;

use kube_client::{Access, Credential, Kubeconfig, Overrides, Trust};

use crate::failure::{Code, Failure};

/// The place of the API server. Its files are read when a request needs them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ApiServer {
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) overrides: Overrides,
    /// The name of the node in Kubernetes, if it is not that in the datastore.
    pub(crate) node: Option<String>,
}

impl ApiServer {
    /// Reads the address and the credentials.
    pub(crate) fn access(&self) -> Result<Access, Failure> {
        let wrong = |error: String| Failure::new(Code::Config, format!("kubernetes: {error}"));
        match (&self.kubeconfig, &self.overrides.server) {
            (Some(file), _) => Kubeconfig::read(file)
                .and_then(|read| read.access(&self.overrides))
                .map_err(|error| {
                    let message = format!("kubernetes.kubeconfig: {error}");
                    Failure::new(Code::Config, message)
                }),
            (None, Some(url)) => Access::new(url, self.overrides.trust.clone())
                .map_err(|error| wrong(format!("k8s_api_root: {error}"))),
            (None, None) => Err(wrong("kubeconfig: is missing".to_owned())),
        }
    }
}

/// Returns the root of a URL of Calico's configuration, which may have the path of the API.
pub(crate) fn root(url: &str) -> Option<String> {
    let root = url.split("/api/").next().unwrap_or_default();
    Some(root.to_owned()).filter(|root| !root.is_empty())
}

/// Returns the credentials of Calico's fields.
pub(crate) fn trust(ca: &str, token: &str, cert: &str, key: &str) -> Trust {
    let file = |path: &str| Some(PathBuf::from(path)).filter(|_| !path.is_empty());
    Trust {
        ca: file(ca).map(Credential::File),
        token: Some(Credential::Given(token.into())).filter(|_| !token.is_empty()),
        cert: file(cert).map(Credential::File),
        key: file(key).map(Credential::File),
        server_name: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_of_the_server_has_no_path() {
        assert_eq!(
            root("https://a:6443/api/v1/").as_deref(),
            Some("https://a:6443")
        );
        assert_eq!(root("https://a").as_deref(), Some("https://a"));
        assert_eq!(root(""), None);
    }
}
