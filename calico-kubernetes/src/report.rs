//! Reports about parts of an object that have no resource, and the result of a conversion.

use std::fmt;

use serde_json::Value;

use crate::limits::{QUOTED_OCTETS_MAX, REPORTS_MAX};

/// The name of an object of Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectName {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace; empty for objects without one.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
        } = self;
        match namespace.is_empty() {
            true => write!(f, "{kind} {name}"),
            false => write!(f, "{kind} {namespace}/{name}"),
        }
    }
}

/// A part of an object that is not converted as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The object.
    pub object: ObjectName,
    /// The path of the field, such as `spec.ingress[0].from[1].ipBlock.cidr`.
    pub field: String,
    /// The reason, and the consequence.
    pub reason: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.object, self.field, self.reason)
    }
}

/// The resource of an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome<T> {
    /// The resource to write.
    Resource(T),
    /// The object has no resource. One that was written for it is to be deleted.
    Absent,
    /// The object is unreadable. One that was written for it is to be kept.
    Unreadable,
}

/// The result of a conversion.
#[derive(Debug, Clone, PartialEq)]
pub struct Converted<T> {
    /// The resource, if there is one.
    pub outcome: Outcome<T>,
    /// The parts that are not converted as they are; at most [`REPORTS_MAX`].
    pub reports: Vec<Report>,
}

impl<T> Converted<T> {
    /// Returns the resource to write, if there is one.
    pub fn resource(self) -> Option<T> {
        match self.outcome {
            Outcome::Resource(resource) => Some(resource),
            Outcome::Absent | Outcome::Unreadable => None,
        }
    }
}

/// An invalid part: the path of its field, and the reason.
pub(crate) type Fault = (String, String);

/// Collects the reports about an object.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    pub(crate) object: ObjectName,
    all: Vec<Report>,
    further: usize,
}

impl Reports {
    pub(crate) fn new(object: ObjectName) -> Self {
        Self {
            object,
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        if self.all.len() + 1 >= REPORTS_MAX {
            self.further += 1;
            return;
        }
        self.all.push(Report {
            object: self.object.clone(),
            field: field.into(),
            reason: reason.into(),
        });
    }

    /// Adds a fault with its consequence.
    pub(crate) fn fault(&mut self, (field, reason): Fault, consequence: &str) {
        self.add(field, format!("{reason}; {consequence}"));
    }

    pub(crate) fn done<T>(mut self, outcome: Outcome<T>) -> Converted<T> {
        if self.further > 0 {
            self.all.push(Report {
                object: self.object,
                field: ".".to_owned(),
                reason: format!("{} further parts are not converted", self.further),
            });
        }
        Converted {
            outcome,
            reports: self.all,
        }
    }

    pub(crate) fn unreadable<T>(self) -> Converted<T> {
        self.done(Outcome::Unreadable)
    }
}

/// Returns a value as text for a report, of limited length.
pub(crate) fn quoted(value: &Value) -> String {
    let mut text = value.to_string();
    if text.len() > QUOTED_OCTETS_MAX {
        let end = (0..=QUOTED_OCTETS_MAX).rfind(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_of_an_object_are_bounded() {
        let mut reports = Reports::new(ObjectName {
            kind: "NetworkPolicy",
            namespace: "prod".into(),
            name: "web".into(),
        });
        for at in 0..2 * REPORTS_MAX {
            reports.fault(
                (format!("spec[{at}]"), "is invalid".into()),
                "it is left out",
            );
        }
        let found = reports.done(Outcome::<()>::Absent);
        assert_eq!(found.reports.len(), REPORTS_MAX);
        let first = "NetworkPolicy prod/web: spec[0]: is invalid; it is left out";
        assert_eq!(found.reports[0].to_string(), first);
        let last = &found.reports[REPORTS_MAX - 1];
        assert_eq!(last.reason, "65 further parts are not converted");
    }

    #[test]
    fn quoted_values_are_cut_at_a_character() {
        assert_eq!(quoted(&json!({"a": 7})), r#"{"a":7}"#);
        let long = quoted(&json!("ä".repeat(200)));
        assert!(long.len() <= QUOTED_OCTETS_MAX + '…'.len_utf8(), "{long}");
        assert!(long.ends_with("ä…"));
    }
}
