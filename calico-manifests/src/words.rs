//! Mistakes of resources in an operator's words.

use calico_model::{Kind, Problem as Breach};
use daemon_common::config::{Problem, choices};
use serde_json::Value;

use crate::tree::{Place, Shape, Tree};

/// Explains a document that is no object.
pub(super) fn of_no_object(tree: &Tree) -> Problem {
    let given = match &tree.shape {
        Shape::List(_) => "a list",
        Shape::Scalar(Value::String(_)) => "a text",
        Shape::Scalar(Value::Bool(_)) => "a truth value",
        Shape::Scalar(_) => "a number",
        Shape::Object(_) => "an object",
    };
    Problem::at(tree.place.clone(), "this document is no resource")
        .label(format!("this is {given}"))
        .help("a resource has the fields apiVersion, kind, metadata and spec")
}

/// Explains a missing or an unknown kind.
pub(super) fn of_kind(word: &str, place: Place) -> Problem {
    let kinds: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    if word.is_empty() {
        let help = format!("known kinds here: {}", kinds.join(", "));
        return Problem::at(place, "`kind` is required").help(help);
    }
    let problem = Problem::at(place, format!("unknown kind `{word}`"));
    let problem = problem.suggest(word, &kinds, "kinds");
    match Kind::from_word(word) {
        Some(kind) => problem.label(format!("did you mean `{kind}`?")),
        None => problem,
    }
}

/// Explains an unknown field.
pub(super) fn of_unknown(path: &str, meant: Option<&str>, known: &[&str]) -> Problem {
    let name = path.rsplit('.').next().unwrap_or(path);
    let problem = Problem::whole(format!("unknown field `{path}`"));
    let problem = match known {
        [] => problem.help("docs/operate/fields.md lists the fields of each kind"),
        known => problem.suggest(name, known, "fields"),
    };
    match meant {
        Some(meant) => problem.label(format!("did you mean `{meant}`?")),
        None => problem,
    }
}

/// Explains a fault of a field.
pub(super) fn of_invalid(path: &str, fault: &Breach) -> Problem {
    match fault {
        Breach::Missing => Problem::whole(format!("`{path}` is required")),
        Breach::Unwanted(reason) => Problem::whole(format!("`{path}` must not be set: {reason}")),
        Breach::Form { found, expected } => match choices(expected) {
            Some(known) => {
                let problem = Problem::whole(format!("`{path}`: unknown value `{found}`"));
                problem.suggest(found, &known, "values")
            }
            None => Problem::whole(format!("`{path}`: `{found}` is not {expected}")),
        },
        Breach::Mismatch { found, expected } => {
            let message = format!("`{path}` is `{found}`, but must be `{expected}`");
            Problem::whole(message).label(format!("write {expected}"))
        }
        Breach::TooMuch { found, most } => {
            let message = format!("`{path}` is too long: {found}, at most {most}");
            Problem::whole(message)
        }
        Breach::NotHost(found) => {
            let message = format!("`{path}`: `{found}` is not a single address");
            Problem::whole(message).help("write the address with /32, or /128 for IPv6")
        }
        Breach::Duplicate(found) => {
            Problem::whole(format!("`{path}`: `{found}` is there twice")).help("remove one of them")
        }
        other => Problem::whole(format!("`{path}` {other}")),
    }
}
