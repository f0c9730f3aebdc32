//! The objects of a command: resources in files, or a kind and names.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use calico_manifests::{Document, Mistakes, is_manifest, read_text, readable_documents};
use calico_model::{Kind, ResourceKey, Scope};
use daemon_common::config::Problem;
use serde_json::Value;

/// The namespace of resources without one.
const DEFAULT_NAMESPACE: &str = "default";

/// Files of resources.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Files {
    /// A file of resources in YAML or JSON, a directory of such files, or - for the standard
    /// input; repeat for several
    #[arg(short = 'f', long, value_name = "FILE")]
    pub(crate) filename: Vec<PathBuf>,
    /// Include subdirectories
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Accept files without a resource
    #[arg(long)]
    skip_empty: bool,
}

impl Files {
    /// Returns every readable resource of the files, in their order, and the mistakes of syntax.
    pub(crate) fn documents(&self) -> Result<(Vec<Document>, Mistakes)> {
        let mut all = Vec::new();
        let mut mistakes = Mistakes::default();
        for name in &self.filename {
            let before = all.len();
            if name == Path::new("-") {
                let input = std::io::stdin().lock();
                self.read(Path::new("stdin"), input, &mut all, &mut mistakes)?;
            } else {
                for file in self.files(name)? {
                    let input = File::open(&file)
                        .with_context(|| format!("{} cannot be read", file.display()))?;
                    self.read(&file, input, &mut all, &mut mistakes)?;
                }
            }
            if all.len() == before && mistakes.is_empty() && !self.skip_empty {
                bail!("{}: there is no resource in it", name.display());
            }
        }
        Ok((all, mistakes))
    }

    fn read(
        &self,
        file: &Path,
        input: impl Read,
        all: &mut Vec<Document>,
        mistakes: &mut Mistakes,
    ) -> Result<()> {
        let text = match read_text(file, input) {
            Ok(text) => text,
            Err(unreadable) => {
                mistakes.append(unreadable);
                return Ok(());
            }
        };
        let (read, unreadable) = readable_documents(file, &text);
        if read.is_empty() && unreadable.is_empty() && !self.skip_empty {
            bail!("{}: there is no resource in it", file.display());
        }
        all.extend(read);
        mistakes.append(unreadable);
        Ok(())
    }

    /// Returns the file itself, or the manifests of the directory, in the order of their names.
    fn files(&self, name: &Path) -> Result<Vec<PathBuf>> {
        if !name.is_dir() {
            return Ok(vec![name.to_owned()]);
        }
        let unreadable = || format!("{} cannot be read", name.display());
        let mut entries = Vec::new();
        for entry in fs::read_dir(name).with_context(unreadable)? {
            entries.push(entry.with_context(unreadable)?.path());
        }
        entries.sort();
        let mut files = Vec::new();
        for path in entries {
            if path.is_dir() {
                if self.recursive {
                    files.extend(self.files(&path)?);
                }
            } else if is_manifest(&path) {
                files.push(path);
            }
        }
        Ok(files)
    }
}

/// The namespace on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Namespace {
    pub(crate) named: Option<String>,
    pub(crate) all: bool,
}

impl Namespace {
    /// Returns the namespace of a resource of this kind with the namespace `own`; `None` for kinds
    /// without namespaces, and for a request for all namespaces.
    pub(crate) fn of(&self, kind: Kind, own: Option<&str>) -> Result<Option<String>> {
        let own = own.filter(|own| !own.is_empty());
        if kind.scope() == Scope::Cluster {
            return match (own, self.all || self.named.is_some()) {
                (None, false) => Ok(None),
                _ => bail!("{kind} has no namespaces"),
            };
        }
        match (own, &self.named) {
            (_, Some(_)) if self.all => bail!("-n and --all-namespaces exclude each other"),
            (Some(own), Some(named)) if own != named => {
                bail!("metadata.namespace is \"{own}\", but -n is \"{named}\"")
            }
            (Some(own), _) => Ok(Some(own.to_owned())),
            (None, Some(named)) => Ok(Some(named.clone())),
            (None, None) if self.all => Ok(None),
            (None, None) => Ok(Some(DEFAULT_NAMESPACE.to_owned())),
        }
    }
}

/// Returns the kind of a word.
pub(crate) fn kind(word: &str) -> Result<Kind> {
    Kind::from_word(word).ok_or_else(|| anyhow!("\"{word}\" is not a kind of resource"))
}

/// Returns the kind of a document; `None` if it has none that is known.
pub(crate) fn kind_of(document: &Document) -> Option<Kind> {
    Kind::from_name(document.value()["kind"].as_str()?)
}

/// Returns the resource of a document, with its namespace set. A document of an unknown kind is
/// returned as it is, because its checks report that.
pub(crate) fn resource(document: &Document, namespace: &Namespace) -> Result<Value, Vec<Problem>> {
    let mut value = document.value();
    let Some(kind) = kind_of(document) else {
        return Ok(value);
    };
    let own = text(&value["metadata"]["namespace"]);
    let namespace = namespace
        .of(kind, own.as_deref())
        .map_err(|error| vec![document.problem("metadata.namespace", error.to_string())])?;
    if let (Some(namespace), Some(metadata)) = (
        namespace,
        value.get_mut("metadata").and_then(Value::as_object_mut),
    ) {
        metadata.insert("namespace".into(), namespace.into());
    }
    Ok(value)
}

/// Returns the key of a document's resource, without checking the other fields.
pub(crate) fn key(document: &Document, namespace: &Namespace) -> Result<ResourceKey, Vec<Problem>> {
    let Some(kind) = kind_of(document) else {
        // It has at least this mistake.
        return Err(document
            .encode(None, &Value::Null)
            .err()
            .unwrap_or_default());
    };
    let value = resource(document, namespace)?;
    let part = |field: &str| text(&value["metadata"][field]);
    let Some(named) = part("name") else {
        return Err(vec![
            document.problem("metadata.name", "`metadata.name` is required"),
        ]);
    };
    ResourceKey::new(kind, part("namespace").as_deref(), &named)
        .map_err(|error| vec![document.problem("metadata.name", error.to_string())])
}

/// Returns the namespace in a resource, if it has one.
pub(crate) fn namespace_in(resource: &Value) -> Option<String> {
    text(&resource["metadata"]["namespace"])
}

/// Returns a name, also one that YAML parses as a number; `None` if it is empty.
pub(crate) fn text(name: &Value) -> Option<String> {
    match name {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
