//! What happens in the kernel, in the log.

/// Logs one event of the kernel, if it is out of the ordinary.
pub(crate) fn kernel(event: &fib_sync::Event) {
    match event {
        fib_sync::Event::Applied(key, Err(error)) if !error.is_cancelled() => {
            tracing::warn!("kernel route {key}: {error}");
        }
        fib_sync::Event::Overrun => {
            tracing::warn!("kernel notifications were lost: reading the tables again");
        }
        fib_sync::Event::DumpDone {
            table,
            complete: false,
            ..
        } => {
            tracing::info!("table {table} changed while it was read: reading it again");
        }
        fib_sync::Event::Link(link) => {
            tracing::debug!(
                name = link.name,
                up = link.up,
                running = link.running,
                "link"
            );
        }
        _ => {}
    }
}
