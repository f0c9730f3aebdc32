//! The work of a speaker around the tables, without sessions: messages in, messages out.

use std::net::{IpAddr, Ipv4Addr};

use bgp_proto::{
    Asn, ClusterId, FamilySet, Ipv4Prefix, Net, NextHop, Nlri, PeerKind, RouterId, SessionParams,
    UpdateView, UpdateWriter,
};
use bytes::BytesMut;
use rib::{
    Budget, ExportSink, GroupId, GroupRules, NextHopMode, PeerId, PeerInfo, Policy, Progress, Rib,
    RibConfig, Role, Run,
};

use crate::load::{ASN, FAMILY, PARAMS};

/// Writes UPDATEs as a speaker does: attributes once per run, messages filled.
#[derive(Default)]
pub(crate) struct Writer {
    run: u64,
    block: Vec<u8>,
    next_hop: Option<NextHop>,
    nets: Vec<Ipv4Prefix>,
    withdrawn: Vec<Ipv4Prefix>,
    out: BytesMut,
    pub(crate) messages: usize,
    octets: usize,
    pub(crate) reach: usize,
    pub(crate) unreach: usize,
}

impl Writer {
    pub(crate) fn flush(&mut self) {
        let Some(next_hop) = self.next_hop.take() else {
            return;
        };
        let mut left = self.nets.as_slice();
        while !left.is_empty() {
            self.out.clear();
            let mut writer =
                UpdateWriter::reach(&mut self.out, FAMILY, &self.block, &next_hop, &PARAMS);
            let fits = left
                .iter()
                .position(|&net| writer.push(&Nlri::new(Net::V4(net))).is_err());
            writer.finish();
            left = &left[fits.unwrap_or(left.len())..];
            self.messages += 1;
            self.octets += self.out.len();
        }
        self.nets.clear();
    }

    pub(crate) fn flush_withdrawn(&mut self) {
        let mut left = self.withdrawn.as_slice();
        while !left.is_empty() {
            self.out.clear();
            let mut writer = UpdateWriter::unreach(&mut self.out, FAMILY, &PARAMS);
            let fits = left
                .iter()
                .position(|&net| writer.push(&Nlri::new(Net::V4(net))).is_err());
            writer.finish();
            left = &left[fits.unwrap_or(left.len())..];
            self.messages += 1;
            self.octets += self.out.len();
        }
        self.withdrawn.clear();
    }
}

impl ExportSink for Writer {
    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>) {
        if run.id != self.run {
            self.flush();
            self.run = run.id;
            self.block.clear();
            run.attributes.encode(true, &mut self.block);
            self.next_hop.clone_from(&run.attributes.next_hop);
        }
        if let Net::V4(prefix) = nlri.net {
            self.nets.push(prefix);
        }
        self.reach += 1;
    }

    fn unreach(&mut self, nlri: &Nlri<'_>, _: Option<PeerId>) {
        if let Net::V4(prefix) = nlri.net {
            self.withdrawn.push(prefix);
        }
        self.unreach += 1;
    }

    fn unreach_only(&mut self, _: Net<'_>, _: PeerId) {
        self.unreach += 1;
    }
}

/// Tables with one group that receives everything.
pub(crate) struct Bench {
    pub(crate) rib: Rib,
    pub(crate) group: GroupId,
    pub(crate) params: SessionParams,
    pub(crate) writer: Writer,
}

impl Bench {
    pub(crate) fn new(role: Role, peers: u16) -> Self {
        let mut rib = Rib::new(
            RibConfig::new(ASN, RouterId(Ipv4Addr::new(1, 1, 1, 1))).with(|config| {
                config.cluster_ids = [ClusterId(Ipv4Addr::new(1, 1, 1, 1))].into();
                config.multipath_max = 1;
            }),
            7,
        );
        let peer_asn = if role == Role::External {
            Asn(65_000)
        } else {
            ASN
        };
        for peer in 1..=peers {
            let [high, low] = peer.to_be_bytes();
            let address = Ipv4Addr::new(10, 1, high, low);
            rib.peer_up(
                PeerId(peer),
                PeerInfo {
                    role,
                    asn: peer_asn,
                    id: RouterId(address),
                    address: IpAddr::V4(address),
                    local: None,
                    import: Policy::AcceptAll,
                    local_asn: Asn(64_512),
                    as_path: Default::default(),
                    cluster_id: ClusterId(Ipv4Addr::new(1, 1, 1, 1)),
                    domain: Default::default(),
                    link: None,
                    origin: rib::OriginRules::default(),
                },
            );
        }
        let own = Ipv4Addr::new(10, 0, 0, 1);
        let group = rib.add_group(GroupRules {
            role,
            local_asn: ASN,
            peer_asn,
            next_hop: NextHopMode::Auto,
            own_next_hop_v4: Some(own),
            own_next_hop_v6: None,
            extended_next_hop: false,
            long_lived: false,
            link_bandwidth: None,
            cluster_id: ClusterId(own),
            domain: Default::default(),
            export: Policy::AcceptAll,
            add_path: Default::default(),
        });
        rib.group_cursor(group, FAMILY);
        let kind = if role == Role::External {
            PeerKind::External
        } else {
            PeerKind::Internal
        };
        let params = SessionParams {
            local_asn: ASN,
            peer_asn,
            kind,
            as4: true,
            families: FamilySet::EMPTY.with(FAMILY),
            ..SessionParams::default()
        };
        Self {
            rib,
            group,
            params,
            writer: Writer::default(),
        }
    }

    pub(crate) fn ingest(&mut self, peer: u16, messages: &[BytesMut]) -> usize {
        let mut routes = 0;
        for message in messages {
            let (view, faults) = UpdateView::parse(&message[19..], &self.params).expect("parses");
            assert!(faults.is_empty());
            for batch in view.batches() {
                let done = self.rib.ingest(PeerId(peer), &batch);
                assert!(done.faults.is_empty());
                routes += (done.reach + done.unreach) as usize;
            }
        }
        routes
    }

    pub(crate) fn decide(&mut self) {
        while self.rib.decide(Budget(8192)) != Progress::Done {}
    }

    pub(crate) fn export(&mut self) {
        let Self {
            rib, group, writer, ..
        } = self;
        while rib.export(*group, FAMILY, Budget(8192), writer) != Progress::Done {}
        writer.flush();
        writer.flush_withdrawn();
        rib.trim(FAMILY, &[]);
    }
}
