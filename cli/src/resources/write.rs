//! `cambric create`, `apply` and `replace`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use calico_manifests::Document;
use calico_store::resources::{Item, Planned, ResourceError, Resources};
use serde_json::Value;

use super::connect::Connection;
use super::input::{Files, Namespace, kind_of, resource};
use super::notes;
use super::results::{Results, Words};

/// The arguments of `cambric apply` and `cambric replace`.
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
    /// Returns the resources of the documents; or the faults of all of them, before anything is
    /// written.
    async fn checked(
        self,
        all: &Resources,
        documents: Vec<Document>,
        namespace: &Namespace,
    ) -> Result<Vec<(Document, Value)>> {
        let read = documents.into_iter().map(|document| {
            let value = resource(&document, namespace);
            (document, value)
        });
        let read: Vec<_> = read.collect();
        let planned = Planned::new(read.iter().filter_map(|(_, value)| value.as_ref().ok()));
        let mut wanted = Vec::new();
        let mut faults = Vec::new();
        for (document, value) in read {
            let value = match value {
                Ok(value) => value,
                Err(error) => {
                    faults.push(error.to_string());
                    continue;
                }
            };
            match self.check(all, value.clone(), &planned).await {
                Ok(()) => wanted.push((document, value)),
                Err(ResourceError::Invalid(error)) => {
                    faults.extend(document.faults(&error).iter().map(ToString::to_string));
                }
                Err(error @ ResourceError::Store(_)) => return Err(error.into()),
                Err(error) => faults.push(document.fault(".", error.to_string()).to_string()),
            }
        }
        if faults.is_empty() {
            return Ok(wanted);
        }
        bail!("nothing is written:\n{}", faults.join("\n"))
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

/// Runs `cambric create`.
pub(crate) async fn create(args: Create) -> Result<ExitCode> {
    let skip_exists = args.skip_exists;
    args.write.run(How::Create { skip_exists }).await
}

/// Runs `cambric apply`.
pub(crate) async fn apply(args: Write) -> Result<ExitCode> {
    args.run(How::Apply).await
}

/// Runs `cambric replace`.
pub(crate) async fn replace(args: Write) -> Result<ExitCode> {
    args.run(How::Replace).await
}

impl Write {
    async fn run(self, how: How) -> Result<ExitCode> {
        if self.files.filename.is_empty() {
            bail!("name the resources with -f");
        }
        let documents = self.files.documents()?;
        if documents.is_empty() {
            println!("No resources specified");
            return Ok(ExitCode::SUCCESS);
        }
        let namespace = Namespace {
            named: self.namespace,
            all: false,
        };
        let all = self.connection.resources().await?;
        let wanted = how.checked(&all, documents, &namespace).await?;
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
                Err(ResourceError::Invalid(error)) => {
                    for fault in document.faults(&error) {
                        eprintln!("cambric: {fault}");
                    }
                    false
                }
                Err(error) => {
                    eprintln!("cambric: {}", document.fault(".", error.to_string()));
                    false
                }
            };
            results.add(kind_of(document)?.name(), is_done);
        }
        Ok(results.print(how.words()))
    }
}
