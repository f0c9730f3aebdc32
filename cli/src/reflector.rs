//! `cambric reflector`: the fabric's reflectors in the datastore, and their drain.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use calico_model::{
    ClusterClaim, DrainRequest, FABRIC_PREFIX, FabricKey, ReflectorState, Registration, rfc3339_utc,
};
use calico_store::{
    Compare, CompareWith, Comparison, Delete, EtcdStore, KeyRange, LeaseId, Op, Revision, Store,
    Txn, WatchRequest,
};
use clap::Subcommand;

use crate::resources::{Connection, aligned};

#[cfg(test)]
mod tests;

/// Attempts to remove a reflector while other programs write its keys.
const REMOVE_ATTEMPTS_MAX: usize = 8;

/// The arguments of `cambric reflector`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    /// List all reflectors: state, zone, weight, clients, cluster ID, addresses
    List,
    /// Move a reflector's clients to others, then close its sessions; wait until it is drained
    Drain {
        /// The reflector: the name of its node
        name: String,
        /// Drain even if no other reflector can take its clients
        #[arg(long)]
        force: bool,
        /// Request the drain and return
        #[arg(long)]
        no_wait: bool,
    },
    /// End the drain of a reflector
    Undrain {
        /// The reflector: the name of its node
        name: String,
    },
    /// Remove a reflector that does not return, and free its cluster ID
    Remove {
        /// The reflector: the name of its node
        name: String,
    },
}

/// The reflectors' keys in the datastore.
#[derive(Clone, Debug, Default)]
struct Fleet {
    registered: BTreeMap<String, Registration>,
    /// With the creation revision of each.
    claims: BTreeMap<String, BTreeMap<Ipv4Addr, Revision>>,
    drains: BTreeSet<String>,
}

/// Runs `cambric reflector`.
pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let store = args.connection.store().await?;
    match &args.what {
        What::List => print!("{}", Fleet::read(&store).await?.table()),
        What::Drain {
            name,
            force,
            no_wait,
        } => drain(&store, name, *force, *no_wait).await?,
        What::Undrain { name } => undrain(&store, name).await?,
        What::Remove { name } => remove(&store, name).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn drain(store: &EtcdStore, name: &str, force: bool, no_wait: bool) -> Result<()> {
    let fleet = Fleet::read(store).await?;
    if !fleet.registered.contains_key(name) {
        bail!("no reflector {name} is registered; `cambric reflector list` shows those that are");
    }
    if !force && !fleet.others_take_clients(name) {
        bail!(
            "no other active reflector can accept the clients of {name}; if the full mesh is on, \
             use --force"
        );
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let request = DrainRequest::since(rfc3339_utc(since.unwrap_or_default().as_secs()));
    let key = FabricKey::Drain(name.to_owned()).to_string();
    store
        .put(key.into(), request.encode().into(), LeaseId::NONE)
        .await?;
    if no_wait {
        println!("reflector {name} is asked to drain");
        return Ok(());
    }
    follow(store, name, ReflectorState::Drained).await?;
    println!("reflector {name} is drained: it accepts no session until it is undrained");
    Ok(())
}

async fn undrain(store: &EtcdStore, name: &str) -> Result<()> {
    let key = FabricKey::Drain(name.to_owned()).to_string();
    if !store.delete(key.into()).await? {
        bail!("reflector {name} is not being drained");
    }
    if !Fleet::read(store).await?.registered.contains_key(name) {
        println!("reflector {name} will take clients when it is back");
        return Ok(());
    }
    follow(store, name, ReflectorState::Active).await?;
    println!("reflector {name} accepts clients");
    Ok(())
}

async fn remove(store: &impl Store, name: &str) -> Result<()> {
    for _ in 0..REMOVE_ATTEMPTS_MAX {
        let fleet = Fleet::read(store).await?;
        if fleet.registered.contains_key(name) {
            bail!(
                "reflector {name} is running: drain and stop it first, and wait until its registration has expired"
            );
        }
        if !fleet.has_something_of(name) {
            bail!("the store has nothing of a reflector {name}");
        }
        if store.txn(fleet.removal_of(name)).await?.succeeded {
            println!("reflector {name} is forgotten");
            return Ok(());
        }
    }
    bail!("reflector {name}: others write what there is of it at the same time; try again")
}

/// Waits until a reflector reports this state, and prints the number of its remaining clients.
async fn follow(store: &EtcdStore, name: &str, wanted: ReflectorState) -> Result<()> {
    let key = FabricKey::Reflector(name.to_owned()).to_string();
    let range = KeyRange::key(key.clone());
    let mut printed = None;
    loop {
        let listing = store.list(range.clone()).await?;
        let mut watch = store
            .watch(WatchRequest::from(
                range.clone(),
                listing.header.revision.next(),
            ))
            .await?;
        let Some(found) = listing.items.first() else {
            bail!("reflector {name} is not running; the request takes effect when it returns");
        };
        let registration = Registration::parse(&found.value).with_context(|| key.clone())?;
        if registration.state == wanted {
            return Ok(());
        }
        if printed.replace((registration.state, registration.clients))
            != Some((registration.state, registration.clients))
        {
            println!(
                "reflector {name} is {}, clients: {}",
                registration.state, registration.clients
            );
        }
        // After any event and any error: read again.
        let _ = watch.next().await;
    }
}

impl Fleet {
    async fn read(store: &impl Store) -> Result<Self> {
        let listing = store.list(KeyRange::prefix(FABRIC_PREFIX)).await?;
        let mut fleet = Self::default();
        for item in listing.items {
            let text = String::from_utf8_lossy(&item.key);
            match text.parse() {
                Ok(FabricKey::Reflector(name)) => {
                    let registration = Registration::parse(&item.value);
                    let registration = registration.with_context(|| text.clone().into_owned())?;
                    fleet.registered.insert(name, registration);
                }
                Ok(FabricKey::Cluster(id)) => {
                    let claim = ClusterClaim::parse(&item.value);
                    let claim = claim.with_context(|| text.clone().into_owned())?;
                    let claims = fleet.claims.entry(claim.reflector).or_default();
                    claims.insert(id, item.mod_revision);
                }
                Ok(FabricKey::Drain(name)) => {
                    fleet.drains.insert(name);
                }
                // Of a node, or of another version.
                Ok(FabricKey::DrainReport(_)) | Err(_) => {}
            }
        }
        Ok(fleet)
    }

    fn has_something_of(&self, name: &str) -> bool {
        self.claims.contains_key(name) || self.drains.contains(name)
    }

    /// Removes a reflector, unless it is registered again or its claims have changed since they
    /// were read.
    fn removal_of(&self, name: &str) -> Txn {
        let as_of = |key: &FabricKey, was: Revision| Compare {
            range: KeyRange::key(key.to_string()),
            comparison: Comparison::Equal,
            with: CompareWith::ModRevision(was),
        };
        let delete = |key: &FabricKey| {
            Op::Delete(Delete {
                range: KeyRange::key(key.to_string()),
                previous: false,
            })
        };
        let registration = FabricKey::Reflector(name.to_owned());
        let mut txn = Txn {
            compares: vec![as_of(&registration, Revision::ZERO)],
            then: vec![delete(&FabricKey::Drain(name.to_owned()))],
            otherwise: Vec::new(),
        };
        for (id, made) in self.claims.get(name).into_iter().flatten() {
            let claim = FabricKey::Cluster(*id);
            txn.compares.push(as_of(&claim, *made));
            txn.then.push(delete(&claim));
        }
        txn
    }

    fn others_take_clients(&self, name: &str) -> bool {
        let mut others = self.registered.iter().filter(|(other, _)| *other != name);
        others.any(|(_, registration)| {
            registration.state == ReflectorState::Active && registration.weight > 0
        })
    }

    /// Returns one line for each current or former reflector.
    fn table(&self) -> String {
        let names: BTreeSet<&String> = self.registered.keys().chain(self.claims.keys()).collect();
        let headings = [
            "NAME",
            "STATE",
            "ZONE",
            "WEIGHT",
            "CLIENTS",
            "CLUSTER ID",
            "ADDRESSES",
        ];
        let mut rows = vec![headings.map(str::to_owned).to_vec()];
        rows.extend(names.into_iter().map(|name| self.row(name)));
        aligned(&rows)
    }

    fn row(&self, name: &str) -> Vec<String> {
        let Some(registration) = self.registered.get(name) else {
            let claims = self.claims.get(name).into_iter().flatten();
            let claims: Vec<String> = claims.map(|(id, _)| id.to_string()).collect();
            let state = match self.drains.contains(name) {
                true => "away, to be drained",
                false => "away",
            };
            let unknown = || "-".to_owned();
            return vec![
                name.to_owned(),
                state.to_owned(),
                unknown(),
                unknown(),
                unknown(),
                claims.join(","),
                unknown(),
            ];
        };
        let addresses: Vec<String> = registration.addresses().map(|at| at.to_string()).collect();
        let zone = Some(registration.zone.as_str()).filter(|zone| !zone.is_empty());
        vec![
            name.to_owned(),
            registration.state.to_string(),
            crate::show::clean(zone.unwrap_or("-")),
            registration.weight.to_string(),
            registration.clients.to_string(),
            registration.cluster_id.to_string(),
            addresses.join(","),
        ]
    }
}
