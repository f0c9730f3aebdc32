//! The device for IP in IP from stored values.

use super::*;

fn ipip_pool(mode: &str) -> Value {
    json!({"spec": {"cidr": "10.65.0.0/16", "ipipMode": mode}})
}

fn ipip_node(address: &str, tunnel: &Value) -> Value {
    json!({"spec": {"bgp": {"ipv4Address": address, "ipv4IPIPTunnelAddr": tunnel}}})
}

fn of(calculator: &mut Calculator) -> IpipState {
    calculator.recompute();
    calculator.desired().overlay.ipip.clone()
}

fn settings(calculator: &mut Calculator, spec: &Value) {
    put(
        calculator,
        "felixconfigurations/default",
        &json!({ "spec": spec }),
    );
}

#[test]
fn ipip_device_follows_pools_node_and_settings() {
    let mut calculator = Calculator::new(HOST, None);
    let unused = |pools: &[&str]| IpipState::Unused {
        pools: pools.iter().map(|net| net.parse().unwrap()).collect(),
    };
    assert_eq!(of(&mut calculator), unused(&[]));
    put(&mut calculator, "ippools/a", &ipip_pool("Never"));
    assert_eq!(of(&mut calculator), unused(&["10.65.0.0/16"]));
    put(&mut calculator, "ippools/a", &ipip_pool("CrossSubnet"));
    let field = "spec.bgp.ipv4IPIPTunnelAddr";
    let lacks = IpipState::Lacks {
        field,
        pools: ["10.65.0.0/16".parse().unwrap()].into(),
    };
    assert_eq!(of(&mut calculator), lacks);
    let own = ipip_node("10.0.0.1/24", &Value::Null);
    put(&mut calculator, "nodes/n1", &own);
    assert_eq!(of(&mut calculator), lacks);
    let problems = &calculator.desired().problems;
    assert!(
        problems.iter().any(|one| one.field == field),
        "{problems:?}"
    );
    let own = ipip_node("10.0.0.1/24", &json!("10.65.1.0"));
    put(&mut calculator, "nodes/n1", &own);
    let mut device = IpipDevice {
        address: [10, 65, 1, 0].into(),
        node: Some([10, 0, 0, 1].into()),
        mtu: None,
        uplinks: None,
    };
    assert_eq!(of(&mut calculator), IpipState::Wanted(device.clone()));
    assert!(calculator.desired().problems.is_empty());
    settings(
        &mut calculator,
        &json!({"ipipMTU": 1400, "mtuIfacePattern": "^bond"}),
    );
    device.mtu = Some(1400);
    device.uplinks = Some("^bond".parse().unwrap());
    assert_eq!(of(&mut calculator), IpipState::Wanted(device));
    settings(&mut calculator, &json!({"ipipEnabled": false}));
    assert_eq!(of(&mut calculator), unused(&["10.65.0.0/16"]));
    let rules = calculator.desired().rules();
    assert!(!crate::render::guards_ipip(rules));
    settings(&mut calculator, &json!({"ipipEnabled": true}));
    put(&mut calculator, "ippools/a", &ipip_pool("Never"));
    assert!(matches!(of(&mut calculator), IpipState::Wanted(_)));
    let rules = calculator.desired().rules();
    assert!(crate::render::guards_ipip(rules));
}

#[test]
fn routes_through_ipip_lead_to_nodes_by_the_mode() {
    for (mode, to_near) in [("Always", "ipip 10.0.0.2"), ("CrossSubnet", "via 10.0.0.2")] {
        let mut calculator = Calculator::new(HOST, None);
        put(&mut calculator, "ippools/a", &ipip_pool(mode));
        for (n, subnet) in [(1, 0), (2, 0), (3, 1)] {
            let address = format!("10.0.{subnet}.{n}/24");
            let spec = ipip_node(&address, &json!(format!("10.65.{n}.0")));
            put(&mut calculator, &format!("nodes/n{n}"), &spec);
            let key = block(&format!("n{n}"), &format!("10.65.{n}.0-26"));
            put(&mut calculator, &key, &json!({"state": "confirmed"}));
        }
        calculator.recompute();
        let wanted = [
            format!("10.65.2.0/26 {to_near}"),
            "10.65.3.0/26 ipip 10.0.1.3".to_owned(),
        ];
        assert_eq!(routes(calculator.desired()), wanted, "{mode}");
        // Without the device, no route leads through it.
        let own = ipip_node("10.0.0.1/24", &Value::Null);
        put(&mut calculator, "nodes/n1", &own);
        calculator.recompute();
        let left = routes(calculator.desired());
        assert!(left.iter().all(|route| !route.contains("ipip")), "{left:?}");
    }
}
