//! `cambric get`.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Result, bail};
use calico_model::{
    API_VERSION, BgpConfigurationSpec, DEFAULT_AS_NUMBER, DEFAULT_CONFIGURATION, Kind, ResourceKey,
};
use calico_store::resources::{Items, ResourceError, Resources};
use serde_json::{Value, json};

use super::columns::Around;
use super::connect::Connection;
use super::input::{Files, Namespace, key, kind};
use super::notes;
use super::print::{Output, Shown};

/// The arguments of `cambric get`.
#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// The kind, in any case, singular, plural or short, such as wep; several separated by commas
    #[arg(required_unless_present = "filename")]
    kind: Option<String>,
    /// The names; without names, all resources of the kind
    names: Vec<String>,
    #[command(flatten)]
    files: Files,
    /// How to print: ps, wide, yaml, json, or custom-columns=NAME,…
    #[arg(short, long, value_name = "FORMAT", default_value = "ps")]
    output: Output,
    /// The namespace [default: default]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Resources of all namespaces
    #[arg(short = 'A', long, short_alias = 'a')]
    all_namespaces: bool,
    /// Omit the fields that only this datastore sets: version, id, time, namespace
    #[arg(long)]
    export: bool,
    #[command(flatten)]
    connection: Connection,
}

/// The requested resources.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    One(ResourceKey),
    All(Kind, Option<String>),
}

/// Runs `cambric get`.
pub(crate) async fn get(args: Get) -> Result<ExitCode> {
    let wanted = args.wanted()?;
    let all = args.connection.resources().await?;
    let mut shown = Vec::new();
    let mut failed = Vec::new();
    for one in wanted {
        match fetch(&all, one).await {
            Ok(one) => shown.push(one),
            Err(error) => failed.push(error),
        }
    }
    if args.export {
        for one in &mut shown {
            one.export();
        }
    }
    let around = Around {
        cluster_as: cluster_as(&all, &shown).await,
        namespaces: args.all_namespaces || args.namespace.is_some(),
    };
    let text = args.output.print(&shown, &around)?;
    // A closed pipe ("| head") is not an error of this program.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    notes::report_shown(&args.output, &shown);
    for error in &failed {
        eprintln!("cambric: {error}");
    }
    Ok(if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Get {
    fn wanted(&self) -> Result<Vec<Wanted>> {
        let namespace = Namespace {
            named: self.namespace.clone(),
            all: self.all_namespaces,
        };
        let Some(words) = &self.kind else {
            let (documents, mut mistakes) = self.files.documents()?;
            let mut wanted = Vec::new();
            for document in documents {
                match key(&document, &namespace) {
                    Ok(key) => wanted.push(Wanted::One(key)),
                    Err(problems) => mistakes.add(&document, problems),
                }
            }
            if mistakes.is_empty() {
                return Ok(wanted);
            }
            bail!("{mistakes}");
        };
        if !self.files.filename.is_empty() {
            bail!("name a kind or files, not both");
        }
        let kinds: Vec<Kind> = words.split(',').map(kind).collect::<Result<_>>()?;
        let mut wanted = Vec::new();
        for kind in &kinds {
            let namespace = namespace.of(*kind, None)?;
            if self.names.is_empty() {
                wanted.push(Wanted::All(*kind, namespace));
            } else if kinds.len() > 1 {
                bail!("names go with one kind");
            } else if namespace.is_none() && self.all_namespaces {
                bail!("a single resource is in one namespace: leave --all-namespaces out");
            } else {
                for name in &self.names {
                    let key = ResourceKey::new(*kind, namespace.as_deref(), name)?;
                    wanted.push(Wanted::One(key));
                }
            }
        }
        Ok(wanted)
    }
}

async fn fetch(all: &Resources, wanted: Wanted) -> Result<Shown, ResourceError> {
    match wanted {
        Wanted::One(key) => {
            let item = all.get(&key).await?;
            Ok(Shown::One(key.kind(), item.value))
        }
        Wanted::All(kind, namespace) => {
            let items = all.list(kind, namespace.as_deref()).await?;
            for (key, error) in &items.unreadable {
                eprintln!("cambric: {key} is left out: {error}");
            }
            Ok(Shown::List(kind, list(kind, items)))
        }
    }
}

fn list(kind: Kind, items: Items) -> Value {
    let revision = items.revision.to_string();
    let items: Vec<Value> = items.items.into_iter().map(|item| item.value).collect();
    json!({"kind": format!("{kind}List"), "apiVersion": API_VERSION,
        "metadata": {"resourceVersion": revision}, "items": items})
}

/// Returns the AS number of nodes without one of their own, if nodes are shown.
async fn cluster_as(all: &Resources, shown: &[Shown]) -> String {
    let unknown = || "unknown".to_owned();
    if !shown.iter().any(|one| one.kind() == Kind::Node) {
        return unknown();
    }
    let Ok(key) = ResourceKey::new(Kind::BgpConfiguration, None, DEFAULT_CONFIGURATION) else {
        return unknown();
    };
    match all.get(&key).await {
        Ok(item) => serde_json::from_value::<BgpConfigurationSpec>(item.value["spec"].clone())
            .map_or_else(|_| unknown(), |spec| spec.cluster_as().to_string()),
        Err(ResourceError::Missing(_)) => DEFAULT_AS_NUMBER.to_string(),
        Err(_) => unknown(),
    }
}
