//! A document of a file: its value, and the mistakes in it.

use std::sync::Arc;

use calico_model::{
    EncodeError, Invalid, Kind, ParseError, ResourceKey, Scope, encode_over, is_secretive,
    known_fields, without_values,
};
use daemon_common::config::{Problem, Source};
use daemon_common::limits::{CONFIG_PROBLEMS_MAX, CONFIG_READ_AGAIN_OCTETS_MAX};
use serde_json::Value;

use crate::Fault;
use crate::limits::FIELDS_LISTED_MAX;
use crate::tree::{Place, Tree};
use crate::words;

/// A document of a file, or an item of a list in it.
#[derive(Debug)]
pub struct Document {
    pub(crate) source: Arc<Source>,
    pub(crate) tree: Tree,
}

/// Fields of which one is required: a mistake in one explains why the other is missing.
const EITHER: &[(&str, &str)] = &[("spec.bgp.ipv4Address", "spec.bgp.ipv6Address")];

impl Document {
    /// Returns its value.
    pub fn value(&self) -> Value {
        self.tree.value()
    }

    /// Returns a fault of the field with this path, such as `spec.bgp.asNumber`, in one line; of the
    /// whole document if there is no such field. The value of a field that may be a secret is not
    /// quoted.
    pub fn fault(&self, field: &str, message: String) -> Fault {
        let message = match is_secretive(field) {
            true => without_values(&message),
            false => message,
        };
        Fault {
            file: self.source.path().to_path_buf(),
            place: Some(line_and_column(
                self.source.text(),
                self.tree.find(field).name().start,
            )),
            message,
        }
    }

    /// Returns a problem at the value of the field with this path; at the whole document if there is
    /// no such field.
    pub fn problem(&self, field: &str, message: impl Into<String>) -> Problem {
        Problem::at(self.tree.find(field).value(), message)
    }

    /// Returns key and value of its resource to store; one of a namespaced kind gets the namespace if
    /// it has none of its own. Unknown fields of the `stored` resource are accepted.
    ///
    /// # Errors
    ///
    /// Every mistake. One that results from another is left out.
    pub fn encode(
        &self,
        namespace: Option<&str>,
        stored: &Value,
    ) -> Result<(ResourceKey, Value), Vec<Problem>> {
        if !self.tree.is_object() {
            return Err(vec![words::of_no_object(&self.tree)]);
        }
        let kind = self.tree.value()["kind"].as_str().and_then(Kind::from_name);
        let mut reader = Reader {
            tree: self.tree.clone(),
            kind,
            namespace: namespace
                .filter(|_| kind.is_some_and(|kind| kind.scope() == Scope::Namespaced)),
            stored,
            problems: Vec::new(),
            lost: Vec::new(),
        };
        // A file is read again for each mistake.
        let reads = CONFIG_READ_AGAIN_OCTETS_MAX / self.source.text().len().max(1);
        match reader.read(reads.clamp(1, CONFIG_PROBLEMS_MAX)) {
            Some(encoded) => Ok(encoded),
            None => Err(reader.problems),
        }
    }

    /// Returns where it is.
    pub fn origin(&self) -> Origin {
        Origin {
            source: Arc::clone(&self.source),
            place: self.tree.start(),
        }
    }

    /// Explains that its resource is in an earlier document, too.
    pub fn repeats(&self, first: &Origin) -> Problem {
        let value = self.tree.value();
        let kind = value["kind"].as_str().unwrap_or_default();
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        let place = self.tree.start();
        if Arc::ptr_eq(&first.source, &self.source) {
            let problem = Problem::at(place, format!("{kind} `{name}` is there twice"));
            let problem = problem.label("again here");
            return problem.related(first.place.clone(), "first here");
        }
        let (line, _) = line_and_column(first.source.text(), first.place.start);
        let there = format!("{}:{line}", first.source.path().display());
        Problem::at(place, format!("{kind} `{name}` is already in {there}"))
    }
}

/// The place of a document.
#[derive(Debug, Clone)]
pub struct Origin {
    source: Arc<Source>,
    place: Place,
}

/// Reads a document again without the values that have mistakes, until the rest has none.
struct Reader<'r> {
    tree: Tree,
    kind: Option<Kind>,
    namespace: Option<&'r str>,
    stored: &'r Value,
    problems: Vec<Problem>,
    /// The paths of removed values, and of fields that were misspelled.
    lost: Vec<String>,
}

impl Reader<'_> {
    /// Returns the resource if there is no mistake.
    fn read(&mut self, reads: usize) -> Option<(ResourceKey, Value)> {
        for _ in 0..reads {
            let error = match encode_over(self.value(), self.stored) {
                Ok(encoded) if self.problems.is_empty() => return Some(encoded),
                Ok(_) => return None,
                Err(error) => error,
            };
            let again = match error {
                EncodeError::Parse(error) => self.parse(&error),
                EncodeError::Invalid(faults) => self.invalid(&faults),
                EncodeError::UnknownKind(word) => {
                    let place = self.tree.find("kind").value();
                    self.problems.push(words::of_kind(&word, place));
                    false
                }
                EncodeError::Key(error) => {
                    let place = self.tree.find("metadata.name").value();
                    self.problems.push(Problem::at(place, error.to_string()));
                    false
                }
            };
            if !again {
                break;
            }
        }
        None
    }

    fn value(&self) -> Value {
        let mut value = self.tree.value();
        let metadata = value.get_mut("metadata").and_then(Value::as_object_mut);
        if let (Some(metadata), Some(namespace)) = (metadata, self.namespace) {
            let own = metadata.entry("namespace").or_insert(Value::Null);
            if own.is_null() || own == "" {
                *own = namespace.into();
            }
        }
        value
    }

    /// Reports a value of a wrong type, and removes it. Returns whether that is possible.
    fn parse(&mut self, error: &ParseError) -> bool {
        let found = self.tree.find(&error.field);
        let message = error.source.to_string();
        let missing = message.strip_prefix("missing field `");
        let missing = missing.map(|name| join(&found.path, name.trim_end_matches('`')));
        if !missing.is_some_and(|path| self.lost.contains(&path)) {
            let problem = Problem::of_serde(&found.path, &message);
            self.problems.push(problem.placed(found.value()));
        }
        self.lose(&error.field)
    }

    /// Reports faults. If there are unknown fields among them, reports only these, removes them, and
    /// returns true: the others are found again.
    fn invalid(&mut self, faults: &[Invalid]) -> bool {
        use calico_model::Problem as Breach;
        let is_unknown = |fault: &&Invalid| matches!(fault.problem, Breach::UnknownField { .. });
        let unknown: Vec<&Invalid> = faults.iter().filter(is_unknown).collect();
        let mut has_removed = false;
        // From behind, because items of lists move.
        for fault in unknown.iter().rev().take(CONFIG_PROBLEMS_MAX) {
            let found = self.tree.find(&fault.field);
            let (path, place) = (found.path.clone(), found.name());
            let known = self.known(&fault.field);
            let meant = match fault.problem {
                Breach::UnknownField { meant } => meant,
                _ => None,
            };
            self.problems
                .push(words::of_unknown(&path, meant, &known).placed(place));
            if let Some(meant) = meant {
                self.lost.push(join(parent(&path), meant));
            }
            has_removed |= self.lose(&fault.field);
        }
        if has_removed {
            return true;
        }
        for fault in faults.iter().filter(|fault| !is_unknown(fault)) {
            let found = self.tree.find(&fault.field);
            if !self.is_consequence(&found.path, &fault.problem) {
                let problem = words::of_invalid(&found.path, &fault.problem);
                self.problems.push(problem.placed(found.value()));
            }
        }
        false
    }

    /// Returns the known fields of the object that a field is in, if they are few.
    fn known(&self, field: &str) -> Vec<&'static str> {
        let known = self.kind.map(|kind| known_fields(kind, parent(field)));
        known
            .filter(|known| known.len() <= FIELDS_LISTED_MAX)
            .unwrap_or_default()
    }

    fn lose(&mut self, field: &str) -> bool {
        let path = self.tree.remove(field);
        let is_lost = path.is_some();
        self.lost.extend(path);
        is_lost
    }

    /// Returns whether a fault may result from a removed value.
    fn is_consequence(&self, path: &str, problem: &calico_model::Problem) -> bool {
        use calico_model::Problem as Breach;
        let is_envelope = !path.starts_with("spec") && path != "metadata.name";
        match problem {
            Breach::Missing => self.lost.iter().any(|lost| {
                is_within(path, lost) || is_within(lost, path) || are_either(path, lost)
            }),
            // These compare fields.
            Breach::Unwanted(_) | Breach::Mismatch { .. } => !self.lost.is_empty() && !is_envelope,
            _ => false,
        }
    }
}

/// Returns the path of the object that a field is in.
fn parent(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(parent, _)| parent)
}

fn join(parent: &str, name: &str) -> String {
    match parent {
        "" => name.to_owned(),
        parent => format!("{parent}.{name}"),
    }
}

/// Returns whether a path is another one or leads into it.
fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn are_either(a: &str, b: &str) -> bool {
    EITHER.iter().any(|pair| *pair == (a, b) || *pair == (b, a))
}

/// Returns the line and the column of an offset, from 1.
fn line_and_column(text: &str, at: usize) -> (u64, u64) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let column = before[start..].chars().count() + 1;
    (line as u64, column as u64)
}
