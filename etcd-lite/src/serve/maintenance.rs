//! The Cluster and Maintenance services, as far as they apply to one member in memory.

use std::net::SocketAddr;

use etcd_client::proto::{
    PbAlarmMember, PbAlarmRequest, PbAlarmResponse, PbClusterService, PbDefragmentRequest,
    PbDefragmentResponse, PbDowngradeRequest, PbDowngradeResponse, PbHashKvRequest,
    PbHashKvResponse, PbHashRequest, PbHashResponse, PbMaintenanceService, PbMember,
    PbMemberAddRequest, PbMemberAddResponse, PbMemberListRequest, PbMemberListResponse,
    PbMemberPromoteRequest, PbMemberPromoteResponse, PbMemberRemoveRequest, PbMemberRemoveResponse,
    PbMemberUpdateRequest, PbMemberUpdateResponse, PbMoveLeaderRequest, PbMoveLeaderResponse,
    PbSnapshotRequest, PbSnapshotResponse, PbStatusRequest, PbStatusResponse,
};
use etcd_client::{AlarmAction, AlarmType};
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status};

use crate::local::Local;
use crate::wire::{MEMBER, header_out};
use calico_store::Header;
use calico_store::shared::grpc_status;

/// The served API version.
const VERSION: &str = concat!("3.4.0+cambric.", env!("CARGO_PKG_VERSION"));

/// The Maintenance service over a core.
pub(super) struct Maintenance(pub(super) Local);

/// The Cluster service over a core.
pub(super) struct Cluster {
    store: Local,
    urls: Vec<String>,
}

impl Cluster {
    pub(super) fn new(store: Local, addresses: &[SocketAddr]) -> Self {
        Self {
            store,
            urls: addresses
                .iter()
                .map(|address| format!("http://{address}"))
                .collect(),
        }
    }
}

async fn header(store: &Local) -> Result<Header, Status> {
    store
        .call(|core, _| core.header())
        .await
        .map_err(|error| grpc_status(&error))
}

/// Returns the alarm in the words of etcd.
fn nospace() -> String {
    format!("memberID:{MEMBER} alarm:NOSPACE ")
}

fn single<T>() -> Result<T, Status> {
    Err(Status::unimplemented("the store has one member, in memory"))
}

#[tonic::async_trait]
impl PbClusterService for Cluster {
    async fn member_list(
        &self,
        _: Request<PbMemberListRequest>,
    ) -> Result<Response<PbMemberListResponse>, Status> {
        let member = PbMember {
            id: MEMBER,
            name: "cambric".into(),
            peer_ur_ls: Vec::new(),
            client_ur_ls: self.urls.clone(),
            is_learner: false,
        };
        let header = header_out(header(&self.store).await?);
        Ok(Response::new(PbMemberListResponse {
            header: Some(header),
            members: vec![member],
        }))
    }

    async fn member_add(
        &self,
        _: Request<PbMemberAddRequest>,
    ) -> Result<Response<PbMemberAddResponse>, Status> {
        single()
    }

    async fn member_remove(
        &self,
        _: Request<PbMemberRemoveRequest>,
    ) -> Result<Response<PbMemberRemoveResponse>, Status> {
        single()
    }

    async fn member_update(
        &self,
        _: Request<PbMemberUpdateRequest>,
    ) -> Result<Response<PbMemberUpdateResponse>, Status> {
        single()
    }

    async fn member_promote(
        &self,
        _: Request<PbMemberPromoteRequest>,
    ) -> Result<Response<PbMemberPromoteResponse>, Status> {
        single()
    }
}

#[tonic::async_trait]
impl PbMaintenanceService for Maintenance {
    type SnapshotStream = BoxStream<'static, Result<PbSnapshotResponse, Status>>;

    async fn status(
        &self,
        _: Request<PbStatusRequest>,
    ) -> Result<Response<PbStatusResponse>, Status> {
        let state = self
            .0
            .call(|core, _| {
                let octets = core.octets() + core.log_octets();
                (core.header(), octets, core.is_full())
            })
            .await;
        let (header, octets, is_full) = state.map_err(|error| grpc_status(&error))?;
        let octets = i64::try_from(octets).unwrap_or(i64::MAX);
        let index = u64::try_from(header.revision.0).unwrap_or(0);
        Ok(Response::new(PbStatusResponse {
            header: Some(header_out(header)),
            version: VERSION.into(),
            db_size: octets,
            db_size_in_use: octets,
            leader: MEMBER,
            raft_index: index,
            raft_applied_index: index,
            raft_term: 1,
            errors: is_full.then(nospace).into_iter().collect(),
            ..PbStatusResponse::default()
        }))
    }

    /// Returns the alarm NOSPACE while the disk of the store's file is full. A request to clear it
    /// looks for space at once.
    async fn alarm(
        &self,
        request: Request<PbAlarmRequest>,
    ) -> Result<Response<PbAlarmResponse>, Status> {
        let request = request.into_inner();
        match AlarmAction::try_from(request.action) {
            Ok(AlarmAction::Get) => {}
            Ok(AlarmAction::Deactivate) => {
                let looked = self.0.call(|core, _| core.look_for_space()).await;
                looked.map_err(|error| grpc_status(&error))?;
            }
            Ok(AlarmAction::Activate) | Err(_) => {
                return Err(Status::unimplemented(
                    "the store raises its alarms by itself",
                ));
            }
        }
        let state = self.0.call(|core, _| (core.header(), core.is_full())).await;
        let (header, is_full) = state.map_err(|error| grpc_status(&error))?;
        let alarm = is_full.then(|| PbAlarmMember {
            member_id: MEMBER,
            alarm: AlarmType::Nospace.into(),
        });
        Ok(Response::new(PbAlarmResponse {
            header: Some(header_out(header)),
            alarms: alarm.into_iter().collect(),
        }))
    }

    /// Does nothing, because memory is not defragmented.
    async fn defragment(
        &self,
        _: Request<PbDefragmentRequest>,
    ) -> Result<Response<PbDefragmentResponse>, Status> {
        let header = header_out(header(&self.0).await?);
        Ok(Response::new(PbDefragmentResponse {
            header: Some(header),
        }))
    }

    async fn hash(&self, _: Request<PbHashRequest>) -> Result<Response<PbHashResponse>, Status> {
        single()
    }

    async fn hash_kv(
        &self,
        _: Request<PbHashKvRequest>,
    ) -> Result<Response<PbHashKvResponse>, Status> {
        single()
    }

    async fn snapshot(
        &self,
        _: Request<PbSnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        single()
    }

    async fn move_leader(
        &self,
        _: Request<PbMoveLeaderRequest>,
    ) -> Result<Response<PbMoveLeaderResponse>, Status> {
        single()
    }

    async fn downgrade(
        &self,
        _: Request<PbDowngradeRequest>,
    ) -> Result<Response<PbDowngradeResponse>, Status> {
        single()
    }
}
