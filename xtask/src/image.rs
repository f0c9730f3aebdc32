//! Builds a container image of the programs: an OCI layout in one tar file, without a base image.
//!
//! The image has the programs, the shared libraries that they need with their licenses, and no shell. Two
//! builds of the same files give the same octets: all times are zero, and all entries are sorted.

mod layout;
mod libraries;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

pub use layout::{Entry, Image};

/// The programs, and their directories in the image.
const PROGRAMS: [(&str, &str); 8] = [
    ("cambric", "usr/bin"),
    ("cambric-felix", "usr/bin"),
    ("cambric-bgp-client", "usr/bin"),
    ("cambric-route-reflector", "usr/bin"),
    ("cambric-bfd", "usr/bin"),
    ("cambric-kube", "usr/bin"),
    ("cambric-cni", "opt/cni/bin"),
    ("cambric-ipam", "opt/cni/bin"),
];

/// Files of the repository, and their places in the image.
const FILES: [(&str, &str); 3] = [
    ("packaging/etc/bfd.toml", "etc/cambric/bfd.toml"),
    ("LICENSE-APACHE", "usr/share/doc/cambric/LICENSE-APACHE"),
    ("LICENSE-MIT", "usr/share/doc/cambric/LICENSE-MIT"),
];

/// Small files that name resolution and the programs need.
const TEXTS: [(&str, &str); 3] = [
    ("etc/nsswitch.conf", "hosts: files dns\n"),
    ("etc/passwd", "root:x:0:0:root:/:/nonexistent\n"),
    ("etc/group", "root:x:0:\n"),
];

/// Directories for the files of a running container.
const DIRECTORIES: [&str; 7] = [
    "run",
    "tmp",
    "var/lib/calico",
    "var/lib/cambric-felix",
    "var/lib/cambric-bgp-client",
    "host/etc/cni/net.d",
    "host/opt/cni/bin",
];

/// The options of the command.
#[derive(Debug)]
struct Options {
    programs: PathBuf,
    output: PathBuf,
    name: String,
}

impl Options {
    fn of(root: &Path, arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            programs: root.join("target/release"),
            output: root.join("target/cambric-image.tar"),
            name: "localhost/cambric:latest".to_owned(),
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let value = arguments
                .next()
                .with_context(|| format!("{argument}: which?"))?;
            match argument.as_str() {
                "--programs" => options.programs = value.into(),
                "--output" => options.output = value.into(),
                "--name" => value.clone_into(&mut options.name),
                other => bail!("unknown option {other}"),
            }
        }
        Ok(options)
    }
}

/// Builds the image of the programs of a directory. Returns whether it was written.
///
/// # Errors
/// A program, a library or its license is missing.
pub fn run(root: &Path, arguments: &[String]) -> Result<bool> {
    let options = Options::of(root, arguments)?;
    let mut programs = BTreeMap::new();
    for (program, directory) in PROGRAMS {
        programs.insert(
            format!("{directory}/{program}"),
            options.programs.join(program),
        );
    }
    let image = with_libraries(&programs, &options.name)?;
    let image = FILES.iter().try_fold(image, |image, (from, to)| {
        Ok::<_, anyhow::Error>(image.file(to, &read(&root.join(from))?, 0o644))
    })?;
    let tar = image.archive()?;
    fs::write(&options.output, &tar.octets)
        .with_context(|| options.output.display().to_string())?;
    println!(
        "{}: {} octets, {}",
        options.output.display(),
        tar.octets.len(),
        tar.digest
    );
    Ok(true)
}

/// Returns an image of these programs, by their places in it, with their libraries.
///
/// # Errors
/// A program, a library or its license is missing.
pub fn with_libraries(programs: &BTreeMap<String, PathBuf>, name: &str) -> Result<Image> {
    let mut image = Image::new(name);
    for directory in DIRECTORIES {
        image = image.directory(directory);
    }
    for (place, text) in TEXTS {
        image = image.file(place, text.as_bytes(), 0o644);
    }
    for (place, program) in programs {
        image = image.file(place, &read(program)?, 0o755);
    }
    for library in libraries::of(programs.values().map(PathBuf::as_path))? {
        image = image.file(&library.place, &read(&library.file)?, 0o755);
        let license = format!("usr/share/doc/{}/copyright", library.package);
        image = image.file(&license, &read(&library.license)?, 0o644);
    }
    Ok(image)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| file.display().to_string())
}
