//! Reads manifests: files, their documents, and the resources in them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use calico_model::{EncodeError, ResourceKey, encode_strict, is_secretive, without_values};
use serde_json::Value;

use crate::Fault;
use crate::limits::{MANIFEST_FILES_MAX, MANIFEST_OCTETS_MAX};
use crate::secret::line_is_secretive;
use crate::tree::{Place, Tree, place};

/// A resource from a file.
#[derive(Debug)]
pub(super) struct Wanted {
    /// The value to store, without the metadata that a resource gets at its creation.
    pub(super) value: Value,
    file: Arc<Path>,
    place: Place,
}

/// A document of a file, or an item of a list in it.
#[derive(Debug)]
pub struct Document {
    file: Arc<Path>,
    tree: Tree,
}

impl Document {
    /// Returns its value.
    pub fn value(&self) -> Value {
        self.tree.value()
    }

    /// Returns a fault of the field with this path, such as `spec.bgp.asNumber`; of the whole
    /// document if there is no such field. The value of a field that may be a secret is not quoted.
    pub fn fault(&self, field: &str, message: String) -> Fault {
        let message = match is_secretive(field) {
            true => without_values(&message),
            false => message,
        };
        Fault {
            file: self.file.to_path_buf(),
            place: Some(self.tree.place_of(field)),
            message,
        }
    }

    /// Returns the faults found by encoding it, each with its place.
    pub fn faults(&self, error: &EncodeError) -> Vec<Fault> {
        match error {
            EncodeError::Invalid(invalid) => invalid
                .iter()
                .map(|one| self.fault(&one.field, one.to_string()))
                .collect(),
            EncodeError::Parse(parse) => vec![self.fault(&parse.field, error.to_string())],
            EncodeError::UnknownKind(_) => vec![self.fault("kind", error.to_string())],
            EncodeError::Key(_) => vec![self.fault("metadata", error.to_string())],
        }
    }
}

/// Parses the documents of a text in YAML or JSON; lists of resources item by item. Faults name
/// `file`.
pub fn documents(file: &Path, text: &str) -> Result<Vec<Document>, Fault> {
    let trees = serde_saphyr::from_multiple::<Tree>(text).map_err(|error| {
        let error = error.without_snippet();
        let message = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
        let message = message.lines().next().unwrap_or_default();
        let place = error.location().map(place);
        let is_discreet = place.is_some_and(|(line, _)| !line_is_secretive(text, line));
        Fault {
            file: file.to_owned(),
            place,
            message: match is_discreet {
                true => message.to_owned(),
                false => without_values(message),
            },
        }
    })?;
    let file: Arc<Path> = file.into();
    let mut documents = Vec::new();
    for mut tree in trees {
        tree.take_exact_numbers(text);
        spread(&file, tree, &mut documents);
    }
    Ok(documents)
}

/// Adds the resources of a tree: the tree itself, or the items if it is a list.
fn spread(file: &Arc<Path>, tree: Tree, documents: &mut Vec<Document>) {
    if tree.is_empty() {
        return;
    }
    let items = match tree.is_list_of_resources() {
        true => tree.items("items"),
        false => match tree.into_list() {
            Ok(items) => items,
            Err(tree) => {
                let file = Arc::clone(file);
                return documents.push(Document { file, tree });
            }
        },
    };
    for item in items {
        spread(file, item, documents);
    }
}

/// Returns all resources in the directory, or all faults in it.
pub(super) fn directory(directory: &Path) -> Result<BTreeMap<ResourceKey, Wanted>, Vec<Fault>> {
    let mut files = Vec::new();
    collect(directory, &mut files).map_err(|fault| vec![fault])?;
    files.sort();
    let mut wanted = BTreeMap::new();
    let mut faults = Vec::new();
    for file in files {
        read_file(&file, &mut wanted, &mut faults);
    }
    if faults.is_empty() {
        Ok(wanted)
    } else {
        Err(faults)
    }
}

/// Finds the files of a directory, and of its subdirectories. Names that begin with a dot are
/// skipped.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Fault> {
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
                return Err(Fault {
                    file: path,
                    place: None,
                    message: "too many files, or too large a one".into(),
                });
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

fn unreadable(path: &Path, error: &io::Error) -> Fault {
    Fault {
        file: path.to_owned(),
        place: None,
        message: format!("cannot be read: {error}"),
    }
}

fn read_file(file: &Path, wanted: &mut BTreeMap<ResourceKey, Wanted>, faults: &mut Vec<Fault>) {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => return faults.push(unreadable(file, &error)),
    };
    match documents(file, &text) {
        Ok(documents) => {
            for document in documents {
                read_document(document, wanted, faults);
            }
        }
        Err(fault) => faults.push(fault),
    }
}

fn read_document(
    document: Document,
    wanted: &mut BTreeMap<ResourceKey, Wanted>,
    faults: &mut Vec<Fault>,
) {
    match encode_strict(document.value()) {
        Ok((key, value)) => match wanted.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Wanted {
                    value,
                    place: document.tree.place(),
                    file: document.file,
                });
            }
            Entry::Occupied(entry) => {
                let first = entry.get();
                let (kind, name) = (entry.key().kind(), entry.key().name());
                let there = format!("{}:{}", first.file.display(), first.place.0);
                let message = format!("{kind} {name} is already in {there}");
                faults.push(document.fault(".", message));
            }
        },
        Err(error) => faults.extend(document.faults(&error)),
    }
}
