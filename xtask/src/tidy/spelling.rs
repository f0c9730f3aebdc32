//! One spelling: American, in prose, in names of the code, and in names of files.

use super::Finding;
use super::files::File;

/// Parts of words in British spelling, and the American form.
const BRITISH: &[(&str, &str)] = &[
    ("acknowledgement", "acknowledgment"),
    ("authoris", "authoriz"),
    ("behaviour", "behavior"),
    ("catalogue", "catalog"),
    ("centre", "center"),
    ("colour", "color"),
    ("dialled", "dialed"),
    ("dialler", "dialer"),
    ("dialling", "dialing"),
    ("favour", "favor"),
    ("honour", "honor"),
    ("initialis", "initializ"),
    ("judgement", "judgment"),
    ("labelled", "labeled"),
    ("labelling", "labeling"),
    ("learnt", "learned"),
    ("licence", "license"),
    ("misspelt", "misspelled"),
    ("modelled", "modeled"),
    ("neighbour", "neighbor"),
    ("normalis", "normaliz"),
    ("optimise", "optimize"),
    ("organis", "organiz"),
    ("per cent", "percent"),
    ("recognis", "recogniz"),
    ("serialis", "serializ"),
    ("signalled", "signaled"),
    ("signalling", "signaling"),
    ("summaris", "summariz"),
    ("synchronis", "synchroniz"),
    ("travelled", "traveled"),
    ("tunnelled", "tunneled"),
];

/// Names that others have given, or that users may have in their files.
const KEPT: &[&str] = &[
    // The crates of netlink.
    "netlink_packet_route::neighbour",
    "NeighbourAddress",
    "NeighbourAttribute",
    "NeighbourFlags",
    "NeighbourMessage",
    "NeighbourState",
    "DelNeighbour",
    "GetNeighbour",
    "NewNeighbour",
    "handle.neighbours()",
    // A set of Felix's nftables table.
    "neighbour-discovery",
    // An alias of `cambric show neighbors`.
    "\"neighbours\"",
    // GoBGP's name of the families, an alias in configuration files.
    "labelled-unicast",
    // Names of earlier releases of the library.
    "Judgement`",
    "neighbour_as`",
];

/// Checks every text file, and the names of files.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        if file.path.starts_with("xtask/src/tidy") || file.path.ends_with("Cargo.lock") {
            continue;
        }
        let name = file.path.display().to_string();
        findings.extend(
            mistakes(&name)
                .into_iter()
                .map(|text| Finding::file(&file.path, text)),
        );
        for (index, line) in file.text.lines().enumerate() {
            let found = mistakes(line).into_iter();
            findings.extend(found.map(|text| Finding::line(&file.path, index + 1, text)));
        }
    }
    findings
}

fn mistakes(text: &str) -> Vec<String> {
    let found = |text: &str| {
        let text = text.to_lowercase();
        let rows = BRITISH.iter().filter(move |(part, _)| text.contains(part));
        rows.map(|(part, american)| format!("`{part}`: write `{american}`"))
            .collect::<Vec<_>>()
    };
    let all = found(text);
    if all.is_empty() {
        return all;
    }
    let remove = |text: String, name: &&str| text.replace(name, "");
    found(&KEPT.iter().fold(text.to_owned(), remove))
}
