//! The workspace in the output of `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde::Deserialize;

/// The workspace's packages by directory name.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    /// Every member.
    pub packages: BTreeMap<String, Package>,
}

/// One member.
#[derive(Clone, Debug, Default)]
pub struct Package {
    /// Its package name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The oldest compiler that it promises to build with.
    pub rust_version: Option<String>,
    /// The versions that its manifest requires of other members, by package name.
    pub required: BTreeMap<String, String>,
    /// Its features, each with the features that it enables.
    pub features: BTreeMap<String, Vec<String>>,
    /// Dependencies of its code.
    pub normal: BTreeSet<String>,
    /// Dependencies of its tests alone.
    pub dev: BTreeSet<String>,
    /// Of `normal`, those behind a feature.
    pub optional: BTreeSet<String>,
    /// Whether it is published.
    pub is_published: bool,
    /// The address of its source, as the registry shows it.
    pub repository: Option<String>,
}

impl Workspace {
    /// Runs cargo. Needs neither network nor a build.
    ///
    /// # Errors
    ///
    /// Cargo cannot be run, fails, or its output is invalid.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .current_dir(root)
            .output()
            .context("run cargo metadata")?;
        if !output.status.success() {
            bail!(
                "cargo metadata: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Self::parse(&output.stdout)
    }

    /// Reads the JSON of `cargo metadata --no-deps`.
    ///
    /// # Errors
    ///
    /// The JSON is invalid.
    pub fn parse(json: &[u8]) -> anyhow::Result<Self> {
        let metadata: Metadata = serde_json::from_slice(json).context("read cargo metadata")?;
        let directories: BTreeMap<String, String> = metadata
            .packages
            .iter()
            .map(|package| (package.name.clone(), directory(&package.manifest_path)))
            .collect();
        let mut packages = BTreeMap::new();
        for found in metadata.packages {
            let mut package = Package {
                name: found.name,
                version: found.version,
                rust_version: found.rust_version,
                features: found.features,
                // Without a list of registries it may go to any.
                is_published: found.publish.is_none(),
                repository: found.repository,
                ..Package::default()
            };
            for dependency in found.dependencies {
                // A path without a version, as tests may have, requires `*`.
                if dependency.path.is_some() && dependency.req != "*" {
                    let (name, req) = (&dependency.name, &dependency.req);
                    package.required.insert(name.clone(), req.clone());
                }
                // Members are identified by their directory, other packages by their name.
                let name = match (&dependency.path, directories.get(&dependency.name)) {
                    (Some(_), Some(directory)) => directory.clone(),
                    _ => dependency.name,
                };
                if dependency.optional {
                    package.optional.insert(name.clone());
                }
                match dependency.kind.as_deref() {
                    Some("dev") => package.dev.insert(name),
                    _ => package.normal.insert(name),
                };
            }
            packages.insert(directory(&found.manifest_path), package);
        }
        Ok(Self { packages })
    }

    /// All members below `directory`, through code dependencies, without itself.
    pub fn members_below(&self, directory: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut open = vec![directory.to_owned()];
        while let Some(next) = open.pop() {
            let Some(package) = self.packages.get(&next) else {
                continue;
            };
            for dependency in &package.normal {
                if self.packages.contains_key(dependency) && found.insert(dependency.clone()) {
                    open.push(dependency.clone());
                }
            }
        }
        found
    }
}

fn directory(manifest: &Path) -> String {
    let name = manifest.parent().and_then(Path::file_name);
    name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    version: String,
    rust_version: Option<String>,
    manifest_path: PathBuf,
    publish: Option<Vec<String>>,
    repository: Option<String>,
    features: BTreeMap<String, Vec<String>>,
    dependencies: Vec<MetadataDependency>,
}

#[derive(Deserialize)]
struct MetadataDependency {
    name: String,
    req: String,
    kind: Option<String>,
    path: Option<PathBuf>,
    optional: bool,
}
