//! `cambric delete`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use datastore::resources::{ResourceError, Resources};
use model::{Kind, ResourceKey};

use super::connect::Connection;
use super::input::{Files, Namespace, key, kind};
use super::write::summary;

/// The arguments of `cambric delete`.
#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    /// The kind: its name, also in the plural, in any case, or a short one such as wep
    #[arg(required_unless_present = "filename")]
    kind: Option<String>,
    /// The names
    #[arg(required_unless_present = "filename")]
    names: Vec<String>,
    #[command(flatten)]
    files: Files,
    /// The namespace of resources that name none [default: default]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Pass over resources that are not there
    #[arg(short, long)]
    skip_not_exists: bool,
    #[command(flatten)]
    connection: Connection,
}

/// A resource to delete, and the version that it must have.
struct Target {
    key: ResourceKey,
    version: Option<String>,
    /// What a message about it begins with.
    place: String,
}

/// Runs `cambric delete`.
pub(crate) async fn delete(args: Delete) -> Result<ExitCode> {
    let targets = args.targets()?;
    let all = args.connection.resources().await?;
    let kinds: Vec<String> = targets
        .iter()
        .map(|target| target.key.kind().name().to_owned())
        .collect();
    let (mut done, mut failed) = (0, 0);
    for target in targets {
        match remove(&all, &target).await {
            Ok(()) => done += 1,
            Err(ResourceError::Missing(_)) if args.skip_not_exists => done += 1,
            Err(error) => {
                failed += 1;
                eprintln!("cambric: {}{error}", target.place);
            }
        }
    }
    println!("{}", summary("delete", "deleted", &kinds, done));
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Delete {
    fn targets(&self) -> Result<Vec<Target>> {
        let namespace = Namespace {
            named: self.namespace.clone(),
            all: false,
        };
        let mut targets = Vec::new();
        if let Some(word) = &self.kind {
            if !self.files.filename.is_empty() {
                bail!("name a kind or files, not both");
            }
            let kind = kind(word)?;
            let namespace = namespace.of(kind, None)?;
            for name in &self.names {
                targets.push(Target {
                    key: ResourceKey::new(kind, namespace.as_deref(), name)?,
                    version: None,
                    place: String::new(),
                });
            }
            return Ok(targets);
        }
        for document in self.files.documents()? {
            let value = document.value();
            let version = value["metadata"]["resourceVersion"].as_str();
            targets.push(Target {
                key: key(&document, &namespace)?,
                version: version.filter(|text| !text.is_empty()).map(str::to_owned),
                place: document.fault(".", String::new()).to_string(),
            });
        }
        Ok(targets)
    }
}

/// Deletes a resource, and what is nothing without it.
async fn remove(all: &Resources, target: &Target) -> Result<(), ResourceError> {
    if target.key.kind() == Kind::Node {
        let known = all.get(&target.key).await;
        if matches!(known, Err(ResourceError::Missing(_))) {
            return known.map(|_| ());
        }
        remove_what_is_of_node(all, target.key.name()).await?;
    }
    all.delete(&target.key, target.version.as_deref()).await?;
    Ok(())
}

/// Deletes what belongs to a node: its endpoints, its peers, its settings.
async fn remove_what_is_of_node(all: &Resources, node: &str) -> Result<(), ResourceError> {
    for kind in [Kind::WorkloadEndpoint, Kind::BgpPeer, Kind::HostEndpoint] {
        for item in all.list(kind, None).await?.items {
            if item.value["spec"]["node"] == node {
                gone(all.delete(&item.key, None).await.map(|_| ()))?;
            }
        }
    }
    for kind in [Kind::FelixConfiguration, Kind::BgpConfiguration] {
        if let Ok(key) = ResourceKey::new(kind, None, &format!("node.{node}")) {
            gone(all.delete(&key, None).await.map(|_| ()))?;
        }
    }
    Ok(())
}

/// Somebody else may have deleted it.
fn gone(deleted: Result<(), ResourceError>) -> Result<(), ResourceError> {
    match deleted {
        Err(ResourceError::Missing(_)) => Ok(()),
        other => other,
    }
}
