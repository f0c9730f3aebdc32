//! `cambric create`, `apply` and `replace`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::process::ExitCode;

use anyhow::{Result, bail};
use calico_manifests::{Document, Mistakes};
use calico_model::{EncodeError, Kind};
use calico_store::resources::{Item, Planned, ResourceError, Resources};
use daemon_common::config::Problem;
use serde_json::Value;

use super::connect::Connection;
use super::input::{Files, Namespace, kind_of, namespace_in, resource, text};
use super::notes;
use super::outcomes;
use super::results::{Results, Words};

/// The arguments of `cambric apply`.
#[derive(Debug, clap::Args)]
pub(crate) struct Apply {
    #[command(flatten)]
    write: Write,
    /// The form of the output: json
    #[arg(short, long, value_name = "FORM", value_parser = ["json"])]
    output: Option<String>,
}

/// The arguments of `cambric replace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Write {
    #[command(flatten)]
    files: Files,
    /// The namespace of resources without one [default: default]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

/// The arguments of `cambric create`.
#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    #[command(flatten)]
    write: Write,
    /// Skip existing resources
    #[arg(long)]
    skip_exists: bool,
}

/// How a resource is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Create { skip_exists: bool },
    Apply,
    Replace,
}

impl How {
    const fn words(self) -> Words {
        let (verb, done) = match self {
            Self::Create { .. } => ("create", "created"),
            Self::Apply => ("apply", "applied"),
            Self::Replace => ("replace", "replaced"),
        };
        Words {
            verb,
            done,
            skipped: "existing",
        }
    }

    async fn write(self, all: &Resources, value: Value) -> Result<Item, ResourceError> {
        match self {
            Self::Create { .. } => all.create(value).await,
            Self::Apply => Ok(all.apply(value).await?.item),
            Self::Replace => all.replace(value).await,
        }
    }
}

impl How {
    /// Returns the resources of the documents; or the mistakes of all of them, before anything is
    /// written.
    async fn checked(
        self,
        all: &Resources,
        documents: Vec<Document>,
        mut mistakes: Mistakes,
        namespace: &Namespace,
    ) -> Result<Vec<(Document, Value)>> {
        let read = documents.into_iter().map(|document| {
            let value = resource(&document, namespace);
            (document, value)
        });
        let read: Vec<_> = read.collect();
        let planned = Planned::new(read.iter().filter_map(|(_, value)| value.as_ref().ok()));
        let mut wanted = Vec::new();
        let mut origins = BTreeMap::new();
        for (document, value) in read {
            let value = match value {
                Ok(value) => value,
                Err(problems) => {
                    mistakes.add(&document, problems);
                    continue;
                }
            };
            match identity(&value).map(|identity| origins.entry(identity)) {
                Some(Entry::Occupied(first)) => {
                    mistakes.add(&document, [document.repeats(first.get())]);
                    continue;
                }
                Some(Entry::Vacant(entry)) => {
                    entry.insert(document.origin());
                }
                None => {}
            }
            match self.check(all, value.clone(), &planned).await {
                Ok(()) => wanted.push((document, value)),
                Err(ResourceError::Invalid(error)) => {
                    let found = self.mistakes(all, &document, &value, &error).await?;
                    mistakes.add(&document, found);
                }
                Err(error @ ResourceError::Store(_)) => return Err(error.into()),
                Err(error) => mistakes.add(&document, [forbidden(&document, &error)]),
            }
        }
        if mistakes.is_empty() {
            return Ok(wanted);
        }
        bail!("nothing is written:\n{mistakes}")
    }

    /// Returns all mistakes of a resource with this one.
    async fn mistakes(
        self,
        all: &Resources,
        document: &Document,
        value: &Value,
        error: &EncodeError,
    ) -> Result<Vec<Problem>> {
        // Unknown fields that are stored are no mistakes.
        let stored = match self {
            Self::Create { .. } => Value::Null,
            Self::Apply | Self::Replace => all.stored(value).await?,
        };
        Ok(
            match document.encode(namespace_in(value).as_deref(), &stored) {
                Err(problems) => problems,
                Ok(_) => vec![document.problem(".", error.to_string())],
            },
        )
    }

    async fn check(
        self,
        all: &Resources,
        value: Value,
        planned: &Planned,
    ) -> Result<(), ResourceError> {
        match self {
            Self::Create { .. } => all.check_create(value, planned).await,
            Self::Apply => all.check_apply(value, planned).await,
            Self::Replace => all.check_replace(value).await,
        }
    }
}

/// Returns kind, namespace and name of a resource; `None` if one is missing.
fn identity(value: &Value) -> Option<(String, Option<String>, String)> {
    let name = text(&value["metadata"]["name"])?;
    Some((text(&value["kind"])?, namespace_in(value), name))
}

/// Explains why a resource must not be written. The reason may begin with a field.
fn forbidden(document: &Document, error: &ResourceError) -> Problem {
    let field = match error {
        ResourceError::Refused { reason, .. } => reason.split_once(": "),
        _ => None,
    };
    let field = field.map_or(".", |(field, _)| field);
    document.problem(field, error.to_string())
}

/// Runs `cambric create`.
pub(crate) async fn create(args: Create) -> Result<ExitCode> {
    let skip_exists = args.skip_exists;
    args.write.run(How::Create { skip_exists }).await
}

/// Runs `cambric apply`.
pub(crate) async fn apply(args: Apply) -> Result<ExitCode> {
    let is_json = args.output.is_some();
    let Some((all, wanted)) = args.write.wanted(How::Apply).await? else {
        match is_json {
            true => println!("[]"),
            false => println!("No resources specified"),
        }
        return Ok(ExitCode::SUCCESS);
    };
    let (documents, values): (Vec<Document>, Vec<Value>) = wanted.into_iter().unzip();
    let outcomes = all.apply_all(&values).await;
    outcomes::print(&documents, &values, &outcomes, How::Apply.words(), is_json)
}

/// Runs `cambric replace`.
pub(crate) async fn replace(args: Write) -> Result<ExitCode> {
    args.run(How::Replace).await
}

impl Write {
    /// Returns the checked resources; `None` if there are none.
    async fn wanted(self, how: How) -> Result<Option<(Resources, Vec<(Document, Value)>)>> {
        if self.files.filename.is_empty() {
            bail!("name the resources with -f");
        }
        let (documents, mistakes) = self.files.documents()?;
        if documents.is_empty() && mistakes.is_empty() {
            return Ok(None);
        }
        let namespace = Namespace {
            named: self.namespace,
            all: false,
        };
        let all = self.connection.resources().await?;
        let wanted = how.checked(&all, documents, mistakes, &namespace).await?;
        Ok(Some((all, wanted)))
    }

    async fn run(self, how: How) -> Result<ExitCode> {
        let Some((all, wanted)) = self.wanted(how).await? else {
            println!("No resources specified");
            return Ok(ExitCode::SUCCESS);
        };
        // A user without permission for this may still write the resource; an unreachable datastore
        // is reported by the next request.
        let _ = all.initialize().await;
        let mut results = Results::default();
        for (document, value) in &wanted {
            let is_done = match how.write(&all, value.clone()).await {
                Ok(item) => {
                    notes::report_written(document, item.key.kind(), &item.value);
                    true
                }
                Err(ResourceError::Exists(_)) if how == How::Create { skip_exists: true } => {
                    results.skip();
                    continue;
                }
                Err(error) => {
                    eprintln!("cambric: {}", document.fault(".", error.to_string()));
                    false
                }
            };
            results.add(kind_of(document).map_or("resource", Kind::name), is_done);
        }
        Ok(results.print(how.words()))
    }
}
