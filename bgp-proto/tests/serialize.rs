//! Values and messages as JSON (feature `serde`).

use bgp_proto::{
    AsPath, Asn, AttrCode, Attributes, Capability, Community, ExtendedCommunity, Family, FamilySet,
    Fault, FaultKind, Ipv6Prefix, LargeCommunity, Notification, Open, Prefix, RawAttribute,
    RouterId,
};
use serde::{Deserialize, Serialize};
use serde_json::{from_value, json, to_value};

/// Checks that a value is this JSON and is read back.
fn both_ways<T>(value: &T, json: serde_json::Value)
where
    T: Serialize + for<'de> Deserialize<'de> + PartialEq + std::fmt::Debug,
{
    assert_eq!(to_value(value).expect("a value"), json);
    assert_eq!(from_value::<T>(json).expect("a value"), *value);
}

#[test]
fn values_are_read_back_from_their_text() {
    both_ways(
        &"10.65.0.0/26".parse::<Prefix>().unwrap(),
        json!("10.65.0.0/26"),
    );
    both_ways(
        &"fd65::/64".parse::<Ipv6Prefix>().unwrap(),
        json!("fd65::/64"),
    );
    both_ways(&Asn(64512), json!(64512));
    both_ways(
        &"192.0.2.1".parse::<RouterId>().unwrap(),
        json!("192.0.2.1"),
    );
    both_ways(&Family::IPV6_UNICAST, json!("ipv6-unicast"));
    both_ways(&FamilySet::UNICAST, json!(["ipv4-unicast", "ipv6-unicast"]));
    both_ways(&"64512:1".parse::<Community>().unwrap(), json!("64512:1"));
    both_ways(&LargeCommunity::new(1, 2, 3), json!("1:2:3"));
    both_ways(
        &ExtendedCommunity::route_target_as2(64512, 7),
        json!("rt:64512:7"),
    );
    both_ways(&AsPath::sequence(&[Asn(1), Asn(2)]), json!("1 2"));
    both_ways(&AttrCode::Med, json!(4));
}

#[test]
fn bad_text_is_refused_with_its_reason() {
    let error = from_value::<Prefix>(json!("10.65.0.0")).unwrap_err();
    assert!(error.to_string().contains("write it as address/length"));
    let error = from_value::<FamilySet>(json!(["afi-9-safi-9"])).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("unsupported family afi-9-safi-9")
    );
}

#[test]
fn attributes_are_objects_with_rfc_names() {
    let set = Attributes {
        as_path: AsPath::sequence(&[Asn(65001)]),
        med: Some(7),
        unknown: vec![RawAttribute::new(AttrCode(99), 0xc0, vec![1, 0xff])],
        ..Attributes::default()
    };
    let json = json!({
        "ORIGIN": "IGP",
        "AS_PATH": "65001",
        "MULTI_EXIT_DISC": 7,
        "unknown": [{"code": 99, "flags": "0xc0", "value": "01ff"}],
    });
    assert_eq!(to_value(&set).unwrap(), json);
}

#[test]
fn messages_are_objects_for_readers() {
    let open = Open {
        asn: Asn(64512),
        hold_time: 90,
        id: "192.0.2.1".parse().unwrap(),
        capabilities: vec![Capability::RouteRefresh],
    };
    let json = to_value(&open).unwrap();
    assert_eq!(
        (&json["asn"], &json["id"]),
        (&json!(64512), &json!("192.0.2.1"))
    );
    assert_eq!(json["capabilities"][0]["name"], "route-refresh");
    let json = to_value(Notification::with_data(6, 2, vec![0].into())).unwrap();
    assert_eq!((&json["code"], &json["data"]), (&json!(6), &json!("00")));
    let json = to_value(Fault::new(FaultKind::Length, AttrCode::Med, 30)).unwrap();
    assert_eq!(json["attribute"], "MULTI_EXIT_DISC");
    assert_eq!(
        (&json["fault"], &json["at"]),
        (&json!("length"), &json!(30))
    );
}
