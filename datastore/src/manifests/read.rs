//! Reading a directory of manifests.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use model::{EncodeError, ResourceKey, encode_strict};
use serde_json::Value;

use super::Fault;
use super::tree::{Place, Tree, place};
use crate::limits::{MANIFEST_FILES_MAX, MANIFEST_OCTETS_MAX};

/// A resource as a file has it.
#[derive(Debug)]
pub(super) struct Wanted {
    /// What is to be stored, but for what a resource is given when it is created.
    pub(super) value: Value,
    file: PathBuf,
    place: Place,
}

/// Everything that the directory holds, or all faults in it.
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

/// Finds the files. Names that begin with a dot are passed over.
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
        // A file that went away since is no fault: the change that took it is told as well.
        let Ok(metadata) = fs::metadata(&path) else {
            continue;
        };
        let known = path
            .extension()
            .is_some_and(|kind| ["yaml", "yml", "json"].iter().any(|known| kind == *known));
        if metadata.is_dir() {
            collect(&path, files)?;
        } else if known {
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
    match serde_saphyr::from_multiple::<Tree>(&text) {
        Ok(documents) => {
            for document in documents {
                read_document(file, document, wanted, faults);
            }
        }
        Err(error) => {
            let error = error.without_snippet();
            let message = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
            faults.push(Fault {
                file: file.to_owned(),
                place: error.location().map(place),
                message: message.lines().next().unwrap_or_default().to_owned(),
            });
        }
    }
}

fn read_document(
    file: &Path,
    document: Tree,
    wanted: &mut BTreeMap<ResourceKey, Wanted>,
    faults: &mut Vec<Fault>,
) {
    if document.is_empty() {
        return;
    }
    let value = document.value();
    if value
        .get("kind")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("List"))
    {
        for item in document.items("items") {
            read_document(file, item, wanted, faults);
        }
        return;
    }
    let fault = |place, message| Fault {
        file: file.to_owned(),
        place: Some(place),
        message,
    };
    match encode(value) {
        Ok((key, value)) => match wanted.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Wanted {
                    value,
                    file: file.to_owned(),
                    place: document.place(),
                });
            }
            Entry::Occupied(entry) => {
                let first = entry.get();
                let kind = entry.key().kind();
                let name = entry.key().name();
                let there = format!("{}:{}", first.file.display(), first.place.0);
                faults.push(fault(
                    document.place(),
                    format!("{kind} {name} is already in {there}"),
                ));
            }
        },
        Err(EncodeError::Invalid(invalid)) => faults.extend(
            invalid
                .iter()
                .map(|one| fault(document.place_of(&one.field), one.to_string())),
        ),
        Err(EncodeError::Parse(error)) => {
            faults.push(fault(document.place_of(&error.field), error.to_string()));
        }
        Err(error @ EncodeError::UnknownKind(_)) => {
            faults.push(fault(document.place_of("kind"), error.to_string()));
        }
        Err(error) => faults.push(fault(document.place(), error.to_string())),
    }
}

fn encode(value: Value) -> Result<(ResourceKey, Value), EncodeError> {
    let (key, octets) = encode_strict(value)?;
    // Its own output reads; were it not so, nothing would be stored.
    let value = serde_json::from_slice(&octets).unwrap_or_default();
    Ok((key, value))
}
