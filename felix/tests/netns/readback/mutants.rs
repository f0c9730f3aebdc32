//! Mechanical changes of the kernel's rules.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use rule_audit::{Fabric, Listing, audit};
use serde_json::{Value, json};

use super::{listing, sample};
use crate::world::{Namespace, run, try_run};

/// Chains that are not changed here. The chains of the guard and of encapsulation are changed in
/// `verdicts/guarded.rs`. Tests of their own send packets through those of foreign tunnels
/// (`encapsulation.rs`) and of budgets (`budgets.rs`): the effect of a budget depends on earlier packets.
const OUTSIDE: [&str; 27] = [
    "control-closed",
    "control-destinations",
    "control-host",
    "control-unknown",
    "foreign-tunnel",
    "foreign-tunnel-to-workload",
    "guard",
    "guard-forward",
    "guard-input",
    "tunnel-to-host",
    "workload-encapsulation",
    "workload-guard",
    "workload-guard-forward",
    "workload-guard-input",
    "workload-icmp",
    "workload-tunnel",
    "workload-tunnel-to-host",
    "fragments",
    "workload-budgets",
    "workload-connections",
    "workload-connections-counted",
    "workload-connections-over",
    "workload-fragments",
    "workload-next-hops",
    "budget-",
    "encapsulation-",
    "pe-",
];

/// The results of all changes, by kind.
#[derive(Debug, Default)]
pub(super) struct Tally {
    found: BTreeMap<&'static str, usize>,
    /// Changes without an effect, each with the reason.
    without_effect: BTreeMap<&'static str, Vec<(Reason, String)>>,
    rejected: BTreeMap<&'static str, usize>,
    /// Changes with the result unknown: the check fails without a packet of certain treatment.
    unknown: Vec<(&'static str, String)>,
    /// Changes that were neither found nor are without effect.
    missed: Vec<String>,
}

impl Tally {
    /// Compares a changed table with the policies. If there is no difference, sample packets must be
    /// treated as before.
    pub(super) fn compare(
        &mut self,
        fabric: &Fabric,
        [original, changed]: [&Listing; 2],
        (kind, change): (&'static str, String),
        rule: Option<&(String, usize)>,
    ) {
        let report = audit(fabric, changed);
        let mut results = report.subjects.values();
        if results.any(|results| !results.different.is_empty()) {
            *self.found.entry(kind).or_default() += 1;
        } else if report.is_equal() {
            match sample::first_difference(fabric, original, changed) {
                None => {
                    let reason = reason(fabric, original, rule);
                    let list = self.without_effect.entry(kind).or_default();
                    list.push((reason, change));
                }
                Some(packet) => self.missed.push(format!("{kind}: {change}\n{packet}")),
            }
        } else {
            // The rule looks up ports of a protocol without ports, so packets differ by octets that
            // no field has. The check fails, with this rule.
            self.unknown.push((kind, change));
        }
    }

    /// Adds a change that the kernel rejects.
    pub(super) fn reject(&mut self, kind: &'static str) {
        *self.rejected.entry(kind).or_default() += 1;
    }

    /// Returns the number of changes that were found, and of those without an effect.
    pub(super) fn counts(&self) -> [usize; 2] {
        let without_effect = self.without_effect.values().map(Vec::len);
        [self.found.values().sum(), without_effect.sum()]
    }

    pub(super) fn assert_none_missed(&self) {
        assert!(self.missed.is_empty(), "{}", self.missed.join("\n\n"));
    }

    pub(super) fn assert_all_found(&self) {
        self.assert_none_missed();
        for kind in [
            "verdict", "negation", "port", "state", "set", "order", "removal", "element", "jump",
        ] {
            let found = self.found.get(kind).copied().unwrap_or_default();
            assert!(found > 0, "no change of the kind {kind} was found: {self}");
        }
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kinds = self.found.keys().chain(self.without_effect.keys());
        let kinds: BTreeSet<&&str> = kinds.chain(self.rejected.keys()).collect();
        for kind in kinds {
            let of =
                |counts: &BTreeMap<&str, usize>| counts.get(*kind).copied().unwrap_or_default();
            let list = self.without_effect.get(*kind);
            let of_reason = |reason: Reason| {
                let list = list.into_iter().flatten();
                list.filter(|(own, _)| *own == reason).count()
            };
            writeln!(
                f,
                "{kind}: {} found; no effect: {} not reached, {} same decision; {} rejected",
                of(&self.found),
                of_reason(Reason::NotReached),
                of_reason(Reason::SameDecision),
                of(&self.rejected),
            )?;
        }
        for (kind, list) in &self.without_effect {
            for (reason, change) in list {
                writeln!(f, "{kind}, {reason:?}: {change}")?;
            }
        }
        for (kind, change) in &self.unknown {
            writeln!(f, "{kind}, unknown: {change}")?;
        }
        write!(f, "{} missed", self.missed.len())
    }
}

/// Why a change has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Earlier rules decide about all packets that it matches, or no packet meets its conditions.
    NotReached,
    /// Other rules decide in the same way about the packets that the change affects.
    SameDecision,
}

/// A changed table.
struct Mutant {
    kind: &'static str,
    /// The chain and the place of the first changed rule in it.
    rule: Option<(String, usize)>,
    /// The old and new lines.
    change: String,
    table: String,
}

/// Changes the table of the thread's namespace in every way, one after the other.
pub(super) fn change_all(fabric: &Fabric, tally: &mut Tally) {
    let table = run("nft --stateless list table inet cambric-felix");
    let original = listing();
    let report = audit(fabric, &original);
    assert!(report.is_equal(), "{report:#?}");
    let other = Namespace::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rules.nft");
    let mutants = mutants(&table);
    assert!(mutants.len() > 50, "{}", mutants.len());
    for Mutant {
        kind,
        rule,
        change,
        table,
    } in mutants
    {
        std::fs::write(&file, format!("flush ruleset\n{table}")).unwrap();
        let command = format!("nft --file {}", file.display());
        let (is_loaded, changed) = other.within(|| {
            let is_loaded = try_run(&command).status.success();
            (is_loaded, is_loaded.then(listing))
        });
        let Some(changed) = changed.filter(|_| is_loaded) else {
            *tally.rejected.entry(kind).or_default() += 1;
            continue;
        };
        tally.compare(fabric, [&original, &changed], (kind, change), rule.as_ref());
    }
}

/// Returns why a changed rule has no effect. If no packet reaches it, its outcome does not matter.
pub(crate) fn reason(
    fabric: &Fabric,
    original: &Listing,
    rule: Option<&(String, usize)>,
) -> Reason {
    let mut listing = original.clone();
    let key = ("inet".to_owned(), "cambric-felix".to_owned());
    let table = listing.tables.get_mut(&key).unwrap();
    let Some((chain, at)) = rule else {
        return Reason::SameDecision;
    };
    let rule = &mut table.chains.get_mut(chain).unwrap().rules[*at];
    let is_verdict = |expression: &Value| expression.get("match").is_none();
    rule.expressions
        .retain(|expression| !is_verdict(expression));
    rule.expressions.push(json!({"unknown": null}));
    match audit(fabric, &listing).is_equal() {
        true => Reason::NotReached,
        false => Reason::SameDecision,
    }
}

fn mutants(table: &str) -> Vec<Mutant> {
    let lines: Vec<&str> = table.lines().collect();
    let sets = sets(&lines);
    let mut all = Vec::new();
    let mut place = Place::Outside;
    let mut rule: Option<(String, usize)> = None;
    for (at, line) in lines.iter().enumerate() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("chain"), Some(name)) => {
                if !is_outside(name) {
                    (place, rule) = (Place::Chain, Some((name.to_owned(), 0)));
                }
                continue;
            }
            (Some("set" | "map"), Some(name)) if is_compared(name) => {
                place = Place::Set;
                continue;
            }
            (Some("}"), None) => {
                (place, rule) = (Place::Outside, None);
                continue;
            }
            _ => {}
        }
        let mut add = |kind, new: Vec<String>, count: usize| {
            let mut changed: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            let old: Vec<String> = changed
                .splice(at..at + count, new.iter().cloned())
                .collect();
            all.push(Mutant {
                kind,
                rule: rule.clone(),
                change: format!("{}\n=> {}", old.join("\n"), new.join("\n")),
                table: changed.join("\n"),
            });
        };
        match place {
            Place::Outside => {}
            Place::Set => {
                if let Some(new) = without_element(line) {
                    add("element", vec![new], 1);
                }
            }
            Place::Chain if line.trim_start().starts_with("type ") => {}
            Place::Chain => {
                for (kind, new) in changed_rules(line, &sets) {
                    add(kind, vec![new], 1);
                }
                add("removal", vec![String::new()], 1);
                let next = lines.get(at + 1).filter(|next| next.trim() != "}");
                if let Some(next) = next {
                    add("order", vec![(*next).to_owned(), (*line).to_owned()], 2);
                }
                if let Some((_, at)) = &mut rule {
                    *at += 1;
                }
            }
        }
    }
    all
}

/// Returns whether a chain is not changed here.
pub(super) fn is_outside(name: &str) -> bool {
    OUTSIDE.iter().any(|own| match own.ends_with('-') {
        true => name.starts_with(own),
        false => name == *own,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    Chain,
    Set,
}

/// Returns whether compared chains use a set.
pub(super) fn is_compared(name: &str) -> bool {
    let prefixes = ["cali40", "cali60", "floating-", "nets-", "ports-"];
    let names = [
        "dispatch-from",
        "dispatch-to",
        "neighbour-discovery",
        "openstack",
        "sources-ipv4",
        "sources-ipv6",
        "workloads",
    ];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) || names.contains(&name)
}

/// Returns the line of a set without its first element.
fn without_element(line: &str) -> Option<String> {
    let (head, elements) = line.split_once("elements = { ")?;
    let rest = match elements.split_once(", ") {
        Some((_, rest)) => rest.to_owned(),
        // The elements continue on the next line, or there is only one.
        None if elements.ends_with(',') => String::new(),
        None => return Some(String::new()),
    };
    Some(format!("{head}elements = {{ {rest}"))
}

/// Returns the types of all sets of selectors, by name.
fn sets(lines: &[&str]) -> BTreeMap<String, String> {
    let mut types = BTreeMap::new();
    for pair in lines.windows(2) {
        let [head, kind] = pair else { continue };
        if let Some(name) = head.trim().strip_prefix("set ")
            && let Some(kind) = kind.trim().strip_prefix("type ")
        {
            let name = name.trim_end_matches(" {");
            types.insert(name.to_owned(), kind.to_owned());
        }
    }
    types
}

/// Returns changed forms of a rule.
fn changed_rules(line: &str, sets: &BTreeMap<String, String>) -> Vec<(&'static str, String)> {
    let (rule, comment) = match line.split_once(" comment ") {
        Some((rule, comment)) => (rule, format!(" comment {comment}")),
        None => (line, String::new()),
    };
    let words: Vec<&str> = rule.split(' ').collect();
    let mut found = Vec::new();
    let mut with = |kind, at: usize, count: usize, new: &str| {
        let mut changed = words.clone();
        changed.splice(at..at + count, [new]);
        found.push((kind, format!("{}{comment}", changed.join(" "))));
    };
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).copied().unwrap_or_default();
        match *word {
            "\t\taccept" | "accept" => with("verdict", at, 1, &word.replace("accept", "drop")),
            "\t\tdrop" | "drop" => with("verdict", at, 1, &word.replace("drop", "accept")),
            "return" | "\t\treturn" => with("verdict", at, 1, &word.replace("return", "accept")),
            "reply" => with("state", at, 1, "original"),
            "!=" => with("negation", at, 1, "=="),
            "saddr" | "daddr" | "sport" | "dport" | "l4proto" | "type" | "code"
                if !matches!(next, "!=" | "." | "local") =>
            {
                with("negation", at, 1, &format!("{word} !="));
            }
            "established,related" => with("state", at, 1, "established"),
            "invalid" => with("state", at, 1, "new"),
            "established" => with("state", at, 1, "related"),
            _ => {}
        }
        if let Ok(number) = word.parse::<u16>()
            && at > 0
            && matches!(
                words[at - 1],
                "sport" | "dport" | "!=" | "type" | "code" | "l4proto"
            )
        {
            with("port", at, 1, &number.wrapping_add(1).to_string());
        }
        if let Some(set) = word.strip_prefix('@') {
            let kind = sets.get(set);
            let mut others = sets
                .iter()
                .filter(|(name, of)| *name != set && Some(*of) == kind);
            if let Some((name, _)) = others.next() {
                with("set", at, 1, &format!("@{name}"));
            }
        }
        if word.trim() == "jump" {
            with("jump", at, 2, &word.replace("jump", "accept"));
        }
    }
    found
}
