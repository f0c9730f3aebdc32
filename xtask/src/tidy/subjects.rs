//! Subjects of commits: `area: verb object`, short and in plain words.
//!
//! Only commits that no remote has are checked, because a published commit cannot be corrected. In a
//! repository without remotes, these are the last ones. So the result in a fresh clone does not depend
//! on its history.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use super::first::is_banned;
use super::{Finding, plain, prose};

/// Characters of a subject.
const LENGTH_MAX: usize = 72;

/// Commits that are checked, the latest ones.
const COMMITS_MAX: usize = 50;

/// Commits of earlier authors' dates are not checked: 2026-11-28 04:30 UTC, in seconds.
const SINCE: u64 = 1_795_840_200;

/// First words that end as other forms do, and are imperatives.
const IMPERATIVES: &[&str] = &["bring", "embed", "feed", "focus", "need", "seed", "speed"];

/// Checks the commits of the repository at `root`. Sources without git have none.
///
/// # Errors
/// `git` fails.
pub fn check(root: &Path) -> anyhow::Result<Vec<Finding>> {
    if !root.join(".git").exists() {
        return Ok(Vec::new());
    }
    let remotes = git(root, &["for-each-ref", "--count=1", "refs/remotes"])?;
    let count = format!("--max-count={COMMITS_MAX}");
    let mut arguments = vec!["log", "--no-merges", "--format=%at %h %s", &count, "HEAD"];
    if !remotes.is_empty() {
        arguments.extend(["--not", "--remotes"]);
    }
    let log = git(root, &arguments)?;
    Ok(log.lines().filter_map(check_line).collect())
}

fn git(root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*"]);
    let output = git.args(arguments).current_dir(root).output();
    let output = output.context("run git")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("git {}: {}", arguments.join(" "), error.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Checks a commit: the author's date in seconds, the abbreviated name, and the subject.
pub(super) fn check_line(line: &str) -> Option<Finding> {
    let (date, rest) = line.split_once(' ')?;
    let (name, subject) = rest.split_once(' ').unwrap_or((rest, ""));
    if date.parse().is_ok_and(|date: u64| date < SINCE) {
        return None;
    }
    let text = format!("subject `{subject}`: {}", mistake(subject)?);
    Some(Finding::file(format!("commit {name}"), text))
}

/// Returns the mistake of a subject.
fn mistake(subject: &str) -> Option<String> {
    let length = subject.chars().count();
    if length > LENGTH_MAX {
        return Some(format!("{length} characters, at most {LENGTH_MAX}"));
    }
    let Some((areas, verb)) = subject.split_once(": ") else {
        return Some("begin it with `area: `".into());
    };
    let in_area = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_./".contains(c);
    let is_area = |area: &str| !area.is_empty() && area.chars().all(in_area);
    if !areas.split(", ").all(is_area) {
        return Some("an area is the name of a crate or directory".into());
    }
    let first = verb.split(' ').next().unwrap_or_default();
    if !is_imperative(first) {
        return Some(format!("`{first}`: write a verb in the imperative"));
    }
    let word = plain::unclear(&prose::page(verb))?;
    Some(format!("`{word}`: replace it"))
}

/// Returns whether a word may be an imperative: it is in lower case and in no other form of a verb.
fn is_imperative(word: &str) -> bool {
    let is_other = word.ends_with("ing")
        || word.ends_with("ed")
        || (word.ends_with('s') && !word.ends_with("ss"));
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && !is_banned(word)
        && (!is_other || IMPERATIVES.contains(&word))
}
