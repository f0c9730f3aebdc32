//! Labs for tests, if they are enabled.

use std::env;

use crate::Lab;

/// The variable that enables tests with namespaces: `CAMBRIC_LAB=1 cargo test`, as root.
pub const LAB_VARIABLE: &str = "CAMBRIC_LAB";

/// Returns whether tests may use all resources of the machine: namespaces, foreign programs, time.
pub fn asked_for() -> bool {
    env::var_os(LAB_VARIABLE).is_some_and(|value| !value.is_empty())
}

/// Returns whether tests may use namespaces; if not, prints one line that `test` was skipped.
pub fn allowed(test: &str) -> bool {
    let allowed = asked_for();
    if !allowed {
        println!("skipped: {test} needs root and {LAB_VARIABLE}=1");
    }
    allowed
}

/// Runs `test` in a new [`Lab`], in a runtime of the calling thread; if labs are not [`allowed`],
/// does nothing.
///
/// # Panics
///
/// If the lab cannot be created, or the test panics.
pub fn in_lab(name: &str, test: impl AsyncFnOnce(Lab)) {
    if !allowed(name) {
        return;
    }
    let built = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = built.expect("a runtime can be started");
    runtime.block_on(async {
        let lab = Lab::new()
            .await
            .unwrap_or_else(|error| panic!("no lab for {name}: {error}"));
        test(lab).await;
    });
}
