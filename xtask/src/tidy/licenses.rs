//! Licenses and sources of the packages that the workspace is built from.
//!
//! Licenses are compared with the list in `deny.toml`, which `cargo deny` reads as well. Every package of
//! `Cargo.lock` comes from crates.io, or is a member of the workspace.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::Finding;
use super::metadata::Workspace;

/// The list of licenses.
const RULES: &str = "deny.toml";

/// The packages of all platforms.
const LOCK: &str = "Cargo.lock";

/// The one registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks all packages.
///
/// # Errors
///
/// Cargo cannot be run or fails, or a file is missing or invalid.
pub fn check(root: &Path, workspace: &Workspace) -> Result<Vec<Finding>> {
    let text = |name: &str| fs::read_to_string(root.join(name)).with_context(|| name.to_owned());
    let rules: Rules = toml::from_str(&text(RULES)?).context(RULES)?;
    let lock: Lock = toml::from_str(&text(LOCK)?).context(LOCK)?;
    let mut findings = licenses(&packages(root)?, &rules.licenses.allow);
    findings.extend(sources(&lock, workspace));
    Ok(findings)
}

/// Checks the license of each package that is not of this workspace.
fn licenses(packages: &[Package], allowed: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    for package in packages.iter().filter(|package| package.source.is_some()) {
        let license = package.license.as_deref().unwrap_or_default();
        match choice(license, allowed) {
            Some(names) => used.extend(names),
            None => {
                let Package { name, version, .. } = package;
                let text = format!(
                    "{name} {version} has the license {license:?}, which the list does not allow"
                );
                findings.push(Finding::file(RULES, text));
            }
        }
    }
    let idle = allowed.iter().filter(|name| !used.contains(name.as_str()));
    findings.extend(idle.map(|name| {
        let text = format!("no package needs the license {name}: remove it from the list");
        Finding::file(RULES, text)
    }));
    findings
}

/// Checks the source of each package of the lock file.
fn sources(lock: &Lock, workspace: &Workspace) -> Vec<Finding> {
    let members = workspace.packages.values();
    let members: BTreeSet<&str> = members.map(|package| package.name.as_str()).collect();
    let wrong = |package: &&Locked| match package.source.as_deref() {
        Some(source) => source != REGISTRY,
        None => !members.contains(package.name.as_str()),
    };
    let finding = |package: &Locked| {
        let source = package.source.as_deref().unwrap_or("a directory");
        let text = format!("{} comes from {source}, not from crates.io", package.name);
        Finding::file(LOCK, text)
    };
    lock.package.iter().filter(wrong).map(finding).collect()
}

/// Returns the names of licenses with which an SPDX expression is satisfied, if all of them are allowed;
/// `None` if there is no such choice, or the expression is invalid.
fn choice<'t>(expression: &'t str, allowed: &BTreeSet<String>) -> Option<BTreeSet<&'t str>> {
    let mut reader = Reader {
        words: words(expression),
        allowed,
    };
    let choice = reader.any()?;
    reader.words.is_empty().then_some(choice)?
}

/// Splits an expression into names, operators and parentheses, the last one first. A slash is an older
/// form of `OR`.
fn words(expression: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for mut word in expression.split_whitespace() {
        while let Some(at) = word.find(['(', ')', '/']) {
            let (before, rest) = word.split_at(at);
            let (sign, rest) = rest.split_at(1);
            words.extend([before, sign].into_iter().filter(|word| !word.is_empty()));
            word = rest;
        }
        words.extend((!word.is_empty()).then_some(word));
    }
    words.reverse();
    words
}

/// Reads an expression. Each method returns `None` where it is invalid, else the choice of licenses, if
/// there is one.
struct Reader<'t, 'a> {
    words: Vec<&'t str>,
    allowed: &'a BTreeSet<String>,
}

impl<'t> Reader<'t, '_> {
    fn any(&mut self) -> Option<Option<BTreeSet<&'t str>>> {
        let mut choice = self.all()?;
        while self.eat(&["OR", "/"]) {
            let other = self.all()?;
            choice = choice.or(other);
        }
        Some(choice)
    }

    fn all(&mut self) -> Option<Option<BTreeSet<&'t str>>> {
        let mut choice = self.one()?;
        while self.eat(&["AND"]) {
            let other = self.one()?;
            choice = choice.zip(other).map(|(mut names, other)| {
                names.extend(other);
                names
            });
        }
        Some(choice)
    }

    fn one(&mut self) -> Option<Option<BTreeSet<&'t str>>> {
        let word = self.words.pop()?;
        if word == "(" {
            let choice = self.any()?;
            return self.eat(&[")"]).then_some(choice);
        }
        if ["OR", "AND", "WITH", "/", ")"].contains(&word) {
            return None;
        }
        // An exception grants more than the license alone: without its row it is not looked at.
        if self.eat(&["WITH"]) {
            self.words.pop()?;
        }
        Some(self.allowed.contains(word).then(|| BTreeSet::from([word])))
    }

    fn eat(&mut self, words: &[&str]) -> bool {
        let is_there = self.words.last().is_some_and(|last| words.contains(last));
        if is_there {
            self.words.pop();
        }
        is_there
    }
}

/// Returns the packages that this machine builds.
fn packages(root: &Path) -> Result<Vec<Package>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(["--filter-platform", &super::compiler::host()?])
        .current_dir(root)
        .output()
        .context("run cargo metadata")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("cargo metadata: {}", error.trim());
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    Ok(metadata.packages)
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    source: Option<String>,
    license: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Rules {
    licenses: Licenses,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed() -> BTreeSet<String> {
        ["MIT", "ISC"].map(str::to_owned).into()
    }

    #[test]
    fn license_is_allowed_if_a_choice_of_it_is() {
        let allowed = allowed();
        for (expression, names) in [
            ("MIT", Some(&["MIT"][..])),
            ("GPL-3.0", None),
            ("Apache-2.0 OR MIT", Some(&["MIT"])),
            ("Apache-2.0/MIT", Some(&["MIT"])),
            ("MIT AND ISC", Some(&["ISC", "MIT"])),
            ("MIT AND GPL-3.0", None),
            ("GPL-3.0 OR MIT AND ISC", Some(&["ISC", "MIT"])),
            ("(MIT OR GPL-3.0) AND GPL-3.0", None),
            ("(GPL-3.0 OR MIT) AND ISC", Some(&["ISC", "MIT"])),
            ("MIT WITH LLVM-exception", Some(&["MIT"])),
            ("GPL-3.0 WITH LLVM-exception OR MIT", Some(&["MIT"])),
        ] {
            let found = choice(expression, &allowed).map(Vec::from_iter);
            assert_eq!(found.as_deref(), names, "{expression}");
        }
    }

    #[test]
    fn invalid_expression_is_not_allowed() {
        for expression in [
            "", "MIT OR", "OR MIT", "MIT MIT", "(MIT", "MIT)", "MIT WITH", "()",
        ] {
            assert_eq!(choice(expression, &allowed()), None, "{expression}");
        }
    }

    #[test]
    fn forbidden_license_and_idle_row_are_found() {
        let package = |name: &str, license: Option<&str>, source: Option<&str>| Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            source: source.map(str::to_owned),
            license: license.map(str::to_owned),
        };
        let packages = [
            package("good", Some("MIT"), Some(REGISTRY)),
            package("bad", Some("GPL-3.0"), Some(REGISTRY)),
            package("unnamed", None, Some(REGISTRY)),
            package("own", None, None),
        ];
        let found = licenses(&packages, &allowed());
        let found: Vec<_> = found.iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("bad 1.0.0 has the license \"GPL-3.0\""));
        assert!(found[1].contains("unnamed 1.0.0 has the license \"\""));
        assert!(found[2].contains("no package needs the license ISC"));
    }

    #[test]
    fn package_from_elsewhere_is_found() {
        let lock: Lock = toml::from_str(&format!(
            "[[package]]\nname = \"good\"\nsource = \"{REGISTRY}\"\n\
             [[package]]\nname = \"fork\"\nsource = \"git+https://example.org/fork\"\n\
             [[package]]\nname = \"outside\"\n\
             [[package]]\nname = \"member\"\n"
        ))
        .expect("a lock file");
        let member = super::super::metadata::Package {
            name: "member".to_owned(),
            ..Default::default()
        };
        let workspace = Workspace {
            packages: [("member".to_owned(), member)].into(),
        };
        let found = sources(&lock, &workspace);
        let found: Vec<_> = found.iter().map(|finding| finding.text.as_str()).collect();
        assert_eq!(
            found,
            [
                "fork comes from git+https://example.org/fork, not from crates.io",
                "outside comes from a directory, not from crates.io"
            ]
        );
    }
}
