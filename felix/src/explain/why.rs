//! The lists of rules that apply to an endpoint, in order.

use daemon_common::report::{AppliedRules, Endpoint as Reported, EndpointRules};

use super::ends::is_called;
use crate::calc::{AppliedList, Calculator, Placement};
use crate::render::{Compiled, Direction, rule_text};

/// Returns the rules of the endpoints with this name. `report` describes an endpoint.
///
/// # Errors
///
/// No endpoint of this host has this name.
pub(crate) fn endpoint(
    calculator: &Calculator,
    name: &str,
    report: impl Fn(&Placement) -> Option<Reported>,
) -> Result<Vec<EndpointRules>, String> {
    let placements = calculator.desired().endpoints.values();
    let called = placements.filter(|placement| is_called(&placement.endpoint, name));
    let found: Vec<EndpointRules> = called
        .filter_map(|placement| {
            Some(EndpointRules {
                endpoint: report(placement)?,
                egress: applied(calculator, placement, Direction::Egress),
                ingress: applied(calculator, placement, Direction::Ingress),
            })
        })
        .collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let mut remote = calculator.remote_endpoints();
    let remote = remote.find(|one| one.resource == name || one.workload == name);
    Err(match remote {
        Some(remote) => format!("{name} is not on this host: ask {}", remote.node),
        None => format!("there is no endpoint {name}; `cambric show endpoints` lists all"),
    })
}

fn applied(
    calculator: &Calculator,
    placement: &Placement,
    direction: Direction,
) -> Vec<AppliedRules> {
    let lists = calculator
        .applied(&placement.endpoint, direction)
        .into_iter();
    let report = |list: AppliedList<'_>| AppliedRules {
        tier: list.owner.tier,
        name: list.owner.name,
        selector: list.owner.selector,
        rules: list.chain.map(rules).unwrap_or_default(),
        end: list.end.to_owned(),
    };
    lists.map(report).collect()
}

fn rules(chain: &Compiled) -> Vec<String> {
    chain.chain.rules.iter().map(rule_text).collect()
}
