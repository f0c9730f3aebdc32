//! A registry in a directory, as cargo reads one in place of crates.io: each package unpacked, beside
//! the checksum of its `.crate` file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::Published;

/// The directories of registries begin so.
const PREFIX: &str = "registry-";

/// The packages of one state of the sources.
#[derive(Debug)]
pub(super) struct Registry {
    directory: PathBuf,
    packages: Vec<Published>,
}

impl Registry {
    /// Unpacks the `.crate` files in `packed`.
    ///
    /// Cargo takes two packages of one version and one path for the same, and would not build the
    /// second one: the name of the directory has the checksum of all files.
    pub(super) fn unpack(packed: &Path, packages: &[Published]) -> Result<Self> {
        let mut all = Sha256::new();
        let mut files = Vec::new();
        for (name, version) in packages {
            let file = packed.join(format!("{name}-{version}.crate"));
            let octets = fs::read(&file).with_context(|| file.display().to_string())?;
            let checksum = hex(&Sha256::digest(&octets));
            all.update(&checksum);
            files.push((file, checksum));
        }
        let name = hex(&all.finalize()).chars().take(16).collect::<String>();
        let directory = packed.join(format!("{PREFIX}{name}"));
        remove(packed)?;
        fs::create_dir(&directory)?;
        for (file, checksum) in files {
            let unpacked = unpack(&file, &directory)?;
            let checksum = json!({ "package": checksum, "files": {} });
            fs::write(unpacked.join(".cargo-checksum.json"), checksum.to_string())?;
        }
        Ok(Self {
            directory,
            packages: packages.to_vec(),
        })
    }

    /// Returns the configuration with which cargo takes the packages of crates.io that have these names
    /// from this registry.
    pub(super) fn config(&self) -> String {
        // Never asked: the directory replaces it.
        let index = "https://packaged.invalid/index";
        let directory = self.directory.display().to_string();
        let patches = self.packages.iter().map(|(name, version)| {
            format!("{name} = {{ version = \"={version}\", registry = \"packaged\" }}\n")
        });
        format!(
            "[registries.packaged]\nindex = \"{index}\"\n\n[source.packaged]\nregistry = \"{index}\"\n\
             replace-with = \"unpacked\"\n\n[source.unpacked]\ndirectory = {directory:?}\n\n\
             [patch.crates-io]\n{}",
            patches.collect::<String>()
        )
    }
}

/// Removes the registries of former states.
fn remove(packed: &Path) -> Result<()> {
    for entry in fs::read_dir(packed)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            fs::remove_dir_all(entry.path()).context("remove the former registry")?;
        }
    }
    Ok(())
}

/// Unpacks a file; returns the directory of its content.
fn unpack(file: &Path, directory: &Path) -> Result<PathBuf> {
    let mut command = Command::new("tar");
    command.arg("-xzf").arg(file).arg("-C").arg(directory);
    let status = command.status().context("run tar")?;
    ensure!(status.success(), "tar cannot unpack {}", file.display());
    Ok(directory.join(file.file_stem().unwrap_or_default()))
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_names_each_package_in_its_version() {
        let registry = Registry {
            directory: PathBuf::from("/r/registry-1"),
            packages: vec![("cambric-rib".to_owned(), "1.2.3".to_owned())],
        };
        let config: toml::Table = registry.config().parse().expect("TOML");
        let patch = &config["patch"]["crates-io"]["cambric-rib"];
        assert_eq!(patch["version"].as_str(), Some("=1.2.3"));
        assert_eq!(patch["registry"].as_str(), Some("packaged"));
        let source = &config["source"]["unpacked"]["directory"];
        assert_eq!(source.as_str(), Some("/r/registry-1"));
    }

    #[test]
    fn changed_package_is_unpacked_to_another_directory() {
        let packed = std::env::temp_dir().join(format!("registry-of-{}", std::process::id()));
        let content = packed.join("one-1.0.0");
        fs::create_dir_all(&content).expect("a directory");
        let packages = [("one".to_owned(), "1.0.0".to_owned())];
        let unpack = |text: &str| {
            fs::write(content.join("lib.rs"), text).expect("a file");
            let mut tar = Command::new("tar");
            tar.args(["-czf", "one-1.0.0.crate", "one-1.0.0"]);
            assert!(tar.current_dir(&packed).status().expect("tar").success());
            Registry::unpack(&packed, &packages).expect("unpacked")
        };
        let (first, second) = (unpack("a").directory, unpack("b").directory);
        assert_ne!(first, second);
        assert!(!first.exists(), "the former registry is removed");
        let unpacked = second.join("one-1.0.0");
        let text = fs::read_to_string(unpacked.join("lib.rs")).expect("its content");
        assert_eq!(text, "b");
        assert!(unpacked.join(".cargo-checksum.json").exists());
        fs::remove_dir_all(&packed).expect("removed");
    }
}
