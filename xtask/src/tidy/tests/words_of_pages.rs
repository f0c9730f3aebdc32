//! First words, spelling, promises, and the pages of the site.

use super::texts;
use crate::tidy::files::File;
use crate::tidy::{first, pages, plain, promises, sentences, spelling, subjects};

fn first_words(page: &str) -> Vec<String> {
    let findings = first::check(&[File::new("docs/a.md", page)]);
    findings
        .iter()
        .map(|found| found.line.to_string())
        .collect()
}

#[test]
fn sentences_headings_and_cells_begin_with_subjects() {
    let page = "# What it is\n\n| name | what |\n|---|---|\n\nA text. What follows\nis this: those of\n\
        others.\n* Whoever comes\n1. Who goes\n";
    assert_eq!(first_words(page), ["1", "3", "6", "7", "9", "10"]);
}

#[test]
fn questions_code_and_inner_words_may_have_any_word() {
    let page = "# What is it?\n\nThe route is what\nwho sent. `What` is code. \"What\" is quoted.\n\
        > What is a quotation\n```\nWhat is code\n```\nThe host of [what](a.md)\nWhat: how?\n";
    assert!(first_words(page).is_empty(), "{:?}", first_words(page));
}

#[test]
fn sentences_of_comments_begin_with_subjects() {
    let rust =
        "//! What is.\n//! A: those\n//!\n//! Who?\nfn f() {}\n// A text. What\n//! * Those\n";
    let script = "#!/bin/sh\n# What runs\nwhat # what\n";
    let files = [
        File::new("rib/src/a.rs", rust),
        File::new(".ci/run", script),
    ];
    let found = texts(&first::check(&files));
    let lines: Vec<&str> = found.lines().collect();
    let [first, sentence, item, script] = *lines else {
        panic!("{found}");
    };
    assert!(first.starts_with("rib/src/a.rs:1: `What`"), "{first}");
    assert!(sentence.starts_with("rib/src/a.rs:6: `What`"), "{sentence}");
    assert!(item.starts_with("rib/src/a.rs:7: `Those`"), "{item}");
    assert!(script.starts_with(".ci/run:2: `What`"), "{script}");
}

#[test]
fn messages_of_programs_begin_with_subjects() {
    let rust = "const A: &str = \"what\";\nconst B: &str = \"what is left\";\n\
        const C: &str = \"{what} is left\\n{a}. Those are \\\n gone. Who is left\";\n\
        #[cfg(test)]\nmod tests {\n    const D: &str = \"who is left\";\n}\n";
    let files = [
        File::new("rib/src/a.rs", rust),
        File::new("rib/tests/b.rs", "const A: &str = \"what is left\";\n"),
    ];
    let found = texts(&first::check(&files));
    let lines: Vec<&str> = found.lines().collect();
    let [whole, second, third] = *lines else {
        panic!("{found}");
    };
    assert!(whole.starts_with("rib/src/a.rs:2: `what`"), "{whole}");
    assert!(second.starts_with("rib/src/a.rs:3: `Those`"), "{second}");
    assert!(third.starts_with("rib/src/a.rs:4: `Who`"), "{third}");
}

#[test]
fn british_spelling_is_found_in_text_code_and_names() {
    let files = [
        File::new(
            "rib/src/a.rs",
            "fn neighbour() {}\nfn f(neighbor: NeighbourMessage) {}\n",
        ),
        File::new(
            "docs/behaviour.md",
            "Labelled, but `ipv4-labelled-unicast` stays.\n",
        ),
        File::new("felix/src/b.rs", "struct Neighbour(NeighbourState);\n"),
    ];
    let found = texts(&spelling::check(&files));
    let lines = [
        "rib/src/a.rs:1: `neighbour`: write `neighbor`",
        "docs/behaviour.md: `behaviour`: write `behavior`",
        "docs/behaviour.md:1: `labelled`: write `labeled`",
        "felix/src/b.rs:1: `neighbour`: write `neighbor`",
    ];
    assert_eq!(found.lines().collect::<Vec<_>>(), lines);
}

#[test]
fn word_with_a_plainer_one_is_found_in_every_text() {
    let rust = "// It is in force.\nfn f() -> &'static str {\n    \"in\\x20force, in force\"\n}\n\
        #[cfg(test)]\nmod tests {\n    const A: &str = \"in force\";\n}\n";
    let files = [
        File::new("rib/src/a.rs", rust),
        File::new("rib/tests/b.rs", "const A: &str = \"in force\";\n"),
        File::new("docs/a.md", "It is in\nforce. `in force`, \"in force\"\n"),
        File::new(
            "docs/a.svg",
            "<svg in force=\"\"><text>in force</text></svg>\n",
        ),
        File::new(".ci/run", "# in force\nin force\n"),
    ];
    let found = texts(&plain::check(&files));
    let places: Vec<&str> = found
        .lines()
        .filter_map(|line| {
            line.strip_suffix(": `in force`: write the word of CONTRIBUTING.md, Words")
        })
        .collect();
    let expected = [
        "rib/src/a.rs:1",
        "rib/src/a.rs:3",
        "docs/a.md:1",
        "docs/a.svg:1",
        ".ci/run:1",
    ];
    assert_eq!(places, expected, "{found}");
}

#[test]
fn subject_of_a_new_commit_has_area_and_imperative() {
    let texts = |date: u64, subject: &str| {
        let found = subjects::check_line(&format!("{date} 1a2b {subject}"));
        found.map(|found| found.to_string())
    };
    let new = 1_795_840_200;
    for subject in [
        "rib: feed a table of routes",
        "rib, bgp-io: process `told` routes",
        "docs/operate: name each key",
    ] {
        assert_eq!(texts(new, subject), None, "{subject}");
    }
    let long = format!("rib: read {}", "a".repeat(63));
    for (subject, mistake) in [
        ("Read routes", "begin it with `area: `"),
        ("", "begin it with `area: `"),
        (": read routes", "an area is the name"),
        ("The rib: read routes", "an area is the name"),
        ("rib: Read routes", "`Read`: write a verb in the imperative"),
        ("rib: reads routes", "`reads`: write"),
        ("rib: reading routes", "`reading`: write"),
        ("rib: dropped routes", "`dropped`: write"),
        ("rib: who reads", "`who`: write"),
        ("rib: begin anew", "`anew`: replace it"),
        ("rib: bound each bite", "`bite`: replace it"),
        (long.as_str(), "73 characters, at most 72"),
    ] {
        let found = texts(new, subject).expect(subject);
        assert!(found.starts_with("commit 1a2b: subject"), "{found}");
        assert!(found.contains(mistake), "{found}");
        assert_eq!(texts(new - 1, subject), None, "an earlier commit");
    }
}

fn promise_files(page: &str) -> Vec<File> {
    let main = "    // Promise (Felix): Nothing is\n    // lost.\n    /// A test.\n    #[test]\n    \
        fn nothing_is_lost() {}\n";
    let further = "// Promise: as felix nothing_is_lost\n// Promise (BGP): One first.\n#[tokio::test]\n\
        async fn it_holds() {}\n";
    vec![
        File::new(promises::PAGE, page),
        File::new("felix/src/tests.rs", main),
        File::new("rib/tests/a.rs", further),
    ]
}

#[test]
fn page_of_promises_is_made_from_comments() {
    let page = promises::page(&promise_files("")).0;
    let body = page.split_once("\n## ").expect("an area").1;
    assert_eq!(
        body,
        "BGP\n\n* One first. § `rib` `it_holds`\n\n## Felix\n\n\
         * Nothing is lost. § `felix` `nothing_is_lost`, § `rib` `it_holds`\n"
    );
    assert!(promises::check(&promise_files(&page)).is_empty());
    let found = texts(&promises::check(&promise_files("# Promises\n")));
    assert!(found.contains("promises.md: differs"), "{found}");
}

#[test]
fn promises_without_area_or_main_test_are_found() {
    let mut files = promise_files("");
    let wrong = "// Promise: as felix absent\nfn a() {}\n// Promise (Sea): x.\nfn b() {}\n";
    files.push(File::new("sim/tests/b.rs", wrong));
    let found = texts(&promises::check(&files));
    assert!(
        found.contains("sim/tests/b.rs:1: promise: the named"),
        "{found}"
    );
    assert!(
        found.contains("sim/tests/b.rs:3: promise: name an"),
        "{found}"
    );
}

fn site(index: &str, install: &str) -> Vec<File> {
    vec![
        File::new("README.md", "# Cambric\n"),
        File::new("docs/operate/README.md", index),
        File::new("docs/operate/install.md", install),
        File::new("docs/design/b.md", "# About `rib`\n"),
        File::new("docs/operate/a.svg", "<svg/>\n"),
        File::new("rib/README.md", "# rib\n"),
        File::new("rib/src/page.md", "no page of the site\n"),
        File::new("rib/src/lib.rs", ""),
    ]
}

const INDEX: &str =
    "# Guide\n\n| install and run | page |\n|---|---|\n| packages | [a](install.md) |\n";

#[test]
fn summary_has_all_pages_in_order() {
    let summary = pages::summary(&site(INDEX, "# Install\n"));
    let lines: Vec<&str> = summary.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(
        lines,
        [
            "[Cambric](README.md)",
            "# Operator's guide",
            "- [Guide](docs/operate/README.md)",
            "- [Install and run]()",
            "  - [Install](docs/operate/install.md)",
            "# Project",
            "# Design",
            "- [About rib](docs/design/b.md)",
            "# Crates",
            "- [rib](rib/README.md)",
        ]
    );
}

#[test]
fn unlisted_pages_and_links_off_the_site_are_found() {
    let install = "# Install\n[a](a.svg) [b](../design/b.md#x) [c](#y) [d](https://e.org)\n";
    assert_eq!(texts(&pages::check(&site(INDEX, install))), "");
    let away = "[a](../../rib/src/lib.rs) [b](../design)\n";
    let found = texts(&pages::check(&site("# Guide\n", away)));
    for text in [
        "install.md: is not listed",
        "install.md: has no title",
        "install.md:1: `../../rib/src/lib.rs` leads to no page",
        "install.md:1: `../design` leads to no page",
    ] {
        assert!(found.contains(text), "{found}");
    }
    let twice = INDEX.to_owned() + "| again | [a](install.md) |\n";
    let found = texts(&pages::check(&site(&twice, "# Install\n")));
    assert!(found.contains("install.md: is listed twice"), "{found}");
}

#[test]
fn sentence_of_an_operators_page_has_at_most_25_words() {
    let words = |count: usize| "word ".repeat(count);
    let page = format!(
        "# {long}\n\n{fits}end.\n* {long}\nover `the\nlines`. Short (text). {fits}\n\n| {long} |\n\n\
         ```\n{long}\n```\nA list of `a`, `b c`, `d`, {names} and [a link](https://a.b) {few}\n",
        long = words(25),
        fits = words(24),
        names = "`x`, ".repeat(9),
        few = words(16),
    );
    let files = [
        File::new("docs/operate/a.md", page.clone()),
        File::new("docs/design/a.md", page),
    ];
    let found = texts(&sentences::check(&files));
    let expected =
        "docs/operate/a.md:4: 27 words, at most 25: split `* word word word word word …`";
    assert_eq!(found, expected);
}
