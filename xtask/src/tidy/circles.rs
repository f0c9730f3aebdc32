//! Finds files that import each other in a circle: to understand one of them, a reader must know
//! all.
//!
//! Each file below `src` of a crate is a module. It imports the files that define the names in its
//! `use` statements and in paths that begin with `crate`, `self` or `super`; names are followed
//! from `use` to `use` to their definition. A file below another one (`mirror/state.rs` below
//! `mirror.rs`) is part of it: a part may name the whole, and a `pub use` of a part is no import.
//! Tests are ignored. The imports form a graph of files, and a circle is a set of two or more files
//! each of which reaches all others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Finding;
use super::files::File;

/// Circles that the repository may have.
pub const CIRCLES_MAX: usize = 5;

/// An allowed circle, with its reason.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// One of its files.
    pub file: &'static str,
    /// How many files it may have.
    pub files_max: usize,
    /// Why it is not broken.
    pub reason: &'static str,
}

const fn allowed(file: &'static str, files_max: usize, reason: &'static str) -> Allowed {
    Allowed {
        file,
        files_max,
        reason,
    }
}

/// The allowed circles.
pub const ALLOWED: &[Allowed] = &[
    allowed(
        "bgp-proto/src/attr/table.rs",
        20,
        "the table names the file of every attribute, and each file uses the codes and faults \
         that the \
         table generates: a new attribute is one file and one row",
    ),
    allowed(
        "bgp-speaker/src/speaker.rs",
        9,
        "a speaker is one value; its methods are in the files of their subjects, and its fields \
         have \
         types of these files",
    ),
    allowed(
        "calico-bgp/src/own.rs",
        12,
        "a view of the datastore calls the functions of its resources, and the functions that \
         derive \
         a peer read the view",
    ),
    allowed(
        "felix/src/render/build.rs",
        13,
        "the base chains jump to the chains of each part, and the parts use the rules of the base \
         chains",
    ),
    allowed(
        "sim/src/world.rs",
        13,
        "the world has the machines, and a machine changes the world",
    ),
];

/// Compares the circles of the repository with those that are allowed.
pub fn check(files: &[File]) -> Vec<Finding> {
    findings_of(&circles(files), ALLOWED)
}

/// Compares circles with the allowed ones.
pub fn findings_of(circles: &[Circle], allowed: &[Allowed]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for circle in circles {
        let row = |row: &&Allowed| circle.contains(Path::new(row.file));
        let files_max = allowed.iter().find(row).map_or(1, |row| row.files_max);
        if circle.len() > files_max {
            let names: Vec<String> = circle.iter().map(|at| at.display().to_string()).collect();
            let text = format!(
                "{} files import each other in a circle: {}; move what they share to a file below \
                 them (allowed: xtask/src/tidy/circles.rs)",
                names.len(),
                names.join(", ")
            );
            findings.extend(circle.first().map(|first| Finding::file(first, text)));
        }
    }
    for row in allowed {
        let circle = |circle: &&Circle| circle.contains(Path::new(row.file));
        let found = circles.iter().find(circle).map_or(1, BTreeSet::len);
        if found < row.files_max {
            let text =
                format!("a circle of {found} files: lower its row in xtask/src/tidy/circles.rs");
            findings.push(Finding::file(row.file, text));
        }
    }
    findings
}

/// The files of a circle.
pub type Circle = BTreeSet<PathBuf>;

/// Finds the circles of all crates.
pub fn circles(files: &[File]) -> Vec<Circle> {
    let mut members: BTreeMap<&str, BTreeMap<Module, &File>> = BTreeMap::new();
    for file in files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test())
    {
        if let Some(module) = module_of(file) {
            members
                .entry(file.member())
                .or_default()
                .insert(module, file);
        }
    }
    members
        .values()
        .flat_map(|modules| Crate::read(modules).circles())
        .collect()
}

/// The path of a module within its crate.
type Module = Vec<String>;

/// Returns the module of a file; `None` for programs, and for files outside the library.
fn module_of(file: &File) -> Option<Module> {
    let below = file
        .path
        .strip_prefix(Path::new(file.member()).join("src"))
        .ok()?;
    let mut module: Module = below
        .with_extension("")
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    match module.last().map(String::as_str) {
        Some("main") if module.len() == 1 => return None,
        Some("lib") if module.len() == 1 => module.clear(),
        Some("mod") => drop(module.pop()),
        _ => {}
    }
    (module.first().map(String::as_str) != Some("bin")).then_some(module)
}

/// A path, and whether it is in a `pub use`.
type Import = (Vec<String>, bool);

/// A crate's modules, with the paths in each.
struct Crate<'f> {
    files: &'f BTreeMap<Module, &'f File>,
    /// The paths of the names that a module imports by `use`.
    names: BTreeMap<(Module, String), Vec<String>>,
    /// The paths in a module.
    paths: BTreeMap<&'f Module, Vec<Import>>,
}

impl<'f> Crate<'f> {
    fn read(files: &'f BTreeMap<Module, &'f File>) -> Self {
        let mut all = Self {
            files,
            names: BTreeMap::new(),
            paths: BTreeMap::new(),
        };
        for (module, file) in files {
            let mut paths = Vec::new();
            for found in named(&code(file.without_tests())) {
                paths.push((found.path.clone(), found.is_export));
                if let Some(name) = found.name {
                    all.names.insert((module.clone(), name), found.path);
                }
            }
            all.paths.insert(module, paths);
        }
        all
    }

    /// Returns the module that defines the target of a path; `None` for another crate's.
    fn definition(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut rest) = match path.split_first()? {
            (first, rest) if first == "crate" => (Module::new(), rest),
            (first, rest) if first == "self" => (from.clone(), rest),
            (first, _) if first == "super" => (from.clone(), path),
            (first, _) if self.files.contains_key(&child(from, first)) => (from.clone(), path),
            _ => return None,
        };
        while let Some((first, below)) = rest.split_first() {
            let next = child(&at, first);
            if first == "super" {
                at.pop();
            } else if self.files.contains_key(&next) {
                at = next;
            } else {
                let name = self.names.get(&(at.clone(), first.clone()));
                let path = name.filter(|_| depth < NAMES_MAX);
                let definition = path.and_then(|path| self.definition(&at, path, depth + 1));
                return Some(definition.unwrap_or(at));
            }
            rest = below;
        }
        Some(at)
    }

    /// Returns the modules that each module imports.
    fn imports(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        let of = |module: &Module, paths: &[Import]| {
            let definitions = paths.iter().filter_map(|(path, is_export)| {
                let at = self.definition(module, path, 0)?;
                let is_part = module.starts_with(&at) || *is_export && at.starts_with(module);
                (!is_part).then_some(at)
            });
            definitions.collect()
        };
        let all = self.paths.iter();
        all.map(|(module, paths)| (*module, of(module, paths)))
            .collect()
    }

    fn circles(&self) -> Vec<Circle> {
        let imports = self.imports();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> = imports
            .keys()
            .map(|from| (*from, reach(&imports, from)))
            .collect();
        let mut circles = BTreeSet::new();
        for (module, others) in &reached {
            let back =
                |other: &&Module| reached.get(*other).is_some_and(|all| all.contains(module));
            let circle: Vec<&Module> = others.iter().copied().filter(back).collect();
            if circle.len() > 1 {
                let files = circle.iter().filter_map(|module| self.files.get(*module));
                circles.insert(files.map(|file| file.path.clone()).collect::<Circle>());
            }
        }
        circles.into_iter().collect()
    }
}

/// The longest chain of `use` statements that is followed.
const NAMES_MAX: usize = 8;

fn child(module: &Module, name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// Returns all modules that are reachable from one.
fn reach<'m>(
    imports: &'m BTreeMap<&'m Module, BTreeSet<Module>>,
    from: &'m Module,
) -> BTreeSet<&'m Module> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    reached
}

/// Returns the text without comments.
fn code(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// A path in a text.
struct Named {
    path: Vec<String>,
    /// The name that it gets in a `use`.
    name: Option<String>,
    /// Whether that is a `pub use`, of any visibility.
    is_export: bool,
}

/// Returns all paths of `use` statements, and all paths in code that begin with a keyword.
fn named(text: &str) -> Vec<Named> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((before, word, after)) = next_keyword(rest) {
        let line = before.rsplit('\n').next().unwrap_or_default().trim();
        rest = match word {
            // The rest of `pub(crate)`, with a keyword that was read before.
            "use" if matches!(line, "" | "pub" | ")") => {
                let (tree, beyond) = after.split_once(';').unwrap_or((after, ""));
                expand(&[], tree, &mut |path, name| {
                    found.push(Named {
                        path,
                        name: Some(name),
                        is_export: !line.is_empty(),
                    });
                });
                beyond
            }
            _ if after.starts_with("::") => {
                let end = after.find(|c| !is_part(c) && c != ':');
                let (path, beyond) = after.split_at(end.unwrap_or(after.len()));
                expand(&[], &format!("{word}{path}"), &mut |path, _| {
                    found.push(Named {
                        path,
                        name: None,
                        is_export: false,
                    });
                });
                beyond
            }
            _ => after,
        };
    }
    found
}

const fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the next keyword that a path may begin with or follow, with the text before and after
/// it.
fn next_keyword(text: &str) -> Option<(&str, &str, &str)> {
    let mut at = 0;
    loop {
        let start = at + text.get(at..)?.find(is_part)?;
        let word = text.get(start..)?;
        let word = word.split(|c| !is_part(c)).next().unwrap_or_default();
        at = start + word.len();
        if matches!(word, "use" | "crate" | "super" | "self") {
            return Some((text.get(..start)?, word, text.get(at..)?));
        }
    }
}

/// Expands a tree such as `a::{b, c::d as e}`: each path, and the name it gets.
fn expand(prefix: &[String], tree: &str, each: &mut dyn FnMut(Vec<String>, String)) {
    let tree = tree.trim();
    let (plain, group) = match tree.split_once('{') {
        Some((plain, group)) => (plain, Some(group.trim_end().trim_end_matches('}'))),
        None => (tree, None),
    };
    let (plain, alias) = match plain.split_once(" as ") {
        Some((plain, alias)) => (plain, Some(alias.trim().to_owned())),
        None => (plain, None),
    };
    let parts = plain.split("::").map(str::trim);
    let parts = parts.filter(|part| !part.is_empty() && *part != "*");
    let path: Vec<String> = prefix
        .iter()
        .cloned()
        .chain(parts.map(str::to_owned))
        .collect();
    match group {
        Some(group) => branches(group).for_each(|branch| expand(&path, branch, each)),
        None => {
            let name = alias.or_else(|| path.last().cloned()).unwrap_or_default();
            each(path, name);
        }
    }
}

/// Returns the branches of a group, which are separated by the commas outside all inner groups.
fn branches(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let is_end = move |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    group
        .split(is_end)
        .filter(|branch| !branch.trim().is_empty())
}
