//! The policies of a run, and the parts of endpoints that they look at.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::chance::Chance;

/// The prefix of the keys of resources.
pub(crate) const PREFIX: &str = "/calico/resources/v3/projectcalico.org/";

/// The policies of a run.
#[derive(Debug)]
pub(crate) struct Policies {
    /// The valid values of all objects, by key.
    pub(crate) valid: BTreeMap<String, Vec<u8>>,
    /// The keys with an invalid value in the datastore.
    pub(crate) broken: BTreeSet<String>,
    /// Draws objects and their values.
    pub(crate) chance: Chance,
}

impl Policies {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            valid: BTreeMap::new(),
            broken: BTreeSet::new(),
            chance: Chance::new(seed ^ 0x9011_C1E5_0FFA_B41C),
        }
    }
}

/// The parts of an endpoint that policies look at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Style {
    labels: BTreeMap<&'static str, &'static str>,
    profiles: Vec<&'static str>,
    account: &'static str,
    port: u16,
}

impl Style {
    /// Draws a style.
    pub(crate) fn draw(chance: &mut Chance) -> Self {
        let mut labels = BTreeMap::new();
        for (label, values) in [
            ("app", [None, Some("web"), Some("db")]),
            ("role", [None, Some("a"), Some("b")]),
        ] {
            if let Some(value) = chance.pick(&values).copied().flatten() {
                labels.insert(label, value);
            }
        }
        let profiles: [&[&str]; 4] = [
            &["kns.sim", "ksa.sim.one"],
            &["kns.sim", "ksa.sim.one"],
            &["kns.sim", "missing"],
            &["projectcalico-default-allow"],
        ];
        let profiles = chance.pick(&profiles).copied().unwrap_or(&[]);
        Self {
            labels,
            profiles: profiles.to_vec(),
            account: chance.pick(&["", "one"]).copied().unwrap_or(""),
            port: chance.pick(&[80, 81, 8080]).copied().unwrap_or(80),
        }
    }

    /// Returns the value of an endpoint with this style.
    pub(crate) fn applied(&self, value: &[u8]) -> Option<Vec<u8>> {
        let mut value: Value = serde_json::from_slice(value).ok()?;
        value["metadata"]["labels"] = json!(self.labels);
        let spec = &mut value["spec"];
        spec["profiles"] = json!(self.profiles);
        spec["serviceAccountName"] = self.account.into();
        spec["ports"] = json!([
            {"name": "http", "protocol": "TCP", "port": self.port},
            {"name": "dns", "protocol": "UDP", "port": 53},
        ]);
        Some(value.to_string().into_bytes())
    }
}
