use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use calico_model::ReflectorState;
use etcd_lite::{Core, CoreConfig};

use super::*;

mod pair;

const NAME: &str = "rr1";
const ROUTER_ID: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

fn wish(clients: u32, held: Option<Ipv4Addr>) -> Wish {
    let value = r#"{"asNumber":64512,"ipv4Address":"10.0.0.1","clusterID":"0.0.0.0","zone":"a"}"#;
    let mut registration = Registration::parse(value.as_bytes()).expect("reads");
    registration.clients = clients;
    let router_id = ROUTER_ID;
    Wish {
        registration,
        cluster: ClusterWish::Own {
            router_id,
            held,
            avoid: BTreeSet::new(),
        },
    }
}

/// A registrar beside a datastore, with one clock.
struct World {
    core: Core,
    now: Duration,
    registrar: Registrar,
    jobs: usize,
}

impl World {
    fn new() -> Self {
        Self {
            core: Core::new(CoreConfig::default()),
            now: Duration::ZERO,
            registrar: Registrar::new(NAME, Duration::from_secs(15)),
            jobs: 0,
        }
    }

    fn instant(&self) -> Instant {
        Instant::ZERO + self.now
    }

    fn ask(&mut self, job: Job) -> Answer {
        match job {
            Job::Grant(ttl_s) => {
                Answer::Granted(self.core.lease_grant(self.now, LeaseId::NONE, ttl_s))
            }
            Job::KeepAlive(lease) => Answer::KeptAlive(self.core.lease_keep_alive(self.now, lease)),
            Job::Txn(txn) => Answer::Done(self.core.txn(&txn)),
        }
    }

    /// Lets so much time pass; the datastore answers, or does not.
    fn pass(&mut self, seconds: u64, answers: bool) {
        let end = self.now + Duration::from_secs(seconds);
        loop {
            while let Some(job) = self.registrar.poll(self.instant()) {
                self.jobs += 1;
                assert!(self.jobs < 10_000, "it asks without end");
                let answer = match answers {
                    true => self.ask(job),
                    false => deaf(&job),
                };
                let now = self.instant();
                self.registrar.done(now, answer);
            }
            let next = self
                .registrar
                .poll_timeout()
                .map(|at| Duration::from_nanos(at.0));
            let Some(next) = next.filter(|at| *at < end) else {
                break;
            };
            assert!(next > self.now, "its deadlines are ahead");
            self.now = next;
            self.core.expire(self.now);
        }
        self.now = end;
        self.core.expire(self.now);
    }

    fn get(&self, key: FabricKey) -> Option<Vec<u8>> {
        let query = Query::new(KeyRange::key(key.to_string()));
        let listing = self.core.range(&query).expect("answers");
        listing.items.first().map(|item| item.value.to_vec())
    }

    fn registered(&self) -> Option<Registration> {
        let value = self.get(FabricKey::Reflector(NAME.into()))?;
        Some(Registration::parse(&value).expect("reads"))
    }

    fn put(&mut self, key: FabricKey, value: Vec<u8>) {
        let then = vec![Op::Put(Put::new(key.to_string(), value))];
        self.core
            .txn(&Txn {
                then,
                ..Txn::default()
            })
            .expect("done");
    }

    fn delete(&mut self, key: FabricKey) {
        let range = KeyRange::key(key.to_string());
        let then = vec![Op::Delete(Delete {
            range,
            previous: false,
        })];
        self.core
            .txn(&Txn {
                then,
                ..Txn::default()
            })
            .expect("done");
    }
}

fn deaf(job: &Job) -> Answer {
    let away = || Error::Unavailable("away".into());
    match job {
        Job::Grant(_) => Answer::Granted(Err(away())),
        Job::KeepAlive(_) => Answer::KeptAlive(Err(away())),
        Job::Txn(_) => Answer::Done(Err(away())),
    }
}

#[test]
fn reflector_registers_its_own_cluster_id_under_a_kept_lease() {
    let mut world = World::new();
    world.pass(60, true);
    assert_eq!(world.jobs, 0, "there is nothing to write yet");
    world.registrar.want(wish(0, None));
    world.pass(1, true);
    let registration = world.registered().expect("there");
    assert_eq!(registration.cluster_id, ROUTER_ID, "RFC 4456 §7");
    assert_eq!(world.registrar.registered(), Some(&registration));
    let claim = world.get(FabricKey::Cluster(ROUTER_ID)).expect("claimed");
    assert_eq!(ClusterClaim::parse(&claim).expect("reads").reflector, NAME);

    world.pass(600, true);
    assert!(world.registered().is_some(), "the lease is kept alive");
    assert!(
        world.jobs < 600 / 5 + 600 / 60 + 5,
        "{} questions",
        world.jobs
    );

    world.pass(60, false);
    assert!(
        world.registered().is_none(),
        "whoever is silent is forgotten"
    );
    let claim = world.get(FabricKey::Cluster(ROUTER_ID));
    assert!(claim.is_some(), "its cluster id is not");
}

// Promise: as route-reflector reflector_registers_only_after_it_listens
#[test]
fn reflector_that_does_not_listen_is_not_registered() {
    let mut world = World::new();
    world.registrar.claim(wish(0, None));
    world.pass(1, true);
    let claim = world.get(FabricKey::Cluster(ROUTER_ID)).expect("claimed");
    assert_eq!(ClusterClaim::parse(&claim).expect("reads").reflector, NAME);
    assert_eq!(world.jobs, 1);
    world.pass(600, true);
    assert_eq!(world.registered(), None);
    assert_eq!(world.registrar.registered(), None);
    assert!(world.jobs < 15, "{} questions", world.jobs);

    world.registrar.want(wish(0, Some(ROUTER_ID)));
    world.pass(0, true);
    assert_eq!(world.registered().expect("there").cluster_id, ROUTER_ID);
}

#[test]
fn deleted_claim_is_made_again_before_the_reflector_listens() {
    let mut world = World::new();
    world.registrar.claim(wish(0, None));
    world.pass(1, true);
    world.delete(FabricKey::Cluster(ROUTER_ID));
    world.pass(61, true);
    assert!(world.get(FabricKey::Cluster(ROUTER_ID)).is_some());
    assert_eq!(world.registered(), None);
}

#[test]
fn given_cluster_id_needs_no_claim() {
    let mut world = World::new();
    let given = Wish {
        cluster: ClusterWish::Given(ROUTER_ID),
        ..wish(0, None)
    };
    world.registrar.claim(given.clone());
    world.pass(600, true);
    assert_eq!(world.jobs, 0);
    world.registrar.want(given);
    world.pass(0, true);
    assert!(world.registered().is_some());
}

#[test]
fn reflector_listening_before_its_claim_registers() {
    let mut world = World::new();
    world.registrar.claim(wish(0, None));
    let now = world.instant();
    let job = world.registrar.poll(now).expect("a claim");
    let answer = world.ask(job);
    world.registrar.want(wish(0, None));
    world.registrar.done(now, answer);
    assert_eq!(world.registrar.registered(), None);
    world.pass(0, true);
    assert_eq!(world.registrar.registered(), world.registered().as_ref());
    assert!(world.registered().is_some());
}

#[test]
fn reflector_registers_again_after_a_lost_lease() {
    let mut world = World::new();
    world.registrar.want(wish(0, None));
    world.pass(1, true);
    world.pass(120, false);
    assert!(world.registered().is_none());
    assert!(
        world
            .registrar
            .trouble()
            .expect("a report")
            .contains("away")
    );
    world.pass(6, true);
    assert!(world.registered().is_some());
    assert_eq!(world.registrar.trouble(), None);
    assert_eq!(world.registered().expect("there").cluster_id, ROUTER_ID);
}

#[test]
fn store_that_loses_leases_is_asked_at_intervals() {
    let mut world = World::new();
    world.registrar.want(wish(0, None));
    while world.now < Duration::from_secs(60) {
        let now = world.instant();
        while let Some(job) = world.registrar.poll(now) {
            world.jobs += 1;
            assert!(world.jobs < 100, "it asks without end");
            let answer = match &job {
                Job::KeepAlive(lease) => Answer::KeptAlive(Err(Error::NoLease(*lease))),
                Job::Txn(_) => Answer::Done(Err(Error::NoLease(LeaseId(7)))),
                Job::Grant(_) => world.ask(job),
            };
            world.registrar.done(now, answer);
        }
        world.now += Duration::from_millis(50);
    }
    assert!(world.jobs > 10, "it goes on asking");
    assert!(world.registrar.trouble().is_some());
    world.pass(6, true);
    assert!(world.registered().is_some());
    assert_eq!(world.registrar.trouble(), None);
}

#[test]
fn replaced_store_gets_a_new_registration() {
    let mut world = World::new();
    world.registrar.want(wish(0, None));
    world.pass(1, true);
    world.core = Core::new(CoreConfig::default());
    world.pass(6, true);
    assert!(world.registered().is_some());
    assert!(world.get(FabricKey::Cluster(ROUTER_ID)).is_some());
}

#[test]
fn cluster_id_claimed_by_another_reflector_is_not_taken() {
    let mut world = World::new();
    let other = ClusterClaim::of("rr2").encode();
    world.put(FabricKey::Cluster(ROUTER_ID), other.clone());
    let second = cluster_ids(NAME, ROUTER_ID).nth(1).expect("another");
    world.put(FabricKey::Cluster(second), b"not even JSON".to_vec());
    world.registrar.want(wish(0, None));
    world.pass(1, true);
    let third = cluster_ids(NAME, ROUTER_ID).nth(2).expect("another");
    assert_eq!(world.registered().expect("there").cluster_id, third);
    assert_eq!(world.get(FabricKey::Cluster(ROUTER_ID)), Some(other));

    // While it runs, an operator has restored an older state of the datastore.
    world.put(FabricKey::Cluster(third), ClusterClaim::of("rr3").encode());
    world.pass(61, true);
    let fourth = cluster_ids(NAME, ROUTER_ID).nth(3).expect("another");
    assert_eq!(world.registered().expect("there").cluster_id, fourth);
}

#[test]
fn existing_claim_of_the_reflector_is_used_unchanged() {
    let mut world = World::new();
    let held = Ipv4Addr::new(0, 0, 0, 7);
    let claim = br#"{"reflector":"rr1","note":"kept"}"#.to_vec();
    world.put(FabricKey::Cluster(held), claim.clone());
    world.registrar.want(wish(0, Some(held)));
    world.pass(1, true);
    assert_eq!(world.registered().expect("there").cluster_id, held);
    assert_eq!(
        world.get(FabricKey::Cluster(held)),
        Some(claim),
        "not touched"
    );
    assert_eq!(world.get(FabricKey::Cluster(ROUTER_ID)), None);
}

#[test]
fn given_cluster_id_is_used_despite_another_claim() {
    let mut world = World::new();
    let id = Ipv4Addr::new(0, 0, 0, 1);
    world.put(FabricKey::Cluster(id), ClusterClaim::of("rr2").encode());
    let cluster = ClusterWish::Given(id);
    world.registrar.want(Wish {
        cluster,
        ..wish(0, None)
    });
    world.pass(1, true);
    assert_eq!(world.registered().expect("there").cluster_id, id);
}

#[test]
fn assigned_id_is_released_with_its_claim() {
    let mut world = World::new();
    let held = Ipv4Addr::new(0, 0, 0, 7);
    world.put(
        FabricKey::Cluster(held),
        br#"{"reflector":"rr1","note":"kept"}"#.to_vec(),
    );
    world.registrar.want(wish(0, Some(held)));
    world.pass(1, true);
    let avoiding = |avoid: &[Ipv4Addr]| Wish {
        cluster: ClusterWish::Own {
            router_id: ROUTER_ID,
            held: Some(held),
            avoid: avoid.iter().copied().collect(),
        },
        ..wish(0, None)
    };
    world.registrar.want(avoiding(&[held, ROUTER_ID]));
    world.pass(1, true);
    let second = cluster_ids(NAME, ROUTER_ID).nth(1).expect("another");
    assert_eq!(world.registered().expect("there").cluster_id, second);
    assert_eq!(world.get(FabricKey::Cluster(held)), None, "free again");
    assert_eq!(world.get(FabricKey::Cluster(ROUTER_ID)), None);
    assert!(world.get(FabricKey::Cluster(second)).is_some());

    // A cluster ID that now belongs to another reflector is left to it.
    world.put(FabricKey::Cluster(held), ClusterClaim::of("rr2").encode());
    world.registrar.want(avoiding(&[held, ROUTER_ID, second]));
    world.pass(1, true);
    let third = cluster_ids(NAME, ROUTER_ID).nth(2).expect("another");
    assert_eq!(world.registered().expect("there").cluster_id, third);
    assert!(world.get(FabricKey::Cluster(held)).is_some());
}

/// A wish without a known ID that must not have these.
fn avoiding(avoid: &[Ipv4Addr]) -> Wish {
    Wish {
        cluster: ClusterWish::Own {
            router_id: ROUTER_ID,
            held: None,
            avoid: avoid.iter().copied().collect(),
        },
        ..wish(0, None)
    }
}

/// The count of IDs that belong to others is valid for one list of candidates only.
#[test]
fn changed_candidates_are_tried_from_the_first() {
    let mut world = World::new();
    let other = ClusterClaim::of("rr2").encode();
    world.put(FabricKey::Cluster(ROUTER_ID), other);
    world.registrar.claim(wish(0, None));
    let now = world.instant();
    let job = world.registrar.poll(now).expect("a claim");
    let answer = world.ask(job);
    world.registrar.done(now, answer);
    assert!(world.registrar.trouble().is_some(), "the ID is taken");
    world.registrar.claim(avoiding(&[ROUTER_ID]));
    world.pass(1, true);
    let second = cluster_ids(NAME, ROUTER_ID).nth(1).expect("another");
    assert!(world.get(FabricKey::Cluster(second)).is_some());
    let third = cluster_ids(NAME, ROUTER_ID).nth(2).expect("another");
    assert_eq!(world.get(FabricKey::Cluster(third)), None);
}

/// The reply to a claim arrives after the ID was configured for another node.
#[test]
fn late_claim_of_a_lost_id_is_replaced_at_once() {
    let mut world = World::new();
    world.registrar.claim(wish(0, None));
    let now = world.instant();
    let job = world.registrar.poll(now).expect("a claim");
    world.registrar.claim(avoiding(&[ROUTER_ID]));
    let answer = world.ask(job);
    world.registrar.done(now, answer);
    world.pass(1, true);
    let second = cluster_ids(NAME, ROUTER_ID).nth(1).expect("another");
    assert!(world.get(FabricKey::Cluster(second)).is_some());
}

#[test]
fn registration_is_written_at_once_and_load_at_intervals() {
    let mut world = World::new();
    world.registrar.want(wish(0, None));
    world.pass(1, true);
    world.registrar.want(wish(1, None));
    world.pass(1, true);
    assert_eq!(world.registered().expect("there").clients, 0);
    world.pass(9, true);
    assert_eq!(world.registered().expect("there").clients, 1);
    let mut draining = wish(1, None);
    draining.registration.state = ReflectorState::Draining;
    world.registrar.want(draining);
    world.pass(0, true);
    assert_eq!(
        world.registered().expect("there").state,
        ReflectorState::Draining
    );

    world.delete(FabricKey::Reflector(NAME.into()));
    world.pass(61, true);
    assert!(
        world.registered().is_some(),
        "whoever deletes it does not do so for long"
    );
}

#[test]
fn unregistrable_state_is_a_note() {
    let mut world = World::new();
    let mut mute = wish(0, None);
    mute.registration.ipv4_address = None;
    world.registrar.want(mute);
    world.pass(120, true);
    let trouble = world.registrar.trouble().expect("a report");
    assert!(trouble.contains("ipv4Address"), "{trouble}");
    assert!(world.registered().is_none());
}
