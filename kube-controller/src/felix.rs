//! Reports of Felix about the endpoints of pods, and the nodes on which it reports at all.

use std::collections::BTreeMap;

use calico_model::{
    DEFAULT_CONFIGURATION, EndpointState, EndpointStatus, FelixConfigurationSpec, Key, Kind,
    Resource, ResourceKey, StatusKey,
};

use crate::object::ObjectId;

/// The prefix of all reports of Felix.
pub(crate) const REPORTS_PREFIX: &str = "/calico/felix/v2/";

/// The orchestrator of pods in these reports.
const ORCHESTRATOR: &str = "k8s";

/// The prefix of the FelixConfiguration of a node.
const OF_NODE: &str = "node.";

/// The reports of Felix.
#[derive(Debug, Default)]
pub struct Reports {
    /// Whether an endpoint is up, by node, pod and endpoint.
    states: BTreeMap<(String, ObjectId, String), bool>,
    /// `endpointReportingEnabled`, by the name of the FelixConfiguration.
    enabled: BTreeMap<String, Option<bool>>,
}

/// The change of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// That of a pod.
    Pod(ObjectId),
    /// Whether nodes report.
    Settings,
    /// Nothing that matters.
    Nothing,
}

impl Reports {
    /// Applies the value of a key below `REPORTS_PREFIX`. An unreadable value counts as not up.
    pub fn take(&mut self, text: &str, value: Option<&[u8]>) -> Changed {
        let Ok(Key::Status(StatusKey::Workload {
            host,
            orchestrator,
            workload,
            endpoint,
            ..
        })) = text.parse()
        else {
            return Changed::Nothing;
        };
        let Some((namespace, name)) = workload.split_once('/') else {
            return Changed::Nothing;
        };
        if orchestrator != ORCHESTRATOR {
            return Changed::Nothing;
        }
        let pod = ObjectId {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let is_up = value.map(|octets| {
            let status = serde_json::from_slice::<EndpointStatus>(octets);
            status.is_ok_and(|status| status.status == EndpointState::Up)
        });
        let place = (host, pod.clone(), endpoint);
        let before = match is_up {
            Some(is_up) => self.states.insert(place, is_up),
            None => self.states.remove(&place),
        };
        match before == is_up {
            true => Changed::Nothing,
            false => Changed::Pod(pod),
        }
    }

    /// Applies a FelixConfiguration. An unreadable one keeps the last setting.
    pub fn set_configuration(&mut self, key: &ResourceKey, value: Option<&[u8]>) -> Changed {
        let name = key.name().to_owned();
        let parsed = value.map(Resource::<FelixConfigurationSpec>::parse);
        let before = match parsed.transpose() {
            Ok(Some(parsed)) => {
                let enabled = parsed.spec.endpoint_reporting_enabled;
                self.enabled.insert(name, enabled).flatten() == enabled
            }
            Ok(None) => self.enabled.remove(&name).flatten().is_none(),
            Err(_) => true,
        };
        match before {
            true => Changed::Nothing,
            false => Changed::Settings,
        }
    }

    /// Returns whether Felix of a node reports the state of endpoints, as far as the datastore shows
    /// it: by a setting, or by a report.
    pub fn has(&self, node: &str) -> bool {
        let of_node = self.enabled.get(&format!("{OF_NODE}{node}"));
        let of_all = self.enabled.get(DEFAULT_CONFIGURATION);
        let setting = of_node
            .copied()
            .flatten()
            .or_else(|| of_all.copied().flatten());
        let start = (node.to_owned(), ObjectId::default(), String::new());
        let mut reports = self.states.range(start..);
        setting == Some(true) || reports.next().is_some_and(|((at, _, _), _)| at == node)
    }

    /// Returns whether Felix of a node reports an endpoint of a pod as up.
    pub fn is_up(&self, node: &str, pod: &ObjectId) -> bool {
        let start = (node.to_owned(), pod.clone(), String::new());
        let all = self.states.range(start..);
        let mut of_pod = all.take_while(|((at, of, _), _)| at == node && of == pod);
        of_pod.any(|(_, is_up)| *is_up)
    }
}

/// Returns whether a kind is read for these reports alone.
pub(crate) fn is_configuration(key: &ResourceKey) -> bool {
    key.kind() == Kind::FelixConfiguration
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> ObjectId {
        ObjectId {
            namespace: "prod".into(),
            name: name.into(),
        }
    }

    fn key(node: &str, pod: &str) -> String {
        format!("{REPORTS_PREFIX}no-region/host/{node}/workload/k8s/prod%2f{pod}/endpoint/eth0")
    }

    fn set(reports: &mut Reports, name: &str, enabled: Option<&str>) -> Changed {
        let key = ResourceKey::new(Kind::FelixConfiguration, None, name).expect("a key");
        let value = enabled.map(|enabled| {
            format!(
                r#"{{"metadata":{{"name":"{name}"}},"spec":{{"endpointReportingEnabled":{enabled}}}}}"#
            )
        });
        reports.set_configuration(&key, value.as_deref().map(str::as_bytes))
    }

    #[test]
    fn endpoint_is_up_while_felix_reports_it() {
        let mut reports = Reports::default();
        assert!(!reports.has("n1"));
        let up = Some(&br#"{"status":"up"}"#[..]);
        assert_eq!(
            reports.take(&key("n1", "web"), up),
            Changed::Pod(pod("web"))
        );
        assert_eq!(reports.take(&key("n1", "web"), up), Changed::Nothing);
        assert!(reports.has("n1") && !reports.has("n") && !reports.has("n2"));
        assert!(reports.is_up("n1", &pod("web")));
        assert!(!reports.is_up("n2", &pod("web")) && !reports.is_up("n1", &pod("we")));
        for other in [&br#"{"status":"down"}"#[..], b"x"] {
            reports.take(&key("n1", "web"), Some(other));
            assert!(!reports.is_up("n1", &pod("web")));
        }
        assert_eq!(
            reports.take(&key("n1", "web"), None),
            Changed::Pod(pod("web"))
        );
        assert!(!reports.has("n1"));
        let foreign = key("n1", "web").replace("k8s", "openstack");
        assert_eq!(reports.take(&foreign, up), Changed::Nothing);
    }

    #[test]
    fn setting_of_the_node_has_precedence() {
        let mut reports = Reports::default();
        assert_eq!(
            set(&mut reports, "default", Some("true")),
            Changed::Settings
        );
        assert!(reports.has("n1"));
        set(&mut reports, "node.n1", Some("false"));
        assert!(!reports.has("n1") && reports.has("n2"));
        assert_eq!(set(&mut reports, "node.n1", Some("7")), Changed::Nothing);
        assert_eq!(set(&mut reports, "node.n1", None), Changed::Settings);
        assert!(reports.has("n1"));
    }
}
