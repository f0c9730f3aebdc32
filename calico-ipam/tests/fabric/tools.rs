//! Operations of these tests on a datastore.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use calico_ipam::{Ipam, IpamError, Pool, Request, Taker};
use calico_model::{AllocationBlock, BlockAffinity, IpamHandle, IpamKey};
use calico_store::{KeyRange, LeaseId, Store};
use ipnet::IpNet;

/// Returns the seed of the run: `CAMBRIC_SEED`, derived from the content of the repository.
pub(crate) fn drawn_seed() -> u64 {
    std::env::var("CAMBRIC_SEED").map_or(1, |text| text.parse().expect("a number"))
}

pub(crate) fn pool(cidr: &str, block_size: u8) -> Pool {
    Pool {
        cidr: cidr.parse().unwrap(),
        block_size,
    }
}

pub(crate) fn taker(host: &str, handle: &str) -> Taker {
    Taker {
        handle: handle.to_owned(),
        attributes: [("node".to_owned(), host.to_owned())].into(),
    }
}

pub(crate) fn request<'a>(
    host: &'a str,
    taker: &'a Taker,
    count: usize,
    pools: &'a [Pool],
) -> Request<'a> {
    Request {
        host,
        taker,
        count,
        pools,
        reserved: &[],
        blocks_max: None,
    }
}

/// Assigns addresses to one handle.
pub(crate) async fn take(
    store: &dyn Store,
    host: &str,
    handle: &str,
    count: usize,
    pools: &[Pool],
) -> Result<Vec<IpAddr>, IpamError> {
    let taker = taker(host, handle);
    let given = Ipam::new(store)
        .assign(&request(host, &taker, count, pools))
        .await?;
    Ok(given.iter().map(|given| given.address).collect())
}

pub(crate) async fn configure(store: &dyn Store, config: &str) {
    let key = IpamKey::Config.to_string();
    store
        .put(key.into(), config.to_owned().into(), LeaseId::NONE)
        .await
        .unwrap();
}

/// Checks the consistency of the datastore; returns every allocated address with its handle.
pub(crate) async fn sound(store: &dyn Store) -> BTreeMap<IpAddr, String> {
    let prefix = KeyRange::prefix("/calico/ipam/v2/");
    let mut held = BTreeMap::new();
    let mut counted: BTreeMap<(String, IpNet), u32> = BTreeMap::new();
    let mut owners = BTreeSet::new();
    let mut affinities = BTreeSet::new();
    let mut handles: BTreeMap<(String, IpNet), u32> = BTreeMap::new();
    for item in store.list(prefix).await.unwrap().items {
        match std::str::from_utf8(&item.key).unwrap().parse().unwrap() {
            IpamKey::Block(cidr) => {
                let block = AllocationBlock::parse(&item.value).unwrap();
                let block = calico_ipam::Block::stored(block).unwrap();
                owners.extend(block.owner().map(|owner| (owner, cidr)));
                for (address, known) in block.value().taken() {
                    let handle = known.unwrap().handle_id.clone().unwrap();
                    *counted.entry((handle.clone(), cidr)).or_default() += 1;
                    assert_eq!(held.insert(address, handle), None, "{address}");
                }
            }
            IpamKey::Affinity { owner, block } => {
                assert!(BlockAffinity::parse(&item.value).unwrap().is_announced());
                affinities.insert((owner, block));
            }
            IpamKey::Handle(id) => {
                let handle = IpamHandle::parse(&item.value).unwrap();
                assert!(!handle.block.is_empty(), "{id}");
                handles.extend(
                    handle
                        .block
                        .into_iter()
                        .map(|(block, count)| ((id.clone(), block), count)),
                );
            }
            IpamKey::Config | IpamKey::Host(_) => {}
        }
    }
    assert_eq!(handles, counted, "handles count what blocks hold");
    assert_eq!(affinities, owners, "affinities are those of blocks");
    held
}
