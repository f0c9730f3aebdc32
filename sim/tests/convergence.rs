//! Convergence times of a fabric, by size and loss, in virtual time: a changed number is visible in
//! review. `UPDATE_EXPECT=1` rewrites the table.

use std::fmt::Write as _;
use std::time::Duration;

use sim::{Options, Weather, converge};

const NODES: [u16; 4] = [2, 5, 10, 20];
const LOSS: [u64; 4] = [0, 10, 50, 200];
const SEEDS: u64 = 9;

fn median(mut times: Vec<Duration>) -> u128 {
    times.sort();
    times[times.len() / 2].as_millis()
}

fn table() -> String {
    let mut text = format!(
        "Virtual milliseconds, median of {SEEDS} seeds: from the start of all daemons until every kernel\n\
         agrees with the store and every session is up / from the deletion of an endpoint until it\n\
         has left every kernel. Two reflectors, two workloads a node; loss in thousandths of segments.\n\n",
    );
    let head: String = LOSS
        .iter()
        .map(|loss| format!("{:>14}", format!("loss {loss}")))
        .collect();
    let _ = writeln!(text, "nodes{head}");
    for nodes in NODES {
        let _ = write!(text, "{nodes:>5}");
        for loss in LOSS {
            let options = Options {
                nodes,
                workloads: usize::from(nodes) * 2,
                weather: Weather {
                    loss,
                    ..Weather::default()
                },
                ..Options::default()
            };
            let times = (1..=SEEDS).map(|seed| converge(seed, options.clone()));
            let times: Result<Vec<_>, _> = times.collect();
            let times =
                times.unwrap_or_else(|failure| panic!("{nodes} nodes, loss {loss}: {failure}"));
            let (start, gone) = times.into_iter().unzip();
            let cell = format!("{} / {}", median(start), median(gone));
            let _ = write!(text, "{cell:>14}");
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_table_is_as_it_was() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/convergence.txt");
    let found = table();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &found).expect("the table can be written");
    }
    let wanted = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == wanted,
        "was:\n{wanted}\nis:\n{found}\nIf that is meant: UPDATE_EXPECT=1 cargo test -p cambric-sim --test convergence"
    );
}
