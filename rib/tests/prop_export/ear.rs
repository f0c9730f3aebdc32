//! A sink that records output, and checks its form.

use bgp_proto::{Family, Net, Nlri};
use rib::{ExportSink, PeerId, Room, Run};

use crate::model::Exported;
use crate::parts::index_of;

/// One call of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)]
pub enum Sent {
    Reach {
        net: u8,
        path_id: u32,
        exported: Exported,
        source: PeerId,
    },
    Unreach {
        net: u8,
        path_id: u32,
        except: Option<PeerId>,
    },
    UnreachOnly {
        net: u8,
        to: PeerId,
    },
}

pub struct Ear<'a> {
    pub family: Family,
    pub add_path: bool,
    pub sent: Vec<Sent>,
    pub last_run: u64,
    pub room: Room,
    pub transcript: &'a mut Vec<Sent>,
}

impl Ear<'_> {
    fn record_reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>) {
        assert!(run.id >= self.last_run, "runs come whole");
        if let (
            Some(Sent::Reach {
                exported, source, ..
            }),
            true,
        ) = (self.sent.last(), run.id == self.last_run)
        {
            assert_eq!((&exported.0, *source), (run.attributes, run.source));
        }
        self.last_run = run.id;
        let net = self.index(nlri);
        let octets = index_of(self.family, nlri.net).1;
        let exported = (run.attributes.clone(), octets);
        self.record(Sent::Reach {
            net,
            path_id: nlri.path_id,
            exported,
            source: run.source,
        });
    }

    fn index(&self, nlri: &Nlri<'_>) -> u8 {
        assert_eq!(nlri.path_id != 0, self.add_path);
        index_of(self.family, nlri.net).0
    }

    fn record(&mut self, sent: Sent) {
        self.transcript.push(sent.clone());
        self.sent.push(sent);
    }
}

impl ExportSink for Ear<'_> {
    fn room(&self) -> Room {
        self.room
    }

    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>) {
        self.record_reach(nlri, run);
    }

    fn unreach(&mut self, nlri: &Nlri<'_>, except: Option<PeerId>) {
        let (net, path_id) = (self.index(nlri), nlri.path_id);
        self.record(Sent::Unreach {
            net,
            path_id,
            except,
        });
    }

    fn unreach_only(&mut self, net: Net<'_>, to: PeerId) {
        assert!(!self.add_path, "one identifier never has two sources");
        let net = index_of(self.family, net).0;
        self.record(Sent::UnreachOnly { net, to });
    }
}
