use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{AllocationBlock, Key};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn json(octets: &[u8]) -> Value {
    serde_json::from_slice(octets).unwrap()
}

#[test]
fn keys_have_the_documented_text() {
    let host = || AffinityOwner::Host("r1-c07".into());
    for (text, key) in [
        (
            "/calico/ipam/v2/assignment/ipv4/block/10.65.3.64-26",
            IpamKey::Block(net("10.65.3.64/26")),
        ),
        (
            "/calico/ipam/v2/assignment/ipv6/block/fd65::3:40-122",
            IpamKey::Block(net("fd65::3:40/122")),
        ),
        (
            "/calico/ipam/v2/host/r1-c07/ipv4/block/10.65.3.64-26",
            IpamKey::Affinity {
                owner: host(),
                block: net("10.65.3.64/26"),
            },
        ),
        (
            "/calico/ipam/v2/virtual/load-balancer/ipv4/block/10.65.3.64-26",
            IpamKey::Affinity {
                owner: AffinityOwner::Virtual("load-balancer".into()),
                block: net("10.65.3.64/26"),
            },
        ),
        (
            "/calico/ipam/v2/handle/k8s-pod-network.9f3c",
            IpamKey::Handle("k8s-pod-network.9f3c".into()),
        ),
        (
            "/calico/ipam/v2/host/r1-c07",
            IpamKey::Host("r1-c07".into()),
        ),
        ("/calico/ipam/v2/config", IpamKey::Config),
    ] {
        assert_eq!(key.to_string(), text);
        assert_eq!(text.parse(), Ok(Key::Ipam(key)));
    }
    assert_eq!(
        IpamKey::affinities_prefix(&host()),
        "/calico/ipam/v2/host/r1-c07/"
    );
    assert_eq!("host:r1-c07".parse(), Ok(host()));
    assert_eq!("r1-c07".parse::<AffinityOwner>(), Err(IpamKeyError));
}

#[test]
fn other_forms_are_no_keys_of_address_management() {
    for rest in [
        "",
        "assignment/ipv6/block/10.65.3.64-26",
        "assignment/ipv4/block/10.65.3.65-26",
        "assignment/ipv4/block/10.65.3.64-33",
        "assignment/ipv4/block/10.65.3.64",
        "assignment/ipv4/block/010.65.3.64-26",
        "assignment/ipv6/block/FD65::3:40-122",
        "tenant/r1-c07/ipv4/block/10.65.3.64-26",
        "host//ipv4/block/10.65.3.64-26",
        "host/r1-c07/ipv4/block",
        "handle/",
        "config/more",
    ] {
        let text = format!("{IPAM_PREFIX}{rest}");
        assert_eq!(text.parse::<IpamKey>(), Err(IpamKeyError), "{text}");
    }
}

#[test]
fn affinity_without_state_is_confirmed() {
    for octets in [
        b"".as_slice(),
        b"{}",
        b"{\"state\":\"\"}",
        b"{\"state\":null}",
    ] {
        let affinity = BlockAffinity::parse(octets).unwrap();
        assert_eq!(affinity, BlockAffinity::new(AffinityState::Confirmed));
        assert!(affinity.is_announced());
    }
    for (state, announced) in [
        ("pending", false),
        ("pendingDeletion", true),
        ("confirmed", true),
    ] {
        let value = json!({"state": state, "deleted": false});
        let affinity = BlockAffinity::parse(value.to_string().as_bytes()).unwrap();
        assert_eq!(affinity.is_announced(), announced, "{state}");
        assert_eq!(json(&affinity.encode()), value);
    }
    assert!(
        !BlockAffinity::parse(b"{\"deleted\":true}")
            .unwrap()
            .is_announced()
    );
    let error = BlockAffinity::parse(b"{\"state\":\"maybe\"}").unwrap_err();
    assert!(
        error.to_string().contains("block affinity: state"),
        "{error}"
    );
}

#[test]
fn handles_and_settings_have_the_documented_json() {
    let handle = json!({"block": {"10.65.3.64/26": 1}, "deleted": false, "newer": 1});
    let read = IpamHandle::parse(handle.to_string().as_bytes()).unwrap();
    assert_eq!(read.block[&net("10.65.3.64/26")], 1);
    assert_eq!(json(&read.encode()), handle);

    let config = json!({"strict_affinity": true, "auto_allocate_blocks": true, "maxBlocksPerHost": 20,
        "kubeVirtVMAddressPersistence": "Enabled", "ipCooldownSeconds": 60});
    let read = IpamConfig::parse(config.to_string().as_bytes()).unwrap();
    assert_eq!(
        (read.max_blocks_per_host, read.ip_cooldown_seconds),
        (20, 60)
    );
    assert_eq!(json(&read.encode()), config);
    assert!(
        IpamConfig::default().auto_allocate_blocks,
        "no value stored"
    );
    assert!(
        !IpamConfig::parse(b"{}").unwrap().auto_allocate_blocks,
        "stored as off"
    );
}

/// Returns a block of four with two allocated addresses, as other writers store it.
fn block() -> Value {
    json!({"cidr": "10.65.3.64/30", "affinity": "host:r1-c07",
        "affinity_claim_time": "2026-03-04T10:20:30Z",
        "allocations": [0, null, 1, null], "unallocated": [1, 3],
        "attributes": [
            {"handle_id": "vxlan-tunnel-addr-r1-c07", "secondary": {"node": "r1-c07", "type": "vxlanTunnelAddress"}},
            {"handle_id": "k8s-pod-network.9f3c", "secondary": {"pod": "web-0", "node": "r1-c08"},
             "alternateOwnerAttrs": {"node": "r1-c09"}, "releasedAt": "2026-03-04T10:20:31Z", "newer": []}],
        "sequenceNumber": 1_772_619_630_000_000_123_u64,
        "sequenceNumberForAllocation": {"0": 1_772_619_630_000_000_123_u64, "2": 1_772_619_630_000_000_124_u64},
        "deleted": false, "newer": {"a": 1}})
}

#[test]
fn a_block_is_written_as_it_was_read() {
    let read = AllocationBlock::parse(block().to_string().as_bytes()).unwrap();
    assert_eq!(json(&read.encode()), block());
    assert_eq!(read.owner(), Some(AffinityOwner::Host("r1-c07".into())));
    assert_eq!(
        read.sequence_number_for_allocation[&2],
        1_772_619_630_000_000_124
    );
    let taken: Vec<_> = read
        .taken()
        .map(|(address, who)| {
            (
                address.to_string(),
                who.unwrap().active_owner["node"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        taken,
        [
            ("10.65.3.64".into(), "r1-c07"),
            ("10.65.3.66".into(), "r1-c08")
        ]
    );
}

#[test]
fn block_without_affinity_has_no_owner() {
    let mut value = block();
    value["affinity"] = Value::Null;
    let read = AllocationBlock::parse(value.to_string().as_bytes()).unwrap();
    assert_eq!(read.owner(), None);
    assert_eq!(json(&read.encode())["affinity"], Value::Null);
    value["hostAffinity"] = json!("r1-c07");
    let read = AllocationBlock::parse(value.to_string().as_bytes()).unwrap();
    assert_eq!(read.owner(), Some(AffinityOwner::Host("r1-c07".into())));
}

proptest! {
    #[test]
    fn places_and_addresses_of_a_block_are_each_others_inverse(ipv6 in any::<bool>(), ordinal in any::<u16>()) {
        let mut value = block();
        value["cidr"] = json!(if ipv6 { "fd65::/112" } else { "255.255.0.0/16" });
        let mut block = AllocationBlock::parse(value.to_string().as_bytes()).unwrap();
        let address = block.address(ordinal).unwrap();
        prop_assert_eq!(block.ordinal(address), Some(ordinal));
        block.cidr = if ipv6 { net("fd65::/122") } else { net("255.255.0.0/26") };
        prop_assert_eq!(block.address(ordinal).is_some(), ordinal < 64);
        prop_assert_eq!(block.ordinal(address).is_some(), ordinal < 64);
    }

    #[test]
    fn any_octets_are_answered(octets in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = AllocationBlock::parse(&octets);
        let _ = BlockAffinity::parse(&octets);
    }

    #[test]
    fn parsed_key_is_written_the_same(text in "/calico/ipam/v2/(host|virtual|assignment|handle|config)?(/[a-z]{0,3})?(/ipv[46]/block/([0-9]{1,3}\\.){3}0-[0-9]{1,2})?") {
        let key: Key = text.parse().unwrap();
        prop_assert_eq!(key.to_string(), text);
    }
}
