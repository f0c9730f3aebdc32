//! Expiry of registrations: of a reflector that is down, and of running reflectors that cannot
//! reach the datastore.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use calico_model::{FabricKey, ReflectorState};
use calico_store::Store as _;
use interop_tests::Site;
use ipnet::IpNet;

use crate::fleet::{CHOSEN, ETCDS, Fleet, REFLECTORS};

/// The peers with which each node has established sessions.
pub(crate) type Choices = Vec<BTreeSet<IpAddr>>;

impl Fleet<'_> {
    /// Kills a reflector until its registration has expired: its clients have chosen others then.
    /// When it is back, they choose it again.
    pub(crate) async fn a_reflector_stays_away(&mut self, nth: usize) {
        self.settled().await;
        let watch = self.watch("a reflector stays away");
        let before = self.choices().await;
        self.reflectors[nth].kill().await.expect("killed");
        self.unregistered(&REFLECTORS[nth..=nth]).await;
        self.chosen_are_others_than(nth).await;
        self.reflectors[nth].start_stored_again().expect("started");
        self.chosen_are(&before).await;
        watch.end(&self.nodes).await;
        self.whole().await;
    }

    /// Cuts a running reflector off from the datastore: its established sessions count for a while,
    /// then its clients choose others.
    pub(crate) async fn one_reflector_loses_the_datastore(&mut self, nth: usize) {
        self.settled().await;
        let watch = self.watch("a reflector is not heard of");
        let before = self.choices().await;
        self.reach_the_store(nth, false).await;
        self.unregistered(&REFLECTORS[nth..=nth]).await;
        self.chosen_are_others_than(nth).await;
        self.reach_the_store(nth, true).await;
        self.chosen_are(&before).await;
        watch.end(&self.nodes).await;
    }

    /// Cuts all reflectors off from the datastore for longer than an unregistered reflector counts.
    /// That is a failure of the datastore, and no client changes its choice, also while the
    /// reflectors register again one by one.
    pub(crate) async fn all_reflectors_lose_the_datastore(&mut self, absence_wait: Duration) {
        let watch = self.watch("no reflector is heard of");
        let before = self.choices().await;
        for nth in 0..REFLECTORS.len() {
            self.reach_the_store(nth, false).await;
        }
        self.unregistered(&REFLECTORS).await;
        tokio::time::sleep(absence_wait + Duration::from_secs(2)).await;
        assert_eq!(self.choices().await, before);
        for nth in 0..REFLECTORS.len() {
            self.reach_the_store(nth, true).await;
        }
        self.registered(ReflectorState::Active, &REFLECTORS).await;
        assert_eq!(self.choices().await, before);
        watch.end(&self.nodes).await;
    }

    /// Lets a reflector reach the datastore, or drops its packets to it.
    async fn reach_the_store(&self, nth: usize, reaches: bool) {
        let links = self.reflectors[nth].site.host.links().expect("its links");
        for etcd in ETCDS {
            let net = IpNet::from(IpAddr::from(Site::v4(etcd)));
            let done = match reaches {
                true => links.delete_route(net, None, "cali0").await,
                false => links.add_route(net, None, "cali0").await,
            };
            done.expect("a route");
        }
    }

    /// Waits until the datastore has no registration of these reflectors.
    async fn unregistered(&self, hosts: &[u8]) {
        self.wait(&format!("no word of {hosts:?}"), async || {
            for host in hosts {
                let key = FabricKey::Reflector(format!("h{host}")).to_string();
                match self.store.get(key.into()).await {
                    Ok(None) => {}
                    other => return Ok(Err(format!("host {host}: {other:?}"))),
                }
            }
            Ok(Ok(()))
        })
        .await;
    }

    /// Waits until every node has all its sessions, and none with this reflector.
    async fn chosen_are_others_than(&self, nth: usize) {
        let host = REFLECTORS[nth];
        let left = [IpAddr::from(Site::v4(host)), IpAddr::from(Site::v6(host))];
        self.wait("another choice", async || {
            let now = self.choices().await;
            let moved = |choice: &BTreeSet<IpAddr>| left.iter().all(|gone| !choice.contains(gone));
            Ok(now
                .iter()
                .all(moved)
                .then_some(())
                .ok_or_else(|| format!("{now:?}")))
        })
        .await;
        self.sessions(CHOSEN).await;
    }

    pub(crate) async fn chosen_are(&self, before: &Choices) {
        self.wait("the choice of before", async || {
            let now = self.choices().await;
            Ok((now == *before)
                .then_some(())
                .ok_or_else(|| format!("{now:?}")))
        })
        .await;
    }

    pub(crate) async fn choices(&self) -> Choices {
        let mut choices = Vec::new();
        for node in &self.nodes {
            let neighbors = node.speaker.neighbors().await.neighbors;
            let up = neighbors.iter().filter(|one| one.state == "Established");
            choices.push(up.filter_map(|one| one.address).collect());
        }
        choices
    }
}
