//! Leases.

use etcd_client::{Error as EtcdError, LeaseTimeToLiveOptions};

use super::members::{Again, Members};
use crate::error::Error;
use crate::kv::{Lease, LeaseId, LeaseState};

pub(super) async fn grant(members: &Members, ttl_s: i64) -> Result<Lease, Error> {
    // If a lease is granted twice, the unused one expires.
    let grant =
        |client: etcd_client::Client| async move { client.lease_client().grant(ttl_s, None).await };
    let (_, response) = members.ask(Again::Any, grant).await?;
    Ok(Lease {
        id: LeaseId(response.id()),
        ttl_s: response.ttl(),
    })
}

pub(super) async fn keep_alive(members: &Members, id: LeaseId) -> Result<i64, Error> {
    // Opening the stream already renews the lease, but the client library discards the answer with
    // the TTL; and proxies may leave a second request on the stream waiting.
    let keep = |client: etcd_client::Client| async move {
        match client.lease_client().keep_alive(id.0).await {
            Ok(_) => Ok(true),
            Err(EtcdError::LeaseKeepAliveError(_)) => Ok(false),
            Err(error) => Err(error),
        }
    };
    match members.ask(Again::Any, keep).await? {
        (_, true) => Ok(state(members, id).await?.granted_s),
        (_, false) => Err(Error::NoLease(id)),
    }
}

pub(super) async fn revoke(members: &Members, id: LeaseId) -> Result<(), Error> {
    let revoke =
        |client: etcd_client::Client| async move { client.lease_client().revoke(id.0).await };
    members
        .ask(Again::Unsent, revoke)
        .await
        .map_err(|error| of(id, error))?;
    Ok(())
}

pub(super) async fn state(members: &Members, id: LeaseId) -> Result<LeaseState, Error> {
    let ask = |client: etcd_client::Client| async move {
        let options = LeaseTimeToLiveOptions::new().with_keys();
        client
            .lease_client()
            .time_to_live(id.0, Some(options))
            .await
    };
    let (_, response) = members
        .ask(Again::Any, ask)
        .await
        .map_err(|error| of(id, error))?;
    if response.ttl() < 0 {
        return Err(Error::NoLease(id));
    }
    Ok(LeaseState {
        remaining_s: response.ttl(),
        granted_s: response.granted_ttl(),
        keys: response
            .keys()
            .iter()
            .map(|key| key.clone().into())
            .collect(),
    })
}

/// Adds the lease id to an error, because the API does not report which lease is missing.
fn of(id: LeaseId, error: Error) -> Error {
    match error {
        Error::NoLease(_) => Error::NoLease(id),
        error => error,
    }
}
