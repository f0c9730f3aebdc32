//! Listens to what the tables tell, and checks its form.

use bgp_proto::{Family, Net};
use rib::{ExportSink, PeerId, PrivateSink, Run};

use crate::model::Told;
use crate::parts::index_of;

/// One thing a sink was handed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)]
pub enum Said {
    Reach { net: u8, told: Told, source: PeerId },
    Unreach { net: u8, except: Option<PeerId> },
    UnreachOnly { net: u8, to: PeerId },
}

pub struct Ear<'a> {
    pub family: Family,
    pub said: Vec<Said>,
    pub last_run: u64,
    pub transcript: &'a mut Vec<Said>,
}

impl Ear<'_> {
    fn hear(&mut self, net: Net<'_>, run: &Run<'_>) {
        assert!(run.id >= self.last_run, "runs come whole");
        if let (Some(Said::Reach { told, source, .. }), true) =
            (self.said.last(), run.id == self.last_run)
        {
            assert_eq!((&told.0, *source), (run.attributes, run.source));
        }
        self.last_run = run.id;
        let (net, octets) = index_of(self.family, net);
        let told = (run.attributes.clone(), octets);
        self.say(Said::Reach {
            net,
            told,
            source: run.source,
        });
    }

    fn say(&mut self, said: Said) {
        self.transcript.push(said.clone());
        self.said.push(said);
    }
}

impl ExportSink for Ear<'_> {
    fn reach(&mut self, net: Net<'_>, run: &Run<'_>) {
        self.hear(net, run);
    }

    fn unreach(&mut self, net: Net<'_>, except: Option<PeerId>) {
        let net = index_of(self.family, net).0;
        self.say(Said::Unreach { net, except });
    }

    fn unreach_only(&mut self, net: Net<'_>, to: PeerId) {
        let net = index_of(self.family, net).0;
        self.say(Said::UnreachOnly { net, to });
    }
}

impl PrivateSink for Ear<'_> {
    fn reach(&mut self, net: Net<'_>, run: &Run<'_>) {
        self.hear(net, run);
    }

    fn unreach(&mut self, net: Net<'_>) {
        let net = index_of(self.family, net).0;
        self.say(Said::Unreach { net, except: None });
    }
}
