//! A registry in a directory, as cargo reads one in place of crates.io: a `.crate` file for each
//! package of `Cargo.lock`, and an index with what each depends on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// What cargo knows of the workspace and of all that it depends on.
#[derive(Debug, Deserialize)]
pub(super) struct Registry {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    manifest_path: PathBuf,
    source: Option<String>,
    features: BTreeMap<String, Vec<String>>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    req: String,
    kind: Option<String>,
    rename: Option<String>,
    optional: bool,
    uses_default_features: bool,
    features: Vec<String>,
    target: Option<String>,
}

impl Registry {
    /// Asks cargo, which fetches what is not there yet.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--locked"])
            .current_dir(root)
            .output()
            .context("run cargo metadata")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata: {}", error.trim());
        serde_json::from_slice(&output.stdout).context("read cargo metadata")
    }

    /// Writes the registry: the packages `own` out of `packed`, all others as cargo has fetched them.
    pub(super) fn write(&self, packed: &Path, at: &Path, own: &[String]) -> Result<()> {
        if at.exists() {
            fs::remove_dir_all(at).context("remove the former registry")?;
        }
        let mut index: BTreeMap<PathBuf, String> = BTreeMap::new();
        fs::create_dir_all(at)?;
        for package in &self.packages {
            let file = format!("{}-{}.crate", package.name, package.version);
            let from = match &package.source {
                Some(_) => package.fetched(&file),
                None if own.contains(&package.name) => Some(packed.join(&file)),
                None => None,
            };
            let Some(from) = from else { continue };
            let octets = fs::read(&from).with_context(|| from.display().to_string())?;
            let line = package.entry(&octets).to_string();
            fs::write(at.join(&file), octets)?;
            let entry = index.entry(place(&package.name)).or_default();
            *entry = format!("{entry}{line}\n");
        }
        for (place, lines) in index {
            let place = at.join("index").join(place);
            fs::create_dir_all(place.parent().unwrap_or(at))?;
            fs::write(place, lines)?;
        }
        Ok(())
    }
}

impl Package {
    /// The file that cargo has fetched: `registry/src/X/NAME-VERSION` is unpacked out of
    /// `registry/cache/X/NAME-VERSION.crate`.
    fn fetched(&self, file: &str) -> Option<PathBuf> {
        let source = self.manifest_path.parent()?.parent()?;
        let home = source.parent()?.parent()?;
        let path = home.join("cache").join(source.file_name()?).join(file);
        path.exists().then_some(path)
    }

    /// A line of the index.
    fn entry(&self, octets: &[u8]) -> Value {
        // Packages of this repository are without those of their tests. Others have them: features
        // may name them.
        let is_own = self.source.is_none();
        let used = self.dependencies.iter();
        let used = used.filter(|used| !(is_own && used.kind.as_deref() == Some("dev")));
        let checksum: String = Sha256::digest(octets)
            .iter()
            .map(|octet| format!("{octet:02x}"))
            .collect();
        json!({
            "name": self.name,
            "vers": self.version,
            "deps": used.map(Dependency::entry).collect::<Vec<_>>(),
            "cksum": checksum,
            "features": {},
            "features2": self.features,
            "yanked": false,
            "v": 2,
        })
    }
}

impl Dependency {
    fn entry(&self) -> Value {
        json!({
            "name": self.rename.as_ref().unwrap_or(&self.name),
            "package": self.rename.as_ref().map(|_| &self.name),
            "req": self.req,
            "features": self.features,
            "optional": self.optional,
            "default_features": self.uses_default_features,
            "target": self.target,
            "kind": self.kind.as_deref().unwrap_or("normal"),
            "registry": null,
        })
    }
}

/// Where a package's lines are in the index.
fn place(name: &str) -> PathBuf {
    let name = name.to_lowercase();
    let part = |from: usize, to: usize| name.get(from..to).unwrap_or_default();
    match name.len() {
        1 => PathBuf::from("1").join(&name),
        2 => PathBuf::from("2").join(&name),
        3 => PathBuf::from("3").join(part(0, 1)).join(&name),
        _ => PathBuf::from(part(0, 2)).join(part(2, 4)).join(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_laid_out_by_first_letters() {
        for (name, path) in [
            ("a", "1/a"),
            ("ab", "2/ab"),
            ("nom", "3/n/nom"),
            ("cambric-rib", "ca/mb/cambric-rib"),
        ] {
            assert_eq!(place(name), Path::new(path));
        }
    }

    #[test]
    fn renamed_dependency_keeps_its_package_name() {
        let registry: Registry = serde_json::from_value(json!({ "packages": [{
            "name": "cambric-rib", "version": "1.0.0", "manifest_path": "/r/rib/Cargo.toml",
            "source": null, "features": { "std": ["dep:serde"] },
            "dependencies": [
                { "name": "cambric-bgp-proto", "req": "^1.0.0", "kind": null, "rename": "bgp-proto",
                  "optional": false, "uses_default_features": true, "features": [], "target": null },
                { "name": "proptest", "req": "^1", "kind": "dev", "rename": null,
                  "optional": false, "uses_default_features": true, "features": [], "target": null },
            ],
        }]}))
        .expect("metadata");
        let entry = registry.packages[0].entry(b"octets");
        let deps = entry["deps"].as_array().expect("dependencies");
        assert_eq!(deps.len(), 1, "tests are not built from packages");
        assert_eq!(deps[0]["name"], "bgp-proto");
        assert_eq!(deps[0]["package"], "cambric-bgp-proto");
        assert_eq!(entry["features2"]["std"][0], "dep:serde");
        assert_eq!(entry["cksum"].as_str().map(str::len), Some(64));
    }
}
