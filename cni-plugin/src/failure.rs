//! Errors of the plugin.

use calico_ipam::IpamError;
use calico_store::Error as StoreError;
use calico_store::resources::ResourceError;
use serde_json::{Value, json};

/// The kind of failure: the specification's codes, and codes of this plugin from 100 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Code {
    /// The version of the configuration is unsupported.
    Version = 1,
    /// A field of the configuration requires an unsupported feature.
    Unsupported = 2,
    /// The container is unknown, or does not exist.
    UnknownContainer = 3,
    /// An environment variable is missing or invalid.
    Environment = 4,
    /// Reading or writing failed.
    Io = 5,
    /// The input is not valid JSON.
    Decode = 6,
    /// The configuration is invalid.
    Config = 7,
    /// A later attempt may succeed.
    Later = 11,
    /// STATUS: no container can be added now.
    Unavailable = 50,
    /// STATUS: no container can be added now, and existing containers may have lost their
    /// connections.
    Limited = 51,
    /// No address could be assigned.
    NoAddress = 100,
    /// The kernel rejected a request.
    Kernel = 101,
    /// Felix reports that the endpoint cannot be set up.
    Refused = 102,
    /// CHECK: an object has changed since ADD.
    Changed = 103,
    /// A delegated plugin failed.
    Delegate = 104,
    /// The content of the datastore is unusable.
    Store = 105,
}

/// Returns the problem of a value of another type, without the value: it may be a secret in the wrong
/// place.
pub(crate) fn mistyped(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.starts_with("missing field") {
        return format!("is incomplete: {text}");
    }
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => format!("has another type; expected {expected}"),
        None => "is invalid".to_owned(),
    }
}

/// A failed operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind of failure.
    pub code: u16,
    /// A message for operators.
    pub message: String,
    /// Further details, possibly empty.
    pub details: String,
}

impl Failure {
    /// Returns a failure with its message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code: code as u16,
            message: message.into(),
            details: String::new(),
        }
    }

    /// Returns the same failure with further details.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// Returns the same failure with the place of its cause before the message.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Returns the JSON error for standard output, in this version of the specification.
    pub fn json(&self, version: &str) -> Value {
        let mut json = json!({"cniVersion": version, "code": self.code, "msg": self.message});
        if !self.details.is_empty() {
            json["details"] = self.details.clone().into();
        }
        json
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Options(_) => Code::Config,
            error if error.is_transient() => Code::Later,
            _ => Code::Store,
        };
        Self::new(code, format!("the store: {error}"))
    }
}

impl From<ResourceError> for Failure {
    fn from(error: ResourceError) -> Self {
        match error {
            ResourceError::Store(error) => error.into(),
            ResourceError::Contended(_) | ResourceError::Stale { .. } => {
                Self::new(Code::Later, error.to_string())
            }
            error => Self::new(Code::Store, error.to_string()),
        }
    }
}

impl From<IpamError> for Failure {
    fn from(error: IpamError) -> Self {
        match error {
            IpamError::Store(error) => error.into(),
            IpamError::Contended(_) => Self::new(Code::Later, error.to_string()),
            error => Self::new(Code::NoAddress, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_specified_form() {
        let failure = Failure::new(Code::Later, "no").details("more");
        let json = failure.json("1.0.0");
        assert_eq!(
            json,
            json!({"cniVersion": "1.0.0", "code": 11, "msg": "no", "details": "more"})
        );
    }

    #[test]
    fn unreachable_store_is_retried() {
        let away = StoreError::Unavailable("x".into());
        assert_eq!(Failure::from(away.clone()).code, 11);
        assert_eq!(Failure::from(IpamError::Store(away.clone())).code, 11);
        assert_eq!(Failure::from(ResourceError::Store(away)).code, 11);
        let full = IpamError::UsedUp {
            assigned: 0,
            wanted: 1,
        };
        assert_eq!(Failure::from(full).code, 100);
    }
}
