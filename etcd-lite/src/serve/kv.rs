//! The KV service.

use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbDeleteRequest, PbDeleteResponse, PbKvService,
    PbPutRequest, PbPutResponse, PbRangeRequest, PbRangeResponse, PbRangeStreamResponse,
    PbTxnRequest, PbTxnResponse,
};
use futures_util::stream::BoxStream;
use tonic::{Request, Response, Status};

use crate::local::Local;
use crate::wire;
use calico_store::Error;
use calico_store::Revision;
use calico_store::Store;
use calico_store::shared::grpc_status;
use calico_store::{Op, OpReply, Txn, TxnReply};

/// The KV service over a core.
pub(super) struct Kv(pub(super) Local);

impl Kv {
    /// Carries out one operation.
    async fn single(&self, op: Result<Op, Error>) -> Result<TxnReply, Status> {
        let txn = async {
            self.0
                .txn(Txn {
                    then: vec![op?],
                    ..Txn::default()
                })
                .await
        };
        txn.await.map_err(|error| grpc_status(&error))
    }
}

#[tonic::async_trait]
impl PbKvService for Kv {
    type RangeStreamStream = BoxStream<'static, Result<PbRangeStreamResponse, Status>>;

    async fn range(
        &self,
        request: Request<PbRangeRequest>,
    ) -> Result<Response<PbRangeResponse>, Status> {
        let listing = async { self.0.range(wire::query_in(request.into_inner())?).await };
        match listing.await {
            Ok(listing) => Ok(Response::new(wire::listing_out(listing))),
            Err(error) => Err(grpc_status(&error)),
        }
    }

    async fn range_stream(
        &self,
        _: Request<PbRangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        Err(Status::unimplemented("read page by page instead"))
    }

    async fn put(&self, request: Request<PbPutRequest>) -> Result<Response<PbPutResponse>, Status> {
        let reply = self
            .single(wire::put_in(request.into_inner()).map(Op::Put))
            .await?;
        let previous = match reply.replies.into_iter().next() {
            Some(OpReply::Put { previous }) => previous,
            _ => None,
        };
        Ok(Response::new(wire::put_out(reply.header, previous)))
    }

    async fn delete_range(
        &self,
        request: Request<PbDeleteRequest>,
    ) -> Result<Response<PbDeleteResponse>, Status> {
        let reply = self
            .single(wire::delete_in(request.into_inner()).map(Op::Delete))
            .await?;
        let (deleted, previous) = match reply.replies.into_iter().next() {
            Some(OpReply::Delete { deleted, previous }) => (deleted, previous),
            _ => (0, Vec::new()),
        };
        Ok(Response::new(wire::delete_out(
            reply.header,
            deleted,
            previous,
        )))
    }

    async fn txn(&self, request: Request<PbTxnRequest>) -> Result<Response<PbTxnResponse>, Status> {
        let reply = async { self.0.txn(wire::txn_in(request.into_inner())?).await };
        match reply.await {
            Ok(reply) => Ok(Response::new(wire::txn_out(reply.header, reply))),
            Err(error) => Err(grpc_status(&error)),
        }
    }

    async fn compact(
        &self,
        request: Request<PbCompactionRequest>,
    ) -> Result<Response<PbCompactionResponse>, Status> {
        let at = Revision(request.into_inner().revision);
        let compact =
            move |core: &mut crate::core::Core, _| core.compact(at).map(|()| core.header());
        let header = async { self.0.call(compact).await? };
        match header.await {
            Ok(header) => Ok(Response::new(PbCompactionResponse {
                header: Some(wire::header_out(header)),
            })),
            Err(error) => Err(grpc_status(&error)),
        }
    }
}
