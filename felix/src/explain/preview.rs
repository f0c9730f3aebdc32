//! The preview of a staged policy: the endpoints that it would apply to, and the flows that would have
//! another verdict. The rules are calculated, and none is loaded.

use std::collections::BTreeMap;

use daemon_common::report::{Preview, PreviewRow, RuleOwner};

use super::evaluation::{Bases, Decision, Fate};
use super::packet::{Changes, Packet};
use super::{ECHO, owner};
use crate::calc::{Calculator, ListOwner, Trial, is_gateway};
use crate::flows::{Key, Table, Tuple};
use crate::limits::PREVIEW_ROWS_MAX;
use crate::render::{Direction, Hook};

/// Returns the preview of a staged policy over the flows of a table.
///
/// # Errors
///
/// There is no such policy, or its effect cannot be computed.
pub(crate) fn preview(
    calculator: &Calculator,
    name: &str,
    table: &Table,
) -> Result<Preview, String> {
    let trial = calculator.trial(name)?;
    let with_policy = match trial.action {
        "Delete" => calculator,
        _ => &trial.calculator,
    };
    let mut preview = Preview {
        endpoints: with_policy.endpoints_of(&trial.key),
        problems: trial.calculator.problems_of(&trial.key),
        notes: notes(&trial),
        policy: trial.name.clone(),
        action: trial.action.to_owned(),
        ..Preview::default()
    };
    let (now, then) = (Rules::of(calculator), Rules::of(&trial.calculator));
    for (key, row) in table.changed_after(0) {
        preview.flows += row.flows;
        let verdicts = now
            .verdict(key, &row.last)
            .zip(then.verdict(key, &row.last));
        let Some((before, after)) = verdicts else {
            preview.unknown += row.flows;
            continue;
        };
        match (before.allowed, after.allowed) {
            (true, false) => preview.newly_denied += row.flows,
            (false, true) => preview.newly_allowed += row.flows,
            _ => continue,
        }
        match preview.rows.len() < PREVIEW_ROWS_MAX {
            true => preview.rows.push(PreviewRow {
                flow: key.report(row),
                now: before.allowed,
                now_by: now.owner(&before),
                then: after.allowed,
                then_by: then.owner(&after),
            }),
            false => preview.rows_left_out += 1,
        }
    }
    Ok(preview)
}

fn notes(trial: &Trial) -> Vec<String> {
    let mut notes = vec![
        "each row of the flow log is evaluated with the ends of its last flow".to_owned(),
        "established connections keep their verdict".to_owned(),
    ];
    match (trial.action, trial.exists) {
        ("Delete", false) => notes.push("the policy to delete does not exist".to_owned()),
        ("Set", true) => notes.push("it would replace a policy that is in effect".to_owned()),
        _ => {}
    }
    notes
}

/// A calculated packet filter.
struct Rules<'c> {
    calculator: &'c Calculator,
    bases: Bases<'c>,
    owners: BTreeMap<&'c str, ListOwner>,
}

/// A verdict, and the rule that gives it.
struct Verdict<'c> {
    allowed: bool,
    by: Decision<'c>,
}

impl<'c> Rules<'c> {
    fn of(calculator: &'c Calculator) -> Self {
        Self {
            calculator,
            bases: Bases::of(calculator.desired().rules()),
            owners: calculator.owners(),
        }
    }

    /// Returns the verdict of the rules for one direction of a workload; `None`: its workload is not on
    /// this host, or the rules need more than is known of the flow.
    fn verdict(&self, key: &Key, tuple: &Tuple) -> Option<Verdict<'c>> {
        let desired = self.calculator.desired();
        let interface = |address| {
            let name = desired.routes.get(&address)?;
            desired.interfaces.contains_key(name).then(|| name.clone())
        };
        let (input, output) = (interface(tuple.source), interface(tuple.destination));
        let is_to_host =
            || is_gateway(tuple.destination) || self.calculator.is_own_address(tuple.destination);
        let hook = match key.direction {
            Direction::Egress => {
                input.as_ref()?;
                match output.is_none() && is_to_host() {
                    true => Hook::Input,
                    false => Hook::Forward,
                }
            }
            Direction::Ingress => {
                output.as_ref()?;
                Hook::ForwardTo
            }
        };
        let has_ports = tuple.has_ports();
        let echo = ECHO.iter().find(|(of, _)| *of == tuple.protocol);
        let mut packet = Packet {
            input,
            output,
            source: tuple.source,
            destination: tuple.destination,
            protocol: tuple.protocol,
            source_port: has_ports.then_some(tuple.source_port),
            port: has_ports.then_some(tuple.port),
            icmp: echo.map(|(_, kind)| *kind),
            changes: Changes::default(),
        };
        let by = self.bases.at_hook(hook, &mut packet)?;
        let allowed = match by.fate {
            Fate::Accept => true,
            Fate::Drop | Fate::Reject => false,
            Fate::DependsOn(_) => return None,
        };
        Some(Verdict { allowed, by })
    }

    fn owner(&self, verdict: &Verdict<'_>) -> RuleOwner {
        owner(&self.owners, &verdict.by)
    }
}
