//! The table `[felix_configuration]` of the file: fields of FelixConfiguration, as in the
//! datastore.

use std::collections::BTreeMap;

use calico_model::FelixConfigurationSpec;
use daemon_common::config::Problem;
use toml::{Spanned, Value};

use super::parameters::{PARAMETERS, setting};

/// The table as written.
pub(super) type Table = BTreeMap<Spanned<String>, Spanned<Value>>;

/// Fields with a key of their own in the file, and an example of it.
const OWN_KEYS: [(&str, &str); 4] = [
    ("interfacePrefix", "interface_prefix = [\"cali\", \"tap\"]"),
    ("routeRefreshInterval", "route_refresh_s = 90"),
    (
        "endpointStatusPathPrefix",
        "endpoint_status_path_prefix = \"/var/run/calico\"",
    ),
    ("logSeverityScreen", "log = \"info\""),
];

/// Returns the settings of the table, without invalid ones, and their faults.
pub(super) fn read(table: &Table) -> (FelixConfigurationSpec, Vec<Problem>) {
    let mut settings = FelixConfigurationSpec::default();
    let mut problems = Vec::new();
    for (field, value) in table {
        match one(field, value) {
            Ok(spec) => settings = spec.over(&settings),
            Err(problem) => problems.push(*problem),
        }
    }
    (settings, problems)
}

fn one(
    field: &Spanned<String>,
    value: &Spanned<Value>,
) -> Result<FelixConfigurationSpec, Box<Problem>> {
    let name = field.get_ref().as_str();
    let own = OWN_KEYS.iter().find(|(field, _)| *field == name);
    if let Some((_, example)) = own {
        let problem = Problem::at(field.span(), format!("`{name}` does not belong here"));
        let help = format!("write `{example}` above all tables");
        return Err(problem.help(help).into());
    }
    let fields = || PARAMETERS.iter().map(|parameter| parameter.field);
    if !fields().any(|known| known == name) {
        let known: Vec<&str> = fields()
            .filter(|known| OWN_KEYS.iter().all(|(field, _)| field != known))
            .collect();
        let message = format!("`{name}` is no field of FelixConfiguration that Felix follows");
        let problem = Problem::at(field.span(), message);
        return Err(problem.suggest(name, &known, "fields").into());
    }
    let json = serde_json::to_value(value.get_ref());
    let spec = json.map_err(|error| error.to_string());
    spec.and_then(|json| setting(name, json))
        .map_err(|reason| Problem::of_serde(name, &reason))
        .map_err(|problem| problem.placed(value.span()).into())
}
