//! The policies and profiles that apply to an endpoint.

use std::fmt::Write as _;

use calico_model::EndpointName;
use daemon_common::report::{AppliedRules, Endpoint, EndpointRules};

use super::cells::{clean, list, or_dash};

/// Returns whether an endpoint has this name: `namespace/name` of its resource, `namespace/workload`, or
/// its interface.
pub(super) fn is_called(endpoint: &Endpoint, name: &str) -> bool {
    let workload = || {
        let (namespace, stored) = endpoint.name.split_once('/')?;
        let stored: EndpointName = stored.parse().ok()?;
        Some(format!("{namespace}/{}", stored.workload()))
    };
    endpoint.name == name || endpoint.interface == name || workload().as_deref() == Some(name)
}

/// Returns the rules of endpoints, in the order of their evaluation.
pub(super) fn print(all: &[EndpointRules]) -> String {
    let mut text = String::new();
    for one in all {
        let endpoint = &one.endpoint;
        let _ = writeln!(text, "endpoint {}", clean(&endpoint.name));
        for (name, value) in [
            ("interface", clean(&endpoint.interface)),
            ("addresses", list(&endpoint.networks)),
            ("profiles", list(&endpoint.profiles)),
            ("state", clean(&endpoint.state)),
            ("problem", or_dash(endpoint.problem.as_ref())),
        ] {
            let _ = writeln!(text, "  {name}: {value}");
        }
        direction(&mut text, "egress", &one.egress);
        direction(&mut text, "ingress", &one.ingress);
    }
    text
}

fn direction(text: &mut String, name: &str, lists: &[AppliedRules]) {
    let _ = writeln!(text, "  {name}, in order:");
    for applied in lists {
        let tier = applied.tier.as_ref().map(|tier| format!("tier {tier}, "));
        let (tier, name) = (clean(&tier.unwrap_or_default()), clean(&applied.name));
        let selector = applied.selector.as_ref();
        let selector = selector.map(|one| format!(" (selector {})", clean(one)));
        let selector = selector.unwrap_or_default();
        match applied.rules.is_empty() && applied.selector.is_none() {
            true => {
                let _ = writeln!(text, "    {tier}{name}: {}", clean(&applied.end));
            }
            false => {
                let _ = writeln!(text, "    {tier}{name}{selector}");
                for rule in &applied.rules {
                    let _ = writeln!(text, "      {}", clean(rule));
                }
                let _ = writeln!(text, "      else {}", clean(&applied.end));
            }
        }
    }
}
