//! `make docs`: the documentation as a searchable site, built with mdBook in `target/docs`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::tidy::{files, pages};

/// The directory of the site, below the root.
const DIRECTORY: &str = "target/docs";

/// The directory of tools that this program installs, below the root.
const TOOLS: &str = "target/tools";

/// The version of mdBook that is installed if there is none.
const MDBOOK: &str = "0.5.4";

/// The configuration of mdBook. Without preprocessors, README.md keeps its name.
const BOOK: &str = "[book]
title = \"Cambric\"
language = \"en\"
src = \"pages\"

[build]
build-dir = \"html\"
create-missing = false
use-default-preprocessors = false

[output.html]
no-section-label = true
input-404 = \"\"

[output.html.fold]
enable = true
level = 1
";

/// The built pages, by their paths.
type Pages = BTreeMap<PathBuf, String>;

/// Builds the site, and checks its links.
///
/// # Errors
/// mdBook is missing and cannot be installed, or fails.
pub fn build(root: &Path) -> Result<bool> {
    let mdbook = mdbook(root)?;
    let directory = root.join(DIRECTORY);
    write_pages(root, &directory)?;
    let status = Command::new(mdbook).arg("build").arg(&directory).status();
    ensure!(status.context("mdbook")?.success(), "mdbook build failed");
    let site = directory.join("html");
    let mut pages = Pages::new();
    read_pages(&site, Path::new(""), &mut pages)?;
    let dead = dead_links(&pages, |path| site.join(path).is_file());
    for link in &dead {
        eprintln!("{link}");
    }
    println!("{DIRECTORY}/html/index.html");
    Ok(dead.is_empty())
}

/// Returns the program, which is installed if it is missing.
fn mdbook(root: &Path) -> Result<PathBuf> {
    let tools = root.join(TOOLS);
    let own = tools.join("bin/mdbook");
    for program in [PathBuf::from("mdbook"), own.clone()] {
        let version = Command::new(&program).arg("--version").output();
        if version.is_ok_and(|output| output.status.success()) {
            return Ok(program);
        }
    }
    println!("mdbook is missing: installing it in {TOOLS}");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["install", "mdbook", "--locked", "--version", MDBOOK])
        .args(["--no-default-features", "--features", "search"])
        .arg("--root")
        .arg(&tools)
        .status();
    if !status.is_ok_and(|status| status.success()) {
        bail!(
            "mdbook is missing and could not be installed: `cargo install mdbook` needs a package registry"
        );
    }
    Ok(own)
}

/// Writes the sources of the site: all pages at their places, the files beside them, the table of
/// contents, and the configuration.
fn write_pages(root: &Path, directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let files = files::tracked(root)?;
    let sources = directory.join("pages");
    let copied = files.iter();
    for file in copied.filter(|file| pages::is_page(file) || pages::is_attached(&file.path)) {
        write(&sources.join(&file.path), &file.text)?;
    }
    write(&sources.join("SUMMARY.md"), &pages::summary(&files))?;
    write(&directory.join("book.toml"), BOOK)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let parent = path.parent().context("a file without a directory")?;
    std::fs::create_dir_all(parent).context("creating a directory")?;
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// Returns the links of pages of HTML that lead to no page, file or heading.
fn dead_links(pages: &Pages, is_file: impl Fn(&Path) -> bool) -> BTreeSet<String> {
    let mut dead = BTreeSet::new();
    for (path, text) in pages {
        let links = attributes(text, "href").chain(attributes(text, "src"));
        for link in links.filter(|link| !link.contains(':')) {
            let (target, heading) = target(path, link);
            let leads = match (pages.get(&target), heading) {
                (Some(_), "") => true,
                (Some(text), heading) => attributes(text, "id").any(|id| id == heading),
                (None, _) => is_file(&target),
            };
            if !leads {
                dead.insert(format!("{}: `{link}` leads nowhere", path.display()));
            }
        }
    }
    dead
}

/// Returns the file and the heading of a link.
fn target<'l>(from: &Path, link: &'l str) -> (PathBuf, &'l str) {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    if path.is_empty() {
        return (from.to_owned(), heading);
    }
    let mut target = from.parent().map(PathBuf::from).unwrap_or_default();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                target.pop();
            }
            Component::Normal(name) => target.push(name),
            _ => {}
        }
    }
    (target, heading)
}

/// Returns the values of an attribute in HTML.
fn attributes<'t>(text: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    let start = format!(" {name}=\"");
    let ends: Vec<&str> = text.split(start.as_str()).skip(1).collect();
    ends.into_iter()
        .filter_map(|rest| Some(rest.split_once('"')?.0))
}

/// Reads all pages of HTML below a directory.
fn read_pages(site: &Path, below: &Path, pages: &mut Pages) -> Result<()> {
    for entry in std::fs::read_dir(site.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read_pages(site, &path, pages)?;
        } else if path.extension() == Some("html".as_ref()) {
            pages.insert(path, std::fs::read_to_string(entry.path())?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_of_a_site_are_found() {
        let a = r##"<a href="b/c.html#d"> <a href="#none"> <a href="https://e.org">"##;
        let c = r##"<p id="d"> <img src="../p.svg"> <a href="gone.html">"##;
        let pages = [("a.html", a), ("b/c.html", c)];
        let pages = pages.map(|(path, text)| (PathBuf::from(path), text.to_owned()));
        let dead = dead_links(&pages.into(), |path| path == Path::new("p.svg"));
        let dead: Vec<_> = dead.into_iter().collect();
        let found = [
            "a.html: `#none` leads nowhere",
            "b/c.html: `gone.html` leads nowhere",
        ];
        assert_eq!(dead, found);
    }
}
