use std::time::Duration;

use proptest::prelude::*;

use super::*;

const START_S: u64 = 1_772_619_630;

fn at(seconds: u64) -> Time {
    Time::after_epoch(Duration::from_secs(START_S + seconds))
}

fn fresh(cidr: &str) -> Block {
    let owner = AffinityOwner::Host("n1".to_owned());
    Block::fresh(cidr.parse().unwrap(), &owner, at(0)).unwrap()
}

fn taker(handle: &str) -> Taker {
    Taker {
        handle: handle.to_owned(),
        attributes: [("node".to_owned(), "n1".to_owned())].into(),
    }
}

fn of(given: &[Given]) -> Vec<Release> {
    given
        .iter()
        .map(|given| Release::of(given.address))
        .collect()
}

#[test]
fn a_fresh_block_is_what_calico_makes() {
    let block = fresh("10.65.3.64/30");
    let value = block.value();
    assert_eq!(value.affinity.as_deref(), Some("host:n1"));
    assert_eq!(
        value.affinity_claim_time.as_deref(),
        Some("2026-03-04T10:20:30Z")
    );
    assert_eq!(value.sequence_number, START_S * 1_000_000_000);
    assert_eq!(value.allocations, [None; 4]);
    assert_eq!(value.unallocated, [0, 1, 2, 3]);
    assert!(block.is_empty());
    assert_eq!(Block::stored(value.clone()), Ok(block));
    let owner = AffinityOwner::Host("n1".to_owned());
    let huge = Block::fresh("fd65::/64".parse().unwrap(), &owner, at(0));
    assert_eq!(huge, Err(BlockFault::Size));
    assert_eq!(
        Block::fresh("::/0".parse().unwrap(), &owner, at(0)),
        Err(BlockFault::Size)
    );
}

#[test]
fn address_free_for_longest_is_assigned_first() {
    let mut block = fresh("10.65.3.64/30");
    let first = block.take(2, &taker("a"), &[]);
    assert_eq!(first[0].address.to_string(), "10.65.3.64");
    block.release(&of(&first), at(1), 0).unwrap();
    let next = block.take(3, &taker("b"), &[]);
    let addresses: Vec<String> = next.iter().map(|given| given.address.to_string()).collect();
    assert_eq!(addresses, ["10.65.3.66", "10.65.3.67", "10.65.3.64"]);
}

#[test]
fn reserved_addresses_are_left_free() {
    let mut block = fresh("10.65.3.64/30");
    let reserved = ["10.65.3.64/31".parse().unwrap()];
    assert_eq!(block.free(&reserved), 2);
    assert_eq!(block.take(4, &taker("a"), &reserved).len(), 2);
    assert_eq!(block.value().unallocated, [0, 1]);
    let one = block.take_address("10.65.3.65".parse().unwrap(), &taker("b"));
    assert!(one.is_some(), "asked for by name");
    assert_eq!(
        block.take_address("10.65.3.65".parse().unwrap(), &taker("b")),
        None
    );
    assert_eq!(
        block.take_address("10.65.4.1".parse().unwrap(), &taker("b")),
        None
    );
}

#[test]
fn a_released_address_cools_down() {
    let mut block = fresh("10.65.3.64/32");
    let taken = block.take(1, &taker("a"), &[]);
    block.release(&of(&taken), at(10), 60).unwrap();
    assert!(!block.is_empty());
    assert_eq!(
        block.value().attributes[0].released_at.as_deref(),
        Some("2026-03-04T10:20:40Z")
    );
    assert_eq!(
        block
            .release(&of(&taken), at(11), 60)
            .unwrap()
            .not_taken
            .len(),
        1
    );
    block.collect(at(69), 60);
    assert_eq!(block.free(&[]), 0);
    block.collect(at(70), 60);
    assert_eq!(block.free(&[]), 1);
    assert!(block.is_empty() && block.value().attributes.is_empty());
}

#[test]
fn a_late_release_does_not_hit_the_next_taker() {
    let mut block = fresh("10.65.3.64/32");
    let first = block.take(1, &taker("a"), &[])[0];
    block.count_write();
    block
        .release(&[Release::of(first.address)], at(1), 0)
        .unwrap();
    block.count_write();
    let second = block.take(1, &taker("b"), &[])[0];
    assert_eq!(second.address, first.address);
    let late = Release {
        sequence: Some(first.sequence),
        ..Release::of(first.address)
    };
    let wrong = Release {
        handle: Some("a".to_owned()),
        ..Release::of(first.address)
    };
    let before = block.clone();
    assert_eq!(block.release(&[late], at(2), 0), Err(first.address));
    assert_eq!(block.release(&[wrong], at(2), 0), Err(first.address));
    assert_eq!(block, before);
    assert_eq!(block.of_handle("b"), [second]);
}

#[test]
fn blocks_that_contradict_themselves_are_refused() {
    let mut block = fresh("10.65.3.64/30");
    block.take(1, &taker("a"), &[]);
    type Spoil = fn(&mut AllocationBlock);
    let spoiled: [(Spoil, BlockFault); 6] = [
        (
            |value| value.cidr = "10.0.0.0/8".parse().unwrap(),
            BlockFault::Size,
        ),
        (
            |value| value.allocations.push(None),
            BlockFault::Allocations,
        ),
        (|value| value.attributes.clear(), BlockFault::Attributes),
        (|value| value.unallocated.push(0), BlockFault::Unallocated),
        (|value| value.unallocated.push(1), BlockFault::Unallocated),
        (
            |value| value.unallocated.truncate(1),
            BlockFault::Unallocated,
        ),
    ];
    for (spoil, fault) in spoiled {
        let mut value = block.value().clone();
        spoil(&mut value);
        assert_eq!(Block::stored(value), Err(fault));
    }
}

#[test]
fn addresses_reserved_by_windows_are_not_in_use() {
    let mut block = fresh("10.65.3.64/30");
    block.take(1, &taker("Windows-Reserved-IPAM-Handle"), &[]);
    assert!(block.is_empty());
    block.take(1, &taker("a"), &[]);
    assert!(!block.is_empty());
}

/// An operation on a block.
#[derive(Debug, Clone)]
enum Step {
    Take(usize, u8),
    Release(Vec<u8>),
    ReleaseHandle(u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..4_usize, 0..4_u8).prop_map(|(count, handle)| Step::Take(count, handle)),
        prop::collection::vec(0..16_u8, 1..4).prop_map(Step::Release),
        (0..4_u8).prop_map(Step::ReleaseHandle),
        (0..40_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn a_block_is_a_map_of_addresses(steps in prop::collection::vec(step(), 0..40), cool_down_s in 0..60_u32) {
        let mut block = fresh("10.65.3.64/28");
        let mut held: BTreeMap<IpAddr, String> = BTreeMap::new();
        let mut cold: BTreeMap<IpAddr, u64> = BTreeMap::new();
        let mut now = 0;
        for step in steps {
            let cooled = |cold: &BTreeMap<IpAddr, u64>, address: &IpAddr, now| {
                cold.get(address).is_none_or(|then| now - then >= u64::from(cool_down_s))
            };
            match step {
                Step::Wait(seconds) => now += seconds,
                Step::Take(count, handle) => {
                    let handle = format!("h{handle}");
                    block.collect(at(now), cool_down_s);
                    for given in block.take(count, &taker(&handle), &[]) {
                        prop_assert!(cooled(&cold, &given.address, now));
                        prop_assert_eq!(held.insert(given.address, handle.clone()), None);
                        cold.remove(&given.address);
                    }
                    block.count_write();
                }
                Step::Release(ordinals) => {
                    let releases: Vec<Release> = ordinals
                        .iter()
                        .filter_map(|at| block.value().address(u16::from(*at)))
                        .map(Release::of)
                        .collect();
                    let released = block.release(&releases, at(now), cool_down_s).unwrap();
                    let mut count = BTreeMap::new();
                    for release in releases {
                        if let Some(handle) = held.remove(&release.address) {
                            *count.entry(handle).or_insert(0) += 1;
                            cold.insert(release.address, now);
                        }
                    }
                    prop_assert_eq!(released.by_handle, count);
                    block.count_write();
                }
                Step::ReleaseHandle(handle) => {
                    let handle = format!("h{handle}");
                    let taken = block.of_handle(&handle);
                    let addresses: Vec<IpAddr> = taken.iter().map(|given| given.address).collect();
                    let theirs = held.iter().filter(|(_, other)| **other == handle);
                    prop_assert_eq!(&addresses, &theirs.map(|(address, _)| *address).collect::<Vec<_>>());
                    block.release(&of(&taken), at(now), cool_down_s).unwrap();
                    for address in addresses {
                        held.remove(&address);
                        cold.insert(address, now);
                    }
                    block.count_write();
                }
            }
            let stored = AllocationBlock::parse(&block.value().encode()).unwrap();
            prop_assert_eq!(Block::stored(stored), Ok(block.clone()));
            let warm = cold.keys().filter(|address| cooled(&cold, address, now)).count();
            prop_assert!(block.free(&[]) <= 16 - held.len());
            prop_assert!(block.free(&[]) + warm >= 16 - held.len() - cold.len());
        }
    }
}
