//! The shared libraries of programs, with the packages of the system that have their licenses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Library {
    /// Its file on this machine, without links.
    pub(super) file: PathBuf,
    /// Its place in the image: that under which programs find it.
    pub(super) place: String,
    /// Its package.
    pub(super) package: String,
    /// The license of the package.
    pub(super) license: PathBuf,
}

/// Returns the libraries of these programs.
pub(super) fn of<'p>(programs: impl Iterator<Item = &'p Path>) -> Result<Vec<Library>> {
    let mut places = BTreeMap::new();
    for program in programs {
        let output = output("ldd", &[&program.display().to_string()])?;
        for place in places_in(&output)? {
            let file = std::fs::canonicalize(&place).with_context(|| place.clone())?;
            places.insert(place, file);
        }
    }
    let libraries = places.into_iter().map(|(place, file)| {
        let package = package(&place, &file)?;
        let license = PathBuf::from(format!("/usr/share/doc/{package}/copyright"));
        if !license.is_file() {
            bail!(
                "{}: the license of {} is missing",
                license.display(),
                file.display()
            );
        }
        Ok(Library {
            place: place.trim_start_matches('/').to_owned(),
            package,
            license,
            file,
        })
    });
    libraries.collect()
}

/// Returns the paths in the output of ldd: behind an arrow, or alone for the loader. A program without
/// libraries has none.
fn places_in(output: &str) -> Result<Vec<String>> {
    let mut places = Vec::new();
    for line in output.lines().map(str::trim) {
        if line.contains("not found") {
            bail!("a library is missing: {line}");
        }
        let place = line.split_once("=> ").map_or(line, |(_, place)| place);
        let place = place.split(" (").next().unwrap_or_default().trim();
        if place.starts_with('/') {
            places.push(place.to_owned());
        }
    }
    Ok(places)
}

/// Returns the package of a file. Older packages have the name of a link to its directory.
fn package(place: &str, file: &Path) -> Result<String> {
    let file = file.display().to_string();
    let without_usr = file.strip_prefix("/usr").unwrap_or(&file).to_owned();
    for name in [file.as_str(), &without_usr, place] {
        if let Ok(found) = output("dpkg-query", &["--search", name])
            && let Some((package, _)) = found.split_once(": ")
        {
            let package = package.split([':', ',']).next().unwrap_or_default();
            return Ok(package.to_owned());
        }
    }
    bail!("{file}: no package has it, so its license is unknown")
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| program.to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_static = String::from_utf8_lossy(&output.stderr).contains("not a dynamic executable");
    match output.status.success() || is_static {
        true => Ok(text),
        false => bail!("{program} {}: {}", arguments.join(" "), output.status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_libraries_are_read() {
        let output = "\tlinux-vdso.so.1 (0x00007ffd)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let places = places_in(output).expect("paths");
        assert_eq!(
            places,
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
        assert!(places_in("\tlibx.so => not found\n").is_err());
        assert_eq!(places_in("\tstatically linked\n").expect("none"), [""; 0]);
    }
}
