//! The settings of FelixConfiguration that Felix follows, said nearer to it than in the store: by
//! environment variables with the names of Calico's parameters, or in the configuration file with
//! the names of the resource's fields.

use calico_model::FelixConfigurationSpec;
use serde_json::{Map, Value};

use crate::calc::fault;

/// A setting.
#[derive(Debug)]
pub(super) struct Parameter {
    /// Its name as a parameter of Calico's Felix.
    pub(super) name: &'static str,
    /// The field of FelixConfiguration.
    pub(super) field: &'static str,
    form: Form,
}

/// How a parameter is written as text.
#[derive(Clone, Copy, Debug)]
enum Form {
    Text,
    /// Text in which `none` is a word of its own.
    Verbatim,
    Port,
    Bool,
    /// Seconds, perhaps with a fraction.
    Seconds,
    /// Texts with commas between them.
    List,
    /// One of these words, in any case.
    Word(&'static [&'static str]),
}

const fn row(name: &'static str, field: &'static str, form: Form) -> Parameter {
    Parameter { name, field, form }
}

pub(super) const PARAMETERS: [Parameter; 17] = [
    row(
        "AllowIPIPPacketsFromWorkloads",
        "allowIPIPPacketsFromWorkloads",
        Form::Bool,
    ),
    row(
        "AllowVXLANPacketsFromWorkloads",
        "allowVXLANPacketsFromWorkloads",
        Form::Bool,
    ),
    row(
        "DefaultEndpointToHostAction",
        "defaultEndpointToHostAction",
        Form::Word(&["Drop", "Return", "Accept"]),
    ),
    row(
        "EndpointReportingDelaySecs",
        "endpointReportingDelay",
        Form::Seconds,
    ),
    row(
        "EndpointReportingEnabled",
        "endpointReportingEnabled",
        Form::Bool,
    ),
    row("ExternalNodesCIDRList", "externalNodesList", Form::List),
    row(
        "FloatingIPs",
        "floatingIPs",
        Form::Word(&["Enabled", "Disabled"]),
    ),
    row("InterfacePrefix", "interfacePrefix", Form::Text),
    row("Ipv6Support", "ipv6Support", Form::Bool),
    row("MetadataAddr", "metadataAddr", Form::Verbatim),
    row("MetadataPort", "metadataPort", Form::Port),
    row("NATOutgoingAddress", "natOutgoingAddress", Form::Text),
    row("NATPortRange", "natPortRange", Form::Text),
    row("OpenstackRegion", "openstackRegion", Form::Text),
    row("ReportingIntervalSecs", "reportingInterval", Form::Seconds),
    row("ReportingTTLSecs", "reportingTTL", Form::Seconds),
    row("VXLANPort", "vxlanPort", Form::Port),
];

impl Parameter {
    /// The field's value, of a text such as an environment variable holds. `none` is nothing, as
    /// Calico has it: an empty text, no time, false.
    pub(super) fn read(&self, text: &str) -> Result<Value, String> {
        let none = text.eq_ignore_ascii_case("none");
        match self.form {
            Form::Text if none => Ok("".into()),
            Form::Text | Form::Verbatim => Ok(text.into()),
            Form::Port => text
                .parse::<u16>()
                .map(Value::from)
                .map_err(|_| format!("'{text}' is not a port")),
            Form::Bool => boolean(text).map(Value::Bool),
            Form::List if none || text.is_empty() => Ok(Value::Array(Vec::new())),
            Form::List => Ok(text.split(',').map(str::trim).collect()),
            Form::Seconds => seconds(text).map(|seconds| format!("{seconds}s").into()),
            Form::Word(words) => words
                .iter()
                .find(|word| word.eq_ignore_ascii_case(text))
                .map(|word| (*word).into())
                .ok_or_else(|| format!("'{text}' is none of {}", words.join(", "))),
        }
    }
}

/// What is true or false, in the words that Calico takes.
fn boolean(text: &str) -> Result<bool, String> {
    match &*text.to_ascii_lowercase() {
        "true" | "1" | "yes" | "y" | "t" => Ok(true),
        "false" | "0" | "no" | "n" | "f" | "none" => Ok(false),
        _ => Err(format!("'{text}' is neither true nor false")),
    }
}

/// A number of seconds.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let text = if text.eq_ignore_ascii_case("none") {
        "0"
    } else {
        text
    };
    match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Ok(seconds),
        _ => Err(format!("'{text}' is not a number of seconds")),
    }
}

/// The settings of one field, if it can have that value.
pub(super) fn setting(field: &str, value: Value) -> Result<FelixConfigurationSpec, String> {
    let spec = Map::from_iter([(field.to_owned(), value)]);
    let spec: FelixConfigurationSpec =
        serde_json::from_value(spec.into()).map_err(|error| error.to_string())?;
    match fault(&spec) {
        Some((_, reason)) => Err(reason),
        None => Ok(spec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use calico_model::Standing;

    #[test]
    fn file_settings_are_those_supported_in_the_store() {
        let mut fields = PARAMETERS.map(|parameter| parameter.field);
        fields.sort_unstable();
        let declared = calico_model::declared(calico_model::Kind::FelixConfiguration).into_iter();
        let supported = declared.filter(|one| matches!(one.standing, Standing::Supported(_)));
        let mut paths: Vec<String> = supported.map(|one| one.path).collect();
        paths.sort_unstable();
        assert_eq!(paths, fields.map(|field| format!("spec.{field}")));
    }
}
