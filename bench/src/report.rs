//! The comparison table, as text and as JSON.

use std::collections::BTreeMap;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use crate::bars::{self, Bar};
use crate::daemons::Kind;
use crate::stage::Measures;
use crate::work::Work;

/// The results by workload and daemon, one entry per round; `None` where a run failed.
#[derive(Debug, Default)]
pub struct Report {
    runs: BTreeMap<(Work, Kind), Vec<Option<Measures>>>,
    /// By workload and peer: Cambric's run and the peer's run right after it.
    pairs: BTreeMap<(Work, Kind), Vec<[Option<Measures>; 2]>>,
    failures: Vec<String>,
}

/// One line of the table.
struct Line<'a> {
    bar: &'a Bar,
    /// Cambric's value divided by that of the best peer.
    ratio: Option<f64>,
}

impl Report {
    /// Enters a run; the run of a peer belongs to the last entered run of Cambric.
    pub fn enter(&mut self, work: Work, kind: Kind, run: Result<Measures, String>) {
        let measures = match run {
            Ok(measures) => Some(measures),
            Err(failure) => {
                self.failures
                    .push(format!("{} {}: {failure}", work.name(), kind.name()));
                None
            }
        };
        if kind != Kind::Cambric
            && let Some(ours) = self
                .runs
                .get(&(work, Kind::Cambric))
                .and_then(|runs| runs.last())
        {
            let pair = [ours.clone(), measures.clone()];
            self.pairs.entry((work, kind)).or_default().push(pair);
        }
        self.runs.entry((work, kind)).or_default().push(measures);
    }

    /// Returns the runs that did not finish, or finished with a wrong state.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    fn kinds(&self) -> Vec<Kind> {
        let mut kinds: Vec<_> = self.runs.keys().map(|(_, kind)| *kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// Returns the median of a daemon's values.
    fn median_of(&self, work: Work, kind: Kind, measure: &str) -> Option<f64> {
        let runs = self.runs.get(&(work, kind)).into_iter().flatten();
        median(runs.filter_map(|run| value(run, measure)).collect())
    }

    /// Returns the median ratio of Cambric to one peer over their pairs.
    fn ratio_to(&self, bar: &Bar, peer: Kind) -> Option<f64> {
        let pairs = self.pairs.get(&(bar.work, peer)).into_iter().flatten();
        let ratios = pairs.filter_map(|[ours, theirs]| {
            Some(value(ours, bar.measure)? / value(theirs, bar.measure)?)
        });
        median(ratios.collect())
    }

    /// Returns the ratio to the best peer; without peers, Cambric's value.
    fn ratio(&self, bar: &Bar) -> Option<f64> {
        if bar.peers.is_empty() {
            return self.median_of(bar.work, Kind::Cambric, bar.measure);
        }
        let ratios = bar
            .peers
            .iter()
            .filter_map(|&peer| self.ratio_to(bar, peer));
        ratios.max_by(f64::total_cmp)
    }

    fn lines(&self) -> Vec<Line<'static>> {
        let measured =
            bars::all().filter(|bar| self.runs.keys().any(|(work, _)| *work == bar.work));
        measured
            .map(|bar| Line {
                bar,
                ratio: self.ratio(bar),
            })
            .collect()
    }

    /// Returns the table.
    pub fn table(&self) -> String {
        let kinds = self.kinds();
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        let mut header: Vec<_> = ["work", "measure"].map(str::to_owned).into();
        header.extend(kinds.iter().map(|kind| kind.name().to_owned()));
        header.extend(["ratio", "bar", ""].map(str::to_owned));
        let columns = header.len();
        table.set_header(header);
        for Line { bar, ratio } in self.lines() {
            let mut row = vec![bar.work.name().to_owned(), bar.title.to_owned()];
            for &kind in &kinds {
                let value = self.median_of(bar.work, kind, bar.measure);
                row.push(value.map_or_else(|| "-".to_owned(), short));
            }
            let names: Vec<_> = bar.peers.iter().map(|kind| kind.name()).collect();
            row.push(ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")));
            let names = names.join("|");
            let factor = (bar.factor * 1e3).round() / 1e3;
            row.push(if names.is_empty() {
                factor.to_string()
            } else if bar.factor.is_finite() {
                format!("{factor} x {names}")
            } else {
                format!("({names})")
            });
            row.push(self.verdict(bar, ratio).to_owned());
            table.add_row(row);
        }
        for column in table.column_iter_mut().skip(2).take(columns - 4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }

    /// Returns whether the limit is met; a failed run of Cambric, or of every peer, is a result,
    /// too.
    fn verdict(&self, bar: &Bar, ratio: Option<f64>) -> &'static str {
        // Whether it ran, and whether any of its runs finished.
        let ended = |kind| {
            let runs = self.runs.get(&(bar.work, kind))?;
            Some(runs.iter().any(Option::is_some))
        };
        let none_ended =
            !bar.peers.is_empty() && bar.peers.iter().all(|&kind| ended(kind) == Some(false));
        match ratio {
            _ if ended(Kind::Cambric) == Some(false) => "FAILED",
            _ if bar.factor.is_infinite() => "",
            Some(ratio) if ratio <= bar.factor => "met",
            Some(_) => "MISSED",
            None if none_ended && ended(Kind::Cambric).is_some() => "met: no peer came to the end",
            None => "",
        }
    }

    /// Returns all results, with each round's values.
    pub fn json(&self) -> Value {
        let runs = self.runs.iter().map(|((work, kind), rounds)| {
            json!({ "work": work.name(), "daemon": kind.name(), "rounds": rounds })
        });
        let bars = self.lines().into_iter().map(|Line { bar, ratio }| {
            let peers: Vec<_> = bar.peers.iter().map(|kind| kind.name()).collect();
            json!({
                "work": bar.work.name(), "measure": bar.measure, "factor": bar.factor,
                "peers": peers, "ratio": ratio, "met": ratio.filter(|_| bar.factor.is_finite()).map(|ratio| ratio <= bar.factor),
            })
        });
        json!({
            "runs": runs.collect::<Vec<_>>(),
            "bars": bars.collect::<Vec<_>>(),
            "failures": self.failures,
        })
    }
}

fn value(run: &Option<Measures>, measure: &str) -> Option<f64> {
    run.as_ref()?.get(measure).copied()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], upper)
    } else {
        upper
    })
}

fn short(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(value: f64) -> Result<Measures, String> {
        Ok(Measures::from([("conv_s", value)]))
    }

    #[test]
    fn ratio_is_the_median_of_pairs_without_failed_runs() {
        let mut report = Report::default();
        let lost = || Err("lost".to_owned());
        for (ours, peer) in [(1.0, 2.0), (3.0, 3.0), (9.0, 10.0), (4.0, 1.0)] {
            report.enter(Work::S3, Kind::Cambric, run(ours));
            let peer = if peer < 2.0 { lost() } else { run(peer) };
            report.enter(Work::S3, Kind::FrrFast, peer);
        }
        let bar = bars::all().find(|bar| bar.work == Work::S3 && bar.measure == "conv_s");
        assert_eq!(report.ratio(bar.expect("a bar")), Some(0.9));
        assert_eq!(report.failures(), ["s3 frr-fast: lost"]);
        let storm = bars::all()
            .find(|bar| bar.measure == "storm_s")
            .expect("a bar");
        // Each with Cambric's run right before it; the ratio is that to the better of the two.
        let rack = bars::all()
            .find(|bar| bar.measure == "rack_s")
            .expect("a bar");
        let raced = |seconds| Ok(Measures::from([("rack_s", seconds)]));
        for (ours, kind, theirs) in [(1.0, Kind::Bird, 10.0), (2.0, Kind::FrrFast, 5.0)] {
            report.enter(Work::Rack, Kind::Cambric, raced(ours));
            report.enter(Work::Rack, kind, raced(theirs));
        }
        assert_eq!(report.ratio(rack), Some(0.4));
        report.enter(Work::Storm, Kind::Bird, lost());
        report.enter(Work::Storm, Kind::FrrFast, lost());
        assert_eq!(report.verdict(storm, None), "");
        report.enter(Work::Storm, Kind::Cambric, lost());
        assert_eq!(report.verdict(storm, None), "FAILED");
        report.enter(Work::Storm, Kind::Cambric, run(1.0));
        assert!(report.verdict(storm, None).starts_with("met"));
        assert_eq!(report.json()["bars"][0]["met"], true);
        assert!(report.table().contains(" 0.90 |"), "{}", report.table());
    }
}
