//! The pages of the documentation: their order, and links that also work on the built site.

use std::path::Path;

use super::Finding;
use super::files::File;
use super::links::{links, resolved};

/// The index of the operator's pages, which decides their order on the site.
const OPERATE: &str = "docs/operate/README.md";

/// The pages of the project, in their order on the site.
const PROJECT: &[&str] = &[
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "RELEASING.md",
    "SECURITY.md",
    "docs/numbers.md",
    "docs/dependencies.md",
];

/// Checks that every page has a title and a place on the site, and leads only to other parts of it.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let summary = summary(files);
    for page in files.iter().filter(|file| is_page(file)) {
        if title(page).is_none() {
            findings.push(Finding::file(&page.path, "has no title"));
        }
        let place = format!("({})", page.path.display());
        match summary.matches(&place).count() {
            1 => {}
            0 => findings.push(Finding::file(
                &page.path,
                format!("is not listed in {OPERATE}"),
            )),
            _ => findings.push(Finding::file(
                &page.path,
                format!("is listed twice in {OPERATE}"),
            )),
        }
        for (index, line) in page.text.lines().enumerate() {
            let away = links(line).filter(|link| !stays(files, page, link));
            findings.extend(away.map(|link| {
                let text = format!("`{link}` leads to no page and to no file of docs");
                Finding::line(&page.path, index + 1, text)
            }));
        }
    }
    findings
}

/// Returns the table of contents, as mdBook reads it.
pub fn summary(files: &[File]) -> String {
    let page = |path: &str| files.iter().find(|file| file.path == Path::new(path));
    let entry = |file: &File| {
        let name = title(file).unwrap_or_default().replace('`', "");
        format!("- [{name}]({})\n", file.path.display())
    };
    let mut text = "[Cambric](README.md)\n\n# Operator's guide\n\n".to_owned();
    if let Some(index) = page(OPERATE) {
        text.push_str(&entry(index));
        text.push_str(&operate(index, files, entry));
    }
    text.push_str("\n# Project\n\n");
    text.extend(PROJECT.iter().filter_map(|path| page(path)).map(entry));
    for (part, is_in) in [
        ("Design", is_design as fn(&File) -> bool),
        ("Crates", is_crate),
    ] {
        text.push_str(&format!("\n# {part}\n\n"));
        let mut entries: Vec<String> = files.iter().filter(|file| is_in(file)).map(entry).collect();
        entries.sort();
        text.extend(entries);
    }
    text
}

/// Returns the entries of the index: each table is a chapter, and its first heading the name.
fn operate(index: &File, files: &[File], entry: impl Fn(&File) -> String) -> String {
    let (mut text, mut is_head) = (String::new(), true);
    for line in index.text.lines() {
        if !line.starts_with('|') {
            is_head = true;
            continue;
        }
        if std::mem::take(&mut is_head) {
            let name = line.split('|').nth(1).unwrap_or_default().trim();
            let mut letters = name.chars();
            let first = letters.next().into_iter().flat_map(char::to_uppercase);
            let name: String = first.chain(letters).collect();
            text.push_str(&format!("- [{name}]()\n"));
        }
        for link in links(line) {
            let path = resolved(index, link);
            let page = files.iter().find(|file| file.path == path);
            text.extend(page.map(|page| format!("  {}", entry(page))));
        }
    }
    text
}

/// Returns whether a file is a page of the site.
pub fn is_page(file: &File) -> bool {
    let is_top = file.path.iter().count() == 1;
    let is_docs = file.path.starts_with("docs") && !file.path.starts_with("docs/api");
    file.is_markdown() && (is_top || is_docs || is_crate(file))
}

fn is_design(file: &File) -> bool {
    file.is_markdown() && file.path.starts_with("docs/design")
}

/// Returns whether a file is the front page of a crate.
fn is_crate(file: &File) -> bool {
    file.path.ends_with("README.md") && file.path.iter().count() == 2
}

/// Returns the title of a page.
fn title(page: &File) -> Option<&str> {
    page.text.lines().find_map(|line| line.strip_prefix("# "))
}

/// Returns whether a link of a page leads to another page, to a heading, or to a file of `docs`.
fn stays(files: &[File], page: &File, link: &str) -> bool {
    let path = link.split('#').next().unwrap_or_default();
    let target = match path {
        "" => return true,
        path => resolved(page, path),
    };
    let found = files.iter().find(|file| file.path == target);
    found.is_some_and(|file| is_page(file) || is_attached(&file.path))
}

/// Returns whether a file is copied to the site beside the pages.
pub fn is_attached(path: &Path) -> bool {
    let is_text = path.extension() == Some("md".as_ref());
    path.starts_with("docs") && !path.starts_with("docs/api") && !is_text
}
