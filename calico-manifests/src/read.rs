//! Reads manifests: files, their documents, and the resources in them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use calico_model::ResourceKey;
use daemon_common::config::{Problem, Source};
use serde_json::Value;

use crate::document::{Document, Origin};
use crate::limits::{MANIFEST_FILES_MAX, MANIFEST_OCTETS_MAX};
use crate::mistakes::{Mistakes, source};
use crate::parse::parse;
use crate::tree::Tree;

/// A resource from a file.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The value to store, without the metadata that a resource gets at its creation.
    pub(super) value: Value,
    origin: Origin,
}

/// Parses the documents of a text in YAML or JSON; lists of resources item by item. `file` is only
/// the name in reports.
///
/// # Errors
///
/// Every mistake of syntax.
pub fn documents(file: &Path, text: &str) -> Result<Vec<Document>, Mistakes> {
    let (documents, mistakes) = readable_documents(file, text);
    match mistakes.is_empty() {
        true => Ok(documents),
        false => Err(mistakes),
    }
}

/// Parses the same as far as possible, so that further mistakes can be found in them. A document
/// with a mistake of syntax is missing, unless a field is there twice: then the first one counts.
pub fn readable_documents(file: &Path, text: &str) -> (Vec<Document>, Mistakes) {
    // A byte order mark is no part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let parsed = parse(text);
    let source = source(file, text);
    let mut mistakes = Mistakes::default();
    mistakes.add_to(&source, parsed.problems);
    let mut documents = Vec::new();
    for tree in parsed.trees {
        spread(&source, tree, &mut documents);
    }
    (documents, mistakes)
}

/// Reads a text of at most [`MANIFEST_OCTETS_MAX`] in UTF-8. `file` is only the name in reports.
///
/// # Errors
///
/// A text that is too long, or no text.
pub fn read_text(file: &Path, input: impl Read) -> Result<String, Mistakes> {
    let mut octets = Vec::new();
    let read = input.take(MANIFEST_OCTETS_MAX + 1).read_to_end(&mut octets);
    read.map_err(|error| unreadable(file, &error))?;
    if octets.len() as u64 > MANIFEST_OCTETS_MAX {
        let most = MANIFEST_OCTETS_MAX >> 20;
        return Err(Mistakes::of_file(
            file,
            format!("is longer than {most} MiB"),
        ));
    }
    String::from_utf8(octets).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        let problem = Problem::at(at..at + 1, "this octet is not UTF-8");
        let problem = problem.help("save the file in the encoding UTF-8");
        let mut mistakes = Mistakes::default();
        mistakes.add_to(&source(file, &text), [problem]);
        mistakes
    })
}

/// Adds the resources of a tree: the tree itself, or the items if it is a list.
fn spread(source: &Arc<Source>, tree: Tree, documents: &mut Vec<Document>) {
    if tree.is_empty() {
        return;
    }
    let items = match tree.is_list_of_resources() {
        true => tree.items("items"),
        false => match tree.into_list() {
            Ok(items) => items,
            Err(tree) => {
                let source = Arc::clone(source);
                return documents.push(Document { source, tree });
            }
        },
    };
    for item in items {
        spread(source, item, documents);
    }
}

/// Returns all resources in the directory, or all mistakes in it.
pub(super) fn directory(directory: &Path) -> Result<BTreeMap<ResourceKey, Wanted>, Mistakes> {
    let mut files = Vec::new();
    collect(directory, &mut files)?;
    files.sort();
    let mut wanted = BTreeMap::new();
    let mut mistakes = Mistakes::default();
    for file in files {
        read_file(&file, &mut wanted, &mut mistakes);
    }
    if mistakes.is_empty() {
        Ok(wanted)
    } else {
        Err(mistakes)
    }
}

/// Finds the files of a directory, and of its subdirectories. Names that begin with a dot are
/// skipped.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Mistakes> {
    let fault = |source: io::Error| unreadable(directory, &source);
    for entry in fs::read_dir(directory).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        if path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
        {
            continue;
        }
        // A file that was deleted in the meantime is not a fault: its deletion is reported as a
        // change.
        let Ok(metadata) = fs::metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            collect(&path, files)?;
        } else if is_manifest(&path) {
            if files.len() >= MANIFEST_FILES_MAX || metadata.len() > MANIFEST_OCTETS_MAX {
                let message = "too many files, or too large a one";
                return Err(Mistakes::of_file(&path, message));
            }
            files.push(path);
        }
    }
    Ok(())
}

/// Returns whether a file's name is that of a manifest.
pub fn is_manifest(file: &Path) -> bool {
    file.extension()
        .is_some_and(|kind| ["yaml", "yml", "json"].iter().any(|known| kind == *known))
}

fn unreadable(path: &Path, error: &io::Error) -> Mistakes {
    Mistakes::of_file(path, format!("cannot be read: {error}"))
}

fn read_file(file: &Path, wanted: &mut BTreeMap<ResourceKey, Wanted>, mistakes: &mut Mistakes) {
    let text = match File::open(file) {
        Ok(input) => read_text(file, input),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => Err(unreadable(file, &error)),
    };
    let text = match text {
        Ok(text) => text,
        Err(unreadable) => return mistakes.append(unreadable),
    };
    let (documents, unreadable) = readable_documents(file, &text);
    mistakes.append(unreadable);
    for document in documents {
        read_document(document, wanted, mistakes);
    }
}

fn read_document(
    document: Document,
    wanted: &mut BTreeMap<ResourceKey, Wanted>,
    mistakes: &mut Mistakes,
) {
    let (key, value) = match document.encode(None, &Value::Null) {
        Ok(encoded) => encoded,
        Err(problems) => return mistakes.add(&document, problems),
    };
    match wanted.entry(key) {
        Entry::Vacant(entry) => {
            let origin = document.origin();
            entry.insert(Wanted { value, origin });
        }
        Entry::Occupied(entry) => {
            let problem = document.repeats(&entry.get().origin);
            mistakes.add(&document, [problem]);
        }
    }
}
