mod words_of_pages;

use super::files::File;
use super::metadata::{Package, Workspace};
use super::{
    Finding, circles, directions, documents, fences, links, names, plain, prose, published, sizes,
    tree, words,
};

/// The repository itself is tidy.
#[test]
fn the_repository_is_tidy() {
    let findings = super::run(&crate::root()).expect("tidy runs");
    let text: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(findings.is_empty(), "\n{}\n", text.join("\n"));
}

fn workspace(packages: &[(&str, &[&str])]) -> Workspace {
    let package = |(name, normal): &(&str, &[&str])| {
        let normal = normal.iter().map(ToString::to_string).collect();
        (
            name.to_string(),
            Package {
                name: name.to_string(),
                normal,
                ..Package::default()
            },
        )
    };
    Workspace {
        packages: packages.iter().map(package).collect(),
    }
}

fn texts(findings: &[Finding]) -> String {
    findings
        .iter()
        .map(Finding::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn metadata_names_members_by_directory() {
    let json = br#"{"packages":[
        {"name":"cambric-cli","version":"0.2.0","rust_version":"1.95","features":{"lab":["dep:clap"]},
         "manifest_path":"/r/cli/Cargo.toml","dependencies":[
            {"name":"cambric-daemon-common","req":"^0.2.0","kind":null,"path":"/r/daemon-common","optional":false},
            {"name":"cambric-testkit","req":"*","kind":"dev","path":"/r/testkit","optional":false},
            {"name":"clap","req":"^4","kind":null,"path":null,"optional":true},
            {"name":"tempfile","req":"^3","kind":"dev","path":null,"optional":false}]},
        {"name":"cambric-daemon-common","version":"0.2.0","rust_version":null,"features":{},
         "manifest_path":"/r/daemon-common/Cargo.toml","dependencies":[]}]}"#;
    let workspace = Workspace::parse(json).expect("parses");
    let cli = &workspace.packages["cli"];
    assert_eq!(cli.name, "cambric-cli");
    assert!(cli.normal.contains("daemon-common") && cli.optional.contains("clap"));
    assert!(cli.dev.contains("tempfile") && !cli.normal.contains("tempfile"));
    assert_eq!(cli.version, "0.2.0");
    let required = [("cambric-daemon-common".to_owned(), "^0.2.0".to_owned())];
    assert_eq!(cli.required, required.into());
    assert_eq!(cli.features["lab"], ["dep:clap"]);
}

#[test]
fn wrong_directions_are_found() {
    let upward = workspace(&[("bgp-proto", &["rib"]), ("rib", &["bgp-proto"])]);
    let found = texts(&directions::check(&upward));
    assert_eq!(
        found,
        "bgp-proto/Cargo.toml: bgp-proto (floor 0) may not depend on rib"
    );
    let stranger = workspace(&[("newcomer", &[])]);
    assert!(texts(&directions::check(&stranger)).contains("give it a floor"));
    let mut tests_up = workspace(&[("rib", &[]), ("sim", &[])]);
    tests_up
        .packages
        .get_mut("rib")
        .expect("rib")
        .dev
        .insert("sim".to_owned());
    assert!(texts(&directions::check(&tests_up)).contains("may not look up to sim"));
}

#[test]
fn test_tools_are_for_tests_of_any_crate() {
    let mut members = workspace(&[("bgp-speaker", &[]), ("testkit", &["bgp-speaker"])]);
    let speaker = members.packages.get_mut("bgp-speaker").expect("a member");
    speaker.dev.insert("testkit".to_owned());
    assert_eq!(texts(&directions::check(&members)), "");
    let speaker = members.packages.get_mut("bgp-speaker").expect("a member");
    speaker.normal.insert("testkit".to_owned());
    let found = texts(&directions::check(&members));
    assert!(
        found.contains("bgp-speaker (floor 2) may not depend on testkit"),
        "{found}"
    );
}

#[test]
fn the_table_points_downwards() {
    assert_eq!(texts(&directions::check(&Workspace::default())), "");
}

/// I2 and I3 also cover indirect dependencies.
#[test]
fn programs_are_kept_apart_through_any_depth() {
    let felix = workspace(&[
        ("felix", &["middle"]),
        ("middle", &["bgp-proto"]),
        ("bgp-proto", &[]),
    ]);
    assert!(texts(&fences::check(&felix, &[])).contains("bgp-proto is in the tree of felix (I2"));
    let reflector = workspace(&[
        ("route-reflector", &["bgp-config"]),
        ("bgp-config", &["fib-sync"]),
        ("fib-sync", &[]),
    ]);
    assert!(texts(&fences::check(&reflector, &[])).contains("(I3"));
}

#[test]
fn the_core_stays_no_std_and_free_of_io() {
    let core = workspace(&[("rib", &["tokio", "serde_json", "proptest"])]);
    let lib = File::new("rib/src/lib.rs", "//! No attribute.\n");
    let found = texts(&fences::check(&core, &[lib]));
    assert!(found.contains("tokio stands for I/O"), "{found}");
    assert!(found.contains("serde_json is not in the list"), "{found}");
    assert!(
        found.contains("proptest must stay behind a feature"),
        "{found}"
    );
    assert!(found.contains("must be #![no_std]"), "{found}");
    let lib = File::new("rib/src/lib.rs", "//! Doc.\n#![no_std]\n");
    assert_eq!(
        texts(&fences::check(&workspace(&[("rib", &["bytes"])]), &[lib])),
        ""
    );
}

#[test]
fn dependencies_of_the_core_are_no_std() {
    let tree = "rib v0.1.0 (/r/rib) []\nbytes v1.12.1 [default,std]\nmio v1.2.4 []\nnom v8 (*)\n";
    let found = texts(&tree::findings_of("rib", tree, &[]));
    assert_eq!(found.lines().count(), 2, "{found}");
    assert!(
        found.contains("bytes below it is built with its feature `std`"),
        "{found}"
    );
    assert!(found.contains("mio is in its tree"), "{found}");
    let found = texts(&tree::findings_of("rib", tree, &["mio"]));
    assert_eq!(found.lines().count(), 1, "{found}");
}

#[test]
fn fenced_words_are_found_outside_their_places() {
    let none = Workspace::default();
    let code = "use rtnetlink::Handle; // rtnetlink::x\n// etcd_client::Client\n";
    let inside = File::new("fib-sync/src/netlink/apply.rs", code);
    let outside = File::new("bgp-client/src/node.rs", code);
    let found = texts(&fences::check(&none, &[inside, outside]));
    assert!(
        found.starts_with("bgp-client/src/node.rs:1: `rtnetlink::`"),
        "{found}"
    );
    assert_eq!(found.lines().count(), 1, "{found}");
    let client = File::new(
        "etcd-lite/src/serve.rs",
        "let c = etcd_client::Client::connect();\n",
    );
    assert!(texts(&fences::check(&none, &[client])).contains("only the etcd driver"));
}

#[test]
fn daemon_with_too_many_packages_is_found() {
    let most: String = (0..tree::DAEMON_PACKAGES_MAX)
        .map(|nth| format!("p{nth} v1.0.0 [std]\n"))
        .collect();
    // A package that occurs twice in the tree counts once.
    let twice = format!("{most}p0 v1.0.0 [] (*)\n");
    assert!(tree::count("felix", &twice).is_none());
    let found = tree::count("felix", &format!("{most}p0 v2.0.0 []\n")).expect("found");
    assert_eq!(
        found.to_string(),
        "felix/Cargo.toml: it is built from 152 packages, of at most 151"
    );
}

#[test]
fn long_files_are_found() {
    let lines = |count: usize| "x\n".repeat(count);
    let tests = "\n#[cfg(test)]\nmod tests {\n".to_owned() + &lines(900);
    let files = [
        File::new("rib/src/good.rs", lines(599) + &tests),
        File::new("rib/src/long.rs", lines(601)),
        File::new("felix/src/main.rs", lines(61)),
        File::new("rib/src/tests.rs", lines(1000)),
        File::new("tools/maker/src/main.rs", lines(61)),
        File::new("examples/src/bin/collector.rs", lines(60)),
        File::new("examples/src/bin/injector.rs", lines(59)),
    ];
    let found = texts(&sizes::check(&files));
    let found: Vec<&str> = found.lines().collect();
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found[0].starts_with("rib/src/long.rs: 601 lines"),
        "{found:?}"
    );
    assert!(
        found[1].starts_with("felix/src/main.rs: 61 lines"),
        "{found:?}"
    );
    assert!(
        found[2].starts_with("examples/src/bin/collector.rs: 60 lines"),
        "{found:?}"
    );
}

#[test]
fn wrong_length_in_the_table_of_examples_is_found() {
    let files = [
        File::new("examples/src/bin/collector.rs", "x\n".repeat(51)),
        File::new("examples/src/bin/decoder.rs", "x\n".repeat(59)),
        File::new(
            "docs/numbers.md",
            "| example | lines |\n|---|---|\n| `collector` | 51 |\n| `decoder` | 58 |\n\n| other |\n",
        ),
    ];
    let found = texts(&sizes::check(&files));
    let found: Vec<&str> = found.lines().collect();
    let expected = [
        "add the row | `decoder` | 59 |",
        "delete the row | `decoder` | 58 |",
    ];
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (line, text) in found.iter().zip(expected) {
        assert!(line.ends_with(text), "{line}");
    }
}

#[test]
fn unfinished_work_is_found() {
    let files = [
        File::new("rib/src/a.rs", "fn f() {}\n#[ignore]\n"),
        File::new("README.md", "see /work/notes, #[ignore]\n"),
    ];
    let found = texts(&words::check(&files));
    assert_eq!(found.lines().count(), 2, "{found}");
    assert!(found.contains("rib/src/a.rs:2: `#[ignore`"), "{found}");
    assert!(found.contains("README.md:1: `/work/`"), "{found}");
}

#[test]
fn documents_keep_up() {
    let workspace = workspace(&[
        ("rib", &["bytes", "slab"]),
        ("sim", &[]),
        ("netns-lab", &[]),
    ]);
    let files = [
        File::new(
            "docs/dependencies.md",
            "| `bytes` | octets |\n| `serde` | gone |\n",
        ),
        File::new(
            "ARCHITECTURE.md",
            "`sim`\nI6 § `rib` `order_free`; § `rib` `absent_test`\n\
             | 1 | `rib` | tables | `tests.rs`, `decide` |\n\
             § `rib` `helper`, § `rib` `step`\n",
        ),
        File::new(
            "rib/src/tests.rs",
            "#[test]\n// why\nfn order_free() {}\nfn helper() {}\n// Promise (BGP): x.\nfn step() {}\n",
        ),
    ];
    let found = texts(&documents::check(&workspace, &files));
    assert!(found.contains("slab is used: add a line"), "{found}");
    assert!(found.contains("serde is used nowhere"), "{found}");
    assert!(found.contains("`netns-lab` is not on the map"), "{found}");
    assert!(
        found.contains("ARCHITECTURE.md:2: no test `absent_test` in `rib`"),
        "{found}"
    );
    assert!(!found.contains("order_free"), "{found}");
    assert!(found.contains("no test `helper` in `rib`"), "{found}");
    assert!(!found.contains("`step`"), "{found}");
    assert!(
        found.contains("ARCHITECTURE.md:3: no `decide` in `rib/src`"),
        "{found}"
    );
    assert!(!found.contains("tests.rs"), "{found}");
    assert!(texts(&documents::check(&workspace, &[])).contains("missing"));
}

#[test]
fn dead_links_are_found() {
    let start = "[a](docs/a.md), [below](docs), [b](docs/b.md) and [web](https://example.org/x)\n\
        [at](docs/a.md#what-it-is), [off](docs/a.md#gone), see docs/a.md. `docs/c.dot`\n";
    let files = [
        File::new("README.md", start),
        File::new(
            "docs/a.md",
            "# `What` it is?\n[up](../README.md) [here](#what-it-is)\n",
        ),
    ];
    let found = texts(&links::check(&files));
    let found: Vec<&str> = found.lines().collect();
    assert_eq!(
        found,
        [
            "README.md:1: `docs/b.md` leads nowhere",
            "README.md:2: `docs/a.md#gone` leads nowhere",
            "README.md:2: `docs/c.dot` leads nowhere",
        ]
    );
}

fn circles_of(sources: &[(&str, &str)]) -> Vec<String> {
    let file = |(path, text): &(&str, &str)| File::new(*path, *text);
    let files: Vec<File> = sources.iter().map(file).collect();
    let circles = circles::circles(&files);
    let names = circles.iter().map(|circle| {
        let names = circle.iter().map(|path| path.display().to_string());
        names.collect::<Vec<_>>().join(" ")
    });
    names.collect()
}

#[test]
fn files_that_import_each_other_are_a_circle() {
    let found = circles_of(&[
        (
            "rib/src/lib.rs",
            "mod a;\nmod b;\nmod c;\npub use b::{B, deep::D as E};\n",
        ),
        // By a name of lib.rs, within a group, by a path in code.
        (
            "rib/src/a.rs",
            "use core::fmt;\nuse crate::{E, c::{self, C}};\n",
        ),
        ("rib/src/b.rs", "pub(crate) mod deep;\n"),
        (
            "rib/src/b/deep.rs",
            "fn f() -> crate::c::C { super::super::c::C }\n",
        ),
        ("rib/src/c.rs", "use super::a::{\n    A,\n};\n"),
        // Another crate with modules of the same names.
        ("mrt/src/a.rs", "use crate::b;\n"),
        ("mrt/src/b.rs", "use crate::c;\n"),
    ]);
    assert_eq!(found, ["rib/src/a.rs rib/src/b/deep.rs rib/src/c.rs"]);
}

#[test]
fn circles_leave_out_parts_tests_and_comments() {
    let found = circles_of(&[
        ("rib/src/lib.rs", "pub mod a;\npub use a::A;\nfn f() {}\n"),
        (
            "rib/src/a.rs",
            "mod part;\nuse part::P;\nuse crate::f;\n// use crate::b::B;\n",
        ),
        ("rib/src/a/part.rs", "use super::A;\nuse crate::a::X;\n"),
        (
            "rib/src/b.rs",
            "mod c;\npub(crate) use c::C;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n",
        ),
        (
            "rib/src/b/c.rs",
            "use crate::a::A;\nconst TEXT: &str = \"is in use by\";\n",
        ),
        ("rib/src/a/tests.rs", "use crate::b;\n"),
        ("rib/tests/all.rs", "use crate::a;\n"),
        ("rib/src/main.rs", "use crate::a;\n"),
        // Reexporting a part is not an import of it.
        ("mrt/src/a.rs", "mod part;\npub use part::P;\n"),
        ("mrt/src/a/part.rs", "use crate::b;\n"),
        ("mrt/src/b.rs", "use crate::a::A;\n"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn allowed_circles_neither_grow_nor_stay_listed() {
    let circle = |names: &[&str]| names.iter().map(Into::into).collect::<circles::Circle>();
    let allowed = |files_max| circles::Allowed {
        file: "a/src/x.rs",
        files_max,
        reason: "",
    };
    let two = circle(&["a/src/x.rs", "a/src/y.rs"]);
    let three = circle(&["a/src/x.rs", "a/src/y.rs", "a/src/z.rs"]);
    let findings_of = |circle: &circles::Circle, files_max| {
        texts(&circles::findings_of(
            std::slice::from_ref(circle),
            &[allowed(files_max)],
        ))
    };
    assert_eq!(findings_of(&two, 2), "");
    assert!(findings_of(&three, 2).contains("3 files import each other"));
    assert!(findings_of(&two, 3).contains("a circle of 2 files"));
    assert!(texts(&circles::findings_of(&[], &[allowed(2)])).contains("a circle of 1 files"));
    assert!(texts(&circles::findings_of(&[two], &[])).contains("a/src/x.rs, a/src/y.rs"));
}

#[test]
fn repository_has_few_circles_each_with_a_reason() {
    assert!(circles::ALLOWED.len() <= circles::CIRCLES_MAX);
    for row in circles::ALLOWED {
        assert!(row.files_max > 1 && row.reason.len() > 20, "{}", row.file);
    }
}

#[test]
fn prose_leaves_out_code_and_quotations() {
    let page = "# One `two`\n> three\n```\nfour\n```\nFive [six](seven) \"eight\" nine's\n";
    let words = prose::page(page);
    let words: Vec<(&str, usize)> = words.iter().map(|w| (w.text.as_str(), w.line)).collect();
    assert_eq!(words, [("one", 1), ("five", 6), ("six", 6), ("nine's", 6)]);
}

#[test]
fn source_is_split_into_comments_and_texts() {
    let text = "/// Alpha `beta`.\nfn f<'a>() { g(\"gamma {who} \\\" // delta\", '\"', r#\"eps\"ilon\"#); } // zeta\n";
    let source = prose::source(text);
    let words = |of: &[prose::Word]| -> Vec<(String, usize)> {
        of.iter().map(|w| (w.text.clone(), w.line)).collect()
    };
    let at = |word: &str, line| (word.to_owned(), line);
    assert_eq!(words(&source.comments), [at("alpha", 1), at("zeta", 2)]);
    let texts = ["gamma", "delta", "eps", "ilon"].map(|word| at(word, 2));
    assert_eq!(words(&source.texts), texts);
}

#[test]
fn markers_of_unclear_sentences_are_found() {
    let page = |markers: usize, words: usize| {
        File::new(
            "docs/a.md",
            "by\nhand\n".repeat(markers) + &"word ".repeat(words),
        )
    };
    assert!(plain::check(&[page(3, 10)]).is_empty(), "a short page");
    let found = texts(&plain::check(&[page(4, 10)]));
    assert!(
        found.starts_with("docs/a.md: the page: 4 markers"),
        "{found}"
    );
    assert!(found.contains("docs/a.md:7 `by hand`"), "{found}");
    assert!(plain::check(&[page(4, 3000)]).is_empty(), "one in 1,000");
    assert_eq!(plain::check(&[page(4, 2900)]).len(), 1);
    let source = File::new(
        "new/src/a.rs",
        "// who `who`\n".repeat(4) + "const A: &str = \"told told told told\";\n",
    );
    let found = texts(&plain::check(&[source]));
    assert!(
        found.contains("new/src/a.rs: comments: 4 markers of unclear sentences in 4 words"),
        "{found}"
    );
    assert!(
        found.contains("new/src/a.rs: messages: 4 markers"),
        "{found}"
    );
}

#[test]
fn markers_of_each_file_and_of_a_crate_are_counted() {
    let comments = |path: &str, markers: usize, words: usize| {
        let text = "// by hand\n".repeat(markers) + &"// word\n".repeat(words);
        File::new(path, text)
    };
    let check = |files: &[File]| texts(&plain::check(files));
    let many = comments("new/src/a.rs", 0, 3000);
    let found = check(&[many, comments("new/src/b.rs", 4, 10)]);
    assert!(found.starts_with("new/src/b.rs: comments: 4"), "{found}");
    let short = ["new/src/a.rs", "new/src/b.rs"].map(|path| comments(path, 3, 10));
    let found = check(&short);
    assert!(found.starts_with("new: comments: 6 markers"), "{found}");
    let own = comments("xtask/src/tidy/plain.rs", 4, 10);
    let found = check(&[own]);
    assert!(
        found.starts_with("xtask/src/tidy/plain.rs: comments: 4"),
        "{found}"
    );
}

#[test]
fn markers_of_packaged_files_and_pictures_are_counted() {
    let settings = "# told by hand\n# told by hand\nTOLD=by hand\n";
    let files = [
        File::new("packaging/etc/a.env", settings),
        File::new("packaging/scripts/postinst", settings),
        File::new(
            "docs/a.svg",
            "<text>told</text><g id=\"told\"/>\n<b>by hand</b>, told\n",
        ),
        File::new(
            "docs/b.svg",
            "<text>told</text>\n<text>told by hand, told</text>\n",
        ),
    ];
    let found = texts(&plain::check(&files));
    let lines: Vec<&str> = found.lines().collect();
    let [env, script, picture] = *lines else {
        panic!("{found}");
    };
    assert!(
        picture.starts_with("docs/b.svg: the picture: 4"),
        "{picture}"
    );
    assert!(env.starts_with("packaging/etc/a.env: comments: 4"), "{env}");
    assert!(
        script.starts_with("packaging/scripts/postinst: comments: 4"),
        "{script}"
    );
}

#[test]
fn published_crate_without_its_files_and_errors_is_found() {
    let mut workspace = workspace(&[("rib", &[]), ("sim", &[])]);
    let rib = workspace.packages.get_mut("rib").expect("a member");
    rib.is_published = true;
    let manifest = "description = \"\"\nreadme = \"README.md\"\nkeywords = []\n\
                    [package.metadata.docs.rs]\n";
    let items = "Rib::fn a() -> Result<(), Known>\nRib::fn b(at: u8) -> Result<Vec<u8>, a::Other>\n\
                 Rib::fn c() -> Result<u8>\nimpl core::error::Error for Known\n";
    let files = [
        File::new("rib/Cargo.toml", manifest),
        File::new("rib/README.md", ""),
        File::new("rib/LICENSE-MIT", ""),
        File::new("docs/api/rib.txt", items),
        File::new("sim/Cargo.toml", ""),
    ];
    let found = texts(&published::check(&workspace, &files));
    let expected = [
        "rib/LICENSE-APACHE: missing: the crate is published",
        "rib/Cargo.toml: no line `categories = …`: the crate is published",
        "docs/api/rib.txt:2: `Other` of a public function does not implement `Error`",
    ];
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn promises_of_any_page_have_their_tests() {
    let files = [
        File::new("docs/design/promises.md", "* It holds. § `rib` `absent`\n"),
        File::new("docs/b.md", "Held by § `rib` `there`\n"),
        File::new("rib/src/tests.rs", "#[test]\nfn there() {}\n"),
    ];
    let found = texts(&documents::check(&workspace(&[]), &files));
    assert!(
        found.contains("docs/design/promises.md:1: no test `absent`"),
        "{found}"
    );
    assert!(!found.contains("docs/b.md"), "{found}");
}

#[test]
fn test_names_without_subject_or_too_long_are_found() {
    let test = |name: &str| format!("#[test]\nfn {name}() {{}}\n");
    let long = "a".repeat(61);
    let text = test("route_is_sent") + &test("who_is_there") + &test("it_is_sent") + &test(&long);
    let text = text + "fn what_helps() {}\nfn it_helps() {}\n";
    let found = texts(&names::check(&[File::new("rib/src/a.rs", text)]));
    assert_eq!(found.lines().count(), 3, "{found}");
    assert!(found.contains("rib/src/a.rs:6: `it_is_sent`"), "{found}");
    assert!(found.contains("rib/src/a.rs:4: `who_is_there`"), "{found}");
    assert!(found.contains("has 61 characters"), "{found}");
}

#[test]
fn test_names_with_unclear_words_are_found() {
    let test = |name: &str| format!("#[test]\nfn {name}() {{}}\n");
    let text = test("route_is_told") + &test("file_is_what_it_was") + &test("hearsay_is_plain");
    let found = texts(&names::check(&[File::new("rib/src/a.rs", text)]));
    let found: Vec<&str> = found.lines().collect();
    assert_eq!(
        found,
        [
            "rib/src/a.rs:2: `route_is_told`: replace `told`",
            "rib/src/a.rs:4: `file_is_what_it_was`: replace `what_it`",
        ]
    );
}

#[test]
fn identifier_with_an_unclear_word_is_found() {
    let text = "/// A word of a comment: told, `told`.\nstruct ToldPeers<'told> {\n    judged_by: u8,\n}\n\
        const LAST_SAID: &str = \"said\";\nfn retold(toll: u8) -> &'static str {\n    r#\"told\"#\n}\n\
        struct InForce;\nfn force_in() {}\n";
    let found = texts(&names::check(&[File::new("rib/src/a.rs", text)]));
    let found: Vec<&str> = found.lines().collect();
    assert_eq!(
        found,
        [
            "rib/src/a.rs:2: `ToldPeers`: replace `told`",
            "rib/src/a.rs:2: `told`: replace `told`",
            "rib/src/a.rs:3: `judged_by`: replace `judged`",
            "rib/src/a.rs:5: `LAST_SAID`: replace `said`",
            "rib/src/a.rs:9: `InForce`: replace `in force`",
        ]
    );
}
