//! Services: their endpoints, which are the members of `services` in rules.

use calico_model::is_resource_name;
use calico_model::{EndpointSlice, Protocol, ServiceName, SliceEndpoint, SliceKey, SlicePort};
use serde_json::Value;

use crate::object::{begin, list, not};
use crate::port::{number, protocol};
use crate::report::{Converted, Outcome, Reports, quoted};

/// The label of a slice with the name of its service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The types of slices with addresses.
const ADDRESS_TYPES: [&str; 2] = ["IPv4", "IPv6"];

/// The record of a slice.
pub type Members = (SliceKey, EndpointSlice);

/// Converts an EndpointSlice (`discovery.k8s.io/v1`). All of its endpoints are members, also those
/// that are not ready. A slice without a service has no record.
pub fn endpoint_slice(value: &Value) -> Converted<Members> {
    let (mut reports, is_valid) = begin("EndpointSlice", value, true);
    if !is_valid {
        return reports.unreadable();
    }
    let service = value["metadata"]["labels"][SERVICE_NAME].as_str();
    let Some(service) = service.filter(|name| is_resource_name(name)) else {
        return reports.done(Outcome::Absent);
    };
    let key = SliceKey {
        service: ServiceName {
            namespace: reports.object.namespace.clone(),
            name: service.to_owned(),
        },
        slice: reports.object.name.clone(),
    };
    match members(value, &mut reports) {
        Some(members) => reports.done(Outcome::Resource((key, members))),
        None => reports.unreadable(),
    }
}

/// Converts a Service with all EndpointSlices of its namespace. A service without slices has one
/// record without endpoints, because a service without a record closes the rules that name it.
pub fn service_members(service: &Value, slices: &[Value]) -> Converted<Vec<Members>> {
    let (mut reports, is_valid) = begin("Service", service, true);
    if !is_valid {
        return reports.unreadable();
    }
    let name = ServiceName {
        namespace: reports.object.namespace.clone(),
        name: reports.object.name.clone(),
    };
    let mut all = Vec::new();
    let mut is_known = false;
    for slice in slices {
        let metadata = &slice["metadata"];
        is_known |= metadata["namespace"] == name.namespace.as_str()
            && metadata["labels"][SERVICE_NAME] == name.name.as_str();
        let found = endpoint_slice(slice);
        match found.outcome {
            Outcome::Resource((key, _)) if key.service != name => continue,
            Outcome::Resource(members) => all.push(members),
            Outcome::Absent | Outcome::Unreadable => {}
        }
        for report in found.reports {
            let field = format!("{}: {}", report.object, report.field);
            reports.add(field, report.reason);
        }
    }
    if !is_known {
        let slice = name.name.clone();
        let key = SliceKey {
            service: name,
            slice,
        };
        all.push((key, EndpointSlice::default()));
    }
    reports.done(Outcome::Resource(all))
}

/// Reads endpoints and ports; `None` if a list is unreadable. Invalid addresses are kept: Felix
/// reports them as well, and an address that is left out could be one to deny.
fn members(value: &Value, reports: &mut Reports) -> Option<EndpointSlice> {
    let mut members = EndpointSlice::default();
    let kind = value["addressType"].as_str().unwrap_or_default();
    if !ADDRESS_TYPES.contains(&kind) {
        let found = quoted(&value["addressType"]);
        let reason = format!("{found} is not IPv4 or IPv6; the slice has no members");
        reports.add("addressType", reason);
        return Some(members);
    }
    for list in ["endpoints", "ports"] {
        if !value[list].is_null() && !value[list].is_array() {
            let reason = not(&value[list], "a list");
            reports.add(list, format!("{reason}; the members stay as they are"));
            return None;
        }
    }
    for (at, endpoint) in list(&value["endpoints"], "endpoints")
        .ok()?
        .iter()
        .enumerate()
    {
        let path = format!("endpoints[{at}].addresses");
        members
            .endpoints
            .push(self::endpoint(endpoint, &path, reports));
    }
    for (at, port) in list(&value["ports"], "ports").ok()?.iter().enumerate() {
        match self::port(port) {
            Ok(port) => members.ports.push(port),
            Err(reason) => {
                let reason = format!("{reason}; the port is left out");
                reports.add(format!("ports[{at}]"), reason);
            }
        }
    }
    Some(members)
}

fn endpoint(value: &Value, path: &str, reports: &mut Reports) -> SliceEndpoint {
    let mut endpoint = SliceEndpoint::default();
    let given = list(&value["addresses"], path).unwrap_or_else(|fault| {
        reports.fault(fault, "the endpoint has no addresses");
        &[]
    });
    for (at, address) in given.iter().enumerate() {
        let text = address.as_str().map(str::to_owned);
        let text = text.unwrap_or_else(|| quoted(address));
        if text.parse::<std::net::IpAddr>().is_err() {
            let found = quoted(address);
            let reason = format!("{found} is not an address; it matches no packet");
            reports.add(format!("{path}[{at}]"), reason);
        }
        endpoint.addresses.push(text);
    }
    endpoint
}

/// Reads a port. One without a number is no member.
fn port(value: &Value) -> Result<SlicePort, String> {
    let protocol = match &value["protocol"] {
        Value::Null => "TCP",
        name => protocol(name).ok_or_else(|| not(name, "TCP, UDP or SCTP"))?,
    };
    let number = match &value["port"] {
        Value::Null => None,
        given => Some(number(given).ok_or_else(|| not(given, "a port"))?),
    };
    Ok(SlicePort {
        protocol: Some(Protocol::Name(protocol.to_owned())),
        port: number,
        ..SlicePort::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn slice(name: &str, service: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "prod",
            "labels": {"kubernetes.io/service-name": service}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.65.0.7"], "conditions": {"ready": false},
                "nodeName": "n1"}, {"addresses": ["10.65.0.8"]}],
            "ports": [{"name": "http", "port": 8080}, {"port": 53, "protocol": "UDP"},
                {"port": null}]})
    }

    fn stored(members: &Members) -> (String, Value) {
        let value = serde_json::from_slice(&members.1.encode()).unwrap();
        (members.0.to_string(), value)
    }

    #[test]
    fn slice_has_the_record_of_felix() {
        let found = endpoint_slice(&slice("web-x7k2p", "web"));
        assert_eq!(found.reports, []);
        let wanted = json!({"endpoints": [{"addresses": ["10.65.0.7"]},
            {"addresses": ["10.65.0.8"]}],
            "ports": [{"protocol": "TCP", "port": 8080}, {"protocol": "UDP", "port": 53},
            {"protocol": "TCP"}]});
        let key = "/cambric/services/v1/prod/web/web-x7k2p".to_owned();
        assert_eq!(stored(&found.resource().unwrap()), (key, wanted));
    }

    #[test]
    fn service_has_the_records_of_its_slices() {
        let service = json!({"metadata": {"name": "web", "namespace": "prod"}});
        let mut foreign = slice("web-3", "web");
        foreign["metadata"]["namespace"] = "other".into();
        let slices = [
            slice("web-1", "web"),
            slice("db-1", "db"),
            slice("web-2", "web"),
            foreign,
        ];
        let found = service_members(&service, &slices);
        assert_eq!(found.reports, []);
        let keys = found.resource().unwrap().into_iter();
        let keys: Vec<_> = keys.map(|(key, _)| key.slice).collect();
        assert_eq!(keys, ["web-1", "web-2"]);
        let found = service_members(&service, &slices[1..2]).resource().unwrap();
        let key = "/cambric/services/v1/prod/web/web".to_owned();
        assert_eq!(
            stored(&found[0]),
            (key, json!({"endpoints": [], "ports": []}))
        );
    }

    #[test]
    fn unreadable_slice_is_no_empty_service() {
        let service = json!({"metadata": {"name": "web", "namespace": "prod"}});
        let mut broken = slice("web-1", "web");
        broken["endpoints"] = json!({});
        let found = service_members(&service, &[broken.clone()]);
        assert_eq!(
            found.reports[0].field,
            "EndpointSlice prod/web-1: endpoints"
        );
        assert_eq!(found.resource(), Some(Vec::new()));
        assert_eq!(endpoint_slice(&broken).outcome, Outcome::Unreadable);
    }

    #[test]
    fn invalid_parts_of_a_slice_are_reported() {
        let mut value = slice("web-1", "web");
        value["endpoints"] = json!([{"addresses": ["www.example", 7]}, {"addresses": 7}, 7]);
        value["ports"] = json!([{"port": 0}, {"port": 7, "protocol": "ICMP"}, {"port": 7}]);
        let found = endpoint_slice(&value);
        let fields: Vec<_> = found.reports.iter().map(|report| &*report.field).collect();
        let wanted = [
            "endpoints[0].addresses[0]",
            "endpoints[0].addresses[1]",
            "endpoints[1].addresses",
            "ports[0]",
            "ports[1]",
        ];
        assert_eq!(fields, wanted);
        let (_, members) = found.resource().unwrap();
        assert_eq!(members.ports.len(), 1);
        value["addressType"] = "FQDN".into();
        let (_, members) = endpoint_slice(&value).resource().unwrap();
        assert_eq!(members, EndpointSlice::default());
        value["metadata"]["labels"] = json!({});
        assert_eq!(endpoint_slice(&value).outcome, Outcome::Absent);
        assert_eq!(endpoint_slice(&json!(7)).outcome, Outcome::Unreadable);
    }
}
