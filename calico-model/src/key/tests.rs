use proptest::prelude::*;

use super::*;
use crate::{EndpointName, EndpointNameError};

#[test]
fn resources_of_both_scopes_are_read_and_written() {
    let node = ResourceKey::new(Kind::Node, None, "r1-c07").unwrap();
    let text = "/calico/resources/v3/projectcalico.org/nodes/r1-c07";
    assert_eq!(node.to_string(), text);
    assert_eq!(text.parse(), Ok(Key::Resource(node)));

    let text =
        "/calico/resources/v3/projectcalico.org/workloadendpoints/prod/r1--c07-k8s-web--0-eth0";
    let Ok(Key::Resource(key)) = text.parse() else {
        panic!("{text}")
    };
    assert_eq!(
        (key.kind(), key.namespace()),
        (Kind::WorkloadEndpoint, Some("prod"))
    );
    let name: EndpointName = key.name().parse().unwrap();
    assert_eq!((name.node(), name.orchestrator()), ("r1-c07", "k8s"));
    assert_eq!((name.workload(), name.endpoint()), ("web-0", "eth0"));
    assert_eq!(Key::Resource(key).to_string(), text);
}

#[test]
fn other_keys_of_the_model_are_kept() {
    for text in [
        "/calico/openstack/v2/no-region/neutron_election",
        "/calico/ipam/v3/x",
    ] {
        assert_eq!(text.parse(), Ok(Key::Other(text.into())));
    }
}

#[test]
fn invalid_key_has_its_reason() {
    let resource = |rest: &str| {
        format!("{RESOURCES_PREFIX}{rest}")
            .parse::<Key>()
            .unwrap_err()
    };
    assert_eq!("/registry/pods/x".parse::<Key>(), Err(KeyError::Foreign));
    assert_eq!("/calico/".parse::<Key>(), Err(KeyError::Foreign));
    assert_eq!(resource("nodes"), KeyError::Part);
    assert_eq!(resource("nodes/"), KeyError::Part);
    assert_eq!(resource("nodes/a/b"), KeyError::Scope(Kind::Node));
    assert_eq!(resource("knots/a"), KeyError::UnknownKind);
    assert_eq!(
        resource("workloadendpoints/a"),
        KeyError::Scope(Kind::WorkloadEndpoint)
    );
    assert_eq!(resource("workloadendpoints//a"), KeyError::Part);
    assert_eq!(resource("workloadendpoints/a/b/c"), KeyError::Part);
    assert_eq!(
        ResourceKey::new(Kind::Tier, Some("n"), "a")
            .unwrap_err()
            .to_string(),
        "Tier has no namespace"
    );
}

#[test]
fn kinds_are_found_by_both_names() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_name(kind.name()), Some(*kind));
        assert_eq!(Kind::from_plural(kind.plural()), Some(*kind));
    }
    assert_eq!(Kind::from_name("node"), None);
    for kind in Kind::ALL {
        assert_eq!(Kind::from_word(kind.name()), Some(*kind));
        assert_eq!(Kind::from_word(&kind.plural().to_uppercase()), Some(*kind));
    }
    for (word, kind) in [
        ("wep", Kind::WorkloadEndpoint),
        ("bgpConfig", Kind::BgpConfiguration),
        ("pool", Kind::IpPool),
        ("policy", Kind::NetworkPolicy),
        ("GNP", Kind::GlobalNetworkPolicy),
    ] {
        assert_eq!(Kind::from_word(word), Some(kind));
    }
    assert_eq!(Kind::from_word("pod"), None);
}

#[test]
fn ambiguous_endpoint_names_are_rejected() {
    for (text, error) in [
        ("a-b-c", EndpointNameError::Parts),
        ("a-b-c-d-e", EndpointNameError::Parts),
        ("a---b-c-d", EndpointNameError::Dash),
        ("-a-b-c", EndpointNameError::Empty),
        ("a-b-c-", EndpointNameError::Empty),
        ("", EndpointNameError::Parts),
        ("a--b-c-d-e/f", EndpointNameError::Slash),
    ] {
        assert_eq!(text.parse::<EndpointName>(), Err(error), "{text}");
    }
}

#[test]
fn endpoint_prefix_is_of_one_node() {
    let prefix = EndpointName::prefix("a-b", "cni");
    assert_eq!(prefix, "a--b-cni-");
    for (text, node, is_its) in [
        ("a--b-cni-w-eth0", "a-b", true),
        ("a--b-cni-w-eth0", "a", false),
        ("a--b-broken", "a-b", true),
        ("ab-cni-w-eth0", "a", false),
        ("a", "a", false),
    ] {
        assert_eq!(
            EndpointName::is_of_node(text, node),
            is_its,
            "{text} {node}"
        );
    }
}

fn part() -> impl Strategy<Value = String> {
    "[a-z0-9.]([a-z0-9.-]{0,8}[a-z0-9.])?"
}

proptest! {
    #[test]
    fn endpoint_names_round_trip(a in part(), b in part(), c in part(), d in part()) {
        let name = EndpointName::new(&a, &b, &c, &d).unwrap();
        prop_assert_eq!(name.to_string().parse(), Ok(name));
    }

    #[test]
    fn different_parts_never_share_a_name(
        a in prop::array::uniform4("[a-]{1,4}"),
        b in prop::array::uniform4("[a-]{1,4}"),
    ) {
        let name = |p: &[String; 4]| EndpointName::new(&p[0], &p[1], &p[2], &p[3]);
        if let (Ok(x), Ok(y)) = (name(&a), name(&b)) {
            prop_assert_eq!(a == b, x.to_string() == y.to_string());
        }
    }

    #[test]
    fn a_name_that_reads_is_written_the_same(text in "[a-b-]{0,24}") {
        if let Ok(name) = text.parse::<EndpointName>() {
            prop_assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn resource_keys_round_trip(at in 0..Kind::ALL.len(), namespace in part(), name in part()) {
        let kind = Kind::ALL[at];
        let namespace = (kind.scope() == Scope::Namespaced).then_some(namespace.as_str());
        let key = Key::Resource(ResourceKey::new(kind, namespace, &name).unwrap());
        prop_assert_eq!(key.to_string().parse(), Ok(key));
    }

    #[test]
    fn any_text_is_answered_and_what_reads_is_written_the_same(
        text in "(/calico/(resources/v3/projectcalico.org/|felix/v[12]/)?)?[a-z%/-]{0,40}",
    ) {
        if let Ok(key) = text.parse::<Key>() {
            prop_assert_eq!(key.to_string(), text);
        }
    }
}
