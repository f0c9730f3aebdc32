//! Records each FelixConfiguration, and combines those that apply to this host.

use calico_model::{FelixConfigurationSpec, Selector};

use super::calculator::Calculator;
use super::fields;
use super::read;
use super::settings::{Settings, fault};
use super::stored_settings::{SELECTOR, Scoped};
use super::types::Problem;

impl Calculator {
    /// Returns the settings in effect.
    pub fn settings(&self) -> Settings {
        let stored = self.stored.effective();
        Settings::new(&self.local.clone().unwrap_or_default().over(&stored))
    }

    /// Updates the problems of settings that select this host.
    pub(super) fn exchange_conflicts(&mut self) {
        let found = self.stored.conflicts();
        let before = std::mem::replace(&mut self.stored.problems, found);
        let problems = &mut self.desired.problems;
        self.assignments
            .count_problems(&before, &self.stored.problems, problems);
    }

    /// Records a FelixConfiguration.
    pub(super) fn configuration(
        &mut self,
        key: &str,
        name: &str,
        value: Option<&[u8]>,
    ) -> Result<(), Problem> {
        let node = name.strip_prefix("node.");
        if node.is_some_and(|node| node != self.hostname) {
            return Ok(());
        }
        let resource = value.map(|octets| read::resource::<FelixConfigurationSpec>(key, octets));
        let resource = resource.transpose()?;
        if let Some((field, reason)) = resource.as_ref().and_then(|one| fault(&one.spec)) {
            return Err(Problem::new(key, field, reason));
        }
        let selector = match &resource {
            Some(resource) => selector(key, &resource.spec)?,
            None => None,
        };
        let is_scoped = name != "default" && node.is_none();
        if !is_scoped && selector.is_some() {
            let reason =
                "belongs to a FelixConfiguration with another name than default and node.…";
            return Err(Problem::new(key, SELECTOR, reason));
        }
        self.news.settings = true;
        if !is_scoped {
            let spec = resource.map(|resource| resource.spec);
            match node {
                Some(_) => self.stored.own = spec,
                None => self.stored.cluster_wide = spec,
            }
            return Ok(());
        }
        let scoped = resource.zip(selector).map(|(resource, selector)| Scoped {
            selector,
            created: resource.metadata.creation_timestamp,
            spec: resource.spec,
        });
        match scoped {
            Some(scoped) => self.stored.scoped.insert(key.to_owned(), scoped),
            None => self.stored.scoped.remove(key),
        };
        Ok(())
    }
}

/// Returns the selector of nodes, if one is set.
fn selector(key: &str, spec: &FelixConfigurationSpec) -> Result<Option<Selector>, Problem> {
    let text: Option<String> =
        fields::at(spec, SELECTOR).map_err(|(at, reason)| Problem::new(key, at, reason))?;
    let text = text.filter(|text| !text.trim().is_empty());
    let parsed = text.map(|text| text.parse::<Selector>()).transpose();
    parsed.map_err(|error| Problem::new(key, SELECTOR, error.to_string()))
}
