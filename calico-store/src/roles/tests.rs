use calico_model::Kind;

use super::*;
use crate::kv::RangeEnd;

fn owner(node: &str) -> Owner {
    Owner {
        node: node.to_owned(),
        cluster_ids: vec![[10, 0, 0, 9].into(), [10, 0, 0, 10].into()],
        ..Owner::default()
    }
}

/// The roles of one node.
fn of_node(owner: &Owner) -> Vec<EtcdRole> {
    let parts = Part::ALL.into_iter();
    let parts = parts.filter(|part| part.is_of_one_node());
    parts.map(|part| EtcdRole::new(part, owner)).collect()
}

fn written(role: &EtcdRole) -> Vec<&KeyRange> {
    let written = role.permissions.iter();
    let written = written.filter(|permission| permission.access.writes());
    written.map(|permission| &permission.range).collect()
}

/// Returns whether two ranges have a key in common. All ranges of roles are keys or prefixes.
fn overlap(one: &KeyRange, other: &KeyRange) -> bool {
    one.contains(&other.start) || other.contains(&one.start)
}

#[test]
fn no_role_of_a_node_writes_the_fabrics_configuration() {
    let everywhere = Owner {
        namespaces: Namespaces::All,
        ..owner("node1")
    };
    for role in [of_node(&owner("node1")), of_node(&everywhere)].concat() {
        for range in written(&role) {
            for kind in Kind::ALL {
                let of_kind = KeyRange::prefix(kind.prefix());
                let allowed = match role.part {
                    Part::Cni => *kind == Kind::WorkloadEndpoint,
                    // One key of each, that of the node.
                    Part::NodeStart => {
                        range.end == RangeEnd::Single
                            && matches!(kind, Kind::Node | Kind::FelixConfiguration)
                    }
                    _ => false,
                };
                assert!(allowed || !overlap(range, &of_kind), "{} {kind}", role.name);
            }
            let drains = KeyRange::prefix("/cambric/v1/drain/");
            assert!(!overlap(range, &drains), "{}", role.name);
        }
    }
}

#[test]
fn reflector_writes_its_registration_and_cluster_ids() {
    let role = EtcdRole::new(Part::RouteReflector, &owner("rr1"));
    let keys = [
        "/cambric/v1/reflector/rr1",
        "/cambric/v1/cluster/10.0.0.9",
        "/cambric/v1/cluster/10.0.0.10",
    ];
    let keys = keys.map(KeyRange::key);
    assert_eq!(written(&role), keys.iter().collect::<Vec<_>>());
    let client = EtcdRole::new(Part::BgpClient, &owner("rr1"));
    let report = KeyRange::key("/cambric/v1/drain-report/rr1");
    assert_eq!(written(&client), [&report]);
}

#[test]
fn ranges_end_at_a_separator() {
    for role in Part::ALL.map(|part| EtcdRole::new(part, &owner("node1"))) {
        for Permission { range, .. } in &role.permissions {
            let text = range.to_string();
            let is_prefix = *range == KeyRange::prefix(range.start.clone());
            assert!(
                range.end == RangeEnd::Single || is_prefix && text.ends_with(['/', '-']),
                "{} {text}",
                role.name
            );
        }
    }
}

#[test]
fn roles_of_nodes_with_a_common_prefix_share_no_own_keys() {
    let others = [
        "node10",
        "node1-a",
        "node1.a",
        "node",
        "node1-cni",
        "node1-cni-x",
    ];
    let mine = of_node(&owner("node1"));
    for other in others {
        let other = Owner {
            cluster_ids: vec![[10, 0, 0, 1].into()],
            ..owner(other)
        };
        for (mine, theirs) in mine.iter().zip(of_node(&other)) {
            for range in written(mine) {
                let is_shared = [
                    calico_model::IpamKey::BLOCKS,
                    calico_model::IpamKey::HANDLES,
                ]
                .iter()
                .any(|shared| *range == KeyRange::prefix(*shared));
                let meets = written(&theirs).iter().any(|their| overlap(range, their));
                assert_eq!(meets, is_shared, "{} {range}", theirs.name);
            }
        }
    }
    assert_eq!(mine[2].name, "cambric-cni-node1");
    assert!(mine[2].writes(
        b"/calico/resources/v3/projectcalico.org/workloadendpoints/default/node1-cni-w-eth0"
    ));
}

#[test]
fn accesses_of_one_range_are_one_permission() {
    let everywhere = Owner {
        namespaces: Namespaces::All,
        ..owner("node1")
    };
    let role = EtcdRole::new(Part::Cni, &everywhere);
    let endpoints = KeyRange::prefix(Kind::WorkloadEndpoint.prefix());
    let of_endpoints: Vec<Access> = role
        .permissions
        .iter()
        .filter(|permission| permission.range == endpoints)
        .map(|permission| permission.access)
        .collect();
    assert_eq!(of_endpoints, [Access::ReadWrite]);
}

/// Returns the table of the operator's page.
fn page() -> String {
    let owner = Owner {
        node: "NODE".to_owned(),
        cluster_ids: vec![[10, 0, 0, 9].into()],
        ..Owner::default()
    };
    let mut page = "| part | permission | keys | use |\n|---|---|---|---|\n".to_owned();
    for role in Part::ALL.map(|part| EtcdRole::new(part, &owner)) {
        for Permission {
            access,
            range,
            purpose,
        } in &role.permissions
        {
            let all = if range.end == RangeEnd::Single {
                ""
            } else {
                "…"
            };
            let part = role.part;
            page.push_str(&format!(
                "| {part} | {access} | `{range}{all}` | {purpose} |\n"
            ));
        }
    }
    page
}

#[test]
fn page_of_roles_has_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/etcd-roles.md");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let start = text.find("| part | permission |").expect("the table");
    let rest = text[start..]
        .find("\n\n")
        .map_or("", |end| &text[start + end + 1..]);
    let wanted = format!("{}{}{rest}", &text[..start], page());
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &wanted).expect("docs/operate can be written");
    }
    let is_current = std::fs::read_to_string(path).is_ok_and(|text| text == wanted);
    assert!(is_current, "run the test with UPDATE_EXPECT=1 to write it");
}
