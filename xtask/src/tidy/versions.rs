//! One version for all members, and one oldest compiler.
//!
//! Both are in `[workspace.package]`. Cargo has no way to take the version of a path dependency from
//! there, and the examples are a workspace of their own: their copies are compared here.

use std::path::Path;

use anyhow::Result;
use serde::Deserialize;

use super::Finding;
use super::files::File;
use super::metadata::Workspace;

/// The manifest of the workspace.
const MANIFEST: &str = "Cargo.toml";

/// The manifest of the examples.
const EXAMPLES: &str = "examples/Cargo.toml";

/// The changes of each release.
const CHANGELOG: &str = "CHANGELOG.md";

/// The parts of a release, as <https://keepachangelog.com> has them.
const PARTS: &[&str] = &[
    "Added",
    "Changed",
    "Deprecated",
    "Removed",
    "Fixed",
    "Security",
];

/// The oldest compiler stands in pages between these words.
const SENTENCE: (&str, &str) = ("Rust ", " or later");

/// The values that all members have.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Common {
    version: String,
    rust_version: String,
}

/// Checks the manifests and pages.
pub fn check(workspace: &Workspace, files: &[File]) -> Vec<Finding> {
    let common = match common(files) {
        Ok(common) => common,
        Err(error) => return vec![Finding::file(MANIFEST, error.to_string())],
    };
    let mut findings = members(workspace, &common);
    findings.extend(examples(files, &common));
    findings.extend(changelog(text(files, CHANGELOG), &common.version));
    let pages = files.iter().filter(|file| file.is_markdown());
    findings.extend(pages.flat_map(|page| compilers(page, &common)));
    findings
}

/// Compares the compiler of this machine with the oldest one that the manifests promise. Returns a remark
/// if this one is newer: no run with it shows that the promise holds.
///
/// # Errors
///
/// The manifest is invalid, or the compiler cannot be run.
pub fn newer_compiler(files: &[File]) -> Result<Option<String>> {
    let (oldest, version) = (common(files)?.rust_version, super::compiler::version()?);
    Ok((!is_release_of(&version, &oldest)).then(|| {
        format!("{MANIFEST} promises Rust {oldest}, and this is Rust {version}: not tested with the former")
    }))
}

/// Returns whether `version`, such as 1.95.2, is a release of `minor`, such as 1.95.
fn is_release_of(version: &str, minor: &str) -> bool {
    let rest = version.strip_prefix(minor);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn common(files: &[File]) -> Result<Common> {
    #[derive(Deserialize)]
    struct Manifest {
        workspace: Root,
    }
    #[derive(Deserialize)]
    struct Root {
        package: Common,
    }
    let manifest: Manifest = toml::from_str(text(files, MANIFEST))?;
    Ok(manifest.workspace.package)
}

fn text<'f>(files: &'f [File], path: &str) -> &'f str {
    let file = files.iter().find(|file| file.path == Path::new(path));
    file.map_or("", |file| &file.text)
}

fn members(workspace: &Workspace, common: &Common) -> Vec<Finding> {
    let mut findings = Vec::new();
    let required = format!("^{}", common.version);
    for (directory, package) in &workspace.packages {
        let manifest = format!("{directory}/{MANIFEST}");
        if package.version != common.version {
            findings.push(Finding::file(&manifest, "write `version.workspace = true`"));
        }
        if package.rust_version.as_ref() != Some(&common.rust_version) {
            let text = "write `rust-version.workspace = true`";
            findings.push(Finding::file(&manifest, text));
        }
        for (name, version) in &package.required {
            if *version != required {
                let text = format!("{directory} requires {name} {version}, not {required}");
                findings.push(Finding::file(MANIFEST, text));
            }
        }
    }
    findings
}

fn examples(files: &[File], common: &Common) -> Vec<Finding> {
    #[derive(Deserialize)]
    struct Manifest {
        package: Common,
        dependencies: Dependencies,
    }
    #[derive(Deserialize)]
    struct Dependencies {
        cambric: Dependency,
    }
    #[derive(Deserialize)]
    struct Dependency {
        version: String,
    }
    let manifest: Manifest = match toml::from_str(text(files, EXAMPLES)) {
        Ok(manifest) => manifest,
        Err(error) => return vec![Finding::file(EXAMPLES, error.to_string())],
    };
    let mut findings = Vec::new();
    for (what, found, wanted) in [
        ("version", &manifest.package.version, &common.version),
        (
            "rust-version",
            &manifest.package.rust_version,
            &common.rust_version,
        ),
        (
            "the version of `cambric`",
            &manifest.dependencies.cambric.version,
            &common.version,
        ),
    ] {
        if found != wanted {
            let text = format!("{what} is {found}, in the workspace {wanted}");
            findings.push(Finding::file(EXAMPLES, text));
        }
    }
    findings
}

/// Checks that the first release is this version, and that each part of a release has a known name.
fn changelog(text: &str, version: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut releases = text.lines().filter_map(|line| line.strip_prefix("## "));
    let first = releases.next().unwrap_or_default();
    if first.split(',').next() != Some(version) {
        let text = format!("begin the first section with {version}, the version of the workspace");
        findings.push(Finding::file(CHANGELOG, text));
    }
    for (index, line) in text.lines().enumerate() {
        if let Some(part) = line.strip_prefix("### ")
            && !PARTS.contains(&part)
        {
            let text = format!("{part} is no part of a release: {}", PARTS.join(", "));
            findings.push(Finding::line(CHANGELOG, index + 1, text));
        }
    }
    findings
}

/// Checks the compilers that a page names as the oldest one.
fn compilers(page: &File, common: &Common) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        let named = line.split(SENTENCE.0).skip(1);
        let named = named.filter_map(|rest| rest.split_once(SENTENCE.1));
        for (version, _) in named.filter(|(version, _)| *version != common.rust_version) {
            let text = format!(
                "Rust {version} is named, `rust-version` is {}",
                common.rust_version
            );
            findings.push(Finding::line(&page.path, index + 1, text));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::metadata::Package;
    use super::*;

    fn files(manifest: &str, examples: &str) -> Vec<File> {
        let page = "Rust 1.94 or later.\nRust 1.95 or later.\n";
        vec![
            File::new(MANIFEST, manifest),
            File::new(EXAMPLES, examples),
            File::new("rib/README.md", page),
            File::new(CHANGELOG, "## 0.2.0, not yet released\n"),
        ]
    }

    const ROOT: &str = "[workspace.package]\nversion = \"0.2.0\"\nrust-version = \"1.95\"\n";

    #[test]
    fn other_versions_are_found() {
        let examples = "[package]\nversion = \"0.1.0\"\nrust-version = \"1.95\"\n\
                        [dependencies]\ncambric = { version = \"0.1.0\" }\n";
        let package = Package {
            version: "0.1.0".to_owned(),
            rust_version: Some("1.94".to_owned()),
            required: [("cambric-bgp-proto".to_owned(), "^0.1.0".to_owned())].into(),
            ..Package::default()
        };
        let workspace = Workspace {
            packages: [("rib".to_owned(), package)].into(),
        };
        let found = check(&workspace, &files(ROOT, examples));
        let found: Vec<_> = found.iter().map(Finding::to_string).collect();
        assert_eq!(
            found,
            [
                "rib/Cargo.toml: write `version.workspace = true`",
                "rib/Cargo.toml: write `rust-version.workspace = true`",
                "Cargo.toml: rib requires cambric-bgp-proto ^0.1.0, not ^0.2.0",
                "examples/Cargo.toml: version is 0.1.0, in the workspace 0.2.0",
                "examples/Cargo.toml: the version of `cambric` is 0.1.0, in the workspace 0.2.0",
                "rib/README.md:1: Rust 1.94 is named, `rust-version` is 1.95",
            ]
        );
    }

    #[test]
    fn changelog_with_other_version_or_part_is_found() {
        let text =
            "# Changelog\n\n## 0.2.0, not yet released\n\n### Fixed\n\n## 0.1.0\n\n### News\n";
        let found = changelog(text, "0.2.0");
        let found: Vec<_> = found.iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("CHANGELOG.md:9: News"), "{found:?}");
        assert_eq!(changelog("## 0.1.0\n", "0.2.0").len(), 1);
        assert_eq!(changelog("", "0.2.0").len(), 1);
    }

    #[test]
    fn missing_manifest_is_found() {
        let found = check(&Workspace::default(), &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        let found = check(&Workspace::default(), &[File::new(MANIFEST, ROOT)]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn compiler_newer_than_promised_is_remarked() {
        let version = super::super::compiler::version().expect("a compiler");
        for (promised, is_remarked) in [(version.as_str(), false), ("1.0", true)] {
            let root = format!(
                "[workspace.package]\nversion = \"0.2.0\"\nrust-version = \"{promised}\"\n"
            );
            let remark = newer_compiler(&files(&root, "")).expect("a compiler");
            assert_eq!(remark.is_some(), is_remarked, "{remark:?}");
        }
    }

    #[test]
    fn compiler_is_compared_by_its_minor_release() {
        for (version, minor, is_one) in [
            ("1.95.0", "1.95", true),
            ("1.95.0", "1.95.0", true),
            ("1.96.0", "1.95", false),
            ("1.950.0", "1.95", false),
            ("1.95.0-nightly", "1.95", true),
        ] {
            assert_eq!(is_release_of(version, minor), is_one, "{version} {minor}");
        }
    }
}
