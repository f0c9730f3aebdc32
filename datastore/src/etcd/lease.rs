//! Leases.

use etcd_client::{LeaseClient, LeaseTimeToLiveOptions};

use super::called;
use crate::error::Error;
use crate::kv::{Lease, LeaseId, LeaseState};

pub(super) async fn grant(mut lease: LeaseClient, ttl_s: i64) -> Result<Lease, Error> {
    let response = called(lease.grant(ttl_s, None)).await?;
    Ok(Lease {
        id: LeaseId(response.id()),
        ttl_s: response.ttl(),
    })
}

pub(super) async fn keep_alive(mut lease: LeaseClient, id: LeaseId) -> Result<i64, Error> {
    let response = called(async {
        // Opening sends the first request by itself.
        let (_keeper, mut replies) = lease.keep_alive(id.0).await?;
        replies.message().await
    });
    match response.await {
        Ok(Some(response)) if response.ttl() > 0 => Ok(response.ttl()),
        Ok(Some(_)) => Err(Error::NoLease(id)),
        Ok(None) => Err(Error::Unavailable(
            "the stream of keep-alives has ended".into(),
        )),
        Err(error) => Err(of(id, error)),
    }
}

pub(super) async fn revoke(mut lease: LeaseClient, id: LeaseId) -> Result<(), Error> {
    called(lease.revoke(id.0))
        .await
        .map_err(|error| of(id, error))?;
    Ok(())
}

pub(super) async fn state(mut lease: LeaseClient, id: LeaseId) -> Result<LeaseState, Error> {
    let options = LeaseTimeToLiveOptions::new().with_keys();
    let response = called(lease.time_to_live(id.0, Some(options)))
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

/// The API does not say which lease is not there; the caller knows.
fn of(id: LeaseId, error: Error) -> Error {
    match error {
        Error::NoLease(_) => Error::NoLease(id),
        error => error,
    }
}
