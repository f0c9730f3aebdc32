//! Whole fabrics, seed by seed.

use sim::{Options, Plants, run};

/// Seeds of a plain test run; `CAMBRIC_SIM_SEED` runs one (or `from..to`) instead.
fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("CAMBRIC_SIM_SEED") else {
        return default;
    };
    let (from, to) = text.split_once("..").unwrap_or((&text, ""));
    let from: u64 = from
        .parse()
        .expect("CAMBRIC_SIM_SEED is a number, or from..to");
    from..to.parse().unwrap_or(from + 1)
}

#[test]
fn small_fabrics() {
    for seed in seeds(1..6) {
        if let Err(failure) = run(seed, Options::draw(seed, 8), Plants::default()) {
            panic!("{failure}");
        }
    }
}
