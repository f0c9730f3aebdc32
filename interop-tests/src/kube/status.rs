//! Answers that report an error, in the words of a real server.

use serde_json::{Value, json};

/// An error: the HTTP status and the object `Status`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rejected {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) retry_after_s: Option<u32>,
}

impl Rejected {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            retry_after_s: None,
        }
    }

    pub(super) fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        })
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn no_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    pub(super) fn no_object(plural: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{plural} \"{name}\" not found"))
    }

    pub(super) fn old_watch(from: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {from} ({oldest})");
        Self::new(410, "Expired", message)
    }

    pub(super) fn old_list() -> Self {
        let message = "The provided continue parameter is too old to display a consistent list \
                       result. You can start a new list without the continue parameter.";
        Self::new(410, "Expired", message)
    }
}
