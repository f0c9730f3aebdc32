//! `usePodCidr`: another plugin's networks are those of the pods on this node (`podCIDRs`).

use calico_model::Network;
use serde_json::Value;

use crate::failure::{Code, Failure};

/// The names in place of a network, and whether the network is of IPv6. Calico ignores case.
const PLACEHOLDERS: [(&str, bool); 2] = [("usePodCidr", false), ("usePodCidrIPv6", true)];

/// Networks that are valid and have no effect: a plugin releases addresses by the container.
const NEUTRAL: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// Returns whether a configuration has a placeholder.
pub(crate) fn are_wanted(config: &Value) -> bool {
    let mut config = config.clone();
    let mut found = false;
    let each = |_| {
        found = true;
        Ok(String::new())
    };
    // No placeholder fails.
    let _ = replace(&mut config, each);
    found
}

/// Returns the configuration with networks in place of the placeholders, for calls that assign nothing.
pub(crate) fn neutral(config: &Value) -> Value {
    let mut config = config.clone();
    // No placeholder fails.
    let _ = replace(
        &mut config,
        |ipv6| Ok(NEUTRAL[usize::from(ipv6)].to_owned()),
    );
    config
}

/// Replaces the placeholders by the networks of a node.
pub(crate) fn fill_in(config: &mut Value, node: &str, networks: &[Network]) -> Result<(), Failure> {
    replace(config, |ipv6| network(node, networks, ipv6))
}

fn network(node: &str, networks: &[Network], ipv6: bool) -> Result<String, Failure> {
    let mut fitting = networks.iter();
    let fitting = fitting.find(|network| network.address().is_ipv6() == ipv6);
    fitting.map(ToString::to_string).ok_or_else(|| {
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        let message = format!("ipam: usePodCidr: Node {node} has no {family} network in podCIDRs");
        Failure::new(Code::Later, message)
    })
}

/// Replaces the placeholders: in `ipam.subnet`, and in each element of `ipam.ranges`.
fn replace(
    config: &mut Value,
    mut network: impl FnMut(bool) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let Some(ipam) = config.get_mut("ipam").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    let mut subnets: Vec<&mut Value> = Vec::new();
    for (field, value) in ipam.iter_mut() {
        match field.as_str() {
            "subnet" => subnets.push(value),
            "ranges" => {
                let sets = value.as_array_mut().into_iter().flatten();
                let ranges = sets.filter_map(Value::as_array_mut).flatten();
                subnets.extend(ranges.filter_map(|range| range.get_mut("subnet")));
            }
            _ => {}
        }
    }
    for subnet in subnets {
        let text = subnet.as_str().unwrap_or_default();
        let mut names = PLACEHOLDERS.iter();
        if let Some((_, ipv6)) = names.find(|(name, _)| text.eq_ignore_ascii_case(name)) {
            *subnet = network(*ipv6)?.into();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn placeholders_are_replaced_wherever_host_local_has_networks() {
        let config = json!({"ipam": {"type": "host-local", "subnet": "usepodcidr",
            "ranges": [[{"subnet": "usePodCidr"}], [{"subnet": "usePodCidrIPv6"}, {"subnet": "fd00::/64"}]]}});
        assert!(are_wanted(&config));
        let networks: Vec<Network> = ["10.244.1.0/24", "fd24:1::/64"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect();
        let mut replaced = config.clone();
        fill_in(&mut replaced, "n", &networks).unwrap();
        let wanted = json!({"type": "host-local", "subnet": "10.244.1.0/24",
            "ranges": [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd24:1::/64"}, {"subnet": "fd00::/64"}]]});
        assert_eq!(replaced["ipam"], wanted);
        assert!(!are_wanted(&replaced));
        assert_eq!(neutral(&replaced), replaced);
        assert_eq!(neutral(&config)["ipam"]["ranges"][1][0]["subnet"], "::/0");
        let failure = fill_in(&mut config.clone(), "n", &networks[..1]);
        let message = failure.unwrap_err().message;
        assert!(message.contains("Node n has no IPv6 network"), "{message}");
    }
}
