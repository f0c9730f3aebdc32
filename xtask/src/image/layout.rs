//! The layout of an image: blobs named by their digests, and an index.
//! <https://github.com/opencontainers/image-spec>

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// The types of the parts.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// The time of everything in the image.
const TIME: &str = "1970-01-01T00:00:00Z";

/// An entry of the root file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A file: its content and its mode.
    File(Vec<u8>, u32),
}

/// An image of one layer.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    entries: BTreeMap<String, Entry>,
}

/// An image as an archive.
#[derive(Debug)]
pub struct Archive {
    /// The octets of the tar file.
    pub octets: Vec<u8>,
    /// The digest of the manifest: that of the image.
    pub digest: String,
}

impl Image {
    /// Returns an empty image with this name and tag.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            entries: BTreeMap::new(),
        }
    }

    /// Adds a directory, with those above it.
    #[must_use]
    pub fn directory(mut self, place: &str) -> Self {
        let parts = place
            .match_indices('/')
            .map(|(at, _)| at)
            .chain([place.len()]);
        for end in parts {
            let above = place.get(..end).unwrap_or_default().to_owned();
            self.entries.entry(above).or_insert(Entry::Directory);
        }
        self
    }

    /// Adds a file, with the directories above it.
    #[must_use]
    pub fn file(mut self, place: &str, octets: &[u8], mode: u32) -> Self {
        if let Some((above, _)) = place.rsplit_once('/') {
            self = self.directory(above);
        }
        let entry = Entry::File(octets.to_vec(), mode);
        self.entries.insert(place.to_owned(), entry);
        self
    }

    /// Returns the entries by their places.
    pub const fn entries(&self) -> &BTreeMap<String, Entry> {
        &self.entries
    }

    /// Returns the image as an archive.
    ///
    /// # Errors
    /// A path is too long.
    pub fn archive(&self) -> Result<Archive> {
        let layer = self.layer()?;
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = json!({
            "created": TIME, "architecture": architecture, "os": "linux",
            "config": {"Env": ["PATH=/usr/bin:/opt/cni/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
            "history": [{"created": TIME, "created_by": "xtask image"}],
        });
        let config = config.to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config), "layers": [descriptor(LAYER, &layer)],
        });
        let manifest = manifest.to_string().into_bytes();
        let mut listed = descriptor(MANIFEST, &manifest);
        // Two clients, two names of the same thing.
        listed["annotations"] = json!({
            "org.opencontainers.image.ref.name": self.name,
            "io.containerd.image.name": self.name,
        });
        let index = json!({"schemaVersion": 2, "manifests": [listed]});
        let mut files = Self::new("")
            .file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644)
            .file("index.json", index.to_string().as_bytes(), 0o644);
        for blob in [&layer, &config, &manifest] {
            files = files.file(&place(blob), blob, 0o644);
        }
        Ok(Archive {
            octets: files.layer()?,
            digest: digest(&manifest),
        })
    }

    /// Returns the entries as a tar file, in the order of their names.
    fn layer(&self) -> Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        for (place, entry) in &self.entries {
            let mut header = Header::new_gnu();
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            let (kind, octets, mode) = match entry {
                Entry::Directory => (EntryType::Directory, &[][..], 0o755),
                Entry::File(octets, mode) => (EntryType::Regular, octets.as_slice(), *mode),
            };
            header.set_entry_type(kind);
            header.set_size(octets.len() as u64);
            header.set_mode(mode);
            let place = match entry {
                Entry::Directory => format!("{place}/"),
                Entry::File(..) => place.clone(),
            };
            tar.append_data(&mut header, &place, octets)
                .with_context(|| place.clone())?;
        }
        Ok(tar.into_inner()?)
    }
}

fn descriptor(kind: &str, octets: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": digest(octets), "size": octets.len()})
}

fn digest(octets: &[u8]) -> String {
    let digest = Sha256::digest(octets);
    let digits: String = digest.iter().map(|octet| format!("{octet:02x}")).collect();
    format!("sha256:{digits}")
}

fn place(blob: &[u8]) -> String {
    format!("blobs/{}", digest(blob).replace(':', "/"))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().expect("entries");
        let files = entries.map(|entry| {
            let mut entry = entry.expect("an entry");
            assert_eq!(entry.header().mtime().ok(), Some(0));
            let path = entry.path().expect("a path").display().to_string();
            let mut octets = Vec::new();
            entry.read_to_end(&mut octets).expect("octets");
            (path, octets)
        });
        files.collect()
    }

    fn json_at(files: &BTreeMap<String, Vec<u8>>, place: &str) -> Value {
        serde_json::from_slice(&files[place]).expect("JSON")
    }

    fn blob(descriptor: &Value) -> String {
        let digest = descriptor["digest"].as_str().expect("a digest");
        format!("blobs/{}", digest.replace(':', "/"))
    }

    #[test]
    fn two_builds_of_the_same_files_have_one_digest() {
        let one = Image::new("a:b")
            .file("usr/bin/x", b"x", 0o755)
            .file("etc/y", b"y", 0o644);
        let two = Image::new("a:b")
            .file("etc/y", b"y", 0o644)
            .file("usr/bin/x", b"x", 0o755);
        let (one, two) = (one.archive().unwrap(), two.archive().unwrap());
        assert!(one.octets == two.octets);
        assert_eq!(one.digest, two.digest);
        let other = Image::new("a:b")
            .file("usr/bin/x", b"z", 0o755)
            .file("etc/y", b"y", 0o644);
        assert_ne!(other.archive().unwrap().digest, one.digest);
    }

    #[test]
    fn each_blob_has_the_digest_of_its_name() {
        let image = Image::new("localhost/cambric:latest").file("usr/bin/x", b"x", 0o755);
        let archive = image.archive().unwrap();
        let blobs = files(&archive.octets);
        let index = json_at(&blobs, "index.json");
        let listed = &index["manifests"][0];
        assert_eq!(listed["digest"], archive.digest);
        let manifest = json_at(&blobs, &blob(listed));
        for part in [&manifest["config"], &manifest["layers"][0], listed] {
            let octets = &blobs[&blob(part)];
            assert_eq!(part["digest"], digest(octets));
            assert_eq!(part["size"], octets.len());
        }
        let layer = files(&blobs[&blob(&manifest["layers"][0])]);
        let places: Vec<&str> = layer.keys().map(String::as_str).collect();
        assert_eq!(places, ["usr/", "usr/bin/", "usr/bin/x"]);
        let config = json_at(&blobs, &blob(&manifest["config"]));
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            manifest["layers"][0]["digest"]
        );
    }
}
