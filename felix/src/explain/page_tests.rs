//! The examples of the operator's page about policies: their verdicts are those of the page.

use std::path::Path;

use calico_manifests::documents;
use serde_json::Value;

use super::*;

const PAGE: &str = include_str!("../../../docs/operate/policy.md");

/// Returns the resources of the example.
fn example() -> Calculator {
    let (_, section) = PAGE.split_once("\n## An example\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("a further section");
    let mut calculator = Calculator::new("n1", None);
    let mut count = 0;
    for block in section.split("```yaml\n").skip(1) {
        let (text, _) = block.split_once("```").expect("the end of a block");
        let all = documents(Path::new("policy.md"), text);
        for document in all.unwrap_or_else(|mistakes| panic!("{mistakes}")) {
            let (key, value) = document.encode(None, &Value::Null).expect("valid");
            let octets = value.to_string();
            let problem = calculator.change(&key.to_string(), Some(octets.as_bytes()));
            assert_eq!(problem, None, "{key}");
            count += 1;
        }
    }
    assert_eq!(count, 8, "resources");
    calculator.recompute();
    assert!(calculator.desired().problems.is_empty());
    calculator
}

/// Returns the cells of the table of verdicts.
fn rows() -> Vec<Vec<String>> {
    let heading = "| from | to | port | verdict | deciding rule |\n";
    let (_, table) = PAGE.split_once(heading).expect("the table");
    let rows = table.lines().skip(1);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = |row: &str| -> Vec<String> {
        let cells = row.trim_matches('|').split('|');
        cells
            .map(|cell| cell.trim().trim_matches('`').to_owned())
            .collect()
    };
    rows.map(cells).collect()
}

/// Returns the words of `cambric check packet` for the rule that decides.
fn cause(by: &RuleOwner) -> String {
    let tier = by.tier.as_ref().map(|tier| format!("tier {tier}"));
    let rule = by.rule.as_ref().map(|rule| format!("rule {rule}"));
    let parts: Vec<String> = [tier, by.list.clone(), rule]
        .into_iter()
        .flatten()
        .collect();
    match parts.is_empty() {
        true => by.words.clone(),
        false => parts.join(", "),
    }
}

// Promise (Felix): The verdicts in the operator's page about policies are those of the calculated rules.
#[test]
fn examples_of_the_page_have_its_verdicts() {
    let calculator = example();
    let rows = rows();
    assert!(rows.len() >= 7, "{rows:?}");
    for row in &rows {
        let [from, to, port, wanted, rule] = &row[..] else {
            panic!("{row:?}");
        };
        let query = PacketQuery {
            from: from.clone(),
            to: to.clone(),
            protocol: "tcp".to_owned(),
            port: Some(port.parse().expect("a port")),
            ..PacketQuery::default()
        };
        let verdict = packet(&calculator, &query).unwrap();
        let last = verdict.steps.last().expect("a decision");
        let found = (verdict.verdict.as_str(), cause(&last.by));
        assert_eq!(
            found,
            (wanted.as_str(), rule.clone()),
            "{row:?}: {verdict:#?}"
        );
    }
}
