//! A sink that records output, and checks its form.

use bgp_proto::{Family, Net, Nlri};
use rib::{ExportSink, PeerId, Room, Run};

use crate::model::Told;
use crate::parts::index_of;

/// One call of a sink.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)]
pub enum Said {
    Reach {
        net: u8,
        path_id: u32,
        told: Told,
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
    pub said: Vec<Said>,
    pub last_run: u64,
    pub room: Room,
    pub transcript: &'a mut Vec<Said>,
}

impl Ear<'_> {
    fn hear(&mut self, nlri: &Nlri<'_>, run: &Run<'_>) {
        assert!(run.id >= self.last_run, "runs come whole");
        if let (Some(Said::Reach { told, source, .. }), true) =
            (self.said.last(), run.id == self.last_run)
        {
            assert_eq!((&told.0, *source), (run.attributes, run.source));
        }
        self.last_run = run.id;
        let net = self.index(nlri);
        let octets = index_of(self.family, nlri.net).1;
        let told = (run.attributes.clone(), octets);
        self.say(Said::Reach {
            net,
            path_id: nlri.path_id,
            told,
            source: run.source,
        });
    }

    fn index(&self, nlri: &Nlri<'_>) -> u8 {
        assert_eq!(nlri.path_id != 0, self.add_path);
        index_of(self.family, nlri.net).0
    }

    fn say(&mut self, said: Said) {
        self.transcript.push(said.clone());
        self.said.push(said);
    }
}

impl ExportSink for Ear<'_> {
    fn room(&self) -> Room {
        self.room
    }

    fn reach(&mut self, nlri: &Nlri<'_>, run: &Run<'_>) {
        self.hear(nlri, run);
    }

    fn unreach(&mut self, nlri: &Nlri<'_>, except: Option<PeerId>) {
        let (net, path_id) = (self.index(nlri), nlri.path_id);
        self.say(Said::Unreach {
            net,
            path_id,
            except,
        });
    }

    fn unreach_only(&mut self, net: Net<'_>, to: PeerId) {
        assert!(!self.add_path, "one identifier never has two sources");
        let net = index_of(self.family, net).0;
        self.say(Said::UnreachOnly { net, to });
    }
}
